package chord

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// A round is one answer of the model: a response up to its first tool call.
type round struct {
	text  strings.Builder // at most MaxLine bytes
	tools int             // calls that were seen
	due   bool            // the answer is whole, and its message is not sent yet
	sent  bool            // its message was sent
}

// mainAgent is the id of the agent in activities.
const mainAgent = "main"

// holdTime is how long a message waits for the tool calls of its round. An event that
// follows the response sends it earlier.
const holdTime = time.Second

// Frame translates a frame of the session.
func (t *Translator) Frame(out *dialect.Out, f contracts.Frame, ev contracts.Event) {
	switch f := f.(type) {
	case *contracts.Attached:
		t.session, t.self, t.holder = f.SessionID, f.ConnectionID, contracts.NullableString(f.ControllerConnectionID).Get()
	case *contracts.SnapshotEnvelope:
		if !t.attached { // later ones say what is known
			t.sync(out, f.Snapshot)
		}
	case *contracts.ResetEnvelope:
		t.info(out, "events were lost: the session was too far ahead")
		t.sync(out, f.Snapshot)
		t.settle(out)
		t.reveal(out)
	case *contracts.LeaseChange:
		before := t.holder
		t.holder = contracts.NullableString(f.ControllerConnectionID).Get()
		if before == t.self && t.holder != t.self && f.Reason == contracts.LeaseTakenOver {
			t.info(out, "another client has taken control of the session; send /take to take it back")
		}
	case *contracts.ControlRequest:
		t.info(out, "another client asks for control of the session; send /release to give it away")
	case *contracts.Result:
		t.answered(out, f.ID, nil)
	case *contracts.Refusal:
		t.answered(out, f.ID, f)
	case *contracts.MessageEnvelope:
		t.event(out, ev)
	}
}

// answered passes the answer to a frame to whoever waits for it.
func (t *Translator) answered(out *dialect.Out, id *string, refused *contracts.Refusal) {
	if id == nil {
		return
	}
	if done := t.sent[*id]; done != nil {
		delete(t.sent, *id)
		done(out, refused)
	}
}

// sync takes over the state of the session.
func (t *Translator) sync(out *dialect.Out, snapshot json.RawMessage) {
	var decoder contracts.Decoder
	s, err := decoder.Snapshot(snapshot)
	if err != nil {
		t.runtimeError(out, "the session's state cannot be read", "session_state")
		return
	}
	st := &s.State
	t.model, t.provider = st.Model, st.Provider
	t.holder = st.ControllerConnectionID.Get()
	t.running = st.IsResponding || len(st.ActiveTools) > 0
	t.round = round{}
	clear(t.calls)
	for _, c := range st.ActiveTools {
		t.calls[c.CallID] = true
	}
	if st.CurrentResponse != nil {
		t.append(st.CurrentResponse.Text)
	}
	t.syncRequests(st)
	if t.running {
		t.enter(out, PhaseStreaming, "")
	}
}

// syncRequests replaces the pending requests, and keeps what is known about them.
func (t *Translator) syncRequests(st *contracts.State) {
	before := map[string]*request{}
	for _, r := range t.pending {
		before[r.id] = r
	}
	t.pending = nil
	for _, p := range st.PendingRequests {
		r := newRequest(p.ID, p.Kind, p.Tool, cmp.Or(p.ActionDescription, p.SummaryLabel), "", p.Args)
		if known := before[p.ID]; known != nil {
			r = known
		}
		if r != nil {
			t.pending = append(t.pending, r)
		}
	}
}

// greet says that commands are served from now on.
func (t *Translator) greet(out *dialect.Out) {
	t.attached = true
	if t.greeted {
		t.info(out, "new session: "+t.session)
	} else {
		t.greeted = true
		reply(out, TypeReady, Ready{SessionID: t.session, Worktree: t.options.Worktree})
	}
	t.updated = out.Now
	t.reveal(out)
	t.serveWaiting(out)
}

// event translates an event.
func (t *Translator) event(out *dialect.Out, ev contracts.Event) {
	switch e := ev.(type) {
	case *contracts.HelloOK:
		if !t.attached {
			t.greet(out)
		}
	case *contracts.Ready:
		t.model, t.provider = e.Model, e.Provider
	case *contracts.ConnectionInfo:
		if e.ControllerConnectionID.Present {
			t.holder = e.ControllerConnectionID.Get()
		}
	case *contracts.RawAgentEvent:
		t.rawEvent(out, e)
	case *contracts.ResponseStart:
		t.responseStart(out)
	case *contracts.ResponseChunk:
		t.chunk(out, e)
	case *contracts.ResponseEnd:
		t.responseEnd(out, e)
	case *contracts.ToolCall:
		t.called(out, e.CallID)
		t.todos(out, e.Tool, e.Args)
	case *contracts.ToolStart:
		t.called(out, e.CallID)
	case *contracts.ToolEnd:
		delete(t.calls, e.CallID)
	case *contracts.ServerRequest:
		t.asked(out, e)
	case *contracts.ServerRequestResolved:
		t.resolved(out, e)
	case *contracts.ErrorEvent:
		t.errorEvent(out, e)
	case *contracts.Compaction:
		t.enter(out, PhaseCompacting, "")
	case *contracts.Status:
		if e.Message != contracts.StatusWorking {
			t.info(out, e.Message)
		}
	}
}

// rawEvent notes the begin and the end of a run.
func (t *Translator) rawEvent(out *dialect.Out, e *contracts.RawAgentEvent) {
	switch e.EventKind {
	case "agent_start":
		t.running = true
		t.round = round{}
		t.enter(out, PhaseConnecting, "")
	case "message_start":
		if text, ok := e.UserMessage(); ok && (t.prompt == nil || *t.prompt != text) {
			t.info(out, "another client sent: "+text)
		}
	case "agent_end":
		t.flush(out)
		t.running, t.round = false, round{}
		clear(t.calls)
		t.settle(out)
	}
}

// enter tells the client what the agent does, if that has changed.
func (t *Translator) enter(out *dialect.Out, phase, detail string) {
	if t.busy && t.phase == phase && t.detail == detail {
		return
	}
	t.busy, t.phase, t.detail, t.updated = true, phase, detail, out.Now
	t.emit(out, TypeActivity, Activity{AgentID: mainAgent, Type: phase, Detail: detail})
}

func (t *Translator) responseStart(out *dialect.Out) {
	t.flush(out)
	t.running, t.round = true, round{}
	t.enter(out, PhaseConnecting, "")
	t.enter(out, PhaseWaitingToken, "")
}

func (t *Translator) chunk(out *dialect.Out, e *contracts.ResponseChunk) {
	t.enter(out, PhaseStreaming, "")
	if t.round.sent && e.Content != "" { // the response goes on after a tool call
		t.round = round{}
	}
	if !e.IsThinking {
		t.append(e.Content)
	}
}

func (t *Translator) append(text string) {
	t.round.text.WriteString(abridge.Head(text, MaxLine-t.round.text.Len()))
}

// responseEnd makes the message due. If the response was cut off by a cancel, the next
// event says so, and the message is not sent.
func (t *Translator) responseEnd(out *dialect.Out, e *contracts.ResponseEnd) {
	t.stats.rounds++
	t.stats.input += e.Usage.InputTokens
	t.stats.output += e.Usage.OutputTokens
	t.stats.cost += e.Usage.TotalCostUSD
	if !t.round.sent {
		t.round.due = true
		out.WakeAt(out.Now.Add(holdTime))
	}
}

// flush sends the message that is due.
func (t *Translator) flush(out *dialect.Out) {
	if !t.round.due {
		return
	}
	t.round.due, t.round.sent = false, true
	out.WakeAt(time.Time{})
	message := AssistantMessage{Text: t.round.text.String(), ToolCalls: t.round.tools}
	if t.failed && message.Text == "" && message.ToolCalls == 0 {
		return // the model has not answered
	}
	t.enter(out, PhaseStreaming, "")
	for limit := MaxLine; len(encode(TypeAssistantMessage, message)) >= MaxLine; limit /= 2 {
		message.Text = abridge.Bytes(t.round.text.String(), limit-(4<<10)) // room for the other members
	}
	t.emit(out, TypeAssistantMessage, message)
}

// called counts a tool call. The message of its round comes before it.
func (t *Translator) called(out *dialect.Out, id string) {
	if t.calls[id] {
		return
	}
	t.calls[id] = true
	t.running = true
	t.stats.tools++
	t.round.tools++
	if !t.round.sent {
		t.round.due = true
		t.flush(out)
	}
	t.enter(out, PhaseExecuting, strconv.Itoa(t.round.tools)+" tools")
}

// asked asks the client. It fails requests that no Chord client can answer.
func (t *Translator) asked(out *dialect.Out, e *contracts.ServerRequest) {
	t.called(out, e.CallID)
	if r := newRequest(e.RequestID, e.RequestType, e.Tool, cmp.Or(e.ActionDescription, e.SummaryLabel), e.Reason, e.Args); r != nil {
		t.ask(out, r)
		return
	}
	if t.self != t.holder {
		return
	}
	answer := &contracts.ServerRequestResponse{RequestID: e.RequestID, RequestType: e.RequestType}
	if e.RequestType == contracts.RequestToolRetry {
		answer.DecisionAction = contracts.RetryActionAbort
	} else {
		answer.IsError, answer.Content = true, textBlock("the controlling client cannot answer this")
	}
	t.do(out, answer, func(*dialect.Out, *contracts.Refusal) {}) // another client may have answered
}

func (t *Translator) errorEvent(out *dialect.Out, e *contracts.ErrorEvent) {
	switch {
	case e.RequestID != "": // the answer to a request of another client
	case e.ErrorType == contracts.ErrorCancelled:
		t.cancelled = t.busy
		t.round.due = false
		t.round.sent = true
	default:
		t.flush(out)
		t.runtimeError(out, e.Message, "")
		if t.busy && e.ErrorType == contracts.ErrorTransient {
			t.enter(out, PhaseRetrying, "")
		}
	}
}

// runtimeError tells the client of an error that is not about a command.
func (t *Translator) runtimeError(out *dialect.Out, message, code string) {
	message = abridge.Bytes(message, maxMessage)
	if t.busy { // it must not taint a later turn
		t.failed, t.lastError = true, message
	}
	t.updated = out.Now
	t.emit(out, TypeError, Failure{Message: message, Code: code})
}

// maxTodos bounds a list of tasks, and maxTodo each text in bytes.
const (
	maxTodos = 128
	maxTodo  = 512
)

// todos shows the tasks in the arguments of a tool that keeps a list of them.
func (t *Translator) todos(out *dialect.Out, tool string, args json.RawMessage) {
	var list struct {
		Todos []Todo
	}
	if !strings.Contains(strings.ToLower(tool), "todo") || json.Unmarshal(args, &list) != nil || list.Todos == nil {
		return
	}
	shown := Todos{Todos: []Todo{}}
	for i, d := range list.Todos[:min(len(list.Todos), maxTodos)] {
		d.ID = cmp.Or(d.ID, strconv.Itoa(i+1))
		for _, text := range []*string{&d.ID, &d.Content, &d.Status, &d.ActiveForm} {
			*text = abridge.Bytes(*text, maxTodo)
		}
		shown.Todos = append(shown.Todos, d)
	}
	t.emit(out, TypeTodos, shown)
}
