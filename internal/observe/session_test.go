package observe_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/observe"
)

var began = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// start is what the hub tells of a prompt that it serves.
func start(s *observe.Session, traceparent string, at time.Time) {
	s.Accepted(&contracts.Prompt{Content: "hello"}, traceparent, at)
	s.Published(&contracts.ConnectionInfo{}, at)
	s.Published(&contracts.RawAgentEvent{EventKind: "agent_start"}, at)
}

func ask(id, call, tool string, kind contracts.RequestType) *contracts.ServerRequest {
	return &contracts.ServerRequest{RequestID: id, CallID: call, Tool: tool, RequestType: kind}
}

func answer(id string, verdict contracts.Verdict) *contracts.ServerRequestResolved {
	return &contracts.ServerRequestResolved{RequestID: id, Resolution: verdict, ResolvedBy: contracts.ResolvedByUser}
}

func TestWhatTheHubTellsIsCounted(t *testing.T) {
	o := newObserver(t, observe.Options{Version: "1.2.3"})
	s := o.Session("sess_1", observe.Identity{})
	s.Attached(contracts.RoleViewer, "ws")
	s.Attached(contracts.RoleViewer, "ws")
	s.Attached(contracts.RoleController, "sse")
	s.Detached(contracts.RoleViewer, "ws")
	s.Refused(contracts.CodeAccessDenied)
	s.Reset(contracts.ResetLagged)
	s.LeaseMoved(contracts.LeaseTakenOver)
	s.Appended(3, 500, 20*time.Microsecond)
	s.Appended(1, 100, 3*time.Millisecond)
	got := scrape(t, o)
	got.want(t, metrics{
		`maestro_connections{role="viewer",transport="ws"}`:      1,
		`maestro_connections{role="controller",transport="sse"}`: 1,
		`maestro_connections{role="controller",transport="ws"}`:  0,
		`maestro_refusals_total{code="access_denied"}`:           1,
		`maestro_refusals_total{code="overloaded"}`:              0,
		`maestro_resets_total{reason="lagged"}`:                  1,
		`maestro_lease_changes_total{reason="taken_over"}`:       1,
		`maestro_journal_entries_total`:                          4,
		`maestro_journal_bytes_total`:                            600,
		`maestro_journal_append_seconds_count`:                   2,
		`maestro_journal_append_seconds_bucket{le="3.2e-05"}`:    1,
		`maestro_sessions{state="idle"}`:                         1,
		`maestro_follower_lag_entries`:                           0,
	})
	for _, name := range []string{"go_goroutines", "process_start_time_seconds"} {
		if got[name] == 0 {
			t.Errorf("%s: got none, want one", name)
		}
	}
	if text := page(t, o); !strings.Contains(text, `maestro_build_info{`) || !strings.Contains(text, `version="1.2.3"`) {
		t.Error("got no maestro_build_info with the version, want one")
	}
}

func TestMetricsAreNamedAsPrometheusWantsIt(t *testing.T) {
	o := newObserver(t, observe.Options{})
	o.Session("sess_1", observe.Identity{})
	problems, err := promlint.New(strings.NewReader(page(t, o))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "maestro_") {
			t.Errorf("%s: got %q, want nothing to complain about", p.Metric, p.Text)
		}
	}
}

func TestWaitsAreMeasuredFromQuestionToResolution(t *testing.T) {
	o := newObserver(t, observe.Options{})
	s := o.Session("sess_1", observe.Identity{})
	s.Published(ask("r1", "c1", "bash", contracts.RequestApproval), began)
	s.Published(ask("r2", "c2", "ask_user", contracts.RequestUserInput), began)
	s.Published(ask("r1", "c1", "bash", contracts.RequestApproval), began) // shown again, to somebody new
	scrape(t, o).want(t, metrics{
		`maestro_requests_pending{type="approval"}`:   1,
		`maestro_requests_pending{type="user_input"}`: 1,
		`maestro_sessions{state="waiting"}`:           1,
	})
	s.Published(answer("r1", contracts.VerdictApproved), began.Add(7*time.Second))
	s.Published(answer("r1", contracts.VerdictApproved), began.Add(9*time.Second))
	s.Published(answer("r2", contracts.VerdictCancelled), began.Add(-time.Second)) // a clock was set back
	scrape(t, o).want(t, metrics{
		`maestro_requests_pending{type="approval"}`:                                       0,
		`maestro_requests_pending{type="user_input"}`:                                     0,
		`maestro_request_wait_seconds_count{outcome="approved",type="approval"}`:          1,
		`maestro_request_wait_seconds_sum{outcome="approved",type="approval"}`:            7,
		`maestro_request_wait_seconds_bucket{outcome="approved",type="approval",le="5"}`:  0,
		`maestro_request_wait_seconds_bucket{outcome="approved",type="approval",le="10"}`: 1,
		`maestro_request_wait_seconds_sum{outcome="cancelled",type="user_input"}`:         0,
		`maestro_sessions{state="waiting"}`:                                               0,
		`maestro_sessions{state="idle"}`:                                                  1,
	})
}

// A question of an earlier process is pending here, too, but how long it waited
// is not known.
func TestQuestionsOfAnEarlierProcessArePending(t *testing.T) {
	o := newObserver(t, observe.Options{})
	s := o.Session("sess_1", observe.Identity{})
	s.Watch(func() (observe.Lag, observe.Totals) { return observe.Lag{}, observe.Totals{} }, &contracts.Snapshot{State: contracts.State{PendingRequests: []contracts.PendingRequest{
		{ID: "r1", Kind: contracts.RequestApproval}, {ID: "r2", Kind: contracts.RequestClientTool},
	}}})
	scrape(t, o).want(t, metrics{
		`maestro_requests_pending{type="approval"}`:    1,
		`maestro_requests_pending{type="client_tool"}`: 1,
	})
	s.Published(answer("r1", contracts.VerdictDenied), began)
	got := scrape(t, o)
	got.want(t, metrics{`maestro_requests_pending{type="approval"}`: 0})
	if n, ok := got[`maestro_request_wait_seconds_count{outcome="denied",type="approval"}`]; ok {
		t.Errorf("got %v waits, want none that was not measured", n)
	}
	s.Close()
	scrape(t, o).want(t, metrics{`maestro_requests_pending{type="client_tool"}`: 0})
}

func TestRunsAreCountedByTheirOutcome(t *testing.T) {
	failed := &contracts.ErrorEvent{Message: "it broke", ErrorType: contracts.ErrorTransient}
	for _, tt := range []struct {
		name, outcome string
		said          []contracts.Event
	}{
		{"in silence", "completed", nil},
		{"with an answer", "completed", []contracts.Event{&contracts.ResponseStart{}, &contracts.ResponseChunk{}, &contracts.ResponseEnd{}}},
		{"with an error", "failed", []contracts.Event{&contracts.ResponseStart{}, failed, &contracts.ResponseEnd{}}},
		{"with an error of no kind", "failed", []contracts.Event{&contracts.ErrorEvent{}}},
		{"going on after an error", "completed", []contracts.Event{failed, &contracts.ResponseStart{}, &contracts.ResponseEnd{}}},
		{"with a tool after an error", "completed", []contracts.Event{failed, &contracts.ToolCall{CallID: "c"}, &contracts.ToolEnd{CallID: "c"}}},
		{"with a command's output after an error", "failed", []contracts.Event{failed, &contracts.UtilityCommandOutput{}, &contracts.Status{}}},
		{"beside a client's error", "completed", []contracts.Event{&contracts.ErrorEvent{RequestID: "search_1", ErrorType: contracts.ErrorTool}}},
		{"stopped", "cancelled", []contracts.Event{&contracts.ToolEnd{CallID: "c"}, &contracts.ErrorEvent{ErrorType: contracts.ErrorCancelled}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newObserver(t, observe.Options{})
			s := o.Session("sess_1", observe.Identity{})
			start(s, "", began)
			scrape(t, o).want(t, metrics{`maestro_sessions{state="running"}`: 1})
			for _, ev := range tt.said {
				s.Published(ev, began)
			}
			s.Published(&contracts.RawAgentEvent{EventKind: "agent_end"}, began)
			s.RunEnded(began)
			want := metrics{`maestro_sessions{state="idle"}`: 1, `maestro_sessions{state="running"}`: 0}
			for _, outcome := range []string{"completed", "failed", "cancelled", "unfinished"} {
				want[`maestro_runs_total{outcome="`+outcome+`"}`] = 0
			}
			want[`maestro_runs_total{outcome="`+tt.outcome+`"}`] = 1
			scrape(t, o).want(t, want)

			start(s, "", began)
			s.RunEnded(began)
			if got := scrape(t, o)[`maestro_runs_total{outcome="completed"}`]; got < 1 {
				t.Errorf("the next run: got %v completed, want its own outcome", got)
			}
		})
	}
}

// A prompt that comes while another runs is admitted and then refused.
func TestARefusedPromptIsNoRun(t *testing.T) {
	o := newObserver(t, observe.Options{})
	s := o.Session("sess_1", observe.Identity{})
	s.Accepted(&contracts.Prompt{}, "", began)
	s.Refused(contracts.CodeRuntimeBusy)
	s.Published(&contracts.RawAgentEvent{EventKind: "agent_start"}, began) // the agent's own
	scrape(t, o).want(t, metrics{`maestro_sessions{state="idle"}`: 1, `maestro_sessions{state="running"}`: 0})

	start(s, "", began)
	s.RunEnded(began)
	s.Published(&contracts.RawAgentEvent{EventKind: "agent_start"}, began)
	scrape(t, o).want(t, metrics{`maestro_sessions{state="running"}`: 0})
}

func TestAClosedSessionLeavesNothingBehind(t *testing.T) {
	o := newObserver(t, observe.Options{})
	s := o.Session("sess_1", observe.Identity{})
	s.Watch(func() (observe.Lag, observe.Totals) {
		return observe.Lag{Followers: 1, Entries: 9}, observe.Totals{Merged: 5}
	}, nil)
	s.Attached(contracts.RoleViewer, "ws")
	start(s, "", began)
	s.Published(ask("r1", "c1", "bash", contracts.RequestApproval), began)
	s.Close()
	s.Close()
	s.RunEnded(began)
	s.Published(ask("r2", "c2", "bash", contracts.RequestApproval), began)
	s.Detached(contracts.RoleViewer, "ws")
	scrape(t, o).want(t, metrics{
		`maestro_sessions{state="idle"}`:                    0,
		`maestro_sessions{state="running"}`:                 0,
		`maestro_sessions{state="waiting"}`:                 0,
		`maestro_requests_pending{type="approval"}`:         0,
		`maestro_runs_total{outcome="unfinished"}`:          1,
		`maestro_runs_total{outcome="completed"}`:           0,
		`maestro_connections{role="viewer",transport="ws"}`: 0,
		`maestro_follower_lag_entries`:                      0,
		`maestro_merged_entries_total`:                      5,
	})
}

func TestLagIsTheWorstAndTotalsAreTheSum(t *testing.T) {
	o := newObserver(t, observe.Options{})
	for i := range 3 {
		s := o.Session(fmt.Sprintf("sess_%d", i), observe.Identity{})
		if i == 0 {
			continue // one that nobody watches
		}
		s.Watch(func() (observe.Lag, observe.Totals) {
			return observe.Lag{Followers: 10, Behind: i, Entries: uint64(100 * i), Bytes: int64(1000 / i), Age: time.Duration(i) * time.Second},
				observe.Totals{Merged: 7, SlowConsumers: 1, Silent: 2, AgentWaits: 3, CommandWaits: 5}
		}, nil)
	}
	scrape(t, o).want(t, metrics{
		`maestro_followers`: 20, `maestro_followers_behind`: 3,
		`maestro_follower_lag_entries`: 200, `maestro_follower_lag_bytes`: 1000, `maestro_follower_lag_seconds`: 2,
		`maestro_merged_entries_total`: 14, `maestro_slow_consumers_total`: 2,
		`maestro_silent_connections_total`: 4, `maestro_agent_waits_total`: 6, `maestro_command_waits_total`: 10,
		`maestro_sessions{state="idle"}`: 3,
	})
}

func TestLabelsComeFromClosedSets(t *testing.T) {
	o := newObserver(t, observe.Options{})
	before := len(scrape(t, o))
	const hostile = "evil\"\n"
	for i := range 100 {
		x := fmt.Sprintf("%s%d", hostile, i)
		s := o.Session(x, observe.Identity{Workspace: x})
		s.Attached(contracts.Role(x), x)
		s.Refused(contracts.Code(x))
		s.Reset(contracts.ResetReason(x))
		s.LeaseMoved(contracts.LeaseReason(x))
		s.Published(ask(x, x, x, contracts.RequestType(x)), began)
		s.Published(answer(x, contracts.Verdict(x)), began)
		s.Published(&contracts.ErrorEvent{Message: x, ErrorType: contracts.ErrorType(x)}, began)
		s.RunEnded(began)
	}
	got := scrape(t, o)
	got.want(t, metrics{
		`maestro_connections{role="other",transport="other"}`:              100,
		`maestro_refusals_total{code="other"}`:                             100,
		`maestro_resets_total{reason="other"}`:                             100,
		`maestro_lease_changes_total{reason="other"}`:                      100,
		`maestro_request_wait_seconds_count{outcome="other",type="other"}`: 100,
	})
	if more := len(got) - before; more > 30 {
		t.Errorf("got %d more series, want those of other only", more)
	}
	if strings.Contains(page(t, o), "evil") {
		t.Error("got what somebody sent among the labels, want none of it")
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	o := newObserver(t, observe.Options{})
	s := o.Session("sess_1", observe.Identity{})
	for i := range 1100 {
		s.Published(ask(fmt.Sprint(i), "c", "bash", contracts.RequestApproval), began)
	}
	scrape(t, o).want(t, metrics{
		`maestro_requests_pending{type="approval"}`: 1024,
		`maestro_untracked_total{what="question"}`:  76,
	})
	for i := range 1100 {
		s.Published(answer(fmt.Sprint(i), contracts.VerdictApproved), began)
	}
	scrape(t, o).want(t, metrics{`maestro_requests_pending{type="approval"}`: 0})
}

// The hub calls a session in order, but refusals, resets, scrapes and the end
// come at any time.
func TestEverythingAtOnce(t *testing.T) {
	r := &recorder{}
	o := newObserver(t, observe.Options{Exporter: r})
	var wg sync.WaitGroup
	for i := range 8 {
		s := o.Session(fmt.Sprintf("sess_%d", i), observe.Identity{})
		wg.Go(func() {
			s.Watch(func() (observe.Lag, observe.Totals) { return observe.Lag{}, observe.Totals{Merged: 1} }, nil)
			s.Attached(contracts.RoleController, "ws")
			for n := range 200 {
				id := fmt.Sprint(n)
				start(s, "", began)
				s.Published(&contracts.ToolCall{CallID: id, Tool: "bash"}, began)
				s.Published(ask(id, id, "bash", contracts.RequestApproval), began)
				s.Appended(2, 100, time.Microsecond)
				s.Published(answer(id, contracts.VerdictApproved), began)
				s.Published(&contracts.ToolEnd{CallID: id, Success: true}, began)
				s.RunEnded(began)
			}
			s.Detached(contracts.RoleController, "ws")
			if i%2 == 0 {
				s.Close()
			}
		})
		wg.Go(func() {
			for range 200 {
				s.Refused(contracts.CodeRateLimited)
				s.Reset(contracts.ResetGap)
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for range 20 {
				scrape(t, o)
			}
		})
	}
	wg.Wait()
	scrape(t, o).want(t, metrics{
		`maestro_sessions{state="idle"}`:                        4,
		`maestro_runs_total{outcome="completed"}`:               1600,
		`maestro_refusals_total{code="rate_limited"}`:           1600,
		`maestro_connections{role="controller",transport="ws"}`: 0,
		`maestro_merged_entries_total`:                          8,
		`maestro_journal_entries_total`:                         3200,
		`maestro_trace_spans_total{stage="ended"}`:              4800,
	})
}
