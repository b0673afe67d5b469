//go:build unix

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/command"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// openShell returns a shell started in a directory of its own.
func openShell(t *testing.T, host *hosttest.Host) *shell {
	t.Helper()
	a, err := Open("shell", Options{Dir: t.TempDir(), Shell: "/bin/sh"})
	hosttest.Must(t, err)
	if _, err := a.Start(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hosttest.Must(t, a.Close(context.Background())) })
	return a.(*shell)
}

func checkTypes(t *testing.T, host *hosttest.Host, want ...string) {
	t.Helper()
	if got := host.Types(); !slices.Equal(got, want) {
		t.Errorf("got events %q, want %q", got, want)
	}
}

func TestApprovedCommandRunsAndIsSummarised(t *testing.T) {
	host := hosttest.New(t)
	s := openShell(t, host)
	hosttest.Must(t, s.Run(t.Context(), contracts.Work{Content: " pwd; echo oh >&2; exit 4 "}))

	checkTypes(t, host, "response_start", "tool_call", "server_request", "server_request_resolved",
		"tool_start", "tool_output", "tool_end", "response_chunk", "response_end")
	if want := s.Dir + "\noh\n"; host.Output() != want {
		t.Errorf("output: got %q, want %q", host.Output(), want)
	}
	req := host.Asked()[0]
	want := contracts.ServerRequest{
		RequestID: req.CallID, RequestType: contracts.RequestApproval, CallID: req.CallID,
		Tool: "bash", DisplayName: "Bash",
		SummaryLabel: "Ran pwd; echo oh >&2; exit 4", ActionDescription: "Running pwd; echo oh >&2; exit 4",
		Reason: req.Reason,
	}
	args := req.Args
	if got := *req; req.Reason == "" || got.Args == nil {
		t.Errorf("got request %+v, want one with reason and args", got)
	} else if got.Args = nil; !equalRequests(got, want) {
		t.Errorf("got request %+v, want %+v", got, want)
	}
	var shown shellArgs
	hosttest.Must(t, json.Unmarshal(args, &shown))
	if (shown != shellArgs{"pwd; echo oh >&2; exit 4", s.Dir}) {
		t.Errorf("got args %s, want the command and %s", args, s.Dir)
	}
	if got := host.Said(); !strings.HasPrefix(got, "Exit code 4 after ") || strings.Contains(got, "oh") {
		t.Errorf("got response %q, want the exit code and not the output again", got)
	}
	end := hosttest.As[*contracts.ToolEnd](host)[0]
	if *end != (contracts.ToolEnd{CallID: req.CallID}) {
		t.Errorf("got %+v, want a plain failure", end)
	}
	checkTelemetry(t, host, 0, 1)
}

func equalRequests(a, b contracts.ServerRequest) bool {
	textA, errA := json.Marshal(a)
	textB, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(textA) == string(textB)
}

// checkTelemetry checks the only response's end.
func checkTelemetry(t *testing.T, host *hosttest.Host, succeeded, failed int64) {
	t.Helper()
	end := hosttest.As[*contracts.ResponseEnd](host)[0]
	sum := end.ToolsSummary
	if sum.CallsSucceeded != succeeded || sum.CallsFailed != failed || !slices.Equal(sum.ToolsUsed, []string{"bash"}) || len(sum.SummaryLabels) != 1 {
		t.Errorf("got summary %+v, want %d and %d calls of bash with a label", sum, succeeded, failed)
	}
	if end.Usage.ModelID != "shell" || end.Usage.Provider != "local" || end.TTFTMS == nil {
		t.Errorf("got %+v, want model shell of local and a ttft_ms", end)
	}
}

func TestAutoModeRunsWithoutAsking(t *testing.T) {
	host := hosttest.New(t)
	host.Mode = contracts.ApprovalAuto
	s := openShell(t, host)
	hosttest.Must(t, s.Run(t.Context(), contracts.Work{Content: "echo hi"}))
	checkTypes(t, host, "response_start", "tool_call", "tool_start", "tool_output", "tool_end", "response_chunk", "response_end")
	if call := hosttest.As[*contracts.ToolCall](host)[0]; call.RequiresApproval {
		t.Errorf("got %+v, want a call that awaits no approval", call)
	}
	checkTelemetry(t, host, 1, 0)
}

func TestFailModeDeniesWithoutAsking(t *testing.T) {
	host := hosttest.New(t)
	host.Mode = contracts.ApprovalFail
	s := openShell(t, host)
	hosttest.Must(t, s.Run(t.Context(), contracts.Work{Content: "touch ran"}))
	checkTypes(t, host, "response_start", "tool_call", "tool_end", "response_chunk", "response_end")
	checkDenied(t, s, host)
}

func TestDeniedCommandDoesNotRun(t *testing.T) {
	host := hosttest.New(t)
	host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictDenied, Reason: "too risky", By: contracts.ResolvedByUser}
	}
	s := openShell(t, host)
	hosttest.Must(t, s.Run(t.Context(), contracts.Work{Content: "touch ran"}))
	checkTypes(t, host, "response_start", "tool_call", "server_request", "server_request_resolved", "tool_end",
		"response_chunk", "response_end")
	checkDenied(t, s, host)
	if got := host.Said(); !strings.Contains(got, "too risky") {
		t.Errorf("got response %q, want the reason in it", got)
	}
}

// checkDenied checks that the call was ended as denied and did nothing (R47).
func checkDenied(t *testing.T, s *shell, host *hosttest.Host) {
	t.Helper()
	got := hosttest.As[*contracts.ToolEnd](host)[0]
	want := contracts.ToolEnd{CallID: got.CallID, ErrorCode: "governance_denied", GovernedOutcome: "denied"}
	if *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want a command that did not run", err)
	}
	checkTelemetry(t, host, 0, 1)
}

func TestPromptsThatAreNoCommandAreExplained(t *testing.T) {
	for _, tt := range []struct{ name, prompt, want string }{
		{"blank", " \n", "Type a command line"},
		{"long", strings.Repeat("x", command.MaxLine+1), "100001 bytes"},
		{"NUL", "echo \x00", "NUL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := hosttest.New(t)
			hosttest.Must(t, openShell(t, host).Run(t.Context(), contracts.Work{Content: tt.prompt}))
			checkTypes(t, host, "response_start", "response_chunk", "response_end")
			if got := host.Said(); !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want it to contain %q", got, tt.want)
			}
		})
	}
}

func TestSecretsAreUsedButNotShown(t *testing.T) {
	host := hosttest.New(t)
	s := openShell(t, host)
	hosttest.Must(t, s.Run(t.Context(), contracts.Work{Content: `TOKEN=hunter2; echo ${#TOKEN}`}))
	if got := host.Output(); got != "7\n" {
		t.Errorf("got output %q, want the length of the secret", got)
	}
	for _, ev := range host.Shown() {
		if text, err := json.Marshal(ev); err != nil || strings.Contains(string(text), "hunter2") {
			t.Errorf("got %s, %v; want no secret in it", text, err)
		}
	}
}

func TestCommandSeesNoCredentials(t *testing.T) {
	t.Setenv("MAESTRO_TEST_TOKEN", "hunter2")
	host := hosttest.New(t)
	hosttest.Must(t, openShell(t, host).Run(t.Context(), contracts.Work{Content: `echo "[$MAESTRO_TEST_TOKEN]"`}))
	if want := "[]\n"; host.Output() != want {
		t.Errorf("got output %q, want %q", host.Output(), want)
	}
}

func TestInterruptEndsTheCommandAndSaysNothingMore(t *testing.T) {
	host := hosttest.New(t)
	s := openShell(t, host)
	path, running, ended := hosttest.Witness(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	go func() { // ends when the command runs
		<-running
		cancel(interrupted)
	}()
	err := s.Run(ctx, contracts.Work{Content: "exec 3>" + path + "; sleep 1000 & echo >&3; sleep 1000"})
	if !errors.Is(err, interrupted) {
		t.Errorf("got error %v, want %v", err, interrupted)
	}
	hosttest.Happens(t, "the end of the command", ended)
	checkTypes(t, host, "response_start", "tool_call", "server_request", "server_request_resolved", "tool_start")
}

func TestInterruptEndsAnOpenQuestion(t *testing.T) {
	host := hosttest.New(t)
	host.Answer = nil
	s := openShell(t, host)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, contracts.Work{Content: "touch ran"}) }() // ends with ctx
	host.AwaitType("server_request")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	checkTypes(t, host, "response_start", "tool_call", "server_request")
}

func TestAnswersAfterARestartAreActedOn(t *testing.T) {
	approved := contracts.Outcome{Verdict: contracts.VerdictApproved, By: contracts.ResolvedByUser, Announced: true}
	denied := contracts.Outcome{Verdict: contracts.VerdictDenied, By: contracts.ResolvedByUser, Announced: true}
	ran := []string{"response_start", "tool_start", "tool_output", "tool_end", "response_chunk", "response_end"}
	ended := []string{"response_start", "tool_end", "response_chunk", "response_end"}
	for _, tt := range []struct {
		name, command, cwd string
		out                contracts.Outcome
		types              []string
		said               string
	}{
		{"approved", "echo hi", "", approved, ran, "Exit code 0"},
		{"denied", "echo hi", "", denied, ended, "was denied"},
		{"approved with a hidden secret", "TOKEN=*** run", "", approved, ended, "a secret in the command"},
		{"approved for another workspace", "echo hi", "/elsewhere", approved, ended, "approved for /elsewhere"},
		{"approved without a command", "", "", approved, ended, "was lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := hosttest.New(t)
			s := openShell(t, host)
			host.Announced("call_1") // before the restart
			cwd := tt.cwd
			if cwd == "" {
				cwd = s.Dir
			}
			args, err := json.Marshal(shellArgs{tt.command, cwd})
			hosttest.Must(t, err)
			req := &contracts.ServerRequest{
				RequestID: "call_1", RequestType: contracts.RequestApproval, CallID: "call_1", Tool: "bash", Args: args,
			}
			hosttest.Must(t, s.Resume(t.Context(), req, tt.out))
			checkTypes(t, host, tt.types...)
			if got := host.Said(); !strings.Contains(got, tt.said) {
				t.Errorf("got response %q, want it to contain %q", got, tt.said)
			}
		})
	}
}

func TestSummaryIsBrief(t *testing.T) {
	if got, want := summarize(command.Exit{Code: -1, Signal: "SIGKILL"}), "Ended by SIGKILL after 0s."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestShellNeedsItsWorkspace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	hosttest.Must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, file + "/absent"} {
		a, err := Open("shell", Options{Dir: dir})
		hosttest.Must(t, err)
		if _, err := a.Start(t.Context(), hosttest.New(t)); err == nil {
			t.Errorf("Start in %s: got no error, want one", dir)
		}
	}
}
