package observe_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/observe"
)

const (
	callersTrace  = "0af7651916cd43dd8448eb211c80319c"
	callersSpan   = "b7ad6b7169203331"
	callersParent = "00-" + callersTrace + "-" + callersSpan + "-01"
)

func TestPromptToolAndQuestionAreNested(t *testing.T) {
	for name, value := range map[string]string{
		"MAESTRO_EVALOPS_ORG_ID": "org_1", "MAESTRO_EVALOPS_USER_ID": "user_1", "MAESTRO_EVALOPS_WORKSPACE_ID": "ws_1",
		"MAESTRO_AGENT_RUN_ID": "run_1", "MAESTRO_AGENT_RUN_STEP_ID": "step_1",
	} {
		t.Setenv(name, value)
	}
	tr := newTrace(t, observe.Options{Version: "1.2.3"}, observe.Identity{Workspace: "ws_2"})
	start(tr.Session, callersParent, began)
	tr.Published(&contracts.ToolCall{CallID: "c1", Tool: "bash", RequiresApproval: true}, began.Add(time.Second))
	tr.Published(ask("r1", "c1", "bash", contracts.RequestApproval), began.Add(time.Second))
	tr.Published(answer("r1", contracts.VerdictApproved), began.Add(5*time.Second))
	tr.Published(&contracts.ToolStart{CallID: "c1"}, began.Add(5*time.Second))
	tr.Published(&contracts.ToolEnd{CallID: "c1", Success: true, GovernedOutcome: "allowed"}, began.Add(7*time.Second))
	tr.Published(ask("r2", "c2", "form", contracts.RequestMCPElicitation), began.Add(8*time.Second)) // about no tool that was announced
	tr.Published(answer("r2", contracts.VerdictCancelled), began.Add(9*time.Second))
	tr.RunEnded(began.Add(10 * time.Second))
	spans := tr.end()
	if len(spans) != 4 {
		t.Fatalf("got %d spans, want 4", len(spans))
	}
	prompt, tool, question, form := spans["prompt"], spans["tool bash"], spans["server_request bash"], spans["server_request form"]

	for _, tt := range []struct {
		name         string
		span, parent tracetest.SpanStub
		took         time.Duration
		status       codes.Code
	}{
		{"tool", tool, prompt, 6 * time.Second, codes.Ok},
		{"question", question, tool, 4 * time.Second, codes.Ok},
		{"form", form, prompt, time.Second, codes.Error},
	} {
		if tt.span.Parent.SpanID() != tt.parent.SpanContext.SpanID() || tt.span.SpanContext.TraceID().String() != callersTrace {
			t.Errorf("%s: got parent %s in trace %s, want %s in %s", tt.name, tt.span.Parent.SpanID(), tt.span.SpanContext.TraceID(), tt.parent.SpanContext.SpanID(), callersTrace)
		}
		if got := tt.span.EndTime.Sub(tt.span.StartTime); got != tt.took {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.took)
		}
		if tt.span.Status.Code != tt.status {
			t.Errorf("%s: got status %v, want %v", tt.name, tt.span.Status.Code, tt.status)
		}
	}
	if got := prompt.Parent; got.SpanID().String() != callersSpan || !got.IsRemote() || prompt.Status.Code != codes.Ok {
		t.Errorf("prompt: got parent %v and status %v, want the caller's span and ok", got, prompt.Status)
	}
	if !prompt.StartTime.Equal(began) || !prompt.EndTime.Equal(began.Add(10*time.Second)) {
		t.Errorf("prompt: got %v to %v, want the times of the events", prompt.StartTime, prompt.EndTime)
	}
	if got := events(tool); !slices.Equal(got, []string{"start"}) {
		t.Errorf("tool: got events %q, want the start", got)
	}
	common := map[string]string{
		"evalops.organization_id": "org_1", "enduser.id": "user_1", "evalops.workspace_id": "ws_2",
		"maestro.agent_run_id": "run_1", "maestro.session_id": "sess_1",
	}
	wantAttributes(t, prompt, common, map[string]string{"maestro.outcome": "completed"})
	common["maestro.agent_run_step_id"] = "step_1"
	wantAttributes(t, tool, common, map[string]string{"maestro.tool.name": "bash", "maestro.tool.governed_outcome": "allowed"})
	wantAttributes(t, question, common, map[string]string{
		"maestro.tool.name": "bash", "maestro.request.type": "approval",
		"maestro.request.verdict": "approved", "maestro.request.resolved_by": "user",
	})
	resource := map[string]string{}
	for _, kv := range prompt.Resource.Attributes() {
		resource[string(kv.Key)] = kv.Value.String()
	}
	if resource["service.name"] != "maestro" || resource["service.version"] != "1.2.3" {
		t.Errorf("resource: got %v, want maestro 1.2.3", resource)
	}
}

// wantAttributes holds all attributes of a span against those of both maps.
func wantAttributes(t *testing.T, s tracetest.SpanStub, want ...map[string]string) {
	t.Helper()
	got, n := attributes(s), 0
	for _, m := range want {
		n += len(m)
		for key, value := range m {
			if got[key] != value {
				t.Errorf("%s: got %s %q, want %q", s.Name, key, got[key], value)
			}
		}
	}
	if len(got) != n {
		t.Errorf("%s: got attributes %v, want %d of them", s.Name, got, n)
	}
}

func TestAPromptWithoutACallerIsARoot(t *testing.T) {
	for name, traceparent := range map[string]string{
		"none": "", "nonsense": "hello", "zero": "00-00000000000000000000000000000000-0000000000000000-01",
		"endless": "01-" + callersTrace + "-" + callersSpan + "-01-" + strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrace(t, observe.Options{}, observe.Identity{})
			start(tr.Session, traceparent, began)
			tr.RunEnded(began)
			prompt, ok := tr.end()["prompt"]
			if !ok || prompt.Parent.IsValid() {
				t.Errorf("got prompt %t with parent %v, want one without", ok, prompt.Parent)
			}
		})
	}
}

// A caller that does not sample its trace gets no spans of ours either.
func TestAnUnsampledCallerIsRespected(t *testing.T) {
	tr := newTrace(t, observe.Options{}, observe.Identity{})
	start(tr.Session, strings.TrimSuffix(callersParent, "01")+"00", began)
	tr.Published(&contracts.ToolCall{CallID: "c1", Tool: "bash"}, began)
	tr.Published(&contracts.ToolEnd{CallID: "c1"}, began)
	tr.RunEnded(began)
	if spans := tr.end(); len(spans) != 0 {
		t.Errorf("got %d spans, want none", len(spans))
	}
}

func TestFailuresAndInterruptsAreStatuses(t *testing.T) {
	tr := newTrace(t, observe.Options{}, observe.Identity{})
	start(tr.Session, "", began)
	tr.Published(&contracts.ToolCall{CallID: "c1", Tool: "bad"}, began)
	tr.Published(&contracts.ToolEnd{CallID: "c1", ErrorCode: "exit_status"}, began)
	tr.Accepted(&contracts.Interrupt{}, "", began)
	tr.Published(&contracts.ErrorEvent{Message: "Run interrupted by user", ErrorType: contracts.ErrorCancelled}, began)
	tr.RunEnded(began)
	spans := tr.end()
	bad, prompt := spans["tool bad"], spans["prompt"]
	if bad.Status.Code != codes.Error || attributes(bad)["error.type"] != "exit_status" {
		t.Errorf("tool: got %v and %v, want an error with its code", bad.Status, attributes(bad))
	}
	if prompt.Status.Code != codes.Error || prompt.Status.Description != "cancelled" || attributes(prompt)["error.type"] != "cancelled" {
		t.Errorf("prompt: got %v and %v, want cancelled", prompt.Status, attributes(prompt))
	}
	if got := events(prompt); !slices.Equal(got, []string{"interrupt", "error"}) {
		t.Errorf("prompt: got events %q, want the interrupt and the error", got)
	}
}

func TestVerdictsAreStatuses(t *testing.T) {
	for verdict, want := range map[contracts.Verdict]codes.Code{
		contracts.VerdictApproved: codes.Ok, contracts.VerdictDenied: codes.Ok, contracts.VerdictCompleted: codes.Ok,
		contracts.VerdictAnswered: codes.Ok, contracts.VerdictRetried: codes.Ok, contracts.VerdictSkipped: codes.Ok,
		contracts.VerdictFailed: codes.Error, contracts.VerdictAborted: codes.Error, contracts.VerdictCancelled: codes.Error,
	} {
		tr := newTrace(t, observe.Options{}, observe.Identity{})
		tr.Published(ask("r1", "c1", "bash", contracts.RequestToolRetry), began)
		tr.Published(answer("r1", verdict), began)
		span := tr.end()["server_request bash"]
		if span.Status.Code != want || attributes(span)["maestro.request.verdict"] != string(verdict) {
			t.Errorf("%s: got %v and %v, want %v", verdict, span.Status, attributes(span), want)
		}
	}
}

// What a session leaves open ends with it, and says so. A question that outlasts
// its prompt is still a part of it.
func TestSpansEndWithTheirSession(t *testing.T) {
	tr := newTrace(t, observe.Options{}, observe.Identity{})
	start(tr.Session, "", began)
	tr.Published(&contracts.ToolCall{CallID: "c1", Tool: "bash"}, began)
	tr.Published(ask("r1", "c1", "bash", contracts.RequestApproval), began)
	tr.RunEnded(began)
	start(tr.Session, "", began)
	tr.Close()
	tr.RunEnded(began)
	tr.Published(&contracts.ToolCall{CallID: "c2", Tool: "late"}, began)
	tr.Published(&contracts.ToolEnd{CallID: "c2"}, began)
	tr.recorder.mu.Lock()
	if n := len(tr.recorder.spans); n != 0 {
		t.Errorf("got %d spans exported by the session, want them exported in the background", n)
	}
	tr.recorder.mu.Unlock()
	if err := tr.observer.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range tr.recorder.spans {
		got = append(got, fmt.Sprint(s.Name, " ", s.Status.Code, " ", s.Status.Description))
	}
	slices.Sort(got)
	want := []string{"prompt Error unfinished", "prompt Ok ", "server_request Error unfinished", "tool Error unfinished"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// After a restart the answer to a question may start a run without a prompt.
func TestToolsWithoutAPromptAreTracesOfTheirOwn(t *testing.T) {
	tr := newTrace(t, observe.Options{}, observe.Identity{})
	start(tr.Session, "", began)
	tr.RunEnded(began) // the run before is over
	tr.Published(answer("r0", contracts.VerdictApproved), began)
	tr.Published(&contracts.ToolStart{CallID: "c1"}, began)
	tr.Published(&contracts.ToolEnd{CallID: "c1", Success: true}, began)
	tr.Published(&contracts.ToolEnd{CallID: "unknown", Success: true}, began)
	tr.RunEnded(began)
	spans := tr.end()
	if tool, ok := spans["tool"]; !ok || len(spans) != 2 || tool.Parent.IsValid() || tool.Status.Code != codes.Ok {
		t.Errorf("got %v, want a prompt, and a tool without a parent", spans)
	}
}

func TestOpenToolsAreBounded(t *testing.T) {
	tr := newTrace(t, observe.Options{}, observe.Identity{})
	start(tr.Session, "", began)
	for i := range 1030 {
		id := fmt.Sprint("c", i)
		tr.Published(&contracts.ToolCall{CallID: id, Tool: id}, began)
		tr.Published(&contracts.ToolCall{CallID: id, Tool: id}, began) // announced twice
	}
	scrape(t, tr.observer).want(t, metrics{`maestro_untracked_total{what="tool"}`: 12})
	if n := len(tr.end()); n != 1025 {
		t.Errorf("got %d spans, want the prompt and 1024 tools", n)
	}
}

// Whatever people and programs say stays out of spans and metrics.
func TestNothingThatWasSaidIsExported(t *testing.T) {
	const secret = "s3cr3t-sentinel"
	args := json.RawMessage(`{"command":"echo ` + secret + `"}`)
	tr := newTrace(t, observe.Options{}, observe.Identity{})
	tr.Accepted(&contracts.Prompt{Content: secret, Attachments: []string{secret}}, "", began)
	tr.Published(&contracts.RawAgentEvent{EventKind: "agent_start", Event: args}, began)
	for _, ev := range []contracts.Event{
		&contracts.ResponseStart{ResponseID: secret},
		&contracts.ResponseChunk{ResponseID: secret, Content: secret},
		&contracts.ToolCall{CallID: secret, Tool: "bash", Args: args},
		&contracts.ServerRequest{
			RequestID: secret, CallID: secret, Tool: "bash", RequestType: contracts.RequestApproval, Args: args,
			DisplayName: secret, SummaryLabel: secret, ActionDescription: secret, Reason: secret,
		},
		&contracts.ServerRequestResolved{RequestID: secret, Resolution: contracts.VerdictDenied, Reason: secret, ResolvedBy: contracts.ResolvedByUser},
		&contracts.ClientToolRequest{CallID: secret + "2", Tool: "ask_user", Args: args},
		&contracts.ToolOutput{CallID: secret, Content: secret},
		&contracts.ToolEnd{CallID: secret, ApprovalRequestID: secret},
		&contracts.ErrorEvent{Message: secret, ErrorType: contracts.ErrorTool},
		&contracts.Status{Message: secret},
	} {
		tr.Published(ev, began)
	}
	tr.RunEnded(began)
	metrics := page(t, tr.observer)
	spans, err := json.Marshal(tr.end())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(spans), "ask_user") {
		t.Errorf("got spans %s, want the tools among them", spans)
	}
	if strings.Contains(string(spans), secret) {
		t.Errorf("got spans %s, want nothing of what was said", spans)
	}
	if strings.Contains(metrics, secret) {
		t.Error("got what was said among the metrics, want none of it")
	}
}

// Names come from the agent, who may choose long ones.
func TestNamesAreCut(t *testing.T) {
	tr := newTrace(t, observe.Options{}, observe.Identity{})
	long := strings.Repeat("ö", 1000)
	tr.Published(&contracts.ToolCall{CallID: "c1", Tool: "x" + long}, began)
	for _, s := range tr.end() {
		if got, want := attributes(s)["maestro.tool.name"], "x"+long[:126]; got != want {
			t.Errorf("got a name of %d bytes, %q, want its first whole characters within 128", len(got), got)
		}
	}
}

func TestWithoutAnEndpointNothingIsTraced(t *testing.T) {
	o := newObserver(t, observe.Options{})
	s := o.Session("sess_1", observe.Identity{})
	start(s, callersParent, began)
	s.Published(&contracts.ToolCall{CallID: "c1", Tool: "bash"}, began)
	s.Accepted(&contracts.Interrupt{}, "", began)
	s.RunEnded(began)
	s.Close()
	scrape(t, o).want(t, metrics{`maestro_trace_spans_total{stage="ended"}`: 0})
}
