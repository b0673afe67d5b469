package acp

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// TestLibrarysExampleAgent drives the agent that the library has as its example:
// a program that was not written with this client in mind.
func TestLibrarysExampleAgent(t *testing.T) {
	program := filepath.Join(t.TempDir(), "agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-p", "1", "-o", program, "github.com/coder/acp-go-sdk/example/agent")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	a := New([]string{program}, Options{Dir: t.TempDir()})
	host := hosttest.New(t)
	_, err := a.Start(t.Context(), host)
	hosttest.Must(t, err)
	t.Cleanup(func() { hosttest.Must(t, a.Close(context.Background())) })
	work := contracts.Work{Content: "improve the project"}

	hosttest.Must(t, a.Run(t.Context(), work))
	want := []string{
		"response_start", "response_chunk", "response_end",
		"tool_call", "tool_start", "tool_output", "tool_end",
		"response_start", "response_chunk", "response_end",
		"tool_call", "server_request", "server_request_resolved", "tool_start", "tool_output", "tool_end",
		"response_start", "response_chunk", "response_end",
	}
	if got := host.Types(); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("published\n got %q\nwant %q", got, want)
	}
	if req := host.Asked()[0]; req.Tool != "edit" || !strings.Contains(string(req.Args), `"id":"reject"`) {
		t.Errorf("asked %+v, want the edit with its options", req)
	}
	if !strings.Contains(host.Said(), "Perfect!") {
		t.Errorf("said %q, want what follows the approval", host.Said())
	}

	host.Answer = nil // the second question stays open until the run is interrupted
	ctx, stop := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { result <- a.Run(ctx, work) }() // ends with ctx
	awaitQuestion(host, 2)
	stop(errStopped)
	if err := <-result; !errors.Is(err, errStopped) {
		t.Errorf("got %v, want %v", err, errStopped)
	}
	if a.peer.Load().proc.Life().Err() != nil {
		t.Error("got a program that was killed, want one that stopped when it was told to")
	}
}

// awaitQuestion returns once n questions were shown.
func awaitQuestion(host *hosttest.Host, n int) {
	seen := map[*contracts.ServerRequest]bool{}
	host.Await(func(ev contracts.Event) bool {
		if req, ok := ev.(*contracts.ServerRequest); ok {
			seen[req] = true
		}
		return len(seen) == n
	})
}
