package chord

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// Options configure a [Translator].
type Options struct {
	SessionID   string    // session to open; empty for the server's choice
	NewSessions bool      // the server opens a new session when the client asks for one
	Shared      bool      // the client did not start the process: if its session cannot be opened, it gets an error
	Version     string    // the server's version
	Worktree    *Worktree // in which the agent works; nil if the server made none
	Rules       RuleStore // keeps the rules of the scopes project and user_global; nil refuses such rules
}

// A Translator translates for one client. It implements [dialect.Translator].
type Translator struct {
	options Options
	stored  []Rule          // of the scopes project and user_global, when the client came
	rules   []Rule          // of this session
	allowed map[string]bool // subscribed types; nil: all

	// The attachment.
	attached bool     // commands are served
	greeted  bool     // ready was sent
	waiting  [][]byte // lines that came before attached; at most maxWaiting bytes
	bytes    int      // in waiting
	dropped  bool     // there were more
	eof      bool     // the input ended before attached

	session, model, provider string
	self, holder             string // connection ids; no holder: the lease is free
	sent                     map[string]func(*dialect.Out, *contracts.Refusal)
	serial                   int

	// The turn.
	busy       bool     // from the first activity until idle
	running    bool     // the session has a run
	prompt     *string  // was sent and not answered yet
	queue      []string // messages for later; at most maxQueued, maxQueuedBytes
	cancelling bool
	cancelled  bool
	failed     bool
	round      round
	calls      map[string]bool // tool calls that have not ended
	pending    []*request      // in the order asked

	phase, detail          string
	lastError, lastOutcome string
	updated                time.Time
	stats                  stats
}

// Bounds of what a client may send before it can be served.
const (
	maxWaiting     = 4 * MaxLine
	maxQueued      = 64
	maxQueuedBytes = 4 * MaxLine
)

// maxMessage bounds texts for people in bytes, except those of the model. JSON makes six
// bytes of some, and several of them are in one line.
const maxMessage = 8 << 10

// New returns the translator of one client.
func New(o Options) *Translator {
	return &Translator{options: o, sent: map[string]func(*dialect.Out, *contracts.Refusal){}, calls: map[string]bool{}}
}

// Begin opens the session.
func (t *Translator) Begin(out *dialect.Out) {
	t.updated = out.Now
	if t.options.Rules != nil {
		t.stored = t.options.Rules.Load()
	}
	t.open(out, dialect.Start{SessionID: t.options.SessionID})
}

func (t *Translator) open(out *dialect.Out, start dialect.Start) {
	t.attached, t.self, t.holder = false, "", ""
	out.Open(start)
	if err := out.Hello("chord", t.options.Version, contracts.RequestApproval, contracts.RequestUserInput); err != nil {
		panic(err) // the frame has no text of the client
	}
}

// Line executes a command.
func (t *Translator) Line(out *dialect.Out, text []byte) {
	switch {
	case t.attached:
		t.line(out, text)
	case t.bytes+len(text) > maxWaiting:
		t.dropped = true
	default:
		t.waiting = append(t.waiting, append([]byte{}, text...))
		t.bytes += len(text) + 64 // an empty line costs memory too
	}
}

// LongLine refuses a line that is longer than [MaxLine].
func (t *Translator) LongLine(out *dialect.Out) {
	if !t.attached {
		t.waiting = append(t.waiting, nil) // see serveWaiting
		return
	}
	t.fail(out, "stdin_line_too_long", "the line is longer than 1048576 bytes")
}

// EOF ends the connection. A client that leaves does not wait for its turn.
func (t *Translator) EOF(out *dialect.Out) {
	if t.eof = true; t.attached {
		out.End(0)
	}
}

// serveWaiting executes the commands that came before the session was attached.
func (t *Translator) serveWaiting(out *dialect.Out) {
	lines := t.waiting
	t.waiting, t.bytes = nil, 0
	for i, text := range lines {
		if !t.attached { // a command opened another session
			t.waiting = append(t.waiting, lines[i:]...)
			return
		}
		if text == nil {
			t.LongLine(out)
			continue
		}
		t.line(out, text)
	}
	if t.dropped {
		t.dropped = false
		t.fail(out, "too_many_commands", "commands were dropped: they came before the session was ready")
	}
	if t.eof {
		out.End(0)
	}
}

// Detached ends the connection: the session cannot be opened or has ended.
func (t *Translator) Detached(out *dialect.Out, err error) {
	message := "the session has ended"
	if !t.greeted {
		message = "the session cannot be opened"
	}
	if shown, ok := errors.AsType[*contracts.Error](err); ok {
		message += ": " + shown.Message
	}
	if !t.greeted {
		if t.options.Shared { // the client of a process reads standard error
			t.fail(out, "session_not_opened", message)
		}
		out.End(1)
		return
	}
	t.runtimeError(out, message, "session_ended")
	t.running, t.prompt, t.queue = false, nil, nil
	t.settle(out)
	out.End(1)
}

// Wake sends a message that was held back.
func (t *Translator) Wake(out *dialect.Out) {
	out.WakeAt(time.Time{})
	if !t.cancelling && t.round.text.Len() > 0 {
		t.flush(out)
	}
}

// emit sends an envelope if the client wants its type.
func (t *Translator) emit(out *dialect.Out, kind string, payload any) {
	if t.allowed == nil || t.allowed[kind] {
		reply(out, kind, payload)
	}
}

// reply sends an envelope whatever the client has subscribed to.
func reply(out *dialect.Out, kind string, payload any) {
	out.Reply(json.RawMessage(encode(kind, payload)))
}

func encode(kind string, payload any) []byte {
	return dialect.Encode(struct {
		Type    string `json:"type"`
		Payload any    `json:"payload"`
	}{kind, payload})
}

// fail answers a command that has no effect.
func (t *Translator) fail(out *dialect.Out, code, message string) {
	reply(out, TypeError, CommandError{Message: abridge.Bytes(message, maxMessage), Code: code})
}

func (t *Translator) info(out *dialect.Out, message string) {
	t.emit(out, TypeInfo, Info{Message: abridge.Bytes(message, maxMessage)})
}

// do sends a command to the session and calls done with its refusal, nil if it was
// accepted.
func (t *Translator) do(out *dialect.Out, cmd contracts.Command, done func(*dialect.Out, *contracts.Refusal)) {
	id := t.await(done)
	if err := out.Do(id, cmd); err != nil {
		delete(t.sent, id)
		done(out, &contracts.Refusal{Code: contracts.CodeBadRequest, Message: err.Error()})
	}
}

// refuse tells the client why the session refused its command.
func (t *Translator) refuse(out *dialect.Out, r *contracts.Refusal) {
	switch r.Code {
	case contracts.CodeControllerLeaseHeld:
		t.fail(out, codeNotInControl, notInControl)
	case contracts.CodeRequestNotFound:
		t.fail(out, codeNoPending, "the request is not pending any more")
	default:
		t.fail(out, string(r.Code), r.Message)
	}
}

const (
	codeNotInControl = "not_in_control"
	notInControl     = "another client is in control of the session; send /take to take control"
	codeNoPending    = "no_pending_request"
	codeRuleNotKept  = "rule_not_kept"
)

// mayControl reports whether the client holds the lease or can have it, and tells it if
// not.
func (t *Translator) mayControl(out *dialect.Out) bool {
	if t.holder == "" || t.holder == t.self {
		return true
	}
	t.fail(out, codeNotInControl, notInControl)
	return false
}
