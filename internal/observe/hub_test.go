package observe_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/observe"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// What the hub calls is what a session has.
var _ hub.Observer = (*observe.Session)(nil)

// A worker is an agent that asks before it uses its tool. A prompt of "fail"
// ends in an error instead.
type worker struct{ host contracts.Host }

func (w *worker) Start(_ context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	w.host = host
	return contracts.AgentInfo{Model: "worker", Provider: "test", Executor: contracts.ExecutorReplay, Requests: contracts.RequestTypes()}, nil
}

func (w *worker) Configure(*contracts.Init) {}

func (w *worker) Run(ctx context.Context, work contracts.Work) error {
	if work.Content == "fail" {
		return &contracts.Error{Code: contracts.CodeInternal, Message: "out of order", Type: contracts.ErrorTransient}
	}
	args := json.RawMessage(`{"command":"true"}`)
	out, err := w.host.Ask(ctx, &contracts.ServerRequest{
		RequestID: "r1", CallID: "c1", Tool: "bash", RequestType: contracts.RequestApproval, Args: args, Reason: "may I",
	}, contracts.AskOptions{})
	if err != nil {
		return err
	}
	ok := out.Verdict == contracts.VerdictApproved
	return w.host.Publish(ctx, &contracts.ToolStart{CallID: "c1"}, &contracts.ToolEnd{CallID: "c1", Success: ok})
}

func (w *worker) Close(context.Context) error { return nil }

// open makes and starts a hub that o observes, as a program does.
func open(t *testing.T, o *observe.Observer, store journal.Store) (*hub.Hub, *observe.Session) {
	t.Helper()
	s := o.Session("sess_1", observe.Identity{})
	h, err := hub.New(hub.Options{SessionID: "sess_1", Cwd: "/", Agent: &worker{}, Store: store, Observer: s, WindowBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	s.Watch(func() (observe.Lag, observe.Totals) {
		m := h.Metrics()
		return observe.Lag(h.Lag()), observe.Totals{
			Merged: h.Merged(), SlowConsumers: m.SlowConsumers.Load(),
			Silent: m.Silent.Load(), AgentWaits: m.AgentWaits.Load(), CommandWaits: m.CommandWaits.Load(),
		}
	}, h.Snapshot())
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h, s
}

// join attaches a client that can answer.
func join(t *testing.T, h *hub.Hub, role contracts.Role) *memconn.Peer {
	t.Helper()
	conn, peer := memconn.New(memconn.Options{})
	go func() { // ends when the hub closes the connection
		_ = h.Serve(context.Background(), conn, hub.WireEnvelope, &contracts.Attach{Role: role, Takeover: contracts.TakeoverForce})
	}()
	send(t, peer, `{"type":"hello","capabilities":{"server_requests":["approval"]}}`)
	until(t, peer, `"hello_ok"`)
	return peer
}

func send(t *testing.T, p *memconn.Peer, text string) {
	t.Helper()
	if err := p.Send(text); err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, p *memconn.Peer, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for {
		text, err := p.Next(ctx)
		if err != nil {
			t.Fatalf("got %v, want %s", err, want)
		}
		if strings.Contains(text, want) {
			return
		}
	}
}

const (
	doIt    = `{"type":"prompt","content":"do it"}`
	approve = `{"type":"server_request_response","request_id":"r1","request_type":"approval","approved":true}`
)

func TestARealSessionIsSeen(t *testing.T) {
	r := &recorder{}
	o, err := observe.New(observe.Options{Exporter: r})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h, s := open(t, o, journal.NewMemory(journal.MemoryOptions{}))
		alice, bob := join(t, h, contracts.RoleController), join(t, h, contracts.RoleViewer)
		send(t, bob, doIt)
		until(t, bob, `"access_denied"`)
		send(t, alice, doIt)
		until(t, alice, `"server_request"`)
		send(t, alice, doIt)
		until(t, alice, `"runtime_busy"`)
		time.Sleep(90 * time.Second) // of thought
		scrape(t, o).want(t, metrics{
			`maestro_sessions{state="waiting"}`:                     1,
			`maestro_requests_pending{type="approval"}`:             1,
			`maestro_request_age_seconds`:                           90,
			`maestro_connections{role="controller",transport="ws"}`: 1,
			`maestro_connections{role="viewer",transport="ws"}`:     1,
			`maestro_refusals_total{code="access_denied"}`:          1,
			`maestro_refusals_total{code="runtime_busy"}`:           1,
			`maestro_followers`:                                     2,
		})
		send(t, alice, approve)
		until(t, alice, `"tool_end"`)
		synctest.Wait()
		send(t, alice, `{"type":"prompt","content":"fail"}`)
		until(t, alice, `"out of order"`)
		synctest.Wait()

		bob.Freeze()
		send(t, alice, `{"type":"ws.send","id":"1","message":{"type":"prompt","content":"fail"}}`)
		until(t, alice, `"out of order"`)
		synctest.Wait()
		time.Sleep(5 * time.Second)
		got := scrape(t, o)
		got.want(t, metrics{
			`maestro_followers_behind`:     1,
			`maestro_follower_lag_seconds`: 5,
		})
		if got["maestro_follower_lag_entries"] < 2 || got["maestro_follower_lag_bytes"] < 100 {
			t.Errorf("lag: got %v entries and %v bytes, want those of a run", got["maestro_follower_lag_entries"], got["maestro_follower_lag_bytes"])
		}
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		s.Close()
	})
	if err := o.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	got := scrape(t, o)
	got.want(t, metrics{
		`maestro_sessions{state="idle"}`:                                         0,
		`maestro_requests_pending{type="approval"}`:                              0,
		`maestro_request_age_seconds`:                                            0,
		`maestro_request_wait_seconds_sum{outcome="approved",type="approval"}`:   90,
		`maestro_request_wait_seconds_count{outcome="approved",type="approval"}`: 1,
		`maestro_runs_total{outcome="completed"}`:                                1,
		`maestro_runs_total{outcome="failed"}`:                                   2,
		`maestro_connections{role="controller",transport="ws"}`:                  0,
		`maestro_connections{role="viewer",transport="ws"}`:                      0,
		`maestro_follower_lag_entries`:                                           0,
	})
	if got["maestro_journal_entries_total"] < 20 || got["maestro_journal_bytes_total"] < 1000 {
		t.Errorf("journal: got %v entries of %v bytes, want those of three runs", got["maestro_journal_entries_total"], got["maestro_journal_bytes_total"])
	}
	statuses := map[string]codes.Code{}
	for _, span := range r.spans {
		statuses[span.Name+" "+attributes(span)["maestro.outcome"]] = span.Status.Code
	}
	for name, want := range map[string]codes.Code{
		"prompt completed": codes.Ok, "prompt failed": codes.Error, "tool ": codes.Ok, "server_request ": codes.Ok,
	} {
		if statuses[name] != want {
			t.Errorf("%s: got %v, want %v", name, statuses[name], want)
		}
	}
	if len(r.spans) != 5 {
		t.Errorf("got %d spans, want 5: the prompt that was refused has none", len(r.spans))
	}
}

func TestTheCallersTraceGoesOnInTheSession(t *testing.T) {
	r := &recorder{}
	o, err := observe.New(observe.Options{Exporter: r})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h, s := open(t, o, journal.NewMemory(journal.MemoryOptions{}))
		answer, token, err := h.Subscribe(&contracts.AttachRequest{Role: contracts.RoleController}, contracts.Caller{})
		if err != nil {
			t.Fatal(err)
		}
		by := contracts.Caller{ConnectionID: answer.ConnectionID, Token: token, Trace: callersParent}
		for _, text := range []string{doIt, approve} {
			if err := h.Post([]byte(text), "", by, func([]byte) {}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	if err := o.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for _, span := range r.spans {
		if got := span.SpanContext.TraceID().String(); got != callersTrace {
			t.Errorf("%s: got trace %s, want the caller's", span.Name, got)
		}
	}
	if len(r.spans) != 3 {
		t.Errorf("got %d spans, want a prompt, a tool and a question", len(r.spans))
	}
}

func TestAQuestionIsPendingAgainAfterARestart(t *testing.T) {
	o := newObserver(t, observe.Options{})
	synctest.Test(t, func(t *testing.T) {
		store := &kept{journal.NewMemory(journal.MemoryOptions{})}
		h, s := open(t, o, store)
		alice := join(t, h, contracts.RoleController)
		send(t, alice, doIt)
		until(t, alice, `"server_request"`)
		if err := h.Suspend(context.Background()); err != nil {
			t.Error(err)
		}
		s.Close()
		scrape(t, o).want(t, metrics{`maestro_requests_pending{type="approval"}`: 0})

		h, s = open(t, o, store)
		time.Sleep(10 * time.Second)
		scrape(t, o).want(t, metrics{
			`maestro_requests_pending{type="approval"}`: 1,
			`maestro_request_age_seconds`:               10, // since the session was opened
			`maestro_sessions{state="waiting"}`:         1,
		})
		lost := `maestro_lease_changes_total{reason="taken_over"}`
		before := scrape(t, o)[lost]
		alice = join(t, h, contracts.RoleController)
		send(t, alice, approve)
		until(t, alice, `"server_request_resolved"`)
		synctest.Wait()
		scrape(t, o).want(t, metrics{
			`maestro_requests_pending{type="approval"}`: 0,
			lost: before + 1, // from the connection that she had before
		})
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
		s.Close()
	})
}

// kept is a store that outlives its hub.
type kept struct{ journal.Store }

func (*kept) Close() error { return nil }
