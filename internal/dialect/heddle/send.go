package heddle

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// A send is the one in progress. It becomes a run of the session.
type send struct {
	id, message string
	stage       stage
	frame       string    // id of its latest command
	began       time.Time // when the translator took it up
	deadline    time.Time // when it fails while it waits for control, or while it stops; zero if it runs
	seq         int       // of the next event
	beat        time.Time // when the next heartbeat is due; zero: never
	lastBeat    int64     // its duration in ms

	stopping *Error    // why the run is stopped; nil if it is not
	failed   *Error    // the run's latest error, unless the run went on
	cause    *Error    // what the agent said about the error that comes next
	failure  Failure   // what is known about the error beside the numbers
	limited  bool      // the agent has reached its limit of model calls
	text     []byte    // since the last tool ended; of more than maxText bytes, some more than maxText
	usage    *Usage    // of the send
	reply    string    // the provider's id of the model call in progress
	rounds   int       // finished model calls
	made     []Call    // in the order of their starts
	madeSize int       // bytes of the arguments in made
	last     string    // the last call, and how often it came in a row
	repeats  int       // of last
	running  int       // tools that run
	since    time.Time // when the first of them started
	toolTime time.Duration

	calls     map[string]*toolCall // announced calls that have not ended, by call id
	approvals map[string]time.Time // when open approvals are answered, by request id
}

// A stage is how far a send is.
type stage int

const (
	stageWaiting  stage = iota // for control of the session, or for another client's run
	stagePrompted              // the session has not answered the prompt
	stageRunning
)

// A toolCall is a call on its way to its end.
type toolCall struct {
	name    string // as the client knows it
	args    json.RawMessage
	started bool
	output  string // its beginning
}

const (
	maxCalls     = 256     // announced calls at a time; others are not shown
	maxMadeSize  = 4 << 20 // bytes of arguments in a result; later calls have none
	maxText      = 8 << 20 // bytes of the text in a result, which then ends with …
	loopLimit    = 3       // equal calls in a row that end a send
	previewBytes = 4 * MaxPreview
)

func cancelled() *Error { return &Error{Code: CodeCancelled, Message: "cancelled"} }

// begin starts a send.
func (t *translator) begin(out *dialect.Out, req *Request) {
	if t.phase != phaseOpen {
		t.refuse(out, req.ID, notInitialized)
		return
	}
	s := &send{
		id: req.ID, message: *req.Message, began: out.Now, deadline: out.Now.Add(t.opts.ControlWait),
		calls: map[string]*toolCall{}, approvals: map[string]time.Time{},
	}
	t.send = s
	if t.opts.Heartbeat > 0 {
		s.beat = out.Now.Add(t.opts.Heartbeat)
	}
	t.state(out, StateQueued)
	switch {
	case t.forget(s.id):
		t.stop(out, cancelled())
	case !t.busy:
		t.prompt(out)
	}
}

// extension reports whether the client asked for an extension.
func (t *translator) extension(name string) bool { return slices.Contains(t.config.Extensions, name) }

// do sends a command to the session and returns its id.
func (t *translator) do(out *dialect.Out, cmd contracts.Command) (string, error) {
	t.frames++
	id := cmd.CommandType() + "-" + strconv.Itoa(t.frames)
	return id, out.Do(id, cmd)
}

// prompt asks the session to run the send.
func (t *translator) prompt(out *dialect.Out) {
	s := t.send
	var err error
	if t.extension(ExtensionTakeControl) {
		err = out.Send(&contracts.TakeControl{})
	}
	if err == nil && !t.opts.Own && !t.configured && *t.config.SystemPrompt != "" {
		t.configID, err = t.do(out, &contracts.Init{SystemPrompt: t.config.SystemPrompt})
	}
	if err == nil {
		s.stage = stagePrompted
		s.frame, err = t.do(out, &contracts.Prompt{Content: s.message})
	}
	if err != nil {
		t.finish(out, &Error{Code: CodeProtocolError, Message: err.Error()})
	}
}

// accepted is called when the session has accepted a command.
func (t *translator) accepted(out *dialect.Out, id string) {
	s := t.send
	switch {
	case id == t.configID:
		t.configured = true
	case s != nil && s.stage == stagePrompted && id == s.frame:
		s.stage = stageRunning
		if s.stopping != nil {
			t.interrupt(out)
			return
		}
		s.deadline = time.Time{}
		t.state(out, StateRunning)
	}
}

// refused is called when the session has refused a command.
func (t *translator) refused(out *dialect.Out, f *contracts.Refusal) {
	s := t.send
	switch {
	case s != nil && s.stopping == nil && s.stage == stageRunning && f.Code == contracts.CodeDigestRequired:
		// Neither an approval nor a denial of this protocol can have a digest.
		t.stop(out, &Error{Code: CodeToolError, Message: f.Message, Details: dialect.Encode(map[string]any{"code": f.Code})})
	case s == nil || f.ID == nil || *f.ID != s.frame:
	case s.stopping != nil: // nothing was begun, or it cannot be stopped
		t.finish(out, s.stopping)
	case f.Code == contracts.CodeControllerLeaseHeld:
		s.stage = stageWaiting
		if !t.asked {
			t.asked = out.Send(&contracts.AskControl{ID: "control", Reason: "A Heddle client wants to send a prompt"}) == nil
		}
	case f.Code == contracts.CodeRuntimeBusy:
		s.stage = stageWaiting // until the run ends
	default:
		t.finish(out, &Error{Code: CodeProtocolError, Message: f.Message, Retryable: f.Retryable})
	}
}

// leaseChanged acts on the answer to a request for control.
func (t *translator) leaseChanged(out *dialect.Out, f *contracts.LeaseChange) {
	waiting := t.send != nil && t.send.stage == stageWaiting
	switch {
	case !t.asked:
	case f.Granted && waiting:
		t.asked = false
		t.prompt(out)
	case f.Granted: // too late
		t.asked = out.Send(&contracts.ReleaseControl{}) != nil
	case f.Reason == contracts.LeaseDenied:
		t.asked = false
		if waiting {
			t.finish(out, &Error{Code: CodeProtocolError, Message: "Another client controls the session and keeps control", Retryable: true})
		}
	}
}

// handOver gives control of the session to the client that asks for it, unless a send
// runs. The next send asks for control again.
func (t *translator) handOver(out *dialect.Out) {
	if t.asker == "" || t.send != nil && t.send.stage != stageWaiting {
		return
	}
	// If the session refuses it, the other client has gone or has control.
	if out.Send(&contracts.GrantControl{ConnectionID: t.asker}) == nil {
		t.asker = ""
	}
}

// stop ends the send with an error as soon as its run has stopped.
func (t *translator) stop(out *dialect.Out, why *Error) {
	s := t.send
	s.stopping, s.deadline = why, out.Now.Add(stopWait)
	if why.Code == CodeCancelled {
		s.failure.CancellationSource = "user"
		t.state(out, StateCancelling)
	} else {
		t.showError(out, why)
	}
	switch s.stage {
	case stageWaiting:
		t.finish(out, why)
	case stageRunning:
		t.interrupt(out)
	}
}

func (t *translator) interrupt(out *dialect.Out) {
	var err error
	if t.send.frame, err = t.do(out, &contracts.Interrupt{}); err != nil {
		t.finish(out, t.send.stopping)
	}
}

// tick does what is due.
func (t *translator) tick(out *dialect.Out) {
	s := t.send
	for id, at := range s.approvals {
		if !out.Now.Before(at) {
			t.answer(out, id, false, "No other client answered in time")
		}
	}
	if !s.deadline.IsZero() && !out.Now.Before(s.deadline) {
		why := s.stopping
		if why == nil {
			why = &Error{Code: CodeProtocolError, Message: "Another client controls the session or its run goes on", Retryable: true}
		}
		t.finish(out, why)
		return
	}
	if !s.beat.IsZero() && !out.Now.Before(s.beat) {
		s.lastBeat = max(out.Now.Sub(s.began).Milliseconds(), s.lastBeat+1)
		s.beat = out.Now.Add(t.opts.Heartbeat)
		t.emit(out, Body{Event: EventHeartbeat, DurationMS: &s.lastBeat})
	}
}

// emit sends an event of the send.
func (t *translator) emit(out *dialect.Out, body Body) {
	out.Reply(&Event{
		Type: TypeEvent, Event: body, EventSeq: t.send.seq, SendID: t.send.id,
		SessionID: t.id, TaskID: t.config.TaskID, WorkerID: t.config.WorkerID,
	})
	t.send.seq++
}

// state tells a client of 0.5 how far the send is.
func (t *translator) state(out *dialect.Out, name string) {
	if t.client.since(5) {
		t.emit(out, Body{Event: EventTurnState, State: &name})
	}
}

func (t *translator) showError(out *dialect.Out, e *Error) {
	body := Body{Event: EventError, Code: &e.Code, Message: &e.Message, Retryable: &e.Retryable, Details: e.Details}
	if p := t.send.failure.Provider; p != nil && p.Name != "" {
		body.Provider = &p.Name
	}
	t.emit(out, body)
}

// finish ends the send with its result. why is nil if it succeeded.
func (t *translator) finish(out *dialect.Out, why *Error) {
	s := t.send
	t.state(out, StateCompleted)
	r := &Result{ID: s.id, Error: why, ToolCallsMade: s.made, Usage: s.usage, Iterations: s.rounds}
	if why == nil {
		text := s.response()
		r.Response = &text
	}
	if s.running > 0 {
		s.toolTime += out.Now.Sub(s.since)
	}
	total, tools := out.Now.Sub(s.began).Milliseconds(), s.toolTime.Milliseconds()
	r.ModelLatencyMS, r.ToolLatencyMS, r.TotalLatencyMS = new(total-tools), &tools, &total
	if why != nil && t.client.since(4) {
		f := s.failure
		f.Code, f.TerminationReason, f.Iterations, f.ToolCallsMade = why.Code, why.Message, s.rounds, len(s.made)
		if n := len(s.made); n > 0 {
			f.LastTool, f.LastToolName = &s.made[n-1], s.made[n-1].Name
		}
		r.Failure = &f
	}
	t.reply(out, r)
	t.forget(s.id)
	t.send = nil
	t.handOver(out)
}

// response returns the text of the result.
func (s *send) response() string { return abridge.Bytes(string(s.text), maxText) }

// limitCode returns the code for a limit of model calls that the client knows.
func (t *translator) limitCode() string {
	if t.client.since(5) {
		return CodeMaxIterations
	}
	return CodeProviderError
}

// clipped returns text without what exceeds the limit of a preview.
func clipped(output, more string) string {
	if room := previewBytes - len(output); room < len(more) {
		more = strings.ToValidUTF8(more[:max(room, 0)], "")
	}
	return output + more
}
