package llm

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// suspended runs a prompt until the model has a question open, and returns the
// question with the state that the next process finds if this one is killed.
func suspended(t *testing.T, o Options, c model.Call) (*contracts.ServerRequest, string) {
	t.Helper()
	req, _, killed := stopped(t, o, c)
	return req, killed
}

// stopped is suspended that also returns the state of a process that is stopped in
// order.
func stopped(t *testing.T, o Options, c model.Call) (req *contracts.ServerRequest, ended, killed string) {
	t.Helper()
	host := hosttest.New(t)
	host.Answer = nil
	o.StateDir = t.TempDir()
	o.Model = newFake(t, says("Let me.", c))
	ctx, cancel := context.WithCancelCause(t.Context())
	a := open(t, host, o)
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx, prompt("go")) }() // ends with the interrupt
	req = host.AwaitType("server_request").(*contracts.ServerRequest)
	killed = filepath.Join(t.TempDir(), "state")
	hosttest.Must(t, os.CopyFS(killed, os.DirFS(o.StateDir)))
	cancel(errInterrupted)
	<-done
	hosttest.Must(t, a.Close(t.Context()))
	return req, o.StateDir, killed
}

// lastTold returns the texts of the last message of a request.
func lastTold(m *fake, request int) string {
	messages := m.request(request).Messages
	return textOf(messages[len(messages)-1])
}

func TestAnswersAreActedOnAfterARestart(t *testing.T) {
	var ran string
	tools := []tool.Tool{bash(func(_ context.Context, command string, out func(string) error) (tool.Result, error) {
		ran = command
		return tool.Result{Text: "ran it"}, nil
	})}
	clientTools := func() []model.Tool { return []model.Tool{{Name: "open_editor"}} }
	text := func(s string) []contracts.ContentBlock { return []contracts.ContentBlock{{Type: "text", Text: s}} }
	line := callOf("toolu_1", "bash", `{"command":"TOKEN=abc make"}`)
	tests := []struct {
		name string
		call model.Call
		out  contracts.Outcome
		ran  string
		want string
		fail bool
	}{
		{"approved", line, contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}, "TOKEN=abc make", "ran it", false},
		{"denied", line, contracts.Outcome{Verdict: contracts.VerdictDenied, Reason: "no", By: contracts.ResolvedByUser}, "", "denied by user. Reason: no", true},
		{"answered", callOf("toolu_2", "ask_user", `{"questions":[`+goodQuestion+`]}`), contracts.Outcome{Verdict: contracts.VerdictAnswered, Content: text("Both"), By: contracts.ResolvedByClient}, "", "Both", false},
		{"not answered", callOf("toolu_2", "ask_user", `{"questions":[`+goodQuestion+`]}`), contracts.Outcome{Verdict: contracts.VerdictFailed, Reason: "timed out", By: contracts.ResolvedByPolicy}, "", "did not answer", true},
		{"done by the client", callOf("toolu_3", "open_editor", `{"file":"x"}`), contracts.Outcome{Verdict: contracts.VerdictCompleted, Content: text("opened"), By: contracts.ResolvedByClient}, "", "opened", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Workspace: at(t, t.TempDir()), Tools: tools, ClientTools: clientTools}
			req, ended, killed := stopped(t, o, tt.call)
			for _, state := range []string{ended, killed} {
				ran = ""
				host := hosttest.New(t)
				host.Earlier = true
				host.Announced(req.CallID)
				m := newFake(t, says("So it is."))
				o.Model, o.StateDir = m, state
				a := start(t, host, o)
				hosttest.Must(t, a.Resume(t.Context(), req, tt.out))
				if ran != tt.ran {
					t.Errorf("ran %q, want %q", ran, tt.ran)
				}
				if got := lastTold(m, 0); !strings.Contains(got, tt.want) || strings.Contains(got, "has now failed") != tt.fail {
					t.Errorf("the model was told %q, want %q", got, tt.want)
				}
				if end := hosttest.As[*contracts.ToolEnd](host)[0]; end.CallID != req.CallID || end.Success == tt.fail {
					t.Errorf("got %+v, want the end of the call", end)
				}
			}
		})
	}
}

func TestAnswerThatComesAfterAPromptIsTold(t *testing.T) {
	o := Options{Workspace: at(t, t.TempDir()), Tools: []tool.Tool{bash(echo)}}
	req, state := suspended(t, o, callOf("toolu_1", "bash", `{"command":"make"}`))
	m := newFake(t, says("Meanwhile."), says("So it is."))
	o.Model, o.StateDir = m, state
	host := hosttest.New(t)
	host.Announced(req.CallID)
	a := start(t, host, o)
	hosttest.Must(t, a.Run(t.Context(), prompt("something else")))
	hosttest.Must(t, a.Resume(t.Context(), req, contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}))
	if got := lastTold(m, 1); !strings.Contains(got, "bash") || !strings.Contains(got, "ran make") {
		t.Errorf("the model was told %q, want what has now run", got)
	}
}

func TestCallWithoutHistoryRunsIfNothingWasHidden(t *testing.T) {
	for command, want := range map[string]string{"make": "ran make", "TOKEN=*** make": "a secret in its arguments was not kept"} {
		m := newFake(t, says("So it is."))
		host := hosttest.New(t)
		host.Announced("call_1")
		a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(echo)}})
		req := &contracts.ServerRequest{RequestID: "call_1", CallID: "call_1", RequestType: contracts.RequestApproval, Tool: "bash", Args: args(t, map[string]string{"command": command})}
		hosttest.Must(t, a.Resume(t.Context(), req, contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}))
		if got := textOf(m.request(0).Messages[0]); !strings.Contains(got, want) {
			t.Errorf("the model was told %q, want %q", got, want)
		}
	}
}

func TestRetryWithoutHistoryRunsTheCall(t *testing.T) {
	for given, want := range map[string]string{
		`{"tool_call_id":"call_1","args":{"command":"make"},"error_message":"reset","attempt":1,"max_attempts":10}`: "ran make",
		`{"tool_call_id":"call_1","args":{"command":"TOKEN=*** make"}}`:                                             "a secret in its arguments was not kept",
		`{"tool_call_id":"call_1","args":{"command":"make","_omitted_bytes":1}}`:                                    "too long to be kept",
		`{"tool_call_id":"call_1"}`: "its arguments were not kept",
		`[]`:                        "its arguments were not kept",
	} {
		m := newFake(t, says("So it is."))
		host := hosttest.New(t)
		host.Announced("call_1")
		a := start(t, host, Options{Model: m, Tools: []tool.Tool{bash(echo)}})
		req := &contracts.ServerRequest{RequestID: "call_1:retry:1", CallID: "call_1", RequestType: contracts.RequestToolRetry, Tool: "bash", Args: json.RawMessage(given)}
		hosttest.Must(t, a.Resume(t.Context(), req, contracts.Outcome{Verdict: contracts.VerdictRetried, By: contracts.ResolvedByUser}))
		if got := textOf(m.request(0).Messages[0]); !strings.Contains(got, want) {
			t.Errorf("%s: the model was told %q, want %q", given, got, want)
		}
	}
}

func TestOnlyWhatWasShownIsRun(t *testing.T) {
	o := Options{Workspace: at(t, t.TempDir()), Tools: []tool.Tool{bash(echo)}}
	req, state := suspended(t, o, callOf("toolu_1", "bash", `{"command":"make"}`))
	m := newFake(t, says("So it is."))
	o.Model, o.StateDir = m, state
	host := hosttest.New(t)
	host.Announced(req.CallID)
	a := start(t, host, o)
	other := *req
	other.Args = json.RawMessage(`{"command":"ls"}`)
	hosttest.Must(t, a.Resume(t.Context(), &other, contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser}))
	if got := lastTold(m, 0); !strings.Contains(got, "not what the call would do") {
		t.Errorf("the model was told %q", got)
	}
}

func TestRetryIsDecidedAfterARestart(t *testing.T) {
	for verdict, want := range map[contracts.Verdict]string{
		contracts.VerdictRetried: "fine", contracts.VerdictSkipped: "Failed before", contracts.VerdictAborted: "aborted",
	} {
		synctest.Test(t, func(t *testing.T) {
			o := Options{Workspace: at(t, t.TempDir()), Tools: []tool.Tool{flaky(100, Retryable(errors.New("reset")))}}
			req, state := suspended(t, o, callOf("toolu_1", "flaky", `{}`))
			if req.RequestType != contracts.RequestToolRetry {
				t.Fatalf("got %+v, want a question about a retry", req)
			}
			m := newFake(t, says("So it is."))
			o.Model, o.StateDir, o.Tools = m, state, []tool.Tool{flaky(0, nil)}
			host := hosttest.New(t)
			host.Announced(req.CallID)
			a := start(t, host, o)
			err := a.Resume(t.Context(), req, contracts.Outcome{Verdict: verdict, By: contracts.ResolvedByUser})
			if (err != nil) != (verdict == contracts.VerdictAborted) {
				t.Errorf("%s: got %v", verdict, err)
			}
			if err != nil {
				hosttest.Must(t, a.Run(t.Context(), prompt("go on")))
			}
			if got := lastTold(m, 0); !strings.Contains(got, want) {
				t.Errorf("%s: the model was told %q, want %q", verdict, got, want)
			}
		})
	}
}

func TestElicitationOfAnEarlierProcessIsOver(t *testing.T) {
	host := hosttest.New(t)
	const id = "mcp_elicitation:forms:7"
	host.Announced(id)
	a := start(t, host, Options{Model: newFake(t)})
	hosttest.Must(t, a.Resume(t.Context(), &contracts.ServerRequest{RequestID: id, CallID: id, RequestType: contracts.RequestMCPElicitation}, contracts.Outcome{Verdict: contracts.VerdictAnswered}))
	if got := statuses(host); len(got) != 1 || !strings.Contains(got[0], "forms") || len(hosttest.As[*contracts.ToolEnd](host)) != 1 {
		t.Errorf("got %q and events %v, want it said and ended", got, host.Types())
	}
}
