package acpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/rpc"
)

const (
	// maxServed bounds the requests of the editor that are served at once; one
	// more is refused. Prompts count until they are accepted.
	maxServed = 64

	// maxAttached bounds the sessions that one editor is attached to.
	maxAttached = 32

	// openPatience bounds the way to a session: starting a server, finding out
	// what it works on, and attaching.
	openPatience = 3 * time.Minute // an agent's start may take two

	// maxName bounds what the editor calls itself, in bytes.
	maxName = 80
)

// A Server is where sessions are.
type Server struct {
	URL       string // as for client.Dial
	TokenFile string // file with the credential; empty if it needs none
	Workspace string // the directory it works in, without symbolic links; empty is found out

	// Ready brings a session up before the editor attaches to it, so that what
	// stands in the way is known in full. Nil leaves that to attaching.
	Ready func(ctx context.Context, session string, create bool) error
}

// Options say how an editor is served.
type Options struct {
	// Open returns the server for a directory, empty if any will do. It may be
	// called from several goroutines and for the same directory again.
	Open func(ctx context.Context, dir string) (Server, error)

	Session string // the one session that session/new attaches to; empty makes a new one each time
	Create  bool   // that one may be made
	View    bool   // watch only
	Take    bool   // take control when attaching, even from somebody else
	Name    string // what others see as the editor's name; empty is what it calls itself
	Version string // of this program
	Log     *slog.Logger
}

// A peer is an editor that is being served.
type peer struct {
	Options
	conn    *rpc.Conn
	ctx     context.Context // until the editor leaves
	serving sync.WaitGroup
	slots   chan struct{} // a token per request that is served

	gate sync.Mutex // held while a message is dispatched
	left bool       // guarded by gate

	// Owned by the goroutine that dispatches, until session requests are served.
	greeted bool
	name    string
	form    bool // the editor shows forms
	url     bool // and addresses

	mu       sync.Mutex // guards the following
	attached map[acp.SessionId]*attachment
	places   map[string]string // workspaces by server address; as many as Open has servers
}

// Serve speaks ACP with the editor that writes in and reads out, until in ends or
// ctx does. Then it detaches from all sessions, whose runs go on. What it started
// has ended when it returns, except the goroutine that reads in, which ends with
// it. A write that the editor does not take holds everything back, and is only
// ended by closing out.
func Serve(ctx context.Context, in io.Reader, out io.Writer, opts Options) error {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancelCause(ctx)
	p := newPeer(ctx, out, opts)
	defer p.serving.Wait()
	defer p.hangUp()
	defer stop(errLeft)
	ended := make(chan error, 1)
	go func() { ended <- p.conn.Read(in) }() // ends with in, or with the next line once p has hung up
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("read from the editor: %w", err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func newPeer(ctx context.Context, out io.Writer, opts Options) *peer {
	p := &peer{
		Options: opts, ctx: ctx, slots: make(chan struct{}, maxServed),
		attached: map[acp.SessionId]*attachment{}, places: map[string]string{},
	}
	p.conn = rpc.New(rpc.Options{
		Send:  func(line []byte) error { _, err := out.Write(line); return err },
		Serve: p.take, Bad: p.bad, Withdraw: cancelRequest,
	})
	return p
}

var errLeft = errors.New("the editor has left")

// cancelRequest tells the other side that a request needs no answer any more.
const cancelRequest = "$/cancel_request"

// take serves a message, unless nobody waits any more for what that starts.
func (p *peer) take(m rpc.Message) {
	p.gate.Lock()
	defer p.gate.Unlock()
	if !p.left {
		p.dispatch(m)
	}
}

// hangUp has nothing more served.
func (p *peer) hangUp() {
	p.conn.Close(errLeft)
	p.gate.Lock()
	defer p.gate.Unlock()
	p.left = true
}

// bad answers a line that is no message.
func (p *peer) bad(line *rpc.BadLine) error {
	p.Log.Debug("the editor wrote what is no message", "error", line)
	switch line.Code {
	case 0: // an error, or an answer: those are not answered
	case rpc.CodeParse:
		p.refuse(nil, acp.NewParseError(nil))
	default:
		p.refuse(line.ID, outOfPlace(line.Text))
	}
	return nil
}

// call asks the editor something and waits for the answer. When ctx ends the
// request is withdrawn.
func (p *peer) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	return p.conn.Call(ctx, method, params)
}

// notify tells the editor something.
func (p *peer) notify(method string, params any) error { return p.conn.Notify(method, params) }

// answer answers a request of the editor. A write that fails is found by the
// reader: the editor is gone.
func (p *peer) answer(id json.RawMessage, result any) { _ = p.conn.Answer(id, result) }

// refuse answers a request with an error; without an id it is about a message
// that has none.
func (p *peer) refuse(id json.RawMessage, e *acp.RequestError) {
	_ = p.conn.Refuse(id, (*rpc.Error)(e)) // as in answer
}

// dispatch serves a message. What waits for anything does so elsewhere.
func (p *peer) dispatch(m rpc.Message) {
	switch {
	case m.Method == acp.AgentMethodInitialize && m.Asks():
		p.initialize(m)
	case !p.greeted && m.Asks():
		p.refuse(m.ID, outOfPlace("initialize comes first"))
	case m.Method == acp.AgentMethodSessionCancel:
		p.cancel(m)
	case m.Method == cancelRequest:
		p.cancelRequest(m)
	case !m.Asks(): // what is only told and not known is nothing to us
	case m.Method == acp.AgentMethodSessionNew:
		serve(p, m, p.newSession)
	case m.Method == acp.AgentMethodSessionLoad:
		serve(p, m, p.loadSession)
	case m.Method == acp.AgentMethodSessionResume:
		serve(p, m, p.resumeSession)
	case m.Method == acp.AgentMethodSessionList:
		serve(p, m, p.listSessions)
	case m.Method == acp.AgentMethodSessionClose:
		serve(p, m, p.closeSession)
	case m.Method == acp.AgentMethodSessionPrompt:
		p.prompt(m)
	case m.Method == acp.AgentMethodAuthenticate:
		p.answer(m.ID, struct{}{}) // nothing is asked for, so whatever comes is right
	default:
		p.refuse(m.ID, acp.NewMethodNotFound(m.Method))
	}
}

// admit runs do in a goroutine of its own, which Serve waits for, unless there
// are too many.
func (p *peer) admit(m rpc.Message, do func()) {
	select {
	case p.slots <- struct{}{}:
	default:
		p.refuse(m.ID, failure("too many requests at once"))
		return
	}
	p.serving.Go(func() { // ends with the request, or with p.ctx
		defer func() { <-p.slots }()
		do()
	})
}

// serve serves a request whose parameters are a T. do answers it itself if the
// result is nil.
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

// emptyList is what editors in Lua write for an object without fields.
const emptyList = "[]"

// decode decodes parameters. They may be left out where all of them may be.
func decode(raw json.RawMessage, v any) error {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || string(raw) == "null" || string(raw) == emptyList:
		raw = json.RawMessage("{}")
	case raw[0] != '{':
		return errors.New("they are no object")
	}
	return json.Unmarshal(raw, v)
}

// codeRefused is the code of what the server or its state does not allow. ACP
// leaves it to agents.
const codeRefused = -32001

// failure is an error in words, for people.
func failure(text string) *acp.RequestError {
	return &acp.RequestError{Code: codeRefused, Message: text}
}

// invalid is an error about parameters. Editors show people the message, not the
// data, so that is where the words are.
func invalid(text string) *acp.RequestError {
	return &acp.RequestError{Code: -32602, Message: "Invalid params: " + text}
}

// outOfPlace is an error about a request that should not have come.
func outOfPlace(text string) *acp.RequestError {
	return &acp.RequestError{Code: -32600, Message: "Invalid request: " + text}
}

// refusal makes what the editor is told of an error.
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

// introduction is what an editor says of itself.
type introduction struct {
	ProtocolVersion *int `json:"protocolVersion"`
	ClientInfo      *struct {
		Name string `json:"name"`
	} `json:"clientInfo"`
	ClientCapabilities json.RawMessage `json:"clientCapabilities"`
}

// abilities are what an editor can do that we make use of.
type abilities struct {
	Elicitation *struct {
		Form *struct{} `json:"form"`
		URL  *struct{} `json:"url"`
	} `json:"elicitation"`
}

// initialize agrees on the protocol. There is one version so far: an editor that
// wants another is told ours, and leaves if it cannot speak it.
func (p *peer) initialize(m rpc.Message) {
	var intro introduction
	if err := decode(m.Params, &intro); err != nil || intro.ProtocolVersion == nil {
		p.refuse(m.ID, invalid("protocolVersion is missing, or something has the wrong type"))
		return
	}
	if p.greeted {
		p.refuse(m.ID, outOfPlace("initialize comes once"))
		return
	}
	p.greeted, p.name = true, p.Name
	if p.name == "" && intro.ClientInfo != nil {
		p.name = abridge.Head(intro.ClientInfo.Name, maxName)
	}
	if p.name == "" {
		p.name = "editor"
	}
	var can abilities
	_ = json.Unmarshal(intro.ClientCapabilities, &can) // what cannot be read it cannot do
	if e := can.Elicitation; e != nil {
		p.url = e.URL != nil
		p.form = e.Form != nil || !p.url // as in MCP, where forms came first
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

// cancel stops what the editor's prompt started.
func (p *peer) cancel(m rpc.Message) {
	var params acp.CancelNotification
	if decode(m.Params, &params) != nil {
		return
	}
	if a := p.find(params.SessionId); a != nil {
		a.cancelTurn(nil)
	}
}

// cancelRequest does the same for the request of a prompt. Others end by themselves.
func (p *peer) cancelRequest(m rpc.Message) {
	var params struct {
		ID json.RawMessage `json:"requestId"`
	}
	if decode(m.Params, &params) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.attached {
		a.cancelTurn(params.ID)
	}
}

// prompt takes a prompt. It is known before the next message is read, so that a
// cancellation finds it.
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
	if err := a.begin(m.ID, cmd.Content); err != nil {
		p.refuse(m.ID, refusal(err))
		return
	}
	p.serving.Go(func() { a.send(cmd) }) // one for each session; ends with the answer, or with the attachment
}
