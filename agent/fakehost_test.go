package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of a test; it is generous because real processes
// share the machine.
const patience = 20 * time.Second

// A fakeHost records what an agent publishes and answers what it asks as the
// hub would, with what the hub publishes around a question. An event that the
// wire or the order of a run (R36, R46) does not allow fails the test.
type fakeHost struct {
	t testing.TB

	// Set before the agent starts.
	mode     contracts.ApprovalMode // the policy; prompt at first
	restored bool

	// answer answers a question at once. Nil leaves questions open until
	// resolve or Withdraw. At first it approves everything.
	answer func(*contracts.ServerRequest) contracts.Outcome

	mu        sync.Mutex
	events    []contracts.Event
	published chan struct{} // closed and replaced at each event
	asked     []*contracts.ServerRequest
	open      map[string]chan contracts.Outcome // 1-buffered, by request id
	response  string                            // the open one
	calls     map[string]callStage
}

// A callStage is how far a tool call is.
type callStage int

const (
	callAnnounced callStage = iota + 1
	callStarted
	callEnded
)

func newFakeHost(t testing.TB) *fakeHost {
	return &fakeHost{
		t: t, mode: contracts.ApprovalPrompt,
		answer: func(*contracts.ServerRequest) contracts.Outcome {
			return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}
		},
		published: make(chan struct{}),
		open:      map[string]chan contracts.Outcome{},
		calls:     map[string]callStage{},
	}
}

// Publish implements [contracts.Host].
func (h *fakeHost) Publish(ctx context.Context, events ...contracts.Event) error {
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

// inOrder checks ev against the responses and calls before it. h.mu is held.
func (h *fakeHost) inOrder(ev contracts.Event) error {
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

func (h *fakeHost) step(callID string, to callStage, from ...callStage) error {
	was := h.calls[callID]
	h.calls[callID] = to
	if !slices.Contains(from, was) {
		return fmt.Errorf("got call %s at stage %d, want one of %v", callID, was, from)
	}
	return nil
}

// Ask implements [contracts.Host].
func (h *fakeHost) Ask(ctx context.Context, req *contracts.ServerRequest, _ contracts.AskOptions) (contracts.Outcome, error) {
	h.mu.Lock()
	h.asked = append(h.asked, req)
	mode, answer := h.mode, h.answer
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

func (h *fakeHost) forget(requestID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open, requestID)
}

// byPolicy is how an approval ends that nobody is asked for.
func byPolicy(mode contracts.ApprovalMode) contracts.Outcome {
	if mode == contracts.ApprovalAuto {
		return contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByPolicy}
	}
	return contracts.Outcome{Verdict: contracts.VerdictDenied, Reason: "Denied by policy", By: contracts.ResolvedByPolicy}
}

// question is what the hub publishes when req is asked.
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
func (h *fakeHost) Withdraw(requestID string, verdict contracts.Verdict, reason string, by contracts.Resolver) bool {
	return h.resolve(requestID, contracts.Outcome{Verdict: verdict, Reason: reason, By: by})
}

// resolve ends an open question as a client would. It reports whether the
// question was open.
func (h *fakeHost) resolve(requestID string, out contracts.Outcome) bool {
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

// ApprovalMode implements [contracts.Host].
func (h *fakeHost) Restored() bool { return h.restored }

func (h *fakeHost) ApprovalMode() contracts.ApprovalMode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mode
}

// shown returns what was published so far.
func (h *fakeHost) shown() []contracts.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// types returns the types of what was published so far. Adjacent chunks and
// outputs count once, because where a stream is cut is chance.
func (h *fakeHost) types() []string {
	var types []string
	for _, ev := range h.shown() {
		types = append(types, ev.EventType())
	}
	var once []string
	for i, typ := range types {
		repeats := i > 0 && types[i-1] == typ
		if !repeats || typ != "response_chunk" && typ != "tool_output" {
			once = append(once, typ)
		}
	}
	return once
}

// said returns the text of all answers, without reasoning.
func (h *fakeHost) said() string {
	var text strings.Builder
	for _, chunk := range shownAs[*contracts.ResponseChunk](h) {
		if !chunk.IsThinking {
			text.WriteString(chunk.Content)
		}
	}
	return text.String()
}

// output returns the text of all tool output.
func (h *fakeHost) output() string {
	var text strings.Builder
	for _, out := range shownAs[*contracts.ToolOutput](h) {
		text.WriteString(out.Content)
	}
	return text.String()
}

// await returns once an event that satisfies is was published, and that event.
func (h *fakeHost) await(is func(contracts.Event) bool) contracts.Event {
	h.t.Helper()
	late := time.After(patience)
	for {
		h.mu.Lock()
		at, more := slices.IndexFunc(h.events, is), h.published
		h.mu.Unlock()
		if at >= 0 {
			return h.shown()[at]
		}
		select {
		case <-more:
		case <-late:
			h.t.Fatalf("got %v, want an event that did not come", h.types())
		}
	}
}

// awaitType is await for the first event of a type.
func (h *fakeHost) awaitType(typ string) contracts.Event {
	h.t.Helper()
	return h.await(func(ev contracts.Event) bool { return ev.EventType() == typ })
}

// shownAs returns the published events of one type.
func shownAs[E contracts.Event](h *fakeHost) []E {
	var events []E
	for _, ev := range h.shown() {
		if e, ok := ev.(E); ok {
			events = append(events, e)
		}
	}
	return events
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
