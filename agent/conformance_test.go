package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// startConformance returns a started agent, which is closed with the test.
func startConformance(t *testing.T, host contracts.Host, profile contracts.Profile) *Conformance {
	t.Helper()
	c := newConformance(Options{Profile: profile, Log: slog.New(slog.DiscardHandler)}).(*Conformance)
	info, err := c.Start(t.Context(), host)
	if err != nil || info.Model != "gpt-5.4" || info.Provider != "openai" || info.Executor != contracts.ExecutorLive ||
		!info.KeepsRequests || !slices.Equal(info.Requests, contracts.RequestTypes()) {
		t.Fatalf("start: got %+v, %v, want the model that suites expect", info, err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close: got %v, want no error", err)
		}
	})
	return c
}

// prompt runs one prompt that must succeed.
func (c *Conformance) prompt(t *testing.T, content string) {
	t.Helper()
	if err := c.Run(t.Context(), contracts.Work{Content: content}); err != nil {
		t.Errorf("prompt %q: got %v, want no error", content, err)
	}
}

func TestConformanceEchoesPrompts(t *testing.T) {
	for profile, want := range map[contracts.Profile][]string{
		"":                      {"status", "response_start", "response_chunk", "response_end"},
		contracts.ProfileSeed:   {"status", "response_start", "response_chunk", "response_end"},
		contracts.ProfilePublic: {"status"},
	} {
		for _, content := range []string{"hello", "", "__maestro_conformance_other__:{}"} {
			host := hosttest.New(t)
			startConformance(t, host, profile).prompt(t, content)
			if got := host.Types(); !slices.Equal(got, want) {
				t.Errorf("profile %q: got %v, want %v", profile, got, want)
			}
			if got := host.Shown()[0].(*contracts.Status).Message; got != "Prompt: "+content {
				t.Errorf("got status %q, want the prompt %q", got, content)
			}
		}
	}
}

func TestConformanceRefusesMalformedTriggers(t *testing.T) {
	for _, trigger := range []string{
		`approval__:`, `approval__:{`, `approval__:{"tool":"bash"}`, `server_request__:{"request_id":"r","tool":"t"}`,
		`server_request__:{"request_id":"r","request_type":"riddle","tool":"t"}`, `burst__:{"count":"many"}`,
		`burst__:{"count":-1}`, `burst__:{"count":1000000,"bytes":1048576}`, `stream__:[]`, `stream__:{"chunks":-1}`,
		`hang__:`, `flush_error__:"x"`,
	} {
		host := hosttest.New(t)
		err := startConformance(t, host, "").Run(t.Context(), contracts.Work{Content: "__maestro_conformance_" + trigger})
		refused, ok := errors.AsType[*contracts.Error](err)
		if !ok || refused.Code != contracts.CodeBadRequest || refused.Type != contracts.ErrorProtocol {
			t.Errorf("%s: got %v, want a bad_request", trigger, err)
		}
		if got := host.Types(); len(got) != 0 {
			t.Errorf("%s: got %v, want nothing published", trigger, got)
		}
	}
}

func TestConformanceAsksEveryType(t *testing.T) {
	for _, kind := range contracts.RequestTypes() {
		synctest.Test(t, func(t *testing.T) {
			host := hosttest.New(t)
			host.Answer = nil
			c := startConformance(t, host, "")
			c.prompt(t, fmt.Sprintf(`__maestro_conformance_server_request__:{"request_id":"r","request_type":%q,"tool":"t","args":{"path":"a"},"reason":"why"}`, kind))
			synctest.Wait()
			req := host.Asked()[0]
			if req.RequestType != kind || req.RequestID != "r" || req.CallID != "r" || req.Tool != "t" || string(req.Args) != `{"path":"a"}` || req.Reason != "why" {
				t.Errorf("%s: got %+v, want the question as given", kind, req)
			}
			if got := len(hosttest.As[*contracts.ResponseEnd](host)); got != 1 {
				t.Errorf("%s: got %d response_end while the question waits, want 1", kind, got)
			}
			host.Resolve("r", contracts.Outcome{Verdict: verdicts[kind][0], By: contracts.ResolvedByUser})
			synctest.Wait()
			if ends := hosttest.As[*contracts.ToolEnd](host); len(ends) != 1 || !ends[0].Success || ends[0].CallID != "r" {
				t.Errorf("%s: got %+v, want one tool_end, of success", kind, ends)
			}
		})
	}
}

func TestConformanceRetryIsAboutItsCall(t *testing.T) {
	req, err := parseRequest([]byte(`{"request_id":"c1:retry:1","request_type":"tool_retry","tool":"bash","args":{"tool_call_id":"c1"}}`), "")
	if err != nil || req.CallID != "c1" || req.RequestID != "c1:retry:1" {
		t.Errorf("got %+v, %v, want call c1", req, err)
	}
}

func TestConformanceEndsApprovedCalls(t *testing.T) {
	const trigger = `__maestro_conformance_approval__:{"request_id":"r","tool":"bash","args":{"command":"ls"},"reason":"why"}`
	for _, c := range []struct {
		profile contracts.Profile
		mode    contracts.ApprovalMode
		verdict contracts.Verdict
		want    []string // about tools
	}{
		{"", contracts.ApprovalPrompt, contracts.VerdictApproved, []string{"tool_call", "tool_start", "tool_end"}},
		{"", contracts.ApprovalPrompt, contracts.VerdictDenied, []string{"tool_call", "tool_end"}},
		{"", contracts.ApprovalPrompt, contracts.VerdictCancelled, []string{"tool_call"}},
		{"", contracts.ApprovalAuto, "", nil},
		{"", contracts.ApprovalFail, "", nil},
		{contracts.ProfilePublic, contracts.ApprovalPrompt, contracts.VerdictApproved, []string{"tool_call"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			host := hosttest.New(t)
			host.Mode = c.mode
			host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
				by := contracts.ResolvedByUser
				if c.verdict == contracts.VerdictCancelled {
					by = contracts.ResolvedByRuntime
				}
				return contracts.Outcome{Verdict: c.verdict, By: by}
			}
			startConformance(t, host, c.profile).prompt(t, trigger)
			synctest.Wait()
			var got []string
			for _, typ := range host.Types() {
				if typ == "tool_call" || typ == "tool_start" || typ == "tool_end" {
					got = append(got, typ)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s %s %s: got %v, want %v", c.profile, c.mode, c.verdict, got, c.want)
			}
		})
	}
}

func TestConformanceCloseEndsOpenQuestions(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	host := hosttest.New(t)
	host.Answer = nil
	c := newConformance(Options{Log: slog.New(slog.DiscardHandler)}).(*Conformance)
	if _, err := c.Start(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		c.prompt(t, fmt.Sprintf(`__maestro_conformance_server_request__:{"request_id":"r%d","request_type":"user_input","tool":"ask_user"}`, i))
	}
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("close: got %v, want no error", err)
	}
}

func TestConformanceShowsARefusedQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := hosttest.New(t)
		host.Answer = nil
		c := startConformance(t, host, "")
		for range 2 { // the second has the id of the first
			c.prompt(t, `__maestro_conformance_approval__:{"request_id":"r","tool":"bash"}`)
			synctest.Wait()
		}
		errs := hosttest.As[*contracts.ErrorEvent](host)
		if len(errs) != 1 || errs[0].Fatal || errs[0].ErrorType != contracts.ErrorTool {
			t.Errorf("got %+v, want one error about the taken id", errs)
		}
	})
}

func TestConformanceBurst(t *testing.T) {
	host := hosttest.New(t)
	startConformance(t, host, contracts.ProfilePublic).prompt(t, `__maestro_conformance_burst__:{"count":300,"bytes":50}`)
	all := hosttest.As[*contracts.Status](host)
	if len(all) != 300 || len(all[299].Message) != 50 {
		t.Errorf("got %d messages, want 300 of 50 bytes", len(all))
	}
}

func TestConformanceStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := hosttest.New(t)
		start := time.Now()
		startConformance(t, host, contracts.ProfilePublic).prompt(t, `__maestro_conformance_stream__:{"chunks":3,"delay_ms":20}`)
		if took := time.Since(start); took != 60*time.Millisecond {
			t.Errorf("took %v, want 60ms", took)
		}
		if got, want := host.Said(), "chunk 0 chunk 1 chunk 2 "; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := len(hosttest.As[*contracts.ResponseEnd](host)); got != 1 {
			t.Errorf("got %d response_end, want 1", got)
		}
	})
}

func TestConformanceHangsUntilInterrupted(t *testing.T) {
	for _, content := range []string{`hang__:{}`, `stream__:{"chunks":9,"delay_ms":3600000}`} {
		synctest.Test(t, func(t *testing.T) {
			host := hosttest.New(t)
			c := startConformance(t, host, "")
			ctx, interrupt := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx, contracts.Work{Content: "__maestro_conformance_" + content}) }()
			synctest.Wait()
			if got := host.Types(); !slices.Equal(got, []string{"response_start"}) {
				t.Errorf("got %v, want an open response", got)
			}
			interrupt()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want %v", err, context.Canceled)
			}
		})
	}
}

func TestConformanceFailsOneFlush(t *testing.T) {
	c := startConformance(t, hosttest.New(t), "")
	if err := c.Flush(context.Background()); err != nil {
		t.Errorf("at first: got %v, want nil", err)
	}
	c.prompt(t, `__maestro_conformance_flush_error__:{"message":"disk full"}`)
	if err := c.Flush(context.Background()); err == nil || err.Error() != "disk full" {
		t.Errorf("got %v, want disk full", err)
	}
	if err := c.Flush(context.Background()); err != nil {
		t.Errorf("after the flush: got %v, want nil", err)
	}
}

// Whatever follows a prefix is served or refused with a coded error.
func FuzzConformanceRequest(f *testing.F) {
	f.Add([]byte(`{"request_id":"r","request_type":"user_input","tool":"t","args":{"a":1},"reason":"x"}`))
	f.Add([]byte(`{"request_id":"r","request_type":"tool_retry","tool":"","args":[]}`))
	f.Fuzz(func(t *testing.T, args []byte) {
		req, err := parseRequest(args, "")
		if err != nil {
			if !errors.Is(err, &contracts.Error{Code: contracts.CodeBadRequest}) {
				t.Fatalf("got %v, want a bad_request", err)
			}
			return
		}
		if err := contracts.ValidateEvent(req); err != nil {
			t.Fatalf("got %v, want a request that can be sent", err)
		}
	})
}
