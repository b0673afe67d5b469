//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// An editing is an editor that has started maestro acp.
type editing struct {
	*acp.ClientSideConnection
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	log *bytes.Buffer // standard error, once it has ended

	fill     func(acp.UnstableCreateElicitationRequest) acp.UnstableCreateElicitationResponse
	asked    chan acp.RequestPermissionRequest         // 16-buffered
	gone     chan struct{}                             // 16-buffered; a token per question that was withdrawn
	mu       sync.Mutex                                // guards the following
	permit   func(acp.RequestPermissionRequest) string // answers questions; nil leaves them until they are withdrawn
	updates  []acp.SessionUpdate
	occurred chan struct{} // closed and replaced with each update
}

// edits starts maestro acp and introduces the editor.
func edits(t *testing.T, cmd *exec.Cmd, permit func(acp.RequestPermissionRequest) string) *editing {
	t.Helper()
	return editsWith(t, cmd, &editing{permit: permit}, acp.ClientCapabilities{})
}

func editsWith(t *testing.T, cmd *exec.Cmd, e *editing, caps acp.ClientCapabilities) *editing {
	t.Helper()
	e.t, e.cmd, e.log = t, cmd, &bytes.Buffer{}
	e.asked, e.gone, e.occurred = make(chan acp.RequestPermissionRequest, 16), make(chan struct{}, 16), make(chan struct{})
	cmd.Stderr = e.log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of %v:\n%s", cmd.Args[1:], e.log)
		}
	})
	e.in = in
	e.ClientSideConnection = acp.NewClientSideConnection(e, in, out)
	got, err := e.Initialize(t.Context(), acp.InitializeRequest{
		ProtocolVersion: acp.ProtocolVersionNumber, ClientInfo: &acp.Implementation{Name: "zed", Version: "1"}, ClientCapabilities: caps,
	})
	if err != nil || got.ProtocolVersion != acp.ProtocolVersionNumber || !got.AgentCapabilities.LoadSession {
		t.Fatalf("got %+v, %v, want version %d and that sessions can be loaded", got, err, acp.ProtocolVersionNumber)
	}
	return e
}

func (e *editing) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.updates = append(e.updates, n.Update)
	close(e.occurred)
	e.occurred = make(chan struct{})
	return nil
}

func (e *editing) RequestPermission(ctx context.Context, r acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	e.asked <- r
	e.mu.Lock()
	permit := e.permit
	e.mu.Unlock()
	if permit == nil {
		<-ctx.Done()
		e.gone <- struct{}{}
		return acp.RequestPermissionResponse{}, ctx.Err()
	}
	id := acp.PermissionOptionId(permit(r))
	return acp.RequestPermissionResponse{Outcome: acp.RequestPermissionOutcome{Selected: &acp.RequestPermissionOutcomeSelected{OptionId: id}}}, nil
}

func (e *editing) UnstableCreateElicitation(_ context.Context, r acp.UnstableCreateElicitationRequest) (acp.UnstableCreateElicitationResponse, error) {
	return e.fill(r), nil
}

// What the editor does not offer.

var errNotOffered = errors.New("not offered")

func (e *editing) ReadTextFile(context.Context, acp.ReadTextFileRequest) (r acp.ReadTextFileResponse, err error) {
	return r, errNotOffered
}
func (e *editing) WriteTextFile(context.Context, acp.WriteTextFileRequest) (r acp.WriteTextFileResponse, err error) {
	return r, errNotOffered
}
func (e *editing) CreateTerminal(context.Context, acp.CreateTerminalRequest) (r acp.CreateTerminalResponse, err error) {
	return r, errNotOffered
}
func (e *editing) KillTerminal(context.Context, acp.KillTerminalRequest) (r acp.KillTerminalResponse, err error) {
	return r, errNotOffered
}
func (e *editing) TerminalOutput(context.Context, acp.TerminalOutputRequest) (r acp.TerminalOutputResponse, err error) {
	return r, errNotOffered
}
func (e *editing) ReleaseTerminal(context.Context, acp.ReleaseTerminalRequest) (r acp.ReleaseTerminalResponse, err error) {
	return r, errNotOffered
}
func (e *editing) WaitForTerminalExit(context.Context, acp.WaitForTerminalExitRequest) (r acp.WaitForTerminalExitResponse, err error) {
	return r, errNotOffered
}

// seen returns the texts of the updates so far, one kind of message after the
// other, with a line for each other update.
func (e *editing) seen() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	add := func(kind string, b acp.ContentBlock) {
		if n := len(all); n > 0 && strings.HasPrefix(all[n-1], kind) {
			all[n-1] += b.Text.Text
			return
		}
		all = append(all, kind+b.Text.Text)
	}
	for _, u := range e.updates {
		switch {
		case u.UserMessageChunk != nil:
			add("user: ", u.UserMessageChunk.Content)
		case u.AgentMessageChunk != nil:
			add("agent: ", u.AgentMessageChunk.Content)
		case u.AgentThoughtChunk != nil:
			add("thought: ", u.AgentThoughtChunk.Content)
		case u.ToolCall != nil:
			all = append(all, "call: "+string(u.ToolCall.Kind)+" "+u.ToolCall.Title)
		case u.ToolCallUpdate != nil:
			all = append(all, "update: "+changeText(u.ToolCallUpdate))
		case u.AvailableCommandsUpdate != nil:
			all = append(all, "commands")
		}
	}
	return all
}

func changeText(u *acp.SessionToolCallUpdate) (text string) {
	if u.Status != nil {
		text = string(*u.Status)
	}
	for _, c := range u.Content {
		text += " " + c.Content.Content.Text.Text
	}
	return text
}

// of returns what was said in all messages of a kind, which ends with a colon.
func (e *editing) of(kind string) (text string) {
	for _, line := range e.seen() {
		if rest, ok := strings.CutPrefix(line, kind+" "); ok {
			text += rest
		}
	}
	return text
}

// until waits until an update contains want.
func (e *editing) until(want string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	for {
		e.mu.Lock()
		occurred := e.occurred
		e.mu.Unlock()
		if strings.Contains(strings.Join(e.seen(), "\n"), want) {
			return
		}
		select {
		case <-occurred:
		case <-e.Done():
			e.t.Fatalf("got the end after\n%s\nwant %q", strings.Join(e.seen(), "\n"), want)
		case <-ctx.Done():
			e.t.Fatalf("got\n%s\nwant %q", strings.Join(e.seen(), "\n"), want)
		}
	}
}

// opens makes a session in dir.
func (e *editing) opens(dir string) acp.SessionId {
	e.t.Helper()
	got, err := e.NewSession(e.t.Context(), acp.NewSessionRequest{Cwd: dir, McpServers: []acp.McpServer{}})
	if err != nil || got.SessionId == "" {
		e.t.Fatalf("got %+v, %v, want a session", got, err)
	}
	return got.SessionId
}

func (e *editing) loads(id acp.SessionId, dir string) error {
	_, err := e.LoadSession(e.t.Context(), acp.LoadSessionRequest{SessionId: id, Cwd: dir, McpServers: []acp.McpServer{}})
	return err
}

// asks sends a prompt and returns how it ended.
func (e *editing) asks(id acp.SessionId, text string) (acp.StopReason, error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	got, err := e.Prompt(ctx, acp.PromptRequest{SessionId: id, Prompt: []acp.ContentBlock{acp.TextBlock(text)}})
	return got.StopReason, err
}

// done sends a prompt that is to end well.
func (e *editing) done(id acp.SessionId, text string) {
	e.t.Helper()
	if got, err := e.asks(id, text); got != acp.StopReasonEndTurn || err != nil {
		e.t.Fatalf("%q: got %q, %v, want end_turn; after\n%s", text, got, err, strings.Join(e.seen(), "\n"))
	}
}

// leaves closes the input and checks how the program ends.
func (e *editing) leaves(code int) {
	e.t.Helper()
	if err := e.in.Close(); err != nil {
		e.t.Fatal(err)
	}
	<-e.Done()
	if got := exitCode(e.t, e.cmd.Wait()); got != code {
		e.t.Errorf("got exit code %d, want %d; log:\n%s", got, code, e.log)
	}
}

func allow(acp.RequestPermissionRequest) string  { return "allow" }
func reject(acp.RequestPermissionRequest) string { return "reject" }

// realDir is a directory by the name that has no links in it.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// atServer is maestro acp for a server that runs.
func atServer(t *testing.T, r *running, args ...string) *exec.Cmd {
	t.Helper()
	return program(t, append([]string{"acp", r.ready.BaseURL, "--token-file", r.ready.TokenFile}, args...)...)
}

func TestEditorNeedsNoServer(t *testing.T) {
	t.Parallel()
	work, state := realDir(t), t.TempDir()
	e := edits(t, program(t, "acp", "--state-dir", state), allow)
	id := e.opens(work)
	e.done(id, "echo hello > f; cat f")
	if text, err := os.ReadFile(filepath.Join(work, "f")); err != nil || string(text) != "hello\n" {
		t.Errorf("got %q, %v in the file, want hello", text, err)
	}
	r := <-e.asked
	if r.ToolCall.Title == nil || *r.ToolCall.Title != "echo hello > f; cat f" || len(r.Options) != 2 {
		t.Errorf("got the question %+v, want one about the command with two options", r)
	}
	live := e.seen()
	for _, want := range []string{"commands", "call: execute echo hello > f; cat f", "update: in_progress", "update: completed ```\nhello\n```\n"} {
		if !slices.Contains(live, want) {
			t.Errorf("got\n%s\nwant %q", strings.Join(live, "\n"), want)
		}
	}
	if strings.Contains(strings.Join(live, "\n"), "user: ") {
		t.Errorf("got %q, want no echo of the editor's own prompt", live)
	}
	if list, err := e.ListSessions(t.Context(), acp.ListSessionsRequest{}); err != nil || len(list.Sessions) != 1 || list.Sessions[0].Cwd != work {
		t.Errorf("got %+v, %v, want the session in %s", list, err, work)
	}
	e.leaves(0)

	again := edits(t, program(t, "acp", "--state-dir", state, "--workspace", work), allow)
	list, err := again.ListSessions(t.Context(), acp.ListSessionsRequest{Cwd: &work})
	if err != nil || len(list.Sessions) != 1 || list.Sessions[0].SessionId != id || list.Sessions[0].Cwd != work {
		t.Fatalf("got %+v, %v, want the session in %s", list, err, work)
	}
	if err := again.loads(id, work); err != nil {
		t.Fatal(err)
	}
	// All of it came before the answer.
	want := append([]string{"user: echo hello > f; cat f"}, live[1:]...)
	got := again.seen()
	got = slices.DeleteFunc(got, func(s string) bool { return s == "commands" || strings.HasPrefix(s, "update:  ```") })
	want = slices.DeleteFunc(want, func(s string) bool { return s == "commands" || strings.HasPrefix(s, "update:  ```") })
	if !slices.Equal(got, want) {
		t.Errorf("got the history\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	again.done(id, "true")
	again.leaves(0)
}

// TestEditorGoesOnAfterACrash kills the program in the middle of a run, as
// editors do that start their agent anew.
func TestEditorGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	work, state := realDir(t), t.TempDir()
	e := edits(t, program(t, "acp", "--state-dir", state), allow)
	id := e.opens(work)
	ended := make(chan error, 1)
	go func() {
		_, err := e.asks(id, "echo begun; exec sleep 600")
		ended <- err
	}()
	e.until("update: in_progress")
	if err := e.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-e.Done()
	<-ended
	again := edits(t, program(t, "acp", "--state-dir", state), allow)
	if err := again.loads(id, work); err != nil {
		t.Fatal(err)
	}
	again.done(id, "echo at once")
	again.leaves(0)
}

// TestEditorWaitsForThePredecessor wants a session while another program, which is
// about to end, has it.
func TestEditorWaitsForThePredecessor(t *testing.T) {
	t.Parallel()
	work, state := realDir(t), t.TempDir()
	first := edits(t, program(t, "acp", "--state-dir", state), allow)
	id := first.opens(work)
	second := edits(t, program(t, "acp", "--state-dir", state), allow)
	loaded := make(chan error, 1)
	go func() { loaded <- second.loads(id, work) }()
	first.leaves(0)
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	second.done(id, "true")
	second.leaves(0)
}

// TestFlagsOfAnotherServerAreWrongUsage gives flags that would have no effect.
func TestFlagsOfAnotherServerAreWrongUsage(t *testing.T) {
	t.Parallel()
	const url = "http://127.0.0.1:1"
	for flag, args := range map[string][]string{
		"agent": {url, "--agent", "shell"}, "workspace": {url, "--workspace", "."}, "state-dir": {url, "--state-dir", "."},
		"lease-ttl": {url, "--lease-ttl", "1s"}, "model-url": {url, "--model-url", "http://m"}, "allow": {url, "--allow", "read"},
		"auth": {url, "--auth", "off"}, "strict": {url, "--strict"}, "max-sessions": {url, "--max-sessions", "1"},
		"token-file": {"--token-file", "f"},
	} {
		out, err := program(t, append([]string{"acp"}, args...)...).CombinedOutput()
		if got := exitCode(t, err); got != exitUsage || !strings.Contains(string(out), "maestro: --"+flag+" ") {
			t.Errorf("%v: got exit code %d and %q, want %d and an error that names the flag", args, got, out, exitUsage)
		}
	}
	f := acpCommand().Flags()
	for _, name := range withURL {
		if f.Lookup(name) == nil {
			t.Errorf("got no flag --%s, want all that are said to be of use with a URL", name)
		}
	}
}

func TestEditorsDirectoryIsTheServers(t *testing.T) {
	t.Parallel()
	r := serving(t)
	e := edits(t, atServer(t, r), allow)
	other := realDir(t)
	_, err := e.NewSession(t.Context(), acp.NewSessionRequest{Cwd: other, McpServers: []acp.McpServer{}})
	if err == nil || !strings.Contains(err.Error(), other) || !strings.Contains(err.Error(), "the server works in") {
		t.Errorf("new: got %v, want that the server works elsewhere", err)
	}
	if err := e.loads("main", other); err == nil || !strings.Contains(err.Error(), "the server works in") {
		t.Errorf("load: got %v, want that the server works elsewhere", err)
	}
	if err := e.loads("nothing", r.cmd.Dir); err == nil || !strings.Contains(err.Error(), `session \"nothing\" not found`) {
		t.Errorf("got %v, want that there is no such session", err)
	}
	if err := e.loads("main", r.cmd.Dir); err != nil {
		t.Errorf("got %v, want the session", err)
	}
	e.leaves(0)
}

func TestEditorSaysNo(t *testing.T) {
	t.Parallel()
	work := realDir(t)
	e := edits(t, program(t, "acp", "--workspace", work), reject)
	id := e.opens(work)
	e.done(id, "touch f")
	if _, err := os.Stat(filepath.Join(work, "f")); err == nil {
		t.Error("got a file, want none: it was refused")
	}
	if got := strings.Join(e.seen(), "\n"); !strings.Contains(got, "update: failed ```\n[denied: Denied by user]") {
		t.Errorf("got\n%s\nwant a call that failed because it was denied", got)
	}
	e.leaves(0)
}

func TestEditorCancels(t *testing.T) {
	t.Parallel()
	work := realDir(t)
	e := edits(t, program(t, "acp", "--workspace", work), allow)
	id := e.opens(work)
	ended := make(chan acp.StopReason, 1)
	go func() {
		got, err := e.asks(id, "echo begun; exec sleep 600")
		if err != nil {
			t.Error(err)
		}
		ended <- got
	}()
	e.until("begun")
	if err := e.Cancel(t.Context(), acp.CancelNotification{SessionId: id}); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got != acp.StopReasonCancelled {
		t.Errorf("got %q, want cancelled", got)
	}
	if got := strings.Join(e.seen(), "\n"); !strings.Contains(got, "update: failed") || strings.Contains(got, "Error:") {
		t.Errorf("got\n%s\nwant the call to have failed, and no error beside the answer", got)
	}
	e.done(id, "true") // it goes on
	e.leaves(0)
}

// TestControlMovesWhileTheEditorAsks lets another client take over while the
// editor is being asked for permission.
func TestControlMovesWhileTheEditorAsks(t *testing.T) {
	t.Parallel()
	r := serving(t)
	e := edits(t, atServer(t, r), nil)
	id := e.opens(r.cmd.Dir)
	ended := make(chan error, 1)
	go func() {
		got, err := e.asks(id, "echo from the editor")
		if got != acp.StopReasonEndTurn {
			err = errors.Join(err, errors.New("stop reason "+string(got)))
		}
		ended <- err
	}()
	question := <-e.asked
	other := r.attach(client.WithHello(contracts.Hello{
		Role: contracts.RoleController, ClientInfo: &contracts.ClientInfo{Name: "rival"},
		Capabilities: &contracts.Capabilities{ServerRequests: contracts.RequestTypes()},
	}), client.WithTakeover(contracts.TakeoverForce), client.WithSession(string(id), false))
	screen := screenful{t, "rival", other.Next}
	<-e.gone // the editor's question was withdrawn
	if _, err := other.Approve(t.Context(), string(question.ToolCall.ToolCallId), ""); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("got %v, want the prompt to end as usual", err)
	}
	screen.until("tool_end")
	if got := strings.Join(e.seen(), "\n"); !strings.Contains(got, "rival") || !strings.Contains(got, "update: completed ```\nfrom the editor\n```") {
		t.Errorf("got\n%s\nwant who is in control and what the command said", got)
	}

	_, err := e.asks(id, "echo refused")
	if err == nil || !strings.Contains(err.Error(), "rival") || !strings.Contains(err.Error(), "/take") {
		t.Errorf("got %v, want who is in control and how to take over", err)
	}
	if _, err := other.Prompt(t.Context(), "echo from the rival"); err != nil {
		t.Fatal(err)
	}
	e.until("user: echo from the rival")
	e.mu.Lock()
	e.permit = allow
	e.mu.Unlock()
	e.done(id, "/take")
	second := <-e.asked // what the rival's command waits for is the editor's to answer now
	if second.ToolCall.Title == nil || *second.ToolCall.Title != "echo from the rival" {
		t.Errorf("got the question %+v, want the rival's", second)
	}
	e.until("update: completed ```\nfrom the rival\n```")
	e.until("agent: You are in control of the session.")
	e.done(id, "/release")
	screen.until(`"controller_connection_id":null`)
	e.leaves(0)
	if _, err := other.Prompt(t.Context(), "true"); err != nil { // the server goes on
		t.Error(err)
	}
}

// TestTwoEditorsShareASession has one of them watch what the other does.
func TestTwoEditorsShareASession(t *testing.T) {
	t.Parallel()
	r := serving(t)
	first := edits(t, atServer(t, r, "--session", "main"), allow)
	if id := first.opens(r.cmd.Dir); id != "main" {
		t.Fatalf("got session %q, want main", id)
	}
	first.done("main", "echo one")
	second := edits(t, atServer(t, r, "--view"), allow)
	if err := second.loads("main", r.cmd.Dir); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(second.seen(), "\n"); !strings.Contains(got, "user: echo one\n") || !strings.Contains(got, "completed ```\none\n```") {
		t.Errorf("got\n%s\nwant the history", got)
	}
	first.done("main", "echo two")
	second.until("user: echo two")
	second.until("completed ```\ntwo\n```")
	if _, err := second.asks("main", "echo three"); err == nil {
		t.Error("got no error for a prompt of an editor that watches only")
	}
	first.mu.Lock()
	first.permit = nil
	first.mu.Unlock()
	for len(first.asked) > 0 {
		<-first.asked
	}
	ended := make(chan error, 1)
	go func() {
		_, err := first.asks("main", "echo four")
		ended <- err
	}()
	question := <-first.asked
	first.leaves(0) // its question waits for whoever may answer
	if err := <-ended; err == nil {
		t.Error("got no error for the prompt of an editor that has left")
	}
	third := r.attach(client.WithRole(contracts.RoleController), client.WithSession("main", false))
	if _, err := third.Approve(t.Context(), string(question.ToolCall.ToolCallId), ""); err != nil {
		t.Fatal(err)
	}
	second.until("completed ```\nfour\n```")
	if len(second.asked) > 0 {
		t.Error("got a question, want none: this editor watches only")
	}
	second.leaves(0)
}

// TestEditorAnswersQuestions goes through a form of an agent and one of an MCP
// server, and through both for an editor that has no forms.
func TestEditorAnswersQuestions(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script.json")
	err := os.WriteFile(script, []byte(`{"prompts":[
		{"match":"colour","steps":[{"ask":{"type":"user_input","tool":"ask_user","args":{"questions":[{"header":"Colour","question":"Which colour?","options":[{"label":"red"},{"label":"blue"}]}]},
			"on":{"answered":[{"say":"thanks"}],"failed":[{"say":"a pity"}]}}}]},
		{"match":"login","steps":[{"ask":{"type":"mcp_elicitation","tool":"mcp_elicitation","args":{"serverName":"s","requestId":"r","mode":"form","message":"Who are you?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","minLength":1}}}},
			"on":{"answered":[{"say":"welcome"}],"failed":[{"say":"a pity"}],"cancelled":[{"say":"nobody"}]}}}]}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	work := realDir(t)
	var asked []string
	e := editsWith(t, program(t, "acp", "--workspace", work, "--agent", "script:"+script), &editing{
		fill: func(r acp.UnstableCreateElicitationRequest) acp.UnstableCreateElicitationResponse {
			asked = append(asked, r.Form.Message)
			return acp.UnstableCreateElicitationResponse{Accept: &acp.UnstableCreateElicitationAccept{Action: "accept", Content: map[string]any{"answer1": "red", "name": "me"}}}
		},
	}, acp.ClientCapabilities{Elicitation: &acp.ElicitationCapabilities{Form: &acp.ElicitationFormCapabilities{}}})
	id := e.opens(work)
	e.done(id, "colour")
	e.done(id, "login")
	if got, want := e.of("agent:"), "thankswelcome"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := []string{"Which colour?", "Who are you?"}; !slices.Equal(asked, want) {
		t.Errorf("got the questions %q, want %q", asked, want)
	}
	e.leaves(0)

	plain := edits(t, program(t, "acp", "--workspace", work, "--agent", "script:"+script), allow)
	id = plain.opens(work)
	plain.done(id, "colour")
	plain.done(id, "login")
	if got, want := plain.of("thought:"), "cannot answer user_input"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
	plain.leaves(0)
}

// TestAgentsOptionsAreKept offers what an agent offers, and tells which one was
// chosen.
func TestAgentsOptionsAreKept(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script.json")
	err := os.WriteFile(script, []byte(`{"default":[{"tool":{"name":"edit","gated":true,"args":{"path":"a.go","_acp":{"title":"Edit a.go","kind":"edit","diff":"-a\n+b\n",
		"options":[{"id":"y","name":"Yes","kind":"allow_once"},{"id":"a","name":"Always","kind":"allow_always"},{"id":"n","name":"No","kind":"reject_once"}]}}}}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r := serving(t, "--agent", "script:"+script)
	watch := r.attach(client.WithSession("main", false))
	e := edits(t, atServer(t, r, "--session", "main"), func(acp.RequestPermissionRequest) string { return "a" })
	e.done(e.opens(r.cmd.Dir), "go")
	q := <-e.asked
	if len(q.Options) != 3 || q.Options[1].Kind != acp.PermissionOptionKindAllowAlways || *q.ToolCall.Title != "Edit a.go" || *q.ToolCall.Kind != acp.ToolKindEdit {
		t.Errorf("got the question %+v, want the agent's title, kind and options", q)
	}
	if got := q.ToolCall.Content[0].Content.Content.Text.Text; got != "```diff\n-a\n+b\n```\n" {
		t.Errorf("got %q, want the change that is asked about", got)
	}
	if got := q.ToolCall.Locations; len(got) != 1 || !strings.HasSuffix(got[0].Path, "/a.go") {
		t.Errorf("got the files %v, want a.go", got)
	}
	all := screenful{t, "watcher", watch.Next}.until(`"resolution":"approved"`)
	if want := `{\"option_id\":\"a\",\"remember\":\"session\"}`; !strings.Contains(all, want) {
		t.Errorf("got\n%s\nwant the option that was chosen: %s", all, want)
	}
	e.leaves(0)
}

// TestNothingIsLostWithTheServer kills the server in the middle of an answer and
// starts it again. What the editor was shown is what the journal has.
func TestNothingIsLostWithTheServer(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script.json")
	err := os.WriteFile(script, []byte(`{"prompts":[{"match":"long","steps":[{"repeat":{"times":100000,"rate":500,"steps":[{"say":"word {{n}} "}]}}]}],
		"default":[{"say":"still here"}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	work, state := realDir(t), t.TempDir()
	args := []string{"--workspace", work, "--state-dir", state, "--agent", "script:" + script}
	r := serving(t, args...)
	e := edits(t, atServer(t, r), allow)
	id := e.opens(work)
	ended := make(chan error, 1)
	go func() {
		_, err := e.asks(id, "long")
		ended <- err
	}()
	e.until("word 40 ")
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait()
	revive(t, r, args)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "The server restarted during the run") {
		t.Fatalf("got %v, want that the server restarted", err)
	}
	e.done(id, "hello")
	live := e.of("agent:")
	if !strings.HasPrefix(live, "word 1 word 2 word 3 ") || !strings.HasSuffix(live, "still here") {
		t.Errorf("got %.60q ... %q, want all from the first word to the last", live, live[max(0, len(live)-60):])
	}

	// The same from the journal, but for the error, which was an answer then.
	second := edits(t, atServer(t, r, "--view"), allow)
	if err := second.loads(id, work); err != nil {
		t.Fatal(err)
	}
	kept := strings.Replace(second.of("agent:"), "\n\nError: The server restarted during the run\n\n", "", 1)
	if kept != live {
		t.Errorf("got\n%q\nwant what the journal has:\n%q", live, kept)
	}
	e.leaves(0)
	second.leaves(0)
}

// revive starts a server again at the address where it was.
func revive(t *testing.T, r *running, args []string) {
	t.Helper()
	u, err := url.Parse(r.ready.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	cmd := program(t, append(append([]string{"serve"}, args...), "--listen", u.Host)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// TestAcpxDrivesMaestro lets a command-line client of the protocol start maestro.
func TestAcpxDrivesMaestro(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	acpxDrives(t, realDir(t), self+" acp --state-dir "+filepath.Join(t.TempDir(), "state"))
}

// The same client, on a WebSocket.
func TestAcpxDrivesAServer(t *testing.T) {
	t.Parallel()
	r := serving(t)
	bridge, err := filepath.Abs("../../internal/agent/acpserver/testdata/sdk/bridge.mjs")
	if err != nil {
		t.Fatal(err)
	}
	acpxDrives(t, r.cmd.Dir, "node "+bridge+" ws"+strings.TrimPrefix(r.ready.BaseURL, "http")+"/acp "+readToken(t, r))
}

// acpxDrives lets acpx start an agent that works in a directory.
func acpxDrives(t *testing.T, work, agent string) {
	t.Helper()
	acpx, err := filepath.Abs("../../internal/agent/acpserver/testdata/acpx/node_modules/acpx/dist/cli.js")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(acpx); err != nil {
		t.Fatalf("acpx is not installed: run `make others`, or `npm --prefix internal/agent/acpserver/testdata/acpx ci` (%v)", err)
	}
	base := program(t)
	cmd := exec.CommandContext(t.Context(), "node", acpx, "--approve-all", "--format", "json", "--cwd", work,
		"--agent", agent, "exec", "echo hi from acpx | tee f")
	cmd.Dir, cmd.Env = work, append(base.Env, "HOME="+t.TempDir())
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("got %v, want success; output:\n%s\nlog:\n%s", err, out, &log)
	}
	if text, err := os.ReadFile(filepath.Join(work, "f")); err != nil || string(text) != "hi from acpx\n" {
		t.Errorf("got %q, %v in the file, want hi from acpx", text, err)
	}
	var last struct {
		Result struct{ StopReason string }
	}
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "stopReason") {
			continue
		}
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatal(err)
		}
	}
	if last.Result.StopReason != "end_turn" || !strings.Contains(string(out), "hi from acpx\\n") {
		t.Errorf("got\n%s\nwant the output of the command and end_turn", out)
	}
}

// TestEditorIsToldWhyAnAgentDoesNotStart starts agents that cannot be.
func TestEditorIsToldWhyAnAgentDoesNotStart(t *testing.T) {
	t.Parallel()
	work := realDir(t)
	for spec, want := range map[string]string{
		"llm:anthropic/x": "anthropic needs a key",
		"acp:nosuch":      "nosuch",
		"acp:cat":         "start agent cat: it does not speak the Agent Client Protocol",
	} {
		cmd := program(t, "acp", "--state-dir", t.TempDir(), "--agent", spec)
		cmd.Env = append(cmd.Environ(), "ANTHROPIC_API_KEY=", "ANTHROPIC_BASE_URL=")
		e := edits(t, cmd, allow)
		_, err := e.NewSession(t.Context(), acp.NewSessionRequest{Cwd: work, McpServers: []acp.McpServer{}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", spec, err, want)
		}
		e.leaves(0)
	}
}

// TestEditorLeavesWhileAnAgentStarts closes the input of one whose agent never
// says a word.
func TestEditorLeavesWhileAnAgentStarts(t *testing.T) {
	t.Parallel()
	work := realDir(t)
	begun := filepath.Join(work, "begun")
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	e := edits(t, program(t, "acp", "--state-dir", t.TempDir(), "--agent", "acp:sh -c 'cat "+begun+"; exec sleep 600'"), allow)
	ended := make(chan error, 1)
	go func() {
		_, err := e.NewSession(t.Context(), acp.NewSessionRequest{Cwd: work, McpServers: []acp.McpServer{}})
		ended <- err
	}()
	f, err := os.OpenFile(begun, os.O_WRONLY, 0) // returns when the agent reads it
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	e.leaves(0)
	if err := <-ended; err == nil {
		t.Error("got a session, want an error")
	}
}

func TestSessionOfAnothersServerIsNotMadeByASlip(t *testing.T) {
	t.Parallel()
	r := serving(t)
	e := edits(t, atServer(t, r, "--session", "typo"), allow)
	if _, err := e.NewSession(t.Context(), acp.NewSessionRequest{Cwd: r.cmd.Dir, McpServers: []acp.McpServer{}}); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("got %v, want that there is none", err)
	}
	e.leaves(0)
	e = edits(t, atServer(t, r, "--session", "meant", "--create"), allow)
	if id := e.opens(r.cmd.Dir); id != "meant" {
		t.Errorf("got session %q, want meant", id)
	}
	e.leaves(0)
}

func TestEditorIsToldThatItsServersAreNotUsed(t *testing.T) {
	t.Parallel()
	work := realDir(t)
	e := edits(t, program(t, "acp", "--state-dir", t.TempDir()), allow)
	_, err := e.NewSession(t.Context(), acp.NewSessionRequest{Cwd: work, McpServers: []acp.McpServer{
		{Stdio: &acp.McpServerStdio{Name: "x", Command: "/bin/false", Args: []string{}, Env: []acp.EnvVariable{}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	e.until("thought: The editor's MCP servers are not used")
	e.leaves(0)
}

// sessionsFor returns the sessions of a workspace of its own.
func sessionsFor(t *testing.T) *wiring.Sessions {
	t.Helper()
	m, err := newSessions(settings{agent: "shell", workspace: t.TempDir(), retainBytes: 1 << 20}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m.Dir = t.TempDir()
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// A predecessor that does not end is waited for, as long as somebody wants that.
func TestWaitForAPredecessorEndsWithWhoWaits(t *testing.T) {
	m, key := sessionsFor(t), hub.Key{ID: "held"}
	store, err := journal.Open(m.SessionDir(key), journal.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	synctest.Test(t, func(t *testing.T) {
		for patience, want := range map[time.Duration]time.Duration{time.Millisecond: time.Millisecond, time.Hour: leavePatience} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			begun := time.Now()
			_, err := openSoon(ctx, m, key, hub.OpenOptions{})
			if !errors.Is(err, &contracts.Error{Code: contracts.CodeRuntimeOwnedElsewhere}) || !strings.Contains(err.Error(), "in use by another server") {
				t.Errorf("got %v, want that another has the session", err)
			}
			if got := time.Since(begun); got < want || got > want+leavePatience/200 {
				t.Errorf("got an end after %v, want it after %v", got, want)
			}
			cancel()
		}
	})
}

// The session is opened as soon as the predecessor has let go of it.
func TestWaitForAPredecessorEndsWithIt(t *testing.T) {
	m, key := sessionsFor(t), hub.Key{ID: "held"}
	store, err := journal.Open(m.SessionDir(key), journal.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		opened := make(chan error, 1)
		go func() { // ends with leavePatience at the latest
			h, err := openSoon(t.Context(), m, key, hub.OpenOptions{})
			if err == nil {
				err = h.Suspend(t.Context())
			}
			opened <- err
		}()
		time.Sleep(leavePatience / 2)
		synctest.Wait()
		if len(opened) > 0 {
			t.Fatalf("got %v while another has the session, want that it is waited for", <-opened)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := <-opened; err != nil || time.Since(begun) > leavePatience/200 {
			t.Errorf("got %v after %v, want the session", err, time.Since(begun))
		}
	})
}
