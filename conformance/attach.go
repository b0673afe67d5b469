package conformance

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// An entry is how a client attaches over a socket. Its zero value is a viewer
// of the scenario's session, which exists already.
type entry struct {
	session    string           // empty means the scenario's own
	create     bool             // the session may be new
	role       contracts.Role   // in the query and in hello; empty leaves both out
	take       string           // takeControl in the query
	cursor     *int64           // the last one applied; nil asks for a snapshot
	epoch      string           //
	connection string           // an earlier connection to continue
	resume     string           // its token
	hello      *contracts.Hello // nil means what the scenario needs
	turns      int              // of history after the snapshot
}

func (e *entry) query(s *Session) url.Values {
	id := cmp.Or(e.session, s.ID)
	q := parameters(map[string]string{"sessionId": id, "role": string(e.role), "takeControl": e.take,
		"epoch": e.epoch, "connectionId": e.connection}, e.cursor, e.turns)
	if e.create {
		s.made(id)
		q.Set("create", "1")
	}
	return q
}

// parameters returns the parameters of a query, without empty texts, and without cursor and
// turns that are not given.
func parameters(texts map[string]string, cursor *int64, turns int) url.Values {
	q := url.Values{}
	for key, value := range texts {
		if value != "" {
			q.Set(key, value)
		}
	}
	if cursor != nil {
		q.Set("cursor", strconv.FormatInt(*cursor, 10))
	}
	if turns > 0 {
		q.Set("turns", strconv.Itoa(turns))
	}
	return q
}

// dialOptions say where the scenario's server is, what it wants to see, and how to attach.
func (s *Session) dialOptions(e entry) dialOptions {
	o := dialOptions{base: s.config.Target, token: s.config.Token, subprotocol: contracts.Subprotocol, query: e.query(s)}
	if s.wire != nil {
		o.base, o.token = s.wire.base, s.wire.token
	}
	return o
}

// dial opens a socket and says nothing on it.
func (s *Session) dial(name string, e entry) (*Peer, error) {
	link, err := dialSocket(s.ctx, s.dialOptions(e))
	if err != nil {
		s.trace.add(s.now(), name, "<", []byte(err.Error()))
		return nil, err
	}
	return s.newPeer(name, link), nil
}

// dialed is dial that must succeed.
func (s *Session) dialed(name string, e entry) *Peer {
	p, err := s.dial(name, e)
	s.failIf(err != nil, "9.1", "%s: expected the upgrade to succeed, got: %v", name, err)
	return p
}

// hello says hello with the client's own name. Role and the rest are h's.
func (p *Peer) hello(h *contracts.Hello) {
	named := *h
	named.ClientInfo = &contracts.ClientInfo{Name: p.name, Version: "1.0"}
	p.watch.hellos++
	p.send(encodeCommand(&named))
}

// greet sends what begins an attachment.
func (p *Peer) greet(e entry) {
	if e.resume != "" {
		p.watch.resumed = true
		p.send(encode(map[string]any{"type": "ws.resume", "connection_token": e.resume}))
	}
	if e.hello == nil {
		e.hello = p.s.hello(e.role)
	}
	p.hello(e.hello)
}

// attach joins over a socket and checks the handshake of 9.3. With a cursor,
// expectations begin after ws.attached; else after hello_ok.
func (s *Session) attach(name string, e entry) *Peer {
	p := s.dialed(name, e)
	p.greet(e)
	p.welcome(e)
	return p
}

// welcome reads the server's half of the handshake.
func (p *Peer) welcome(e entry) {
	f := p.await("9.3", 0, control("ws.attached"))
	p.s.failIf(f != p.log[0], "9.3", "%s: expected ws.attached first, got %s", p.name, p.log[0].said())
	p.attached = f.Body
	p.connection, p.token, p.epoch = f.str("connection_id"), f.str("connection_token"), f.str("epoch")
	switch how := f.str("resume"); how {
	case "snapshot", "reset":
		first := p.await("9.3", 1, anyItem)
		p.s.failIf(first.Kind != how, "9.3", "%s: ws.attached announces a %s, got %s first", p.name, how, first.said())
	case "replay":
		p.s.failIf(e.cursor == nil, "A42", "%s: expected a snapshot without a cursor, got a replay", p.name)
		p.watch.cursor = *e.cursor // nothing at or below it may come
	}
	if e.cursor == nil {
		p.expect("R22", message("hello_ok"))
		return
	}
	p.await("R22", 1, message("hello_ok"))
	p.pos = 1
}

// An attempt is how an attachment that may be refused went.
type attempt struct {
	peer *Peer // attached, or nil
	code contracts.Code
	text string
	how  string // for messages
}

// try attaches if the server lets it: it may refuse before the upgrade or by a
// close.
func (s *Session) try(name string, e entry) attempt {
	p, err := s.dial(name, e)
	if refused, ok := errors.AsType[*Refused](err); ok {
		return attempt{code: contracts.Code(refused.Code), text: refused.Text, how: refused.Error()}
	} else if err != nil {
		s.fail("9.1", "%s: expected an answer to the upgrade, got: %v", name, err)
	}
	p.greet(e)
	return p.outcome(e)
}

// outcome waits until an attachment is granted or refused by a close.
func (p *Peer) outcome(e entry) attempt {
	if p.seek(0, control("ws.attached"), p.s.config.Patience) != nil {
		p.welcome(e)
		return attempt{peer: p, how: "attached"}
	}
	p.s.failIf(p.ended == nil, "9.3",
		"%s: expected ws.attached or a close, got neither within %s", p.name, p.s.config.Patience)
	a := attempt{how: p.ended.Error()}
	if closed, ok := errors.AsType[*Closed](p.ended); ok {
		a.code = contracts.Code(strings.TrimSpace(closed.Reason))
	}
	for _, f := range p.log {
		if f.Kind == "ws.error" {
			a.text = f.str("error")
		}
	}
	return a
}

// refusedWith fails unless the attachment was refused with one of the codes:
// by its HTTP body before the upgrade, or by the reason of the close.
func (a attempt) refusedWith(s *Session, rule string, codes ...contracts.Code) {
	s.failIf(a.peer != nil || !slices.Contains(codes, a.code), rule,
		"expected a refusal with %v, got %s (%s)", codes, a.how, a.code)
}

// spawn starts a process and reads its first two lines. A process that starts slowly has
// the scenario's whole time for the first one.
func (s *Session) spawn(name string) *Peer {
	link, err := startProcess(strings.TrimPrefix(s.config.Target, "stdio:"), s.environ)
	s.failIf(err != nil, "R20", "expected a server, got: %v", err)
	p := s.newPeer(name, link)
	line := func(text string) want { return want{text, func(*Frame) bool { return true }} }
	f := p.awaitFor("R20", 0, line("ready, the first line"), s.config.Timeout)
	s.failIf(f.Type != "ready", "R20", "expected ready as the first line, got %s", f.said())
	f = p.await("R20", 1, line("session_info, the second line"))
	s.failIf(f.Type != "session_info", "R20", "expected session_info as the second line, got %s", f.said())
	p.pos = 2
	return p
}

// controller returns a client that drives the session, on any transport.
func (s *Session) controller() *Peer { return s.join("alice", s.hello(contracts.RoleController)) }

// join returns a client of the role in h: on stdio of a new process, on a
// socket of the scenario's session.
func (s *Session) join(name string, h *contracts.Hello) *Peer {
	if s.socket() {
		return s.attach(name, entry{create: true, role: h.Role, hello: h})
	}
	p := s.spawn(name)
	p.hello(h)
	p.expect("R22", message("hello_ok"))
	return p
}

// viewer returns a client that watches the scenario's session; sockets only.
func (s *Session) viewer(name string) *Peer { return s.attach(name, entry{role: contracts.RoleViewer}) }

// onSocket returns a viewer over WebSocket, or nil if the server has none: the
// published protocol does not have it.
func (s *Session) onSocket(name string) *Peer {
	how := entry{role: contracts.RoleViewer}
	p, err := s.dial(name, how)
	if _, refused := errors.AsType[*Refused](err); refused && s.published() {
		return nil
	} else if err != nil {
		s.fail("9.1", "%s: expected to attach, got: %v", name, err)
	}
	p.greet(how)
	p.welcome(how)
	return p
}

// Texts that the protocol fixes.
const (
	textUnknownType = "Failed to parse command: Unknown headless command type"
	textViewer      = "Viewer headless connections cannot send messages"
	textApprover    = "Approver headless connections can only answer approvals and user input"
	textBusy        = "Headless runtime is already processing a prompt"
	textNotHolder   = "Controller lease is currently held by another connection"
	textHeld        = "Controller lease is already held by another connection"

	textNoConnection = "Headless connection not found"
	textNoSubscriber = "Headless subscriber not found"
	textNoSession    = "Headless session not found"
	textNotAttaching = "hosted runner is not accepting new attachments"
	textDraining     = "hosted runner is draining"
)

// prompt sends a prompt to the conformance agent until it is accepted.
func (p *Peer) prompt(content string) {
	p.s.conformanceAgent()
	p.s.onceFree(p.name, func() bool { return p.tryPrompt(&contracts.Prompt{Content: content}) })
}

// onceFree tries a prompt until it is accepted. A run has no visible end, so that the next
// prompt may come a moment early; only that refusal is tried again.
func (s *Session) onceFree(name string, try func() bool) {
	patience := 4 * s.config.Patience // the run may have much to say
	for deadline := time.Now().Add(patience); !try(); s.pause("R42", 20*time.Millisecond) {
		s.failIf(time.Now().After(deadline), "R42", "%s: expected the run to end and a prompt to be accepted within %s", name, patience)
	}
}

// tryPrompt sends a prompt and reports false if a run is still active.
func (p *Peer) tryPrompt(cmd *contracts.Prompt) bool {
	from := len(p.log)
	id := p.command(cmd)
	if p.s.socket() {
		f := p.await("A116", from, p.answer(id))
		if f.Kind == "ws.result" {
			return true
		}
		p.s.failIf(!same(f.at("code"), contracts.CodeRuntimeBusy), "R42", "%s: expected the prompt to be accepted, got %s", p.name, f.said())
		return false
	}
	p.fence()
	return !slices.ContainsFunc(p.log[from:], message("error").where("about a run", func(f *Frame) bool {
		return p.s.sameText(f.str("message"), textBusy)
	}).ok)
}

// The triggers of the conformance agent.

func streamOf(chunks, delayMS int) string {
	return trigger("stream", map[string]int{"chunks": chunks, "delay_ms": delayMS})
}

func burstOf(count, bytes int) string {
	return trigger("burst", map[string]int{"count": count, "bytes": bytes})
}

func hang() string { return trigger("hang", struct{}{}) }

// question makes the agent ask one server request. The scripted agent of the
// published contract knows how to ask for an approval alone.
func (s *Session) question(kind contracts.RequestType, id, tool string) string {
	args := questionArgs{id, kind, tool, json.RawMessage(`{"path":"a.txt"}`), "for conformance"}
	if s.scripted() && kind == contracts.RequestApproval {
		args.RequestType = ""
		return trigger("approval", args)
	}
	return trigger("server_request", args)
}

type questionArgs struct {
	RequestID   string                `json:"request_id"`
	RequestType contracts.RequestType `json:"request_type,omitempty"`
	Tool        string                `json:"tool"`
	Args        json.RawMessage       `json:"args"`
	Reason      string                `json:"reason"`
}

// approval makes the agent ask for an approval, by the older trigger.
func approval(id string) string {
	return trigger("approval", questionArgs{RequestID: id, Tool: "bash", Args: json.RawMessage(`{"command":"ls"}`), Reason: "for conformance"})
}

func trigger(name string, args any) string {
	return triggerPrefix + name + "__:" + string(encode(args))
}

// triggerPrefix begins the prompts that make the conformance agent do something.
const triggerPrefix = "__maestro_conformance_"
