package acpserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

const (
	// maxServed bounds the editor's requests that are served at once; further
	// ones are refused. A prompt counts until it is accepted.
	maxServed = 64

	// maxAttached bounds the sessions that one editor is attached to.
	maxAttached = 32

	// openPatience bounds opening a session: starting a server, asking for its
	// workspace, and attaching.
	openPatience = 3 * time.Minute // an agent may take 2 minutes to start

	// maxName bounds the editor's name, in bytes.
	maxName = 80
)

// A Server is a server with sessions.
type Server struct {
	URL       string // as for client.Dial
	TokenFile string // file with the credential; empty if none is needed
	Workspace string // the server's directory, without symbolic links; if empty, the server is asked

	// Dial makes connections to the server instead of the network; nil uses the network.
	Dial func(ctx context.Context) (net.Conn, error)

	// List lists the sessions; nil asks the server.
	List func() *contracts.SessionList

	// Ready prepares a session before the editor attaches to it, so that the
	// full reason of a failure is known. Nil leaves that to attaching.
	Ready func(ctx context.Context, session string, create bool) error
}

// Options configures how an editor is served.
type Options struct {
	// Open returns the server for a directory; an empty directory means any
	// server. It may be called concurrently and again for the same directory.
	Open func(ctx context.Context, dir string) (Server, error)

	Session string // the session that session/new attaches to; empty makes a new one each time
	Create  bool   // Session may be created
	View    bool   // view only
	Approve bool   // view, and answer questions without control
	Take    bool   // take control when attaching, even from another client
	Name    string // the editor's name for others; empty means its own name
	Version string // version of this program
	Log     *slog.Logger
}

// A peer is an editor that is being served.
type peer struct {
	Options
	conn    *rpc.Conn
	ctx     context.Context // ends when the editor leaves
	stop    context.CancelCauseFunc
	serving sync.WaitGroup
	slots   chan struct{} // a token per served request

	gate sync.Mutex // held while a message is dispatched
	left bool       // guarded by gate; messages are not served any more

	// Owned by the dispatching goroutine, until session requests are served.
	greeted bool
	name    string
	form    bool                    // the editor shows forms
	url     bool                    // the editor shows URLs
	kinds   []contracts.RequestType // of questions that the editor supports

	mu       sync.Mutex // guards the following
	attached map[acp.SessionId]*attachment
	places   map[string]string // workspaces by server URL; as many as Open has servers
}

// Serve speaks ACP with the editor on in and out, until in ends or ctx does.
// Then it detaches from all sessions, whose runs go on. When it returns, its
// goroutines have ended, except the one that reads in, which ends with in. If
// the editor does not read, a write blocks everything until out is closed.
func Serve(ctx context.Context, in io.Reader, out io.Writer, opts Options) error {
	send := func(line []byte) error { _, err := out.Write(line); return err }
	return newPeer(ctx, send, opts).serve(func(c *rpc.Conn) error { return c.Read(in) })
}

// serve processes the messages that read reads, until read returns or p.ctx ends.
func (p *peer) serve(read func(*rpc.Conn) error) error {
	defer p.serving.Wait()
	defer func() {
		p.conn.Close(errLeft)
		p.gate.Lock()
		defer p.gate.Unlock()
		p.left = true
	}()
	defer p.stop(errLeft)
	ended := make(chan error, 1)
	go func() { // ends with its input, or with the next message after conn.Close
		defer p.contain()
		ended <- read(p.conn)
	}()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("read from the editor: %w", err)
		}
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

// newPeer returns a peer that ends with ctx. send writes a message and a line end.
func newPeer(ctx context.Context, send func([]byte) error, opts Options) *peer {
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	p := &peer{
		Options: opts, slots: make(chan struct{}, maxServed),
		kinds:    []contracts.RequestType{contracts.RequestApproval},
		attached: map[acp.SessionId]*attachment{}, places: map[string]string{},
	}
	p.ctx, p.stop = context.WithCancelCause(ctx)
	p.conn = rpc.New(rpc.Options{
		Send: send, Serve: p.take, Bad: p.bad, Withdraw: cancelRequest,
	})
	return p
}

var errLeft = errors.New("the editor has left")

var errPanic = &contracts.Error{Code: contracts.CodeInternal, Message: "internal error"}

// contain ends this editor's connection, and not the process, if the caller panics.
// Every goroutine defers it.
func (p *peer) contain() {
	if r := recover(); r != nil {
		p.Log.Error("panic while serving an editor", "panic", r, "stack", string(debug.Stack()))
		p.stop(errPanic)
	}
}

// cancelRequest withdraws a request of ours.
const cancelRequest = "$/cancel_request"

// take serves a message, unless the editor has left.
func (p *peer) take(m rpc.Message) {
	p.gate.Lock()
	defer p.gate.Unlock()
	if !p.left {
		p.dispatch(m)
	}
}

// bad answers a line that is no message.
func (p *peer) bad(line *rpc.BadLine) error {
	p.Log.Debug("the editor wrote a line that is not a message", "error", line)
	switch line.Code {
	case 0: // an error or an answer gets no answer
	case rpc.CodeParse:
		p.refuse(nil, acp.NewParseError(nil))
	default:
		p.refuse(line.ID, outOfOrder(line.Text))
	}
	return nil
}

// answer answers a request of the editor. An error says that the editor has
// gone; the reader notices it too.
func (p *peer) answer(id json.RawMessage, result any) { _ = p.conn.Answer(id, result) }

// refuse answers a request with an error. Without an id the error is about a
// message without one.
func (p *peer) refuse(id json.RawMessage, e *acp.RequestError) {
	_ = p.conn.Refuse(id, (*rpc.Error)(e)) // as in answer
}

// dispatch serves a message. It never waits; work that waits gets its own
// goroutine.
func (p *peer) dispatch(m rpc.Message) {
	switch {
	case m.Method == acp.AgentMethodInitialize && m.ID != nil:
		p.initialize(m)
	case !p.greeted && m.ID != nil:
		p.refuse(m.ID, outOfOrder("initialize comes first"))
	case m.Method == acp.AgentMethodSessionCancel:
		p.cancel(m)
	case m.ID == nil: // unknown notifications are ignored
	case m.Method == acp.AgentMethodSessionNew:
		serve(p, m, p.newSession)
	case m.Method == acp.AgentMethodSessionLoad:
		serve(p, m, p.attaching(true))
	case m.Method == acp.AgentMethodSessionResume:
		serve(p, m, p.attaching(false))
	case m.Method == acp.AgentMethodSessionList:
		serve(p, m, p.listSessions)
	case m.Method == acp.AgentMethodSessionClose:
		serve(p, m, p.closeSession)
	case m.Method == acp.AgentMethodSessionPrompt:
		p.prompt(m)
	case m.Method == acp.AgentMethodAuthenticate:
		p.answer(m.ID, struct{}{}) // no authentication is required, so any is accepted
	default:
		p.refuse(m.ID, acp.NewMethodNotFound(m.Method))
	}
}

// admit runs do in a goroutine that Serve waits for. If there are too many, it
// refuses the request.
func (p *peer) admit(m rpc.Message, do func()) {
	select {
	case p.slots <- struct{}{}:
	default:
		p.refuse(m.ID, failure("too many requests at once"))
		return
	}
	p.serving.Go(func() { // ends with the request, or with p.ctx
		defer func() { <-p.slots }()
		defer p.contain()
		do()
	})
}

// serve serves a request with parameters of type T. If do returns a nil result,
// it answers the request itself.
func serve[T any](p *peer, m rpc.Message, do func(ctx context.Context, id json.RawMessage, params *T) (any, error)) {
	params := new(T)
	if err := decode(m.Params, params); err != nil {
		p.refuse(m.ID, invalid(err.Error()))
		return
	}
	p.admit(m, func() {
		ctx, cancel := context.WithTimeout(p.ctx, openPatience)
		defer cancel()
		result, err := do(ctx, m.ID, params)
		switch {
		case err != nil:
			p.refuse(m.ID, refusal(err))
		case result != nil:
			p.answer(m.ID, result)
		}
	})
}

// decode decodes parameters. Missing parameters decode as an empty object, and so
// does an empty list, which editors in Lua send for an object without fields.
func decode(raw json.RawMessage, v any) error {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || string(raw) == "null" || string(raw) == "[]":
		raw = json.RawMessage("{}")
	case raw[0] != '{':
		return errors.New("they are no object")
	}
	return json.Unmarshal(raw, v)
}

// failure returns an error, with a text for people, about a request that the
// server or its state does not allow. ACP leaves the code to agents.
func failure(text string) *acp.RequestError {
	return &acp.RequestError{Code: -32001, Message: text}
}

// invalid returns an error about parameters. Editors show the message and not
// the data, so the text is in the message.
func invalid(text string) *acp.RequestError {
	return &acp.RequestError{Code: -32602, Message: "Invalid params: " + text}
}

// outOfOrder returns an error about a request that is not allowed at this time.
func outOfOrder(text string) *acp.RequestError {
	return &acp.RequestError{Code: -32600, Message: "Invalid request: " + text}
}

// refusal returns an error in the form for the editor.
func refusal(err error) *acp.RequestError {
	if e, ok := errors.AsType[*acp.RequestError](err); ok {
		return e
	}
	e := failure(err.Error())
	if c, ok := errors.AsType[*contracts.Error](err); ok {
		e.Data = map[string]string{"code": string(c.Code)}
	}
	return e
}

// initialize agrees on the protocol version. There is one version: an editor
// that requests another gets ours, and leaves if it does not support it.
func (p *peer) initialize(m rpc.Message) {
	var intro struct {
		ProtocolVersion *int `json:"protocolVersion"`
		ClientInfo      struct {
			Name string `json:"name"`
		} `json:"clientInfo"`
		ClientCapabilities json.RawMessage `json:"clientCapabilities"`
	}
	if err := decode(m.Params, &intro); err != nil || intro.ProtocolVersion == nil {
		p.refuse(m.ID, invalid("protocolVersion is missing, or something has the wrong type"))
		return
	}
	if p.greeted {
		p.refuse(m.ID, outOfOrder("initialize comes once"))
		return
	}
	p.greeted, p.name = true, cmp.Or(p.Name, abridge.Head(intro.ClientInfo.Name, maxName), "editor")
	var can struct {
		Elicitation *struct {
			Form *struct{} `json:"form"`
			URL  *struct{} `json:"url"`
		} `json:"elicitation"`
	}
	_ = json.Unmarshal(intro.ClientCapabilities, &can) // a capability that cannot be decoded counts as missing
	if e := can.Elicitation; e != nil {
		p.url = e.URL != nil
		p.form = e.Form != nil || !p.url // as in MCP, whose first elicitations were forms
		p.kinds = append(p.kinds, contracts.RequestMCPElicitation)
	}
	if p.form {
		p.kinds = append(p.kinds, contracts.RequestUserInput)
	}
	p.answer(m.ID, acp.InitializeResponse{
		ProtocolVersion: acp.ProtocolVersionNumber,
		AgentInfo:       &acp.Implementation{Name: "maestro", Title: acp.Ptr("Maestro"), Version: p.Version},
		AuthMethods:     []acp.AuthMethod{},
		AgentCapabilities: acp.AgentCapabilities{
			LoadSession:        true,
			PromptCapabilities: acp.PromptCapabilities{EmbeddedContext: true},
			SessionCapabilities: acp.SessionCapabilities{
				Close: &acp.SessionCloseCapabilities{}, List: &acp.SessionListCapabilities{}, Resume: &acp.SessionResumeCapabilities{},
			},
		},
	})
}

// find returns the attachment to a session, nil if there is none.
func (p *peer) find(id acp.SessionId) *attachment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attached[id]
}

// cancel stops the run of the editor's prompt.
func (p *peer) cancel(m rpc.Message) {
	var params acp.CancelNotification
	if decode(m.Params, &params) != nil {
		return
	}
	if a := p.find(params.SessionId); a != nil {
		a.cancelTurn()
	}
}

// prompt handles a prompt. The prompt is registered before the next message is
// read, so that a cancellation finds it.
func (p *peer) prompt(m rpc.Message) {
	var params acp.PromptRequest
	if err := decode(m.Params, &params); err != nil {
		p.refuse(m.ID, invalid(err.Error()))
		return
	}
	a := p.find(params.SessionId)
	if a == nil {
		p.refuse(m.ID, failure(fmt.Sprintf("session %q is not attached: load it first", abridge.Head(string(params.SessionId), maxName))))
		return
	}
	cmd, err := promptOf(params.Prompt)
	if err != nil {
		p.refuse(m.ID, invalid(err.Error()))
		return
	}
	switch text := strings.TrimSpace(cmd.Content); text {
	case "/" + commandTake, "/" + commandRelease:
		p.admit(m, func() { a.command(m.ID, text[1:]) })
		return
	}
	t, err := a.begin(m.ID, cmd.Content)
	if err != nil {
		p.refuse(m.ID, refusal(err))
		return
	}
	p.serving.Go(func() { // ends with the answer, or with the attachment
		defer p.contain()
		result, err := a.tell(cmd)
		a.sent(t, result, err)
	})
}
