//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// behindHub returns an agent that is this program as a server of a protocol. The inner
// agent plays a script. The pid of the server is in a file.
func behindHub(t *testing.T, protocol, config string) (spec, pidFile string) {
	t.Helper()
	dir := t.TempDir()
	script, pidFile := filepath.Join(dir, "script.json"), filepath.Join(dir, "pid")
	err := os.WriteFile(script, []byte(`{"model":"m","prompts":[
		{"match":"build","steps":[{"say":"I build."},{"end":true},{"tool":{"name":"bash","args":{"command":"make"},"output":"done\n","gated":true}},{"say":"It is built."}]},
		{"match":"list","steps":[{"say":"I look."},{"end":true},{"tool":{"name":"bash","args":{"command":"ls"},"output":"a.txt\n"}},{"say":"There is a.txt."},{"usage":{"input_tokens":7,"output_tokens":3}}]},
		{"match":"color","steps":[{"ask":{"type":"user_input","tool":"ask_user","args":{"questions":[{"header":"Color","question":"Which color?","options":[{"label":"red","description":"warm"},{"label":"blue","description":"cold"}]}]},"reason":"why not","on":{"answered":[{"say":"Thank you."}]}}}]},
		{"match":"wait","steps":[{"status":"waiting"},{"say":"Hm."},{"end":true},{"delay_ms":60000}]}
	],"default":[{"say":"Yes."}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Join([]string{os.Args[0], "headless", "--protocol", protocol, "--state-dir", filepath.Join(dir, "state"), "--agent", "script:" + script}, " ")
	return protocol + ":" + config + "/bin/sh -c 'echo $$ >" + pidFile + "; exec " + line + ` "$@"' sh`, pidFile
}

// kills kills the process in a pid file and waits until a client is told.
func (f *attendee) kills(pidFile string) {
	f.t.Helper()
	text, err := os.ReadFile(pidFile)
	if err != nil {
		f.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		f.t.Fatal(err)
	}
	if failed := f.fails(); failed.Fatal || !strings.Contains(failed.Message, "killed") {
		f.t.Errorf("got %+v, want that the agent was killed, and the session alive", failed)
	}
}

// begins waits for a piece of an answer.
func (f *attendee) begins(text string) {
	f.t.Helper()
	f.await("to be told "+text, func(ev contracts.Event) bool {
		chunk, ok := ev.(*contracts.ResponseChunk)
		return ok && chunk.Content == text
	})
}

// The approval and the answer come from a client that took control meanwhile.
func TestTwoClientsShareAnAgentOfChord(t *testing.T) {
	t.Parallel()
	spec, pidFile := behindHub(t, "chord", "")
	r := serving(t, "--agent", spec)
	answers := []contracts.RequestType{contracts.RequestApproval, contracts.RequestUserInput}
	first, second := r.attend("first", contracts.RoleController, answers), r.attend("second", contracts.RoleController, answers)

	first.prompts("build it")
	question := first.asked()
	if question.RequestType != contracts.RequestApproval || question.Tool != "bash" || !strings.Contains(string(question.Args), "make") {
		t.Errorf("got %+v, want the call", question)
	}
	second.takes()
	if _, err := second.Approve(t.Context(), second.asked().RequestID, ""); err != nil {
		t.Fatal(err)
	}
	first.says("It is built.")
	second.says("It is built.")

	second.prompts("which color?")
	asked := second.asked()
	if parts := contracts.UserQuestions(asked.Args); len(parts) != 1 || parts[0].Question != "Which color?" || len(parts[0].Options) != 2 {
		t.Errorf("got %s, want the question", asked.Args)
	}
	if _, err := second.Send(t.Context(), &contracts.ServerRequestResponse{
		RequestID: asked.RequestID, RequestType: asked.RequestType, Content: []contracts.ContentBlock{{Type: "text", Text: "blue"}},
	}); err != nil {
		t.Fatal(err)
	}
	second.says("Thank you.")
	first.says("Thank you.")

	second.prompts("wait")
	second.says("Hm.")
	second.interrupts()
	second.prompts("wait")
	second.says("Hm.")
	second.kills(pidFile)
	second.prompts("are you back?")
	second.says("Yes.")
	first.says("Yes.")
	told := second.told()
	if strings.Contains(told, "new conversation") || strings.Contains(told, "taken control") || !strings.Contains(told, "Agent process restarted") {
		t.Errorf("got %s, want a restart that resumes", told)
	}
	for _, f := range []*attendee{first, second} {
		checkEnds(f)
	}
}

// The question is open in both processes when both die.
func TestAnAgentOfChordGoesOnAfterTheServerDied(t *testing.T) {
	t.Parallel()
	spec, _ := behindHub(t, "chord", "")
	args := []string{"--agent", spec, "--workspace", t.TempDir(), "--state-dir", t.TempDir()}
	r := serving(t, args...)
	f := r.attend("before", contracts.RoleController, approvals)
	f.prompts("build it")
	f.asked()
	r.killed()

	r = serving(t, args...)
	f = r.attend("after", contracts.RoleController, approvals, client.WithHistory())
	f.await("the end of the question", func(ev contracts.Event) bool {
		_, ok := ev.(*contracts.ServerRequestResolved)
		return ok
	})
	f.takes() // the connection that is gone still counts for a while
	f.prompts("are you back?")
	f.says("Yes.")
	if told := f.told(); strings.Contains(told, "new conversation") {
		t.Errorf("got %s, want the same conversation", told)
	}
	checkEnds(f)
}

func TestTwoClientsShareAnAgentOfHeddle(t *testing.T) {
	t.Parallel()
	spec, pidFile := behindHub(t, "heddle", "model=m tools=bash ")
	r := serving(t, "--agent", spec)
	first, second := r.attend("first", contracts.RoleController, nil), r.attend("second", contracts.RoleController, nil)

	first.prompts("list the files")
	first.says("There is a.txt.")
	second.says("There is a.txt.")
	told := second.told()
	for _, want := range []string{`"tool":"bash","args":{"command":"ls"}`, `"content":"a.txt\n"`, `"input_tokens":7,"output_tokens":3`} {
		if !strings.Contains(told, want) {
			t.Errorf("got\n%s\nwant %s in it", told, want)
		}
	}

	first.prompts("wait")
	first.begins("Hm.")
	first.interrupts()
	first.prompts("wait")
	first.begins("Hm.")
	first.kills(pidFile)
	first.prompts("are you back?")
	first.says("Yes.")
	if told := first.told(); !strings.Contains(told, "new conversation") || !strings.Contains(told, "Agent process restarted") {
		t.Errorf("got %s, want a restart that says what is lost", told)
	}
	for _, f := range []*attendee{first, second} {
		checkEnds(f)
	}
}
