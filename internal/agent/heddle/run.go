package heddle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/program"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	wire "github.com/seed-028515a8/maestro/internal/dialect/heddle"
)

const (
	maxCalls = 128     // open calls of a run; the program is killed at more
	maxName  = 200     // bytes of a name or a code
	maxText  = 8 << 10 // bytes of a message
)

// A run is what is known of the prompt that the program works on.
type run struct {
	id      string        // of the send
	seen    bool          // the program has sent an event of it
	said    bool          // text came since the last call ended
	counted bool          // a usage came
	calls   []call        // that have not ended, at most maxCalls
	beat    time.Duration // the time until the first heartbeat; 0 before it
	held    *wire.Error   // an error that is published unless the result repeats it

	model, provider string // of the service, as far as the program says; "" for the process's
}

// A call is a tool call. Programs give calls no ids unless they know our extension, so
// calls get ours.
type call struct{ id, theirs, name string }

// take removes the call that an event means and returns its id, "" if there is none. An
// event without an id means the oldest open call of its tool.
func (r *run) take(e *event) (id string) {
	i := slices.IndexFunc(r.calls, func(c call) bool { return c.name == e.Name && c.theirs == e.CallID })
	if i < 0 {
		return ""
	}
	id = r.calls[i].id
	r.calls = slices.Delete(r.calls, i, i+1)
	return id
}

// event takes an event of the run.
func (s *speaker) event(e *event) {
	switch e.Kind {
	case wire.EventHeartbeat:
		if s.run.beat == 0 {
			s.run.beat = time.Duration(min(max(e.Duration, 1), int64(time.Hour/time.Millisecond))) * time.Millisecond
		}
		return
	case wire.EventTurnState:
		return
	}
	s.flush()
	switch e.Kind {
	case wire.EventContentDelta:
		s.p.Say(e.Text, e.Thinking)
		s.run.said = s.run.said || e.Text != "" && !e.Thinking
	case wire.EventUsage:
		s.used(&e.Usage)
	case wire.EventToolStart:
		s.begun(e)
	case wire.EventToolEnd:
		s.done(e)
	case wire.EventPermissionDenied:
		s.denied(e)
	case wire.EventError:
		s.run.held = &e.Error
	case wire.EventRoutedModel:
		s.run.model = abridge.Bytes(e.Model, maxName)
	case wire.EventUpstreamProvider:
		s.run.provider = abridge.Bytes(e.Provider, maxName)
	default:
		s.remark(e)
	}
}

// remark publishes an event that people should know of.
func (s *speaker) remark(e *event) {
	switch e.Kind {
	case wire.EventPermissionRequest:
		s.p.Status("The agent needs permission to use " + e.toolAndReason() + ". Its protocol has no answer: the program decides itself")
	case wire.EventPlanComplete:
		plan := string(e.Plan)
		_ = json.Unmarshal(e.Plan, &plan) // otherwise it is shown as JSON
		s.p.Status("Plan: " + plan)
	case wire.EventContextPrune:
		s.compacted(fmt.Sprintf("The agent removed %d messages from its context", e.Pruned), e.Before)
	case wire.EventContextCompact:
		s.compacted("The agent summarized its context", e.Before)
	}
}

// tool returns the name of the event's tool for clients.
func (e *event) tool() string { return cmp.Or(abridge.Bytes(e.Name, maxName), "tool") }

// toolAndReason returns the name of the event's tool with the reason.
func (e *event) toolAndReason() string {
	if e.Reason == "" {
		return e.tool()
	}
	return e.tool() + " (" + abridge.Bytes(e.Reason, maxText/2) + ")"
}

func (s *speaker) compacted(summary string, before int64) {
	s.p.Publish(&contracts.Compaction{
		Summary: summary, TokensBefore: min(max(before, 0), maxCount), Auto: true, Timestamp: time.Now().UTC().Format(time.RFC3339),
	})
}

// flush publishes the held error: the program goes on after it.
func (s *speaker) flush() {
	if e := s.run.held; e != nil {
		s.run.held = nil
		s.p.Publish(&contracts.ErrorEvent{Message: message(e), ErrorType: errorType(e)})
	}
}

// used ends the response of a call of the model. A call without text gets a response of
// its own.
func (s *speaker) used(u *wire.Usage) {
	s.run.counted = true
	s.p.StartResponse()
	s.p.EndResponse(counted(u, s.run.model, s.run.provider))
}

// begun takes the start of a tool.
func (s *speaker) begun(e *event) {
	if len(s.run.calls) == maxCalls {
		s.p.Kill(fmt.Errorf("it has more than %d calls open", maxCalls))
		return
	}
	s.p.EndResponse(contracts.Usage{ModelID: s.run.model, Provider: s.run.provider})
	c := s.announce(e)
	s.p.Publish(&contracts.ToolStart{CallID: c.id})
	s.run.calls = append(s.run.calls, c)
}

// announce publishes a call.
func (s *speaker) announce(e *event) call {
	c := call{id: turn.ID("call_"), theirs: e.CallID, name: e.Name}
	args := bytes.TrimSpace(e.Args)
	switch {
	case len(args) == 0 || string(args) == "null":
		args = []byte("{}")
	case args[0] != '{':
		args = fmt.Appendf(nil, `{"input":%s}`, args)
	}
	args, _ = program.Args(args)
	s.p.Publish(&contracts.ToolCall{CallID: c.id, Tool: e.tool(), Args: args})
	return c
}

// done takes the end of a tool. The preview of a tool that failed says so.
func (s *speaker) done(e *event) {
	id := s.run.take(e)
	if id == "" {
		return
	}
	ok := !strings.HasPrefix(e.Preview, "Error: ")
	if e.Preview != "" {
		s.p.Publish(&contracts.ToolOutput{CallID: id, Content: abridge.Bytes(e.Preview, maxText)})
	}
	s.p.Publish(&contracts.ToolEnd{CallID: id, Success: ok})
	s.p.Run().Finished(e.tool(), ok, "")
	s.run.said = false
}

// denied takes the denial of a call, which mostly was not announced.
func (s *speaker) denied(e *event) {
	id := s.run.take(e)
	if id == "" {
		s.p.EndResponse(contracts.Usage{ModelID: s.run.model, Provider: s.run.provider})
		id = s.announce(e).id
	}
	s.p.Publish(turn.After(id, contracts.VerdictDenied), &contracts.Status{Message: "The agent was denied the use of " + e.toolAndReason()})
	s.p.Run().Finished(e.tool(), false, "")
}
