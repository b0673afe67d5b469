package chord

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/program"
	"github.com/seed-028515a8/maestro/internal/dialect/chord"
)

const (
	maxText    = 8 << 10 // bytes of an error and other short texts
	maxName    = 200     // bytes of a name
	maxRunning = 128     // calls that may run; of more, the oldest counts as ended
	enoughRest = 2       // answers that there is nothing to do, after which a run has ended
)

// event takes an event of the run.
func (s *speaker) event(r *program.Run, e chord.Envelope) {
	switch e.Type {
	case chord.TypeStatusResponse:
		s.status(r, payload[chord.Status](e))
	case chord.TypeIdle:
		s.idle(r, payload[chord.Idle](e))
	case chord.TypeError:
		s.failed(r, payload[failure](e))
	case chord.TypeActivity:
		s.activity(payload[chord.Activity](e))
	case chord.TypeAssistantMessage:
		m := payload[chord.AssistantMessage](e)
		s.message(m.AgentID, m.Text)
	case chord.TypeDoneCompletion:
		m := payload[chord.DoneCompletion](e)
		s.message(m.AgentID, m.Report)
	case chord.TypeAgentDone:
		m := payload[agentDone](e)
		s.remark(cmp.Or(m.AgentID, "?"), "done. "+m.Summary)
	case chord.TypeTodos:
		s.todos(payload[chord.Todos](e))
	}
}

// agentDone is the end of another agent than the main one.
type agentDone struct {
	AgentID string `json:"agent_id"`
	Summary string `json:"summary"`
}

// A failure is an error of either kind: that of a command has no agent.
type failure struct {
	AgentID *string `json:"agent_id"`
	Message string  `json:"message"`
	Code    string  `json:"code"`
}

// isMain reports whether an id is that of the main agent, which has two.
func isMain(agentID string) bool { return agentID == "" || agentID == "main" }

// remark publishes a text for people.
func (s *speaker) remark(agentID, text string) {
	if text == "" {
		return
	}
	if !isMain(agentID) {
		text = "Agent " + abridge.Bytes(agentID, maxName) + ": " + text
	}
	s.p.Status(text)
}

// advance notes that the program works on the prompt, and publishes the held error: the
// program goes on after it.
func (s *speaker) advance() {
	s.run.begun, s.run.rests = true, 0
	if s.run.held {
		s.run.held = false
		s.p.Publish(&contracts.ErrorEvent{Message: s.run.failure, ErrorType: contracts.Classify(s.run.failure, false)})
	}
}

// message takes the whole text of a model round.
func (s *speaker) message(agentID, text string) {
	s.advance()
	if !isMain(agentID) {
		s.remark(agentID, text)
		return
	}
	s.endRunning(true)
	s.p.Say(text, false)
	s.p.EndResponse(contracts.Usage{})
}

// activities are the texts for the phases of the program.
var activities = map[string]string{
	chord.PhaseConnecting:     "Waiting for the model",
	chord.PhaseWaitingHeaders: "Waiting for the model",
	chord.PhaseWaitingToken:   "Waiting for the model",
	chord.PhaseStreaming:      "The model answers",
	chord.PhaseExecuting:      "Running tools",
	chord.PhaseCompacting:     "Compacting the conversation",
	chord.PhaseRetrying:       "Repeating a request to the model",
	chord.PhaseRetryingKey:    "Repeating a request to the model with another key",
	chord.PhaseCooling:        "Waiting after an error of the model's service",
}

// activity takes what the main agent does. Clients see changes only.
func (s *speaker) activity(a chord.Activity) {
	s.advance()
	if !isMain(a.AgentID) {
		return
	}
	text := activities[a.Type]
	if text == "" {
		return
	}
	if a.Type != chord.PhaseExecuting { // the model is asked next, so the tools have ended
		s.endRunning(true)
	}
	if a.Detail != "" {
		text += ": " + abridge.Bytes(a.Detail, maxName)
	}
	if text != s.run.said {
		s.run.said = text
		s.p.Status(text)
	}
}

// endRunning ends the calls that were approved. The protocol does not tell their
// results; ok says whether the program went on.
func (s *speaker) endRunning(ok bool) {
	for _, id := range s.run.running {
		s.p.Publish(&contracts.ToolEnd{CallID: id, Success: ok})
	}
	s.run.running = nil
}

// failed takes an error. One of the runtime does not end the run.
func (s *speaker) failed(r *program.Run, f failure) {
	text := cmp.Or(abridge.Bytes(f.Message, maxText), "the agent reported an error without a message")
	switch {
	case f.AgentID != nil:
		s.advance()
		s.run.failure, s.run.held = text, true
	case !s.run.begun: // the prompt was refused
		s.p.EndResponse(contracts.Usage{})
		r.Finish(&contracts.Error{Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorTool, Message: text})
	case f.Code != "no_pending_request": // otherwise the program has dropped its question meanwhile
		s.p.Status("The agent refused a command: " + text)
	}
}

// idle takes the end of the program's work. Before it has begun with the prompt, that is
// the end of something else.
func (s *speaker) idle(r *program.Run, i chord.Idle) {
	switch {
	case s.run.begun && (i.LastOutcome != "" || !i.SuppressUserNotification), s.run.command:
		s.end(r, i.LastOutcome)
	case !s.run.polled:
		s.poll()
	}
}

// status takes the answer to a poll. A run also ends if the program has nothing to do
// for some time: commands have no other end.
func (s *speaker) status(r *program.Run, st chord.Status) {
	if !s.run.polled {
		return // it answers a poll of the run before
	}
	s.run.polled = false
	s.p.Session(st.SessionID)
	if st.Busy || st.PendingConfirm != nil || st.PendingQuestion != nil || len(s.run.open) > 0 {
		s.run.rests = 0
		s.run.begun = s.run.begun || st.Busy
		return
	}
	if s.run.rests++; s.run.rests < enoughRest && !s.run.command {
		return
	}
	if !s.run.begun {
		st.LastOutcome = "" // that of an earlier run
	}
	s.end(r, st.LastOutcome)
}

// end ends the run.
func (s *speaker) end(r *program.Run, outcome string) {
	for k := range s.run.open {
		s.withdraw(k)
	}
	s.endRunning(outcome == chord.OutcomeCompleted)
	var err error
	switch outcome {
	case chord.OutcomeError:
		text := "The agent ended the run with an error"
		if s.run.held {
			text, s.run.held = s.run.failure, false
		}
		err = &contracts.Error{Code: contracts.CodeRuntimeFailed, Type: contracts.Classify(s.run.failure, false), Message: text}
	case chord.OutcomeCancelled:
		err = &contracts.Error{Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorCancelled, Message: "The agent cancelled the run itself"}
	}
	s.advance()
	r.Finish(err)
}

// todos takes the program's tasks.
func (s *speaker) todos(t chord.Todos) {
	s.advance()
	var list strings.Builder
	done := 0
	for _, todo := range t.Todos {
		mark := " "
		switch todo.Status {
		case "completed":
			mark = "x"
			done++
		case "in_progress":
			mark = ">"
		}
		fmt.Fprintf(&list, "\n[%s] %s", mark, todo.Content)
	}
	text := fmt.Sprintf("Plan, %d of %d done:%s", done, len(t.Todos), &list)
	if len(t.Todos) > 0 && text != s.run.todos {
		s.run.todos = text
		s.p.Status(text)
	}
}
