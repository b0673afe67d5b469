// Package hosttest has a fake hub for the tests of agents.
package hosttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Patience limits every wait of a test. It is long because real processes share
// the machine.
const Patience = 20 * time.Second

// A Host is a fake hub. It records the events that an agent publishes. It
// answers the agent's questions as the hub does, and publishes the same events
// around a question. An event that the wire or the order of a run (R36, R46)
// does not allow fails the test.
type Host struct {
	t testing.TB

	// Set before the agent starts.
	Mode    contracts.ApprovalMode // the approval mode; prompt in a new Host
	Earlier bool                   // an earlier process had the session

	Tools []contracts.ClientTool // of the controlling client

	// Answer answers a question at once. If it is nil, a question stays open
	// until Resolve or Withdraw. In a new Host it approves everything.
	Answer func(*contracts.ServerRequest) contracts.Outcome

	mu        sync.Mutex
	events    []contracts.Event
	published chan struct{} // closed and replaced at each event
	asked     []*contracts.ServerRequest
	truncated []bool                            // of asked
	steering  []contracts.Work                  // not taken yet
	open      map[string]chan contracts.Outcome // 1-buffered, by request id
	response  string                            // the ID of the open response
	calls     map[string]callStage
}

// A callStage is the state of a tool call.
type callStage int

const (
	callAnnounced callStage = iota + 1
	callStarted
	callEnded
)

// New returns a host that asks and approves everything.
func New(t testing.TB) *Host {
	return &Host{
		t: t, Mode: contracts.ApprovalPrompt,
		Answer: func(*contracts.ServerRequest) contracts.Outcome {
			return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}
		},
		published: make(chan struct{}),
		open:      map[string]chan contracts.Outcome{},
		calls:     map[string]callStage{},
	}
}

// Publish implements [contracts.Host].
func (h *Host) Publish(ctx context.Context, events ...contracts.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ev := range events {
		if err := contracts.ValidateEvent(ev); err != nil {
			h.t.Errorf("published %s that the wire does not allow: %v", ev.EventType(), err)
			return err
		}
		if err := h.inOrder(ev); err != nil {
			h.t.Errorf("published %s out of order: %v", ev.EventType(), err)
		}
		h.events = append(h.events, ev)
	}
	close(h.published)
	h.published = make(chan struct{})
	return nil
}

// inOrder checks ev against the responses and calls before it. The caller holds
// h.mu.
func (h *Host) inOrder(ev contracts.Event) error {
	switch e := ev.(type) {
	case *contracts.ResponseStart:
		if h.response != "" {
			return fmt.Errorf("%s is open", h.response)
		}
		h.response = e.ResponseID
	case *contracts.ResponseChunk:
		if e.ResponseID != h.response {
			return fmt.Errorf("got response %q, want the open %q", e.ResponseID, h.response)
		}
	case *contracts.ResponseEnd:
		if e.ResponseID != h.response {
			return fmt.Errorf("got response %q, want the open %q", e.ResponseID, h.response)
		}
		h.response = ""
	case *contracts.ServerRequest:
		if e.RequestType != contracts.RequestApproval && h.calls[e.CallID] == 0 {
			h.calls[e.CallID] = callAnnounced
		}
	case *contracts.ToolCall:
		if e.RequiresApproval && h.calls[e.CallID] == callStarted {
			return nil // a question about a running call
		}
		return h.step(e.CallID, callAnnounced, 0, callAnnounced)
	case *contracts.ToolStart:
		return h.step(e.CallID, callStarted, callAnnounced)
	case *contracts.ToolOutput:
		return h.step(e.CallID, callStarted, callStarted)
	case *contracts.ToolEnd:
		return h.step(e.CallID, callEnded, callAnnounced, callStarted)
	}
	return nil
}

func (h *Host) step(callID string, to callStage, from ...callStage) error {
	was := h.calls[callID]
	h.calls[callID] = to
	if !slices.Contains(from, was) {
		return fmt.Errorf("got call %s at stage %d, want one of %v", callID, was, from)
	}
	return nil
}

// Ask implements [contracts.Host].
func (h *Host) Ask(ctx context.Context, req *contracts.ServerRequest, opts contracts.AskOptions) (contracts.Outcome, error) {
	h.mu.Lock()
	h.asked = append(h.asked, req)
	h.truncated = append(h.truncated, opts.Truncated)
	mode, answer := h.Mode, h.Answer
	_, taken := h.open[req.RequestID]
	answered := make(chan contracts.Outcome, 1)
	if !taken {
		h.open[req.RequestID] = answered
	}
	h.mu.Unlock()
	if taken {
		return contracts.Outcome{}, errors.New("request id is taken")
	}
	defer h.forget(req.RequestID)

	if req.RequestType == contracts.RequestApproval && mode != contracts.ApprovalPrompt {
		return byPolicy(mode), nil
	}
	if err := h.Publish(ctx, question(req)...); err != nil {
		return contracts.Outcome{}, err
	}
	var out contracts.Outcome
	if answer != nil {
		out = answer(req)
	} else {
		select {
		case out = <-answered:
		case <-ctx.Done():
			return contracts.Outcome{}, context.Cause(ctx)
		}
	}
	out.Announced = true
	return out, h.Publish(ctx, &contracts.ServerRequestResolved{
		RequestID: req.RequestID, RequestType: req.RequestType, CallID: req.CallID,
		Resolution: out.Verdict, Reason: out.Reason, ResolvedBy: out.By,
	})
}

func (h *Host) forget(requestID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open, requestID)
}

// byPolicy returns the outcome of an approval that the mode decides without a
// question.
func byPolicy(mode contracts.ApprovalMode) contracts.Outcome {
	if mode == contracts.ApprovalAuto {
		return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByPolicy}
	}
	return contracts.Outcome{Verdict: contracts.VerdictDenied, Reason: "Denied by policy", By: contracts.ResolvedByPolicy}
}

// question returns the events that the hub publishes when an agent asks req.
func question(req *contracts.ServerRequest) []contracts.Event {
	switch req.RequestType {
	case contracts.RequestApproval:
		return []contracts.Event{
			&contracts.ToolCall{CallID: req.CallID, Tool: req.Tool, Args: req.Args, RequiresApproval: true}, req,
		}
	case contracts.RequestClientTool, contracts.RequestUserInput:
		return []contracts.Event{
			&contracts.ClientToolRequest{CallID: req.CallID, Tool: req.Tool, Args: req.Args}, req,
		}
	}
	return []contracts.Event{req}
}

// Withdraw implements [contracts.Host].
func (h *Host) Withdraw(requestID string, verdict contracts.Verdict, reason string, by contracts.Resolver) bool {
	return h.Resolve(requestID, contracts.Outcome{Verdict: verdict, Reason: reason, By: by})
}

// Resolve answers an open question as a client does. It reports whether the
// question was open.
func (h *Host) Resolve(requestID string, out contracts.Outcome) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	answered, ok := h.open[requestID]
	if !ok {
		return false
	}
	delete(h.open, requestID)
	answered <- out
	return true
}

// Steering implements [contracts.Host].
func (h *Host) Steering(context.Context) []contracts.Work {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.steering
	h.steering = nil
	return taken
}

// Steer adds a prompt for Steering.
func (h *Host) Steer(content string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steering = append(h.steering, contracts.Work{Content: content})
}

// Restored implements [contracts.Host].
func (h *Host) Restored() bool { return h.Earlier }

// ApprovalMode implements [contracts.Host].
func (h *Host) ApprovalMode() contracts.ApprovalMode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Mode
}

// Shown returns the events published so far.
func (h *Host) Shown() []contracts.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// Types returns the types of the events published so far. Adjacent chunks and
// outputs count once, because the size of the pieces depends on timing.
func (h *Host) Types() []string {
	var types []string
	for _, ev := range h.Shown() {
		types = append(types, ev.EventType())
	}
	last := ""
	return slices.DeleteFunc(types, func(typ string) bool {
		repeats := typ == last && (typ == "response_chunk" || typ == "tool_output")
		last = typ
		return repeats
	})
}

// Said returns the text of all answers, without reasoning.
func (h *Host) Said() string {
	var text strings.Builder
	for _, chunk := range As[*contracts.ResponseChunk](h) {
		if !chunk.IsThinking {
			text.WriteString(chunk.Content)
		}
	}
	return text.String()
}

// Output returns the text of all tool output.
func (h *Host) Output() string {
	var text strings.Builder
	for _, out := range As[*contracts.ToolOutput](h) {
		text.WriteString(out.Content)
	}
	return text.String()
}

// Await waits until an event that satisfies is was published, and returns it.
func (h *Host) Await(is func(contracts.Event) bool) contracts.Event {
	h.t.Helper()
	late := time.After(Patience)
	for {
		h.mu.Lock()
		at, more := slices.IndexFunc(h.events, is), h.published
		h.mu.Unlock()
		if at >= 0 {
			return h.Shown()[at]
		}
		select {
		case <-more:
		case <-late:
			h.t.Fatalf("got %v, want an event that did not come", h.Types())
		}
	}
}

// AwaitType is Await for the first event of a type.
func (h *Host) AwaitType(typ string) contracts.Event {
	h.t.Helper()
	return h.Await(func(ev contracts.Event) bool { return ev.EventType() == typ })
}

// As returns the published events of one type.
func As[E contracts.Event](h *Host) []E {
	var events []E
	for _, ev := range h.Shown() {
		if e, ok := ev.(E); ok {
			events = append(events, e)
		}
	}
	return events
}

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ClientTools implements [contracts.Host].
func (h *Host) ClientTools() []contracts.ClientTool { return h.Tools }

// Asked returns all questions so far.
func (h *Host) Asked() []*contracts.ServerRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.asked)
}

// Truncated returns which of all questions so far the agent said to have cut.
func (h *Host) Truncated() []bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.truncated)
}

// Announced records that a call was announced before the server restarted.
func (h *Host) Announced(callID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[callID] = callAnnounced
}
