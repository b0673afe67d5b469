//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// buildExample builds the agent that the protocol's library has as its example.
var buildExample = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(scratch, "agent")
	build := exec.Command("go", "build", "-p", "1", "-o", path, "github.com/coder/acp-go-sdk/example/agent")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the example: %w\n%s", err, out)
	}
	return path, nil
})

// exampleAgent returns how the example is started so that its pid is in a file.
func exampleAgent(t *testing.T) (spec, pidFile string) {
	t.Helper()
	path, err := buildExample()
	if err != nil {
		t.Fatal(err)
	}
	pidFile = filepath.Join(t.TempDir(), "agent.pid")
	return "acp:/bin/sh -c 'echo $$ >" + pidFile + "; exec " + path + "'", pidFile
}

// A client's question is answered by another one that took control meanwhile;
// then a run is interrupted, and one loses its agent.
func TestTwoClientsShareAnAgentOfTheProtocol(t *testing.T) {
	t.Parallel()
	spec, pidFile := exampleAgent(t)
	r := serving(t, "--agent", spec)
	answers := []contracts.RequestType{contracts.RequestApproval}
	first, second := r.attend("first", contracts.RoleController, answers), r.attend("second", contracts.RoleController, answers)

	first.prompts("improve the project")
	question := first.asked()
	if question.RequestType != contracts.RequestApproval || !strings.Contains(string(question.Args), "new-host") || !strings.Contains(string(question.Args), "Skip this change") {
		t.Errorf("got %+v, want the change with its options", question)
	}
	if other := second.asked(); other.RequestID != question.RequestID {
		t.Errorf("got the questions %s and %s, want one", question.RequestID, other.RequestID)
	}
	second.takes()
	if _, err := first.Approve(t.Context(), question.RequestID, ""); err == nil {
		t.Error("the question was answered without control")
	} else if refusal, ok := errors.AsType[*contracts.Error](err); !ok || refusal.Code == "" {
		t.Errorf("got %v, want a refusal with a code", err)
	}
	if _, err := second.Approve(t.Context(), question.RequestID, ""); err != nil {
		t.Fatal(err)
	}
	first.says("Perfect! I've successfully updated the configuration.")
	second.says("Perfect! I've successfully updated the configuration.")
	if a, b := first.said.String(), second.said.String(); a != b || !strings.Contains(a, "Now I understand the project structure.") {
		t.Errorf("got %q and %q, want the same whole text", a, b)
	}

	second.prompts("once more")
	question = second.asked()
	second.interrupts()
	if _, err := second.Approve(t.Context(), question.RequestID, ""); err == nil {
		t.Error("a question could be answered after its run")
	}

	second.prompts("and again")
	second.await("the agent to speak", func(ev contracts.Event) bool { _, ok := ev.(*contracts.ResponseChunk); return ok })
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if failed := second.fails(); failed.Fatal || !strings.Contains(failed.Message, "killed") {
		t.Errorf("got %+v, want that the agent was killed, and the session alive", failed)
	}

	second.prompts("are you back?")
	question = second.asked()
	if _, err := second.Deny(t.Context(), question.RequestID, "not now"); err != nil {
		t.Fatal(err)
	}
	second.says("I'll skip the configuration update.")
	first.says("I'll skip the configuration update.")
	if after, err := os.ReadFile(pidFile); err != nil || string(after) == string(text) {
		t.Errorf("got the agent %s, %v, want another one", after, err)
	}
	for _, f := range []*attendee{first, second} {
		checkEnds(f)
	}
}

// checkEnds checks that every response, call and question that was shown has
// ended, once.
func checkEnds(f *attendee) {
	f.t.Helper()
	open := map[string]int{}
	for _, ev := range f.events {
		switch e := ev.(type) {
		case *contracts.ResponseStart:
			open["response "+e.ResponseID]++
		case *contracts.ResponseEnd:
			open["response "+e.ResponseID]--
		case *contracts.ToolCall:
			open["call "+e.CallID]++
		case *contracts.ToolEnd:
			if open["call "+e.CallID] != 0 { // a question may be a call of its own
				open["call "+e.CallID]--
			}
		case *contracts.ServerRequest:
			open["question "+e.RequestID]++
		case *contracts.ServerRequestResolved:
			open["question "+e.RequestID]--
		}
	}
	for what, count := range open {
		if count != 0 {
			f.t.Errorf("%s: got %s with %d ends missing", f.name, what, count)
		}
	}
}
