package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// newChildAgent returns an agent whose child has the named behaviour, and the
// directory where it takes notes.
func newChildAgent(t *testing.T, behaviour string) (*headless, string) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	notes := t.TempDir()
	t.Setenv(behaviourVar, behaviour)
	t.Setenv(notesVar, notes)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // or a child built with -race takes a second to exit
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := newHeadless([]string{exe}, Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}).(*headless)
	h.wait.backoff = time.Hour // restarts come from prompts unless a test says otherwise
	h.wait.maxBackoff = time.Hour
	h.wait.quiet = 200 * time.Millisecond
	return h, notes
}

// startChild starts the agent and closes it with the test.
func startChild(t *testing.T, behaviour string) (*headless, *hosttest.Host, string) {
	t.Helper()
	h, notes := newChildAgent(t, behaviour)
	host := hosttest.New(t)
	start(t, h, host)
	return h, host, notes
}

func start(t *testing.T, h *headless, host *hosttest.Host) contracts.AgentInfo {
	t.Helper()
	info, err := h.Start(t.Context(), host)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return info
}

func runOnce(t *testing.T, h *headless) {
	t.Helper()
	if err := h.Run(t.Context(), contracts.Work{Content: "go"}); err != nil {
		t.Fatalf("run: got error %v, want none", err)
	}
}

// wantDeath checks that err is how a run ends when the child does.
func wantDeath(t *testing.T, err error, text string) {
	t.Helper()
	e, ok := errors.AsType[*contracts.Error](err)
	if !ok || e.Type != contracts.ErrorTransient || !strings.Contains(e.Message, text) {
		t.Fatalf("run: got error %#v, want a transient one with %q", err, text)
	}
}

func wantTypes(t *testing.T, host *hosttest.Host, want ...string) {
	t.Helper()
	if got := host.Types(); !slices.Equal(got, want) {
		t.Fatalf("published:\n got %q\nwant %q", got, want)
	}
}

func TestHeadlessChildIntroducesItself(t *testing.T) {
	h, _ := newChildAgent(t, "good")
	got := start(t, h, hosttest.New(t))
	want := contracts.AgentInfo{Model: "m", Provider: "p", Executor: contracts.ExecutorReplay, Requests: contracts.RequestTypes(), Forgets: true}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestHeadlessRunIsRelayed(t *testing.T) {
	h, host, notes := startChild(t, "good")
	err := h.Run(t.Context(), contracts.Work{Content: "go", Attachments: []contracts.Attachment{{Path: "a.txt"}}})
	if err != nil {
		t.Fatal(err)
	}
	wantTypes(t, host, "raw_agent_event", "response_start", "response_chunk", "response_end",
		"tool_call", "server_request", "server_request_resolved", "tool_start", "tool_output", "tool_end",
		"tool_call", "tool_start", "tool_end", "error")
	if got := hosttest.As[*contracts.ErrorEvent](host)[0].ErrorType; got != contracts.ErrorTool {
		t.Errorf("got error type %q, want it classified as tool", got)
	}
	commands, err := os.ReadFile(filepath.Join(notes, "commands"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"role":"controller"`, `"raw_agent_events":true`, `"name":"maestro"`, `"mcp_elicitation"`,
		`{"type":"prompt","content":"go","attachments":["a.txt"]}`,
	} {
		if !strings.Contains(string(commands), want) {
			t.Errorf("the child was sent\n%s, want %s in it", commands, want)
		}
	}
}

func TestHeadlessApprovalFollowsPolicy(t *testing.T) {
	for _, tt := range []struct {
		mode contracts.ApprovalMode
		tool []string
	}{
		{contracts.ApprovalAuto, []string{"tool_call", "tool_start", "tool_output", "tool_end"}},
		{contracts.ApprovalFail, []string{"tool_call", "tool_end"}},
	} {
		t.Run(string(tt.mode), func(t *testing.T) {
			h, host, _ := startChild(t, "good")
			host.Mode = tt.mode
			runOnce(t, h)
			want := slices.Concat([]string{"raw_agent_event", "response_start", "response_chunk", "response_end"},
				tt.tool, []string{"tool_call", "tool_start", "tool_end", "error"})
			wantTypes(t, host, want...)
			if hosttest.As[*contracts.ToolCall](host)[0].RequiresApproval {
				t.Error("got a call that requires approval, want none: nobody is asked")
			}
		})
	}
}

func TestHeadlessAnswersReachTheChild(t *testing.T) {
	h, host, _ := startChild(t, "asks")
	host.Answer = func(req *contracts.ServerRequest) contracts.Outcome {
		if req.RequestType == contracts.RequestToolRetry {
			return contracts.Outcome{Verdict: contracts.VerdictSkipped, By: contracts.ResolvedByUser}
		}
		return contracts.Outcome{
			Verdict: contracts.VerdictAnswered, By: contracts.ResolvedByClient,
			Content: []contracts.ContentBlock{{Type: "text", Text: "blue"}},
		}
	}
	runOnce(t, h)
	if got := host.Said(); !strings.Contains(got, "blue") || !strings.Contains(got, "skip") {
		t.Errorf("got the child say %q, want what it was answered", got)
	}
	wantTypes(t, host, "client_tool_request", "server_request", "server_request_resolved",
		"server_request", "server_request_resolved", "response_start", "response_chunk", "response_end")
}

func TestHeadlessChildMayWithdrawAQuestion(t *testing.T) {
	h, host, notes := startChild(t, "withdraws")
	host.Answer = nil
	ended := make(chan error, 1)
	go func() { ended <- h.Run(t.Context(), contracts.Work{}) }()
	host.AwaitType("server_request")
	h.Configure(&contracts.Init{}) // the sign to withdraw
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if slices.Contains(commandTypes(notes), "server_request_response") {
		t.Error("got an answer to the child, want none to a question it withdrew")
	}
	got := hosttest.As[*contracts.ServerRequestResolved](host)
	if len(got) != 1 || got[0].Reason != "too late" || got[0].ResolvedBy != contracts.ResolvedByPolicy {
		t.Errorf("got resolutions %+v, want the child's", got)
	}
}

func TestHeadlessChildWithoutRawEventsEndsRunByQuiet(t *testing.T) {
	h, host, _ := startChild(t, "foreign")
	began := time.Now()
	runOnce(t, h)
	if took := time.Since(began); took < h.wait.quiet {
		t.Errorf("got a run of %v, want at least the quiet of %v", took, h.wait.quiet)
	}
	wantTypes(t, host, "response_start", "response_chunk", "response_end")
}

func TestHeadlessRefusedPromptEndsRun(t *testing.T) {
	h, host, _ := startChild(t, "refuses")
	runOnce(t, h)
	wantTypes(t, host, "error")
}

func TestHeadlessDeathFailsTheRunAndIsRepaired(t *testing.T) {
	h, host, notes := startChild(t, "dies")
	h.Configure(&contracts.Init{ThinkingLevel: contracts.ThinkingHigh})
	wantDeath(t, h.Run(t.Context(), contracts.Work{}), "agent process exited: exit status 3")
	if err := host.Publish(t.Context(), endOf("r1")); err != nil { // as the hub closes what was left open
		t.Fatal(err)
	}
	runOnce(t, h)
	ids := []string{}
	for _, ev := range hosttest.As[*contracts.ResponseStart](host) {
		ids = append(ids, ev.ResponseID)
	}
	if want := []string{"r1", "r1~2"}; !slices.Equal(ids, want) {
		t.Errorf("got responses %q, want %q: ids are not reused", ids, want)
	}
	want := []string{"hello", "init", "prompt", "hello", "init", "prompt"}
	if got := commandTypes(notes); !slices.Equal(got, want) {
		t.Errorf("got commands %q, want %q", got, want)
	}
}

func endOf(responseID string) *contracts.ResponseEnd {
	return &contracts.ResponseEnd{
		ResponseID: responseID, Usage: contracts.Usage{ModelID: "m", Provider: "p"},
		ToolsSummary: contracts.ToolsSummary{ToolsUsed: []string{}},
	}
}

func TestHeadlessDeathBetweenRunsIsTold(t *testing.T) {
	h, host, _ := startChild(t, "dies idle")
	h.Configure(&contracts.Init{})
	got := host.AwaitType("error").(*contracts.ErrorEvent)
	if want := "agent process exited: exit status 5; what it said on standard error is in the server's log"; got.Message != want || got.ErrorType != contracts.ErrorTransient || got.Fatal {
		t.Errorf("got %+v, want a transient %q", got, want)
	}
}

func TestHeadlessChildThatDoesNotReadIsKilled(t *testing.T) {
	h, host, _ := startChild(t, "does not read")
	for range 1100 { // more than may be queued
		h.Configure(&contracts.Init{SystemPrompt: new(strings.Repeat("x", 64<<10))}) // more than a pipe holds
	}
	got := host.AwaitType("error").(*contracts.ErrorEvent)
	if want := "agent process does not read its input"; !strings.HasPrefix(got.Message, want) {
		t.Errorf("got %q, want %q", got.Message, want)
	}
}

func TestHeadlessQuestionsWithinTheBoundOutliveThoseBeyond(t *testing.T) {
	h, host, notes := startChild(t, "asks much")
	host.Answer = nil
	done := make(chan error, 1)
	ctx, stop := context.WithTimeout(t.Context(), hosttest.Patience)
	defer stop()
	go func() { done <- h.Run(ctx, contracts.Work{Content: "go"}) }() // ends with the last answer
	host.AwaitType("response_end")                                    // the child has read all refusals
	answered := map[string]bool{}
	for len(answered) < maxAsks {
		req := host.Await(func(ev contracts.Event) bool {
			e, ok := ev.(*contracts.ServerRequest)
			return ok && !answered[e.RequestID]
		}).(*contracts.ServerRequest)
		answered[req.RequestID] = true
		host.Resolve(req.RequestID, contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser})
	}
	hosttest.Must(t, <-done)
	if got := hosttest.As[*contracts.Status](host); len(got) != 1 || !strings.Contains(got[0].Message, errTooManyAsks.Message) {
		t.Errorf("got statuses %+v, want it said once that questions were refused", got)
	}
	text, err := os.ReadFile(filepath.Join(notes, "commands"))
	hosttest.Must(t, err)
	commands := string(text)
	refused := strings.Count(commands, `"approved":false,"reason":"overloaded: 256 questions are open already"`)
	if approved := strings.Count(commands, `"approved":true`); approved != maxAsks || refused != manyAsks-maxAsks {
		t.Errorf("got %d approvals and %d refusals, want %d and %d", approved, refused, maxAsks, manyAsks-maxAsks)
	}
}

func TestHeadlessQuestionsEndWithTheRun(t *testing.T) {
	h, host, _ := startChild(t, "asks once")
	host.Answer = nil
	runOnce(t, h)
	for _, r := range hosttest.As[*contracts.ServerRequestResolved](host) {
		if r.Resolution != contracts.VerdictCancelled || r.ResolvedBy != contracts.ResolvedByRuntime {
			t.Errorf("got resolution %+v, want it cancelled by the runtime", r)
		}
	}
}

func TestHeadlessCallWithoutItsQuestionIsShown(t *testing.T) {
	h, host, _ := startChild(t, "does not ask")
	runOnce(t, h)
	wantTypes(t, host, "tool_call", "tool_start", "tool_end")
	if hosttest.As[*contracts.ToolCall](host)[0].RequiresApproval {
		t.Error("got a call that requires approval, want one that does not: nobody can give it")
	}
}

func TestHeadlessIsRestartedWithoutAPrompt(t *testing.T) {
	h, host, _ := startChild(t, "dies")
	h.wait.backoff = time.Millisecond
	wantDeath(t, h.Run(t.Context(), contracts.Work{}), "exit status 3")
	host.Await(func(ev contracts.Event) bool {
		status, ok := ev.(*contracts.Status)
		return ok && status.Message == "Agent process restarted"
	})
}

func TestHeadlessGivesUpUntilTheNextPrompt(t *testing.T) {
	h, host, _ := startChild(t, "dies at once")
	h.wait.backoff, h.wait.maxBackoff = time.Millisecond, time.Millisecond
	wantDeath(t, h.Run(t.Context(), contracts.Work{}), "exit status 4")
	host.Await(func(ev contracts.Event) bool {
		e, ok := ev.(*contracts.ErrorEvent)
		return ok && strings.Contains(e.Message, "died 5 times in a row")
	})
	before := h.deaths.Load()
	wantDeath(t, h.Run(t.Context(), contracts.Work{}), "exit status 4")
	if before != maxDeaths {
		t.Errorf("got %d starts without a prompt, want %d", before, maxDeaths)
	}
}

func TestHeadlessToleratesFourBadLines(t *testing.T) {
	h, host, _ := startChild(t, "garbage")
	runOnce(t, h)
	wantTypes(t, host, "error", "error", "error", "error", "response_start", "response_chunk", "response_end")
	if got := hosttest.As[*contracts.ErrorEvent](host)[0].ErrorType; got != contracts.ErrorProtocol {
		t.Errorf("got error type %q, want protocol", got)
	}
}

func TestHeadlessFifthBadLineKills(t *testing.T) {
	h, _, _ := startChild(t, "rubbish")
	wantDeath(t, h.Run(t.Context(), contracts.Work{}), "5 unparseable lines in a row")
}

func TestHeadlessDiscardsLongLine(t *testing.T) {
	h, host, _ := startChild(t, "long")
	runOnce(t, h)
	wantTypes(t, host, "error", "response_start", "response_chunk", "response_end")
}

func TestHeadlessStartFails(t *testing.T) {
	for _, tt := range []struct{ behaviour, want string }{
		{"never ready", ": agent process did not become ready in 100ms"},
		{"no start", "Headless startup failed: no model"},
		{"exits", "agent process exited: exit status 7"},
	} {
		t.Run(tt.behaviour, func(t *testing.T) {
			h, _ := newChildAgent(t, tt.behaviour)
			if tt.behaviour == "never ready" {
				h.wait.ready = 100 * time.Millisecond
			}
			_, err := h.Start(t.Context(), hosttest.New(t))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
			if err := h.Close(t.Context()); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

func TestHeadlessMissingProgramFailsStart(t *testing.T) {
	h, _ := newChildAgent(t, "good")
	h.argv = []string{filepath.Join(t.TempDir(), "missing")}
	if _, err := h.Start(t.Context(), hosttest.New(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v, want one that says the program does not exist", err)
	}
}

func TestHeadlessInterruptIsForwarded(t *testing.T) {
	h, host, notes := startChild(t, "interruptible")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, contracts.Work{}) }()
	host.AwaitType("response_start")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	wantTypes(t, host, "response_start", "response_end") // the hub says that it was interrupted
	if got, want := commandTypes(notes), []string{"hello", "prompt", "interrupt"}; !slices.Equal(got, want) {
		t.Errorf("got commands %q, want %q", got, want)
	}
}

func TestHeadlessChildThatIgnoresInterruptIsKilled(t *testing.T) {
	h, host, _ := startChild(t, "deaf")
	h.wait.interrupt = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, contracts.Work{}) }()
	host.AwaitType("response_start")
	h.mu.Lock()
	child := h.link.child
	h.mu.Unlock()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	select {
	case <-child.Done():
	default:
		t.Error("got a child that lives, want it killed before the run returns")
	}
}

func TestHeadlessCloseAsksThenKills(t *testing.T) {
	h, host, notes := startChild(t, "deaf")
	h.wait.shutdown = 50 * time.Millisecond
	h.wait.interrupt = time.Hour
	ended := make(chan error, 1)
	go func() { ended <- h.Run(t.Context(), contracts.Work{}) }()
	host.AwaitType("response_start")
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantDeath(t, <-ended, "did not shut down")
	if got := commandTypes(notes); !slices.Contains(got, "shutdown") {
		t.Errorf("got commands %q, want shutdown among them", got)
	}
	wantDeath(t, h.Run(t.Context(), contracts.Work{}), "closed")
}

func TestWireIDsOfSuccessorsDiffer(t *testing.T) {
	for suffix, want := range map[string]string{"": "a", "~2": "a~2", "~p.1": "a~p.1"} {
		r := &link{suffix: suffix}
		start := &contracts.ResponseStart{ResponseID: "a"}
		req := &contracts.ServerRequest{RequestID: "a", CallID: "a"}
		r.rename(start)
		r.rename(req)
		r.rename(&contracts.Status{Message: "a"})
		if start.ResponseID != want || req.RequestID != want || req.CallID != want {
			t.Errorf("suffix %q: got %+v and %+v, want %q", suffix, start, req, want)
		}
	}
	end := &contracts.ToolEnd{}
	if (&link{suffix: "~2"}).rename(end); end.CallID != "" {
		t.Errorf("got id %q, want none", end.CallID)
	}
}

func TestInitsAddUp(t *testing.T) {
	var sum *contracts.Init
	for _, init := range []*contracts.Init{
		{AppendSystemPrompt: new("lost")},
		{SystemPrompt: new("base"), ThinkingLevel: contracts.ThinkingLow},
		{AppendSystemPrompt: new("one"), ApprovalMode: contracts.ApprovalAuto},
		{AppendSystemPrompt: new("two"), ThinkingLevel: contracts.ThinkingHigh},
	} {
		sum = addInit(sum, init)
	}
	want := &contracts.Init{
		SystemPrompt: new("base"), AppendSystemPrompt: new("one\n\ntwo"),
		ThinkingLevel: contracts.ThinkingHigh, ApprovalMode: contracts.ApprovalAuto,
	}
	if !reflect.DeepEqual(sum, want) {
		t.Errorf("got %+v, want %+v", sum, want)
	}
}
