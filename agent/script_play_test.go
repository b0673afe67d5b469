package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// A batchHost is a hosttest.Host that also notes how many events came together.
type batchHost struct {
	*hosttest.Host
	batches []int
}

func (h *batchHost) Publish(ctx context.Context, events ...contracts.Event) error {
	h.batches = append(h.batches, len(events))
	return h.Host.Publish(ctx, events...)
}

// startScript returns a started script whose default steps are given as JSON.
func startScript(t testing.TB, host contracts.Host, steps string) *Script {
	t.Helper()
	sc, err := parseScript([]byte(`{"model":"m","provider":"p","default":` + steps + `}`))
	if err != nil {
		t.Fatalf("parse %s: %v", steps, err)
	}
	s := &Script{scenario: sc, log: slog.New(slog.DiscardHandler)}
	info, err := s.Start(t.Context(), host)
	if err != nil || info.Executor != contracts.ExecutorReplay || info.Model != "m" || info.Provider != "p" || len(info.Requests) != 5 {
		t.Fatalf("start: got %+v, %v, want a replay of m that can ask everything", info, err)
	}
	return s
}

// playScript plays steps for one prompt.
func playScript(t testing.TB, host contracts.Host, steps string) {
	t.Helper()
	if err := startScript(t, host, steps).Run(t.Context(), contracts.Work{Content: "go"}); err != nil {
		t.Errorf("run %s: got %v, want no error", steps, err)
	}
}

func TestScriptPlaysEachStep(t *testing.T) {
	const open, chunk, end = "response_start", "response_chunk", "response_end"
	for name, c := range map[string]struct {
		steps string
		want  []string
	}{
		"say":                      {`[{"say":"a"}]`, []string{open, chunk, end}},
		"nothing":                  {`[]`, []string{open, end}},
		"status only":              {`[{"status":"s"}]`, []string{"status", open, end}},
		"two responses":            {`[{"say":"a"},{"end":true},{"end":true},{"think":"b"}]`, []string{open, chunk, end, open, chunk, end}},
		"tool between":             {`[{"say":"a"},{"end":true},{"tool":{"name":"t","output":"o"}},{"say":"b"}]`, []string{open, chunk, end, "tool_call", "tool_start", "tool_output", "tool_end", open, chunk, end}},
		"tool inside":              {`[{"say":"a"},{"tool":{"name":"t"}},{"say":"b"}]`, []string{open, chunk, "tool_call", "tool_start", "tool_end", chunk, end}},
		"error ends":               {`[{"say":"a"},{"error":{"message":"m","end":true}},{"say":"never"}]`, []string{open, chunk, "error", end}},
		"error before any":         {`[{"error":{"message":"m","end":true}}]`, []string{open, "error", end}},
		"error in a repeat":        {`[{"repeat":{"times":9,"steps":[{"error":{"message":"m","end":true}}]}}]`, []string{open, "error", end}},
		"error goes on":            {`[{"error":{"message":"m"}},{"say":"a"}]`, []string{"error", open, chunk, end}},
		"compaction and raw event": {`[{"compaction":{"summary":"s"}},{"raw":{"type":"turn_start","event":{}}},{"say":"a"}]`, []string{"compaction", "raw_agent_event", open, chunk, end}},
	} {
		t.Run(name, func(t *testing.T) {
			host := hosttest.New(t)
			playScript(t, host, c.steps)
			if got := host.Types(); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestPromptWithoutStepsIsTold(t *testing.T) {
	host := hosttest.New(t)
	s := startScript(t, host, `[]`)
	s.scenario.prompts = nil
	if err := s.Run(t.Context(), contracts.Work{Content: "?"}); err != nil {
		t.Fatal(err)
	}
	if got := host.Said(); !strings.Contains(got, "nothing for this prompt") {
		t.Errorf("got %q, want to be told that the script has nothing", got)
	}
}

func TestOutputOfToolComesInPieces(t *testing.T) {
	host := &batchHost{Host: hosttest.New(t)}
	playScript(t, host, `[{"tool":{"name":"t","output":"one two","chunk":4,"delay_ms":1}}]`)
	var got []string
	for _, o := range hosttest.As[*contracts.ToolOutput](host.Host) {
		got = append(got, o.Content)
	}
	if want := []string{"one ", "two"}; !slices.Equal(got, want) {
		t.Errorf("got the output %q, want %q", got, want)
	}
	if len(host.batches) < 3 {
		t.Errorf("got %d batches, want the start of the tool and each piece on its own", len(host.batches))
	}
}

func TestScriptReportsUsageAndTools(t *testing.T) {
	host := hosttest.New(t)
	playScript(t, host, `[
		{"usage":{"input_tokens":3,"output_tokens":4}},{"say":"a"},{"usage":{"cache_read_tokens":5,"total_cost_usd":0.5}},{"end":true},
		{"tool":{"name":"b","label":"B"}},{"tool":{"name":"a","success":false}},{"say":"b"}]`)
	ends := hosttest.As[*contracts.ResponseEnd](host)
	if len(ends) != 2 {
		t.Fatalf("got %d responses, want 2", len(ends))
	}
	want := contracts.Usage{InputTokens: 3, OutputTokens: 4, CacheReadTokens: 5, TotalTokens: 12, TotalCostUSD: 0.5, ModelID: "m", Provider: "p"}
	if ends[0].Usage != want {
		t.Errorf("first: got usage %+v, want %+v", ends[0].Usage, want)
	}
	if got := ends[1].Usage.TotalTokens; got != 0 {
		t.Errorf("second: got %d tokens, want none counted twice", got)
	}
	sum := ends[1].ToolsSummary
	if !slices.Equal(sum.ToolsUsed, []string{"a", "b"}) || sum.CallsSucceeded != 1 || sum.CallsFailed != 1 || !slices.Equal(sum.SummaryLabels, []string{"B"}) {
		t.Errorf("got summary %+v, want a and b, one failed, label B", sum)
	}
}

func TestGatedToolRunsOnlyIfApproved(t *testing.T) {
	const steps = `[{"tool":{"name":"t","output":"o","gated":true}}]`
	approved := contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}
	denied := contracts.Outcome{Verdict: contracts.VerdictDenied, By: contracts.ResolvedByUser}
	cancelled := contracts.Outcome{Verdict: contracts.VerdictCancelled, By: contracts.ResolvedByRuntime}
	for _, c := range []struct {
		mode   contracts.ApprovalMode
		answer contracts.Outcome
		want   []string
		gated  bool
		code   string
	}{
		{contracts.ApprovalPrompt, approved, []string{"tool_call", "server_request", "server_request_resolved", "tool_start", "tool_output", "tool_end"}, true, ""},
		{contracts.ApprovalPrompt, denied, []string{"tool_call", "server_request", "server_request_resolved", "tool_end"}, true, "governance_denied"},
		{contracts.ApprovalPrompt, cancelled, []string{"tool_call", "server_request", "server_request_resolved", "tool_end"}, true, ""},
		{contracts.ApprovalAuto, approved, []string{"tool_call", "tool_start", "tool_output", "tool_end"}, false, ""},
		{contracts.ApprovalFail, approved, []string{"tool_call", "tool_end"}, false, "governance_denied"},
	} {
		host := hosttest.New(t)
		host.Mode = c.mode
		host.Answer = func(*contracts.ServerRequest) contracts.Outcome { return c.answer }
		playScript(t, host, steps)
		if got := host.Types(); !slices.Equal(got[:len(got)-2], c.want) {
			t.Errorf("%s, %s: got %v, want %v and a response", c.mode, c.answer.Verdict, got, c.want)
		}
		if call := hosttest.As[*contracts.ToolCall](host)[0]; call.RequiresApproval != c.gated {
			t.Errorf("%s: got requires_approval %t, want %t", c.mode, call.RequiresApproval, c.gated)
		}
		ran := slices.Contains(c.want, "tool_start")
		end := hosttest.As[*contracts.ToolEnd](host)[0]
		if end.Success != ran || end.ErrorCode != c.code || (end.GovernedOutcome == "denied") != (c.code != "") {
			t.Errorf("%s, %s: got %+v, want success %t and code %q", c.mode, c.answer.Verdict, end, ran, c.code)
		}
	}
}

func TestQuestionTakesTheBranchOfItsVerdict(t *testing.T) {
	for kind, possible := range verdicts {
		for _, v := range possible {
			host := hosttest.New(t)
			host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
				return contracts.Outcome{Verdict: v, By: contracts.ResolvedByUser}
			}
			var on []string
			for _, v := range possible {
				on = append(on, fmt.Sprintf(`%q:[{"say":"took %s"}]`, v, v))
			}
			playScript(t, host, fmt.Sprintf(`[{"ask":{"type":%q,"tool":"t","on":{%s}}}]`, kind, strings.Join(on, ",")))
			if got, want := host.Said(), "took "+string(v); got != want {
				t.Errorf("%s: got %q, want %q", kind, got, want)
			}
			req := host.Asked()[0]
			if req.RequestType != kind || (req.CallID == req.RequestID) == (kind == contracts.RequestToolRetry) {
				t.Errorf("%s: got request %+v, want call_id to differ for retries alone", kind, req)
			}
			if ends := hosttest.As[*contracts.ToolEnd](host); len(ends) != 1 || ends[0].CallID != req.CallID {
				t.Errorf("%s, %s: got %d tool_end, want one, for call %s", kind, v, len(ends), req.CallID)
			}
		}
	}
}

func TestRepeatNumbersItsTexts(t *testing.T) {
	host := hosttest.New(t)
	playScript(t, host, `[{"say":"{{n}}:"},{"repeat":{"times":2,"steps":[
		{"say":"a{{n}} "},{"repeat":{"times":2,"steps":[{"say":"b{{n}} "}]}},{"say":"c{{n}} "}]}},{"say":"{{n}}"}]`)
	if got, want := host.Said(), "{{n}}:a1 b1 b2 c1 a2 b1 b2 c2 {{n}}"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestChunksKeepCharactersWhole(t *testing.T) {
	host := hosttest.New(t)
	playScript(t, host, `[{"say":{"text":"naïve 🚀 text","chunk":5}}]`)
	if got := len(hosttest.As[*contracts.ResponseChunk](host)); got < 3 {
		t.Errorf("got %d chunks, want at least 3", got)
	}
	if got, want := host.Said(), "naïve 🚀 text"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFastScriptPublishesInBatches(t *testing.T) {
	host := &batchHost{Host: hosttest.New(t)}
	playScript(t, host, `[{"repeat":{"times":1000,"steps":[{"say":"{{n}} "}]}}]`)
	if got, want := len(host.batches), 1002/maxBatchEvents+1; got != want || slices.Max(host.batches) != maxBatchEvents {
		t.Errorf("got %d batches of at most %d, want %d of %d", got, slices.Max(host.batches), want, maxBatchEvents)
	}
	big := &batchHost{Host: hosttest.New(t)}
	text := strings.Repeat("x", 60<<10)
	playScript(t, big, `[{"repeat":{"times":20,"steps":[{"say":"`+text+`"}]}}]`)
	if got := slices.Max(big.batches); got > maxBatchBytes/len(text)+2 {
		t.Errorf("got %d large events together, want the bytes bounded", got)
	}
}

func TestQuestionIsNotOvertaken(t *testing.T) {
	host := hosttest.New(t)
	playScript(t, host, `[{"say":"before"},{"ask":{"type":"user_input","tool":"ask_user"}},{"say":"after"}]`)
	want := []string{"response_start", "response_chunk", "client_tool_request", "server_request", "server_request_resolved", "tool_end", "response_chunk", "response_end"}
	if got := host.Types(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPacedScriptKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := hosttest.New(t)
		start := time.Now()
		playScript(t, host, `[{"repeat":{"times":11,"rate":10,"steps":[{"say":"x"},{"delay_ms":30}]}},{"say":{"text":"12345678","chunk":4,"delay_ms":500}}]`)
		if got, want := time.Since(start), 1030*time.Millisecond+time.Second; got != want {
			t.Errorf("got %v, want %v: ten periods, a delay within the last, two delayed chunks", got, want)
		}
	})
}

func TestDelayedTextIsShownBeforeTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := hosttest.New(t)
		s := startScript(t, host, `[{"say":"now"},{"delay_ms":1000},{"say":"later"}]`)
		done := make(chan error, 1)
		go func() { done <- s.Run(t.Context(), contracts.Work{}) }()
		synctest.Wait()
		if got := host.Said(); got != "now" {
			t.Errorf("got %q during the delay, want %q", got, "now")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestInterruptEndsScriptAtOnce(t *testing.T) {
	for name, steps := range map[string]string{
		"delay":        `[{"say":"a"},{"delay_ms":3600000}]`,
		"slow chunks":  `[{"say":{"text":"abcdefgh","chunk":4,"delay_ms":3600000}}]`,
		"slow repeat":  `[{"repeat":{"times":9,"rate":0.001,"steps":[{"say":"a"}]}}]`,
		"silent steps": `[{"repeat":{"times":10000000,"steps":[{"usage":{"input_tokens":1}}]}}]`,
		"question":     `[{"ask":{"type":"user_input","tool":"ask_user","timeout_ms":-1}}]`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := hosttest.New(t)
				host.Answer = nil
				ctx, interrupt := context.WithCancel(t.Context())
				s := startScript(t, host, steps)
				start := time.Now()
				done := make(chan error, 1)
				go func() { done <- s.Run(ctx, contracts.Work{}) }()
				if name != "silent steps" {
					synctest.Wait()
				}
				interrupt()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want %v", err, context.Canceled)
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("took %v after the interrupt, want no time", took)
				}
			})
		})
	}
}

func TestExampleScriptsPlay(t *testing.T) {
	for _, c := range []struct {
		file, prompt, said string
		chunks             int // at least
	}{
		{"demo.json", "please fix the login test", "the test passes.", 20},
		{"demo.json", "fail", "I will try the upstream model.", 1},
		{"demo.json", "compact", "I have shortened what I remember.", 1},
		{"demo.json", "hello", "compact something.", 5},
		{"stream.json", "go", "word 10000 ", 10_000},
		{"stream.json", "paced", "word 10000 ", 10_000},
	} {
		synctest.Test(t, func(t *testing.T) {
			host := hosttest.New(t)
			host.Answer = func(req *contracts.ServerRequest) contracts.Outcome {
				return contracts.Outcome{Verdict: verdicts[req.RequestType][0], By: contracts.ResolvedByUser}
			}
			s, err := newScript("../examples/scripts/"+c.file, Options{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Start(t.Context(), host); err != nil {
				t.Fatal(err)
			}
			if err := s.Run(t.Context(), contracts.Work{Content: c.prompt}); err != nil {
				t.Errorf("%s, %s: got %v, want no error", c.file, c.prompt, err)
			}
			if got := host.Said(); !strings.HasSuffix(got, c.said) {
				t.Errorf("%s, %s: got %q, want it to end with %q", c.file, c.prompt, contracts.TailText(got, 80), c.said)
			}
			if got := len(hosttest.As[*contracts.ResponseChunk](host)); got < c.chunks {
				t.Errorf("%s, %s: got %d chunks, want at least %d", c.file, c.prompt, got, c.chunks)
			}
		})
	}
}

func TestScriptLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	host := hosttest.New(t)
	s := startScript(t, host, `[{"say":"a"},{"tool":{"name":"t","gated":true}}]`)
	for range 3 {
		if err := s.Run(t.Context(), contracts.Work{}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A discardHost costs nothing, so that a benchmark sees the script alone.
type discardHost struct{ contracts.Host }

func (discardHost) Publish(context.Context, ...contracts.Event) error { return nil }

func BenchmarkScriptStream(b *testing.B) {
	const chunks = 100_000
	s := startScript(b, discardHost{}, fmt.Sprintf(`[{"repeat":{"times":%d,"steps":[{"say":"word {{n}} "}]}}]`, chunks))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Run(b.Context(), contracts.Work{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(chunks*b.N)/b.Elapsed().Seconds(), "chunks/s")
}
