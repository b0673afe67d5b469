package llm

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// rawEvents returns the raw agent events, by kind.
func rawEvents(host *hosttest.Host) map[string]map[string]any {
	events := map[string]map[string]any{}
	for _, e := range hosttest.As[*contracts.RawAgentEvent](host) {
		var event map[string]any
		if json.Unmarshal(e.Event, &event) == nil && event["type"] == e.EventKind {
			events[e.EventKind] = event
		}
	}
	return events
}

func TestRawEventsTellWhatTheProviderSaid(t *testing.T) {
	host := hosttest.New(t)
	refusal := &model.Error{
		Kind: model.KindTransient, Status: 500, RetryAfter: time.Second, Message: "m at a answered 500: Model error",
		Said: "Model error", Details: json.RawMessage(`{"code":500}`),
	}
	named := func(context.Context, *model.Request, func(model.Delta) error) (model.Reply, error) {
		reply := whole("hello")
		reply.ID = "gen-1"
		return reply, nil
	}
	m := newFake(t, named, fails("", refusal))
	a := start(t, host, Options{Model: m, NoRetries: true})
	hosttest.Must(t, a.Run(t.Context(), prompt("1")))
	if err := a.Run(t.Context(), prompt("2")); err == nil {
		t.Error("got no error, want that the provider is not asked again")
	}
	events := rawEvents(host)
	if got := events["model_reply"]["generation_id"]; got != "gen-1" {
		t.Errorf("got the id %v, want gen-1", got)
	}
	failed := events["model_error"]
	details, _ := failed["details"].(map[string]any)
	if failed["message"] != "Model error" || failed["status"] != 500.0 || failed["retry_after_ms"] != 1000.0 || details["code"] != 500.0 {
		t.Errorf("got %v, want what the provider said", failed)
	}
}

func TestLimitOfTurnsIsARawEvent(t *testing.T) {
	host := hosttest.New(t)
	m := newFake(t, says("", callOf("c", "read", `{"path":"f"}`)))
	a := start(t, host, Options{Model: m, MaxIterations: 1, Tools: fileTools(t.TempDir())})
	if err := a.Run(t.Context(), prompt("hello")); err == nil {
		t.Error("got no error, want the end after one turn")
	}
	if got := rawEvents(host)["turn_limit"]["turns"]; got != 1.0 {
		t.Errorf("got %v turns, want 1", got)
	}
}

func TestModelGetsOnlyOfferedTools(t *testing.T) {
	m := newFake(t, says("done"))
	a := start(t, hosttest.New(t), Options{
		Model: m, Tools: fileTools(t.TempDir()), Offers: func(name string) bool { return name == "read" || name == "client" },
		ClientTools: func() []model.Tool { return []model.Tool{{Name: "client"}, {Name: "other"}} },
	})
	hosttest.Must(t, a.Run(t.Context(), prompt("hello")))
	var names []string
	for _, tool := range m.request(0).Tools {
		names = append(names, tool.Name)
	}
	if !slices.Equal(names, []string{"read", "client"}) {
		t.Errorf("got the tools %v, want read and client", names)
	}
}
