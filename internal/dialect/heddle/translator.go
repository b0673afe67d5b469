package heddle

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// MaxLine is the length in bytes of the longest line that a server reads, without its
// end.
const MaxLine = 8 << 20

// Options configure [New]. The zero value is ready to use.
type Options struct {
	// Version replaces [Version] as the server's version. One that is no version is
	// ignored.
	Version string

	// Heartbeat is the time between the heartbeats of a send. Zero means 5 s; negative
	// means none. It is at least 10 ms.
	Heartbeat time.Duration

	// ApprovalWait is how long other controllers of the session may answer an approval
	// before it is denied. Zero means 60 s; negative denies it at once.
	ApprovalWait time.Duration

	// ControlWait is how long a send waits for control of the session, and for the run
	// of another client. It then fails. Zero means 60 s.
	ControlWait time.Duration

	// ShutdownWait is how long a shutdown waits for sends before it cancels them. Zero
	// means 60 s.
	ShutdownWait time.Duration

	// Own says that each init gets a session of its own whose agent follows the config.
	// Otherwise only the config's system prompt is used, and approvals for tools that it
	// does not list are denied.
	Own bool
}

const (
	minHeartbeat = 10 * time.Millisecond
	maxWaiting   = 64       // sends that wait
	maxQueue     = 256      // requests that wait
	maxQueued    = 32 << 20 // bytes of the requests that wait, above which no more are accepted
	maxCancels   = 256      // remembered cancels of sends that have not come
	stopWait     = 5 * time.Second
	iterations   = 20 // default of Config.MaxIterations
)

// A translator serves one client.
type translator struct {
	opts   Options
	server version

	// Requests that wait, in order.
	queue      []*Request
	queued     int       // bytes of their messages
	cancels    []string  // ids of sends that are cancelled when they start, oldest first
	eof        bool      // the client sends no more
	shutdownAt time.Time // when the sends before a shutdown are cancelled; zero without one

	session
	frames int   // sent to sessions, for their ids
	send   *send // the one in progress, or nil
}

// A session is what the translator knows of the session since the last init.
type session struct {
	phase  phase
	initID string // of the init that opens the session
	config *Config
	client version // the effective version
	id     string
	tools  toolbox

	busy       bool   // a run of any client is in progress
	messages   int    // of users and the assistant
	routed     string // the model that answered last
	asked      bool   // for control
	asker      string // connection that asks for control while the client has it; "" if none
	configured bool   // the session has the client's system prompt
	configID   string // of the init that is not answered yet
}

// A phase is how far a session is.
type phase int

const (
	phaseNone phase = iota
	phaseOpening
	phaseOpen
)

// New returns a translator for one client. It implements [dialect.Translator].
func New(o Options) dialect.Translator {
	o.Heartbeat = cmp.Or(o.Heartbeat, 5*time.Second)
	if o.Heartbeat > 0 {
		o.Heartbeat = max(o.Heartbeat, minHeartbeat)
	}
	o.ApprovalWait = cmp.Or(o.ApprovalWait, time.Minute)
	o.ControlWait = cmp.Or(o.ControlWait, time.Minute)
	o.ShutdownWait = cmp.Or(o.ShutdownWait, time.Minute)
	server, ok := parseVersion(o.Version)
	if !ok {
		server, _ = parseVersion(Version)
	}
	return &translator{opts: o, server: server}
}

// Begin implements [dialect.Translator]. The client speaks first.
func (t *translator) Begin(*dialect.Out) {}

// Line implements [dialect.Translator].
func (t *translator) Line(out *dialect.Out, text []byte) {
	req, err := decode(text)
	switch {
	case err != nil:
		t.refuse(out, req.ID, err.Error())
	case req.Type == TypeCancel:
		t.cancel(out, *req.TargetID)
	case req.Type == TypeStatus && t.phase != phaseOpening && !t.waits(TypeInit):
		t.status(out, req.ID)
	default:
		t.enqueue(out, req)
	}
	t.advance(out)
}

// LongLine implements [dialect.Translator].
func (t *translator) LongLine(out *dialect.Out) {
	t.refuse(out, UnknownID, fmt.Sprintf("Line is longer than %d bytes", MaxLine))
	t.advance(out)
}

// EOF implements [dialect.Translator]. The requests that were read are completed.
func (t *translator) EOF(out *dialect.Out) {
	t.eof = true
	t.advance(out)
}

// Detached implements [dialect.Translator].
func (t *translator) Detached(out *dialect.Out, err error) {
	opening, why := t.phase == phaseOpening, "The session has ended"
	if opening {
		why = "The session could not be opened"
	}
	if own, ok := errors.AsType[*contracts.Error](err); ok {
		why += ": " + own.Message
	}
	t.phase = phaseNone
	switch {
	case opening:
		t.reply(out, &Result{ID: t.initID, Error: &Error{Code: CodeProviderError, Message: why}})
	case t.send != nil:
		t.finish(out, &Error{Code: CodeProtocolError, Message: why, Retryable: true})
	}
	t.advance(out)
}

// Wake implements [dialect.Translator].
func (t *translator) Wake(out *dialect.Out) {
	if t.expired(out.Now) {
		for _, req := range t.queue {
			if req.Type == TypeSend {
				t.remember(req.ID)
			}
		}
		if t.send != nil && t.send.stopping == nil {
			t.stop(out, cancelled())
		}
	}
	if t.send != nil {
		t.tick(out)
	}
	t.advance(out)
}

// expired reports whether a shutdown has waited long enough.
func (t *translator) expired(now time.Time) bool {
	return !t.shutdownAt.IsZero() && !now.Before(t.shutdownAt)
}

func (t *translator) waits(kind string) bool {
	return slices.ContainsFunc(t.queue, func(r *Request) bool { return r.Type == kind })
}

// enqueue adds a request to the queue, or refuses it.
func (t *translator) enqueue(out *dialect.Out, req *Request) {
	size, sends := 0, 0
	if req.Message != nil {
		size = len(*req.Message)
	}
	for _, r := range t.queue {
		if r.Type == TypeSend {
			sends++
		}
	}
	switch {
	case t.waits(TypeShutdown):
		t.refuse(out, req.ID, "The server is shutting down.")
		return
	case req.Type == TypeSend && (sends >= maxWaiting || t.queued > 0 && t.queued+size > maxQueued):
		t.refuse(out, req.ID, "A send is already in progress.")
		return
	case len(t.queue) >= maxQueue && req.Type != TypeShutdown:
		t.refuse(out, req.ID, "Too many requests are waiting.")
		return
	case req.Type == TypeShutdown:
		t.shutdownAt = out.Now.Add(t.opts.ShutdownWait)
	}
	t.queue = append(t.queue, req)
	t.queued += size
}

// advance executes the requests that need not wait any longer, and sets when the
// translator wakes.
func (t *translator) advance(out *dialect.Out) {
	for len(t.queue) > 0 && t.send == nil && t.phase != phaseOpening {
		req := t.queue[0]
		t.queue = slices.Delete(t.queue, 0, 1)
		switch req.Type {
		case TypeInit:
			if !t.open(out, req) {
				return
			}
		case TypeSend:
			t.queued -= len(*req.Message)
			t.begin(out, req)
		case TypeStatus:
			t.status(out, req.ID)
		case TypeShutdown:
			out.Reply(&ShutdownOK{Type: TypeShutdownOK, ID: req.ID})
			out.End(0)
			return
		}
	}
	if t.eof && t.send == nil && t.phase != phaseOpening {
		out.End(0)
		return
	}
	t.arm(out)
}

// arm sets when the translator wakes.
func (t *translator) arm(out *dialect.Out) {
	var next time.Time
	earliest := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if s := t.send; s != nil {
		if s.stopping == nil && !t.expired(out.Now) { // a shutdown acts once
			earliest(t.shutdownAt)
		}
		earliest(s.beat)
		earliest(s.deadline)
		for _, at := range s.approvals {
			earliest(at)
		}
	}
	out.WakeAt(next)
}

// reply sends a result. It completes a result that says nothing but an error.
func (t *translator) reply(out *dialect.Out, r *Result) {
	r.Type, r.Status = TypeResult, ResultOK
	if r.Error != nil {
		r.Status = ResultError
	}
	if r.ToolCallsMade == nil {
		r.ToolCallsMade = []Call{}
	}
	if t.phase == phaseOpen {
		r.SessionID, r.TaskID, r.WorkerID = t.id, t.config.TaskID, t.config.WorkerID
	}
	out.Reply(r)
}

// refuse refuses a request.
func (t *translator) refuse(out *dialect.Out, id, why string) {
	t.reply(out, &Result{ID: id, Error: &Error{Code: CodeProtocolError, Message: why}})
}

const notInitialized = "Not initialized. Send 'init' first."

func (t *translator) status(out *dialect.Out, id string) {
	if t.phase != phaseOpen {
		t.refuse(out, id, notInitialized)
		return
	}
	ok := &StatusOK{
		Type: TypeStatusOK, ID: id, Model: *t.config.Model, MessagesCount: t.messages, SessionID: t.id,
		Active: t.send != nil || t.busy,
	}
	if t.client.since(3) && t.routed != ok.Model {
		ok.LastRoutedModel = t.routed
	}
	out.Reply(ok)
}

// cancel stops a send. A send that has not started is cancelled when it starts.
func (t *translator) cancel(out *dialect.Out, id string) {
	switch {
	case t.send == nil || t.send.id != id:
		t.remember(id)
	case t.send.stopping == nil:
		t.stop(out, cancelled())
	}
}

func (t *translator) remember(id string) {
	t.forget(id)
	if len(t.cancels) == maxCancels {
		t.cancels = slices.Delete(t.cancels, 0, 1)
	}
	t.cancels = append(t.cancels, id)
}

// forget drops the cancels of a send, and reports whether there was one.
func (t *translator) forget(id string) bool {
	i := slices.Index(t.cancels, id)
	if i >= 0 {
		t.cancels = slices.Delete(t.cancels, i, i+1)
	}
	return i >= 0
}

// open opens the session of an init. It returns false if the connection ends.
func (t *translator) open(out *dialect.Out, req *Request) bool {
	effective := t.server
	if base, _ := parseVersion(baseVersion); req.ProtocolVersion == nil && t.server.major == base.major {
		effective = t.server.lower(base)
	}
	if req.ProtocolVersion != nil {
		client, ok := parseVersion(*req.ProtocolVersion)
		switch {
		case !ok:
			t.refuse(out, req.ID, "Invalid 'protocol_version' field")
			return true
		case client.major != t.server.major:
			t.reply(out, &Result{ID: req.ID, Error: &Error{Code: CodeVersionMismatch, Message: CodeVersionMismatch}})
			out.End(1)
			return false
		}
		effective = t.server.lower(client)
	}
	c := req.Config
	t.session = session{phase: phaseOpening, initID: req.ID, config: c, client: effective, tools: newToolbox(*c.Tools)}
	start := dialect.Start{Model: *c.Model, SystemPrompt: c.SystemPrompt, Limited: true, MaxIterations: c.maxIterations()}
	for _, name := range *c.Tools {
		start.Tools = append(start.Tools, agentTool(name))
	}
	out.Open(start)
	if err := out.Hello("heddle", effective.String(), contracts.RequestApproval); err != nil {
		panic(fmt.Sprintf("heddle: hello: %v", err)) // name and version are short
	}
	return true
}

func (c *Config) maxIterations() int {
	if c.MaxIterations == nil {
		return iterations
	}
	return *c.MaxIterations
}

// opened answers the init.
func (t *translator) opened(out *dialect.Out) {
	t.phase = phaseOpen
	c := t.config
	ok := &InitOK{Type: TypeInitOK, ID: t.initID, SessionID: t.id, ProtocolVersion: t.client.String()}
	if t.client.since(4) {
		ok.Routing = c.Routing
	}
	if t.client.since(5) {
		enabled := slices.Clone(*c.Tools)
		slices.Sort(enabled)
		sum := sha256.Sum256(dialect.Encode([]any{c.Model, c.SystemPrompt, enabled, c.maxIterations()}))
		ok.RequestedRouting = c.Routing
		ok.Profile = &Profile{Fingerprint: "sha256:" + hex.EncodeToString(sum[:]), Model: *c.Model}
		ok.Capabilities = &Capabilities{
			EnabledTools: append([]string{}, slices.Compact(enabled)...), ExplicitToolAllowlist: t.opts.Own,
			RuntimeModes: []string{ModeDefault, ModeIsolated}, FailureDetailsVersion: "v2",
			CacheUsageMetrics: true, Cancellation: true, TurnStateEvents: true,
		}
	}
	out.Reply(ok)
}
