//go:build unix

package acp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

func TestProgramsThatDoNotSpeakTheProtocolAreRecognised(t *testing.T) {
	const forms = "many programs speak it only with an argument such as acp or --acp"
	for name, tt := range map[string]struct {
		program, body string
		args          []string
		hurry         func(*waits) *time.Duration // what is not waited for in this test
		want          string
	}{
		"ends":       {"codex", `echo 'stdin is not a terminal' >&2; exit 1`, nil, nil, "start agent codex: it ended before it spoke the Agent Client Protocol: agent process exited: exit status 1; what it said on standard error is in the server's log; try --agent 'acp:codex-acp'"},
		"is silent":  {"gemini", `while read -r x; do :; done`, []string{"-m", "x"}, unanswered, "start agent gemini: it has not spoken the Agent Client Protocol in 1ms; try --agent 'acp:gemini --acp'"},
		"prints":     {"other", `echo 'Press Return'; while read -r x; do :; done`, nil, nil, "start agent other: it has not spoken the Agent Client Protocol in 4s; it wrote something that is no message: \"Press Return\"; " + forms},
		"echoes":     {"other", `exec cat`, nil, nil, "start agent other: it does not speak the Agent Client Protocol as it should: it answers initialize with Method not found; " + forms},
		"is unknown": {"other", `while read -r x; do :; done`, nil, ready, "start agent other: agent process did not become ready in 1ms; " + forms},
		"was told":   {"other", `while read -r x; do :; done`, []string{"--ACP"}, ready, "start agent other: agent process did not become ready in 1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), tt.program)
			hosttest.Must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+tt.body+"\n"), 0o700))
			a := New(append([]string{path}, tt.args...), Options{Dir: t.TempDir()})
			a.wait.foreign = 4 * time.Second
			if tt.hurry != nil {
				*tt.hurry(&a.wait) = time.Millisecond
			}
			if _, err := a.Start(t.Context(), hosttest.New(t)); err == nil || err.Error() != tt.want {
				t.Errorf("got error  %v\nwant %s", err, tt.want)
			}
			hosttest.Must(t, a.Close(t.Context()))
		})
	}
}

func unanswered(w *waits) *time.Duration { return &w.foreign }

func ready(w *waits) *time.Duration { return &w.ready }

func TestFilesAreServedInsideTheWorkspace(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	hosttest.Must(t, os.WriteFile(secret, []byte("s"), 0o600))
	hosttest.Must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("one\ntwo\r\nthree\nfour"), 0o640))
	hosttest.Must(t, os.WriteFile(filepath.Join(dir, "binary"), []byte("a\x00b"), 0o600))
	hosttest.Must(t, os.Symlink(secret, filepath.Join(dir, "link")))
	hosttest.Must(t, os.Truncate(filepath.Join(dir, "binary"), 3))
	huge, err := os.Create(filepath.Join(dir, "huge"))
	hosttest.Must(t, err)
	hosttest.Must(t, huge.Truncate(maxFile+1))
	hosttest.Must(t, huge.Close())
	s := newStand(t, setup{}, Options{Dir: dir})
	s.start(t)
	read := func(path string, more map[string]any) step {
		params := map[string]any{"sessionId": "s1", "path": path}
		maps.Copy(params, more)
		return asks("fs/read_text_file", params)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, tt := range []struct {
		ask  step
		want string // in the answer
	}{
		{read(at("f"), nil), `{"content":"one\ntwo\r\nthree\nfour"}`},
		{read(at("f"), map[string]any{"line": 2, "limit": 2}), `{"content":"two\r\nthree\n"}`},
		{read(at("f"), map[string]any{"line": 4}), `{"content":"four"}`},
		{read(at("f"), map[string]any{"line": 9, "limit": 1}), `{"content":""}`},
		{read(at("f"), map[string]any{"line": -1, "limit": 0}), `{"content":""}`},
		{read("f", nil), "not absolute"},
		{read(secret, nil), "outside workspace root"},
		{read(at("../x"), nil), "outside workspace root"},
		{read(at("link"), nil), "outside workspace root"},
		{read(at("none"), nil), "-32002"},
		{read(at("binary"), nil), "not text"},
		{read(at("huge"), nil), "longer than"},
		{read(dir, nil), "not a regular file"},
		{asks("fs/read_text_file", map[string]any{"path": 7}), "-32602"},
	} {
		if got := s.answer(t, tt.ask); !strings.Contains(got, tt.want) {
			t.Errorf("%v: got %s, want %q in it", tt.ask.Params, got, tt.want)
		}
	}
}

// Gemini CLI takes every error of fs/read_text_file for a failed read, so that it
// could not make a file.
func TestReadsAreNotOfferedToProgramsThatCannotUseThem(t *testing.T) {
	for name, want := range map[string][]bool{"fake": {true}, "gemini-cli": {true, false}} {
		s := open(t, setup{Name: name})
		var offered []bool
		for _, line := range noted(t, s.notes, "received") {
			var m struct {
				Params acp.InitializeRequest `json:"params"`
			}
			if !strings.Contains(line, `"method":"initialize"`) {
				continue
			}
			hosttest.Must(t, json.Unmarshal([]byte(line), &m))
			offered = append(offered, m.Params.ClientCapabilities.Fs.ReadTextFile)
			if !m.Params.ClientCapabilities.Fs.WriteTextFile {
				t.Errorf("%s is not offered to write files", name)
			}
		}
		if !slices.Equal(offered, want) {
			t.Errorf("%s is offered reads %v, want %v", name, offered, want)
		}
	}
}

func TestFilesAreWrittenInsideTheWorkspace(t *testing.T) {
	s := open(t, setup{})
	outside := filepath.Join(t.TempDir(), "x")
	write := func(path string, content any) step {
		return asks("fs/write_text_file", map[string]any{"sessionId": "s1", "path": path, "content": content})
	}
	at := filepath.Join(s.dir, "new", "f")
	long := write(at, nil)
	long.Fill = maxFile + 1
	for _, tt := range []struct {
		ask  step
		want string
	}{
		{write(at, "text\n"), `{}`},
		{write(filepath.Join(s.dir, "empty"), ""), `{}`},
		{write(outside, "x"), "outside workspace root"},
		{write(filepath.Join(s.dir, "..", "x"), "x"), "outside workspace root"},
		{write(at, nil), "content is required"},
		{long, "longer than"},
	} {
		if got := s.answer(t, tt.ask); !strings.Contains(got, tt.want) {
			t.Errorf("%v: got %s, want %q in it", tt.ask.Params["path"], got, tt.want)
		}
	}
	if text, err := os.ReadFile(at); err != nil || string(text) != "text\n" {
		t.Errorf("got %q, %v; want the text", text, err)
	}
	if info, err := os.Stat(filepath.Join(s.dir, "empty")); err != nil || info.Size() != 0 {
		t.Errorf("got %v, %v; want an empty file", info, err)
	}
	if _, err := os.Stat(outside); !os.IsNotExist(err) {
		t.Errorf("got %v, want no file outside", err)
	}
}

func create(command string, args []string, more map[string]any) step {
	params := map[string]any{"sessionId": "s1", "command": command, "args": args}
	maps.Copy(params, more)
	return asks("terminal/create", params)
}

// terminals is a request about a terminal.
func terminals(method, id string) step {
	return asks("terminal/"+method, map[string]any{"sessionId": "s1", "terminalId": id})
}

func TestTerminalsRunCommands(t *testing.T) {
	s := open(t, setup{})
	sub := filepath.Join(s.dir, "sub dir")
	hosttest.Must(t, os.Mkdir(sub, 0o700))
	root := s.files.Root()
	got := s.answer(t,
		create("printf", []string{"%s|", "a b", "it's", "$HOME"}, nil), terminals("wait_for_exit", "term_1"), terminals("output", "term_1"))
	if want := `{"exitStatus":{"exitCode":0},"output":"a b|it's|$HOME|","truncated":false}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got = s.answer(t, create("pwd; echo $X; exit 3", nil, map[string]any{
		"cwd": sub, "env": []any{map[string]any{"name": "X", "value": "y"}},
	}), terminals("wait_for_exit", "term_2"), terminals("output", "term_2"))
	if want := `{"exitStatus":{"exitCode":3},"output":"` + root + `/sub dir\ny\n","truncated":false}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got = s.answer(t, create("printf 'aééé'", nil, map[string]any{"outputByteLimit": 3}), terminals("wait_for_exit", "term_3"), terminals("output", "term_3"))
	if want := `{"exitStatus":{"exitCode":0},"output":"é","truncated":true}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got = s.answer(t, create("printf 'aé'", nil, map[string]any{"outputByteLimit": 2}), terminals("wait_for_exit", "term_4"), terminals("output", "term_4"))
	if want := `{"exitStatus":{"exitCode":0},"output":"é","truncated":true}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got = s.answer(t, create("exec sleep 1000", nil, nil), terminals("kill", "term_5"), terminals("wait_for_exit", "term_5"))
	if want := `{"signal":"SIGTERM"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, tt := range []struct {
		want  string
		steps []step
	}{
		{"-32002", []step{create("true", nil, nil), terminals("release", "term_6"), terminals("output", "term_6")}},
		{"outside workspace root", []step{create("pwd", nil, map[string]any{"cwd": "/"})}},
		{"not absolute", []step{create("pwd", nil, map[string]any{"cwd": "sub"})}},
		{"command is required", []step{create("", nil, nil)}},
	} {
		if got := s.answer(t, tt.steps...); !strings.Contains(got, tt.want) {
			t.Errorf("got %s, want %q in it", got, tt.want)
		}
	}
}

func TestTerminalsAreBounded(t *testing.T) {
	s := open(t, setup{})
	var steps []step
	for range maxTerminals + 1 {
		steps = append(steps, create("true", nil, nil))
	}
	if got := s.answer(t, steps...); !strings.Contains(got, "terminals are open") {
		t.Errorf("got %s, want a refusal", got)
	}
	steps[maxTerminals] = terminals("release", "term_33")
	if got := s.answer(t, append(steps, create("true", nil, nil))...); !strings.Contains(got, "term_65") {
		t.Errorf("got %s, want another terminal once one was released", got)
	}
}

func TestOutputOfTerminalsIsShownAsItComes(t *testing.T) {
	s := open(t, setup{})
	gate := filepath.Join(s.dir, "gate")
	embedded := map[string]any{"content": []any{map[string]any{"type": "terminal", "terminalId": "term_1"}}}
	result := make(chan error, 1)
	go func() { // ends with the command
		result <- s.Run(t.Context(), contracts.Work{Content: script(
			create("echo early; until [ -e gate ]; do sleep 0.01; done; echo late", nil, nil),
			calls("c", "Run it", "execute", "in_progress", embedded),
			changes("c", "", embedded),
			terminals("wait_for_exit", "term_1"),
			changes("c", "completed", embedded), done)})
	}()
	s.host.Await(func(ev contracts.Event) bool {
		out, ok := ev.(*contracts.ToolOutput)
		return ok && strings.Contains(out.Content, "early")
	})
	hosttest.Must(t, os.WriteFile(gate, nil, 0o600))
	hosttest.Must(t, <-result)
	if got := s.host.Output(); got != "early\nlate\n" {
		t.Errorf("got output %q, want it once", got)
	}
	s.shown(t, "tool_call", "tool_start", "tool_output", "tool_end", "response_start", "response_end")
}

func TestOutputFromBeforeACallIsShown(t *testing.T) {
	s := open(t, setup{})
	s.run(t, create("echo early", nil, nil), terminals("wait_for_exit", "term_1"),
		calls("c", "Run it", "execute", "completed", map[string]any{"content": []any{
			map[string]any{"type": "terminal", "terminalId": "term_1"}, map[string]any{"type": "terminal", "terminalId": "none"},
		}}), done)
	if got := s.host.Output(); got != "early\n" {
		t.Errorf("got output %q, want what had come before", got)
	}
}

func TestTerminalsEndWithTheProgram(t *testing.T) {
	path, _, ended := hosttest.Witness(t)
	s := open(t, setup{})
	s.fails(t, contracts.ErrorTransient, "exit status 3",
		create("exec 3>"+path+"; echo >&3; trap '' TERM; touch started; sleep 1000 & sleep 1000", nil, nil), awaitFile(), terminals("wait_for_exit", "term_2"), step{Exit: 3})
	hosttest.Happens(t, "the end of the command", ended)
}

// awaitFile has the program wait until a command has made the file started.
func awaitFile() step {
	return create("until [ -e started ]; do sleep 0.01; done", nil, nil)
}

func TestTerminalsEndWithTheirRun(t *testing.T) {
	path, _, ended := hosttest.Witness(t)
	s := open(t, setup{})
	s.run(t, create("exec 3>"+path+"; echo >&3; trap '' TERM; TOKEN=abc; sleep 1000 & touch started; sleep 1000", nil, nil), awaitFile(),
		terminals("wait_for_exit", "term_2"), done)
	hosttest.Happens(t, "the end of the command", ended)
	s.says(t, "Ended with the run, because the agent left them running: exec 3>"+path+"; echo >&3; trap '' TERM; TOKEN=***; sleep")
	if got := s.answer(t, terminals("output", "term_1")); !strings.Contains(got, "-32002") {
		t.Errorf("got %s, want that the terminal was released", got)
	}
	if got := s.answer(t, create("true", nil, nil)); got != `{"terminalId":"term_3"}` {
		t.Errorf("got %s, want a terminal with an id of its own", got)
	}
}

func TestInterruptEndsTerminals(t *testing.T) {
	s := open(t, setup{})
	ctx, stop := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	write := asks("fs/write_text_file", map[string]any{"sessionId": "s1", "path": filepath.Join(s.dir, "late"), "content": "x"})
	go func() { // ends with ctx
		result <- s.Run(ctx, contracts.Work{Content: script(
			create("echo before; exec sleep 1000", nil, nil), says("it runs"),
			step{Await: "session/cancel"}, terminals("wait_for_exit", "term_1"), create("true", nil, nil), write,
			terminals("release", "term_1"), stops(acp.StopReasonCancelled))})
	}()
	s.host.AwaitType("response_chunk")
	stop(errStopped)
	if err := <-result; !errors.Is(err, errStopped) {
		t.Errorf("got %v, want %v", err, errStopped)
	}
	got := noted(t, s.notes, "replies")
	if len(got) != 5 || got[1] != `{"signal":"SIGTERM"}` || got[4] != `{}` {
		t.Fatalf("the program was answered %q, want the end of its command", got)
	}
	for _, refused := range got[2:4] {
		if !strings.Contains(refused, "-32600") || !strings.Contains(refused, "interrupted") {
			t.Errorf("got %s, want a refusal that says why", refused)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "late")); !os.IsNotExist(err) {
		t.Errorf("got %v, want no file from after the interrupt", err)
	}
	if got := s.statuses(); len(got) > 0 {
		t.Errorf("said %q, want nothing: the interrupt is said", got)
	}
}

// Codex answers an interrupt and lets its command run on.
func TestCommandsThatMayRunOnAfterAnInterruptAreSaid(t *testing.T) {
	s := open(t, setup{})
	ctx, stop := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { // ends with ctx
		result <- s.Run(ctx, contracts.Work{Content: script(
			calls("a", "sleep 300", "execute", "in_progress", shows("begun")), calls("b", "Fetch", "fetch", "in_progress", shows("begun")),
			create("exec sleep 1000", nil, nil),
			calls("c", "sleep 1000", "execute", "in_progress", map[string]any{"content": []any{map[string]any{"type": "terminal", "terminalId": "term_1"}}}),
			says("x"), step{Await: "session/cancel"}, stops(acp.StopReasonCancelled))})
	}()
	s.host.AwaitType("response_chunk")
	stop(errStopped)
	if err := <-result; !errors.Is(err, errStopped) {
		t.Errorf("got %v, want %v", err, errStopped)
	}
	ends := hosttest.As[*contracts.ToolEnd](s.host)
	if len(ends) != 3 {
		t.Fatalf("got %d ends of calls, want three", len(ends))
	}
	for _, end := range ends {
		if end.Success || end.ErrorCode != errCancelled {
			t.Errorf("got %+v, want that the call was cancelled", end)
		}
	}
	want := []string{"The agent has stopped and did not say that these commands have ended. They may still run: sleep 300"}
	if got := s.statuses(); !slices.Equal(got, want) {
		t.Errorf("said %q, want %q", got, want)
	}
}

func TestNothingIsChangedOutsideOfARun(t *testing.T) {
	s := open(t, setup{})
	late := func(ask step) step { ask.Async = true; return ask }
	write := asks("fs/write_text_file", map[string]any{"sessionId": "s1", "path": filepath.Join(s.dir, "late"), "content": "x"})
	hosttest.Must(t, os.WriteFile(filepath.Join(s.dir, "f"), []byte("text"), 0o600))
	read := asks("fs/read_text_file", map[string]any{"sessionId": "s1", "path": filepath.Join(s.dir, "f")})
	s.run(t, done, late(write), late(write), late(create("touch late", nil, nil)), late(read))
	s.host.Await(func(ev contracts.Event) bool {
		e, ok := ev.(*contracts.ErrorEvent)
		return ok && e.ErrorType == contracts.ErrorProtocol && strings.Contains(e.Message, "run a command outside of a run")
	})
	s.run(t, step{Answer: 1}, step{Answer: 2}, step{Answer: 3}, step{Answer: 4}, done)
	got := noted(t, s.notes, "replies")
	for _, refused := range got[:3] {
		if !strings.Contains(refused, "-32600") || !strings.Contains(refused, "outside of a run") {
			t.Errorf("got %s, want a refusal that says why", refused)
		}
	}
	if got[3] != `{"content":"text"}` {
		t.Errorf("got %s, want the file", got[3])
	}
	if told := hosttest.As[*contracts.ErrorEvent](s.host); len(told) != 2 || !strings.Contains(told[0].Message, "write a file outside of a run") {
		t.Errorf("told of %+v, want each kind once", told)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "late")); !os.IsNotExist(err) {
		t.Errorf("got %v, want no file", err)
	}
}

func TestRequestOfAProgramCanBeWithdrawn(t *testing.T) {
	s := open(t, setup{})
	wait := terminals("wait_for_exit", "term_1")
	wait.Async = true
	got := s.answer(t, create("exec sleep 1000", nil, nil), wait,
		step{Tell: methodCancelRequest, Params: map[string]any{"requestId": 2}}, step{Answer: 2})
	if !strings.Contains(got, "-32800") {
		t.Errorf("got %s, want that it was cancelled", got)
	}
}
