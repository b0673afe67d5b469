//go:build unix

package utility

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestCommandReportsOutputAndExit(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	for i, tt := range []struct {
		line     string
		out, err string
		code     int64 // -1 if a signal ended it
		signal   string
	}{
		{line: "echo out; echo err >&2", out: "out\n", err: "err\n"},
		{line: "exit 3", code: 3},
		{line: "kill -TERM $$", code: -1, signal: "SIGTERM"},
		{line: "cat", out: ""}, // standard input is empty
		{line: `printf 'a\377b'`, out: "a\uFFFDb"},
		{line: `printf '\342\230'; sleep 0.1; printf '\203'`, out: "☃"},
		{line: `printf '\342\230'`, out: "\uFFFD\uFFFD"},
		{line: "echo a\techo b\necho c\r\n", out: "a echo b\nc\r\n"},
	} {
		id := fmt.Sprint("c", i)
		r.do(&contracts.UtilityCommandStart{CommandID: id, Command: tt.line})
		e := r.exited(id)
		if got := r.output(id, contracts.StreamStdout); got != tt.out {
			t.Errorf("%s: got %q on stdout, want %q", tt.line, got, tt.out)
		}
		if got := r.output(id, contracts.StreamStderr); got != tt.err {
			t.Errorf("%s: got %q on stderr, want %q", tt.line, got, tt.err)
		}
		wantEnd(t, e, tt.code, tt.signal, "")
	}
}

// wantEnd checks how a command ended; a code of -1 means that a signal did it.
func wantEnd(t *testing.T, e *contracts.UtilityCommandExited, code int64, signal, reason string) {
	t.Helper()
	gotCode, gotSignal := int64(-1), ""
	if e.ExitCode != nil {
		gotCode = *e.ExitCode
	}
	if e.Signal != nil {
		gotSignal = *e.Signal
	}
	if gotCode != code || gotSignal != signal || e.Reason != reason || e.Success != (code == 0) {
		t.Errorf("%s: got code %d, signal %q, reason %q, success %v; want %d, %q, %q, %v",
			e.CommandID, gotCode, gotSignal, e.Reason, e.Success, code, signal, reason, code == 0)
	}
}

func TestStartSaysWhatRuns(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"sub/..cache/file": ""})
	r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: "echo $$; pwd", Cwd: ptr("sub/..cache")})
	got := r.started("c")
	want := contracts.UtilityCommandStarted{
		CommandID: "c", Command: "echo $$; pwd", Cwd: filepath.Join(r.root, "sub/..cache"), PID: got.PID,
		ShellMode: contracts.ShellModeShell, TerminalMode: contracts.TerminalPipe, OwnerConnectionID: "alice",
	}
	if *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
	r.exited("c")
	if got, want := r.output("c", contracts.StreamStdout), fmt.Sprintf("%d\n%s\n", got.PID, want.Cwd); got != want {
		t.Errorf("got %q, want its process id and directory %q", got, want)
	}
}

func TestUnfitCommandsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"file": ""})
	must(t, os.Symlink("/", filepath.Join(r.root, "out")))
	direct, pty := contracts.ShellModeDirect, contracts.TerminalPTY
	long := strings.Repeat("é", 100_001)
	for _, tt := range []struct {
		cmd  contracts.UtilityCommandStart
		code contracts.Code
		text string
	}{
		{contracts.UtilityCommandStart{Command: " \t"}, contracts.CodeBadRequest, "command is required and cannot be empty"},
		{contracts.UtilityCommandStart{Command: "echo \x07"}, contracts.CodeBadRequest, "Command contains invalid control characters"},
		{contracts.UtilityCommandStart{Command: "echo \x7f"}, contracts.CodeBadRequest, "Command contains invalid control characters"},
		{contracts.UtilityCommandStart{Command: long}, contracts.CodeBadRequest, "Command contains invalid control characters"},
		{contracts.UtilityCommandStart{Command: "ls", Cwd: ptr(" ")}, contracts.CodeBadRequest, "cwd is required and cannot be empty"},
		{contracts.UtilityCommandStart{Command: "ls", Cwd: ptr("a\x00")}, contracts.CodeBadRequest, "Working directory contains invalid characters"},
		{contracts.UtilityCommandStart{Command: "ls", Cwd: ptr(long[:2*4097])}, contracts.CodeBadRequest, "Working directory contains invalid characters"},
		{contracts.UtilityCommandStart{Command: "ls", Cwd: ptr("none")}, contracts.CodeNotFound, "Working directory not found: none"},
		{contracts.UtilityCommandStart{Command: "ls", Cwd: ptr("file")}, contracts.CodeNotFound, "Working directory not found: file"},
		{contracts.UtilityCommandStart{Command: "ls", Cwd: ptr("/")}, contracts.CodeWorkspaceViolation, "Path is outside workspace root: /"},
		{contracts.UtilityCommandStart{Command: "ls", Cwd: ptr("..")}, contracts.CodeWorkspaceViolation, "Path is outside workspace root: " + filepath.Dir(r.root)},
		{contracts.UtilityCommandStart{Command: "ls", Cwd: ptr("out/tmp")}, contracts.CodeWorkspaceViolation, "Path is outside workspace root: " + r.root + "/out/tmp"},
		{contracts.UtilityCommandStart{Command: "ls", Cwd: ptr("out/no/such")}, contracts.CodeWorkspaceViolation, "Path is outside workspace root: " + r.root + "/out/no/such"},
		{contracts.UtilityCommandStart{Command: "ls", Env: map[string]string{"": "x"}}, contracts.CodeBadRequest, "environment variable key is required and cannot be empty"},
		{contracts.UtilityCommandStart{Command: "ls", Env: map[string]string{"A=B": "x"}}, contracts.CodeBadRequest, "Environment variable A=B contains invalid characters"},
		{contracts.UtilityCommandStart{Command: "ls", Env: map[string]string{"A": "\x00"}}, contracts.CodeBadRequest, "Environment variable A contains invalid characters"},
		{contracts.UtilityCommandStart{Command: "ls", Env: map[string]string{"A": long[:2*32_769]}}, contracts.CodeBadRequest, "Environment variable A contains invalid characters"},
		{contracts.UtilityCommandStart{Command: "ls", Columns: ptr(int64(80))}, contracts.CodeBadRequest, "Utility command columns and rows require terminal_mode=pty"},
		{contracts.UtilityCommandStart{Command: "ls", Rows: ptr(int64(24)), TerminalMode: contracts.TerminalPipe}, contracts.CodeBadRequest, "Utility command columns and rows require terminal_mode=pty"},
		{contracts.UtilityCommandStart{Command: "ls", Columns: ptr(int64(0)), TerminalMode: pty}, contracts.CodeBadRequest, "Utility command columns must be a positive integer"},
		{contracts.UtilityCommandStart{Command: "ls", Rows: ptr(int64(65_536)), TerminalMode: pty}, contracts.CodeBadRequest, "Utility command rows must be a positive integer"},
		{contracts.UtilityCommandStart{Command: "'' x", ShellMode: direct}, contracts.CodeBadRequest, "Command must contain an executable to run"},
		{contracts.UtilityCommandStart{Command: "no-such-program", ShellMode: direct, TerminalMode: pty}, contracts.CodeNotFound,
			`exec: "no-such-program": executable file not found in $PATH`},
		{contracts.UtilityCommandStart{Command: `ls \`, ShellMode: direct}, contracts.CodeBadRequest, "Command ends with unfinished escape sequence"},
		{contracts.UtilityCommandStart{Command: `ls 'a`, ShellMode: direct}, contracts.CodeBadRequest, "Command contains unterminated quotes"},
	} {
		tt.cmd.CommandID = "c"
		r.refused(&tt.cmd, tt.code, tt.text)
	}
	if n := r.count(); n > 0 {
		t.Errorf("got %s, want no event", r.history())
	}
	r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: "true"}) // the id is free
	wantEnd(t, r.exited("c"), 0, "", "")
}

func TestDirectModeRunsWordsWithoutShell(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"a.txt": "", "bin/hi": "#!/bin/sh\necho hi $1\n"})
	must(t, os.Chmod(filepath.Join(r.root, "bin/hi"), 0o700))
	for i, tt := range []struct {
		line string
		env  map[string]string
		out  string
	}{
		{line: `printf '%s|' "a  b" c\ d '' '$HOME' *.txt "it's"`, out: "a  b|c d||$HOME|*.txt|it's|"},
		{line: "bin/hi there", out: "hi there\n"},
		{line: "hi there", env: map[string]string{"PATH": filepath.Join(r.root, "bin") + ":" + os.Getenv("PATH")}, out: "hi there\n"},
	} {
		id := fmt.Sprint("c", i)
		r.do(&contracts.UtilityCommandStart{CommandID: id, Command: tt.line, ShellMode: contracts.ShellModeDirect, Env: tt.env})
		wantEnd(t, r.exited(id), 0, "", "")
		if got := r.output(id, contracts.StreamStdout); got != tt.out {
			t.Errorf("%s: got %q, want %q", tt.line, got, tt.out)
		}
		if got := r.started(id).ShellMode; got != contracts.ShellModeDirect {
			t.Errorf("%s: got mode %s, want direct", tt.line, got)
		}
	}
}

func TestProgramThatCannotRunStartsAndExits(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, map[string]string{"plain": "x"})
	for id, tt := range map[string]struct{ line, reason string }{
		"missing": {"no-such-program", "not found"},
		"plain":   {"./plain", "permission denied"},
	} {
		r.do(&contracts.UtilityCommandStart{CommandID: id, Command: tt.line, ShellMode: contracts.ShellModeDirect, AllowStdin: true})
		e := r.exited(id)
		if pid := r.started(id).PID; pid != 0 {
			t.Errorf("%s: got process %d, want none", id, pid)
		}
		if e.Success || e.ExitCode != nil || e.Signal != nil || !strings.Contains(e.Reason, tt.reason) {
			t.Errorf("%s: got %+v, want a failure because of %q alone", id, e, tt.reason)
		}
	}
}

func TestCommandsGetNoCredentials(t *testing.T) {
	t.Setenv("MAESTRO_TEST_API_KEY", "k1")
	t.Setenv("MAESTRO_TEST_TOKEN", "k2")
	t.Setenv("MAESTRO_TEST_PLAIN", "plain")
	env := map[string]string{"GIVEN_TOKEN": "given", "HOME": "/nowhere", "EMPTY": ""}
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"local", Options{EnvPass: []string{"MAESTRO_TEST_TOKEN"}}, "|k2|plain|given|/nowhere|empty"},
		{"hosted", Options{Hosted: true}, "|||given|/nowhere|empty"},
	} {
		r := newRoom(t, tt.o, nil)
		r.do(&contracts.UtilityCommandStart{CommandID: "c", Env: env,
			Command: "echo \"$MAESTRO_TEST_API_KEY|$MAESTRO_TEST_TOKEN|$MAESTRO_TEST_PLAIN|$GIVEN_TOKEN|$HOME|${EMPTY-unset}empty\"; env -0 | tr '\\0' '\\n' | sort | uniq -d"})
		r.exited("c")
		if got := r.output("c", contracts.StreamStdout); got != tt.want+"\n" {
			t.Errorf("%s: got %q, want %q and no name twice", tt.name, got, tt.want)
		}
	}
}

func TestIDsAreTakenUntilTheLastEvent(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	r.do(&contracts.UtilityCommandStart{CommandID: "twin", Command: "sleep 1000"})
	for _, owner := range []string{"alice", "bob"} {
		r.refusedFor(owner, &contracts.UtilityCommandStart{CommandID: "twin", Command: "true"}, contracts.CodeBadRequest, "Utility command already exists: twin")
	}
	r.do(&contracts.UtilityCommandTerminate{CommandID: "twin", Force: true})
	for from := 0; from < 40; { // whoever saw the last event may use the id
		_, at := await(r, "an end", from, func(*contracts.UtilityCommandExited) bool { return true })
		from = at + 1
		r.do(&contracts.UtilityCommandStart{CommandID: "twin", Command: "true"})
	}
}

func TestIDIsFreeForWhoeverSawTheLastEvent(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"first", "second"} { // the same id, and the same place
		r := newRoom(t, Options{MaxCommands: 1}, nil)
		seen, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		r.after = func(ev contracts.Event) {
			if _, ok := ev.(*contracts.UtilityCommandExited); ok {
				once.Do(func() {
					close(seen)
					<-release // publishing has not returned, though the event was seen
				})
			}
		}
		r.do(&contracts.UtilityCommandStart{CommandID: "first", Command: "true"})
		<-seen
		result := make(chan error)
		go func() { // ends with the call
			result <- r.Do(t.Context(), "alice", &contracts.UtilityCommandStart{CommandID: id, Command: "true"})
		}()
		r.entered()
		close(release)
		if err := <-result; err != nil {
			t.Errorf("%s: got %v, want it accepted", id, err)
		}
	}
}

func TestCommandsAreCounted(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	for i := range 32 {
		r.as(fmt.Sprint("owner", i%3), &contracts.UtilityCommandStart{CommandID: fmt.Sprint("c", i), Command: "exec sleep 1000", ShellMode: contracts.ShellModeShell})
	}
	more := &contracts.UtilityCommandStart{CommandID: "more", Command: "true"}
	r.refused(more, contracts.CodeOverloaded, "Too many utility commands")
	r.as("owner0", &contracts.UtilityCommandTerminate{CommandID: "c0"})
	r.exited("c0")
	r.do(more)
	wantEnd(t, r.exited("more"), 0, "", "")
}

func TestTerminateSaysWhoAndHow(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	deaf := "trap '' TERM; sh -c 'trap \"\" TERM; echo ready; while :; do sleep 1; done'"
	for _, tt := range []struct {
		id, line       string
		force          []bool // the terminations
		code           int64
		signal, reason string
	}{
		{"gently", "echo ready; exec sleep 1000", []bool{false}, -1, "SIGTERM", "Terminated by controller"},
		{"at-once", "echo ready; exec sleep 1000", []bool{true}, -1, "SIGKILL", "Force terminated by controller"},
		{"deaf", deaf, []bool{false}, -1, "SIGKILL", "Terminated by controller"},
		{"hurried", deaf, []bool{false, true}, -1, "SIGKILL", "Terminated by controller"},
		{"orderly", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done", []bool{false, false}, 7, "", "Terminated by controller"},
	} {
		r.do(&contracts.UtilityCommandStart{CommandID: tt.id, Command: tt.line})
		r.wrote(tt.id, "ready")
		began := time.Now()
		for _, force := range tt.force {
			r.do(&contracts.UtilityCommandTerminate{CommandID: tt.id, Force: force})
		}
		wantEnd(t, r.exited(tt.id), tt.code, tt.signal, tt.reason)
		if took := time.Since(began); tt.id == "deaf" && took < killDelay {
			t.Errorf("%s: got killed after %s, want %s to end by itself", tt.id, took, killDelay)
		}
	}
	n := r.count()
	r.do(&contracts.UtilityCommandTerminate{CommandID: "deaf"})
	r.do(&contracts.UtilityCommandTerminate{CommandID: "ghost"})
	if got := r.count(); got != n {
		t.Errorf("got %s, want nothing about what has ended", r.history())
	}
}

func TestCommandsBelongToTheirConnection(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	r.do(&contracts.UtilityCommandStart{CommandID: "hers", Command: "cat", AllowStdin: true})
	r.as("bob", &contracts.UtilityCommandStart{CommandID: "his", Command: "exec sleep 1000"})
	for _, cmd := range []contracts.Command{
		&contracts.UtilityCommandTerminate{CommandID: "hers"},
		&contracts.UtilityCommandStdin{CommandID: "hers", Content: "x"},
		&contracts.UtilityCommandResize{CommandID: "hers", Columns: 1, Rows: 1},
	} {
		r.refusedFor("bob", cmd, contracts.CodeAccessDenied, "Headless command hers is owned by another connection")
	}
	r.Disown("bob")
	wantEnd(t, r.exited("his"), -1, "SIGTERM", "Owning connection closed while utility command was still running")
	r.do(&contracts.UtilityCommandStdin{CommandID: "hers", Content: "still here", EOF: true})
	wantEnd(t, r.exited("hers"), 0, "", "")
	if got := r.output("hers", contracts.StreamStdout); got != "still here" {
		t.Errorf("got %q, want what was written", got)
	}
}

func TestStopEndsEverythingOfAll(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	deaf := "trap '' TERM; echo ready; while :; do sleep 1; done"
	r.do(&contracts.UtilityCommandStart{CommandID: "a", Command: "exec sleep 1000"})
	r.as("bob", &contracts.UtilityCommandStart{CommandID: "b", Command: deaf})
	r.do(&contracts.UtilityFileWatchStart{WatchID: "w"})
	r.wrote("b", "ready")
	r.do(&contracts.UtilityCommandTerminate{CommandID: "a"}) // the reason of the session counts for more
	must(t, r.Stop(t.Context(), "Interrupted"))
	n := r.count()
	const reason = "Interrupted while utility command was still running"
	wantEnd(t, r.exited("b"), -1, "SIGKILL", reason)
	if e := r.exited("a"); e.Reason != reason && e.Reason != "Terminated by controller" {
		t.Errorf("got reason %q, want %q", e.Reason, reason)
	}
	stopped, _ := await(r, "the end of w", 0, func(*contracts.UtilityFileWatchStopped) bool { return true })
	if want := "Interrupted while file watch was still running"; stopped.Reason != want {
		t.Errorf("got reason %q, want %q", stopped.Reason, want)
	}
	if got := r.count(); got != n {
		t.Errorf("got %s, want everything before Stop returned", r.history())
	}
	must(t, r.Stop(t.Context(), "Interrupted")) // nothing is left
	r.do(&contracts.UtilityCommandStart{CommandID: "a", Command: "true"})
	r.exited("a")
}

func TestInputIsWrittenInOrder(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	r.do(&contracts.UtilityCommandStart{CommandID: "cat", Command: "cat", AllowStdin: true})
	var want strings.Builder
	for i := range 300 {
		line := fmt.Sprintf("%d %s\n", i, strings.Repeat("é", i))
		want.WriteString(line)
		r.do(&contracts.UtilityCommandStdin{CommandID: "cat", Content: line})
	}
	r.do(&contracts.UtilityCommandStdin{CommandID: "cat", EOF: true})
	r.do(&contracts.UtilityCommandStdin{CommandID: "cat", EOF: true}) // no more than was said
	wantEnd(t, r.exited("cat"), 0, "", "")
	if got := r.output("cat", contracts.StreamStdout); got != want.String() {
		t.Errorf("got %d bytes, want the %d written", len(got), want.Len())
	}
}

func TestInputIsRefusedWhereNobodyReads(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	in := func(id, content string, eof bool) *contracts.UtilityCommandStdin {
		return &contracts.UtilityCommandStdin{CommandID: id, Content: content, EOF: eof}
	}
	r.refused(in("ghost", "x", false), contracts.CodeNotFound, "Utility command not found: ghost")
	r.refused(&contracts.UtilityCommandResize{CommandID: "ghost", Columns: 1, Rows: 1}, contracts.CodeNotFound, "Utility command not found: ghost")

	r.do(&contracts.UtilityCommandStart{CommandID: "none", Command: "exec sleep 1000"})
	r.refused(in("none", "x", false), contracts.CodeBadRequest, "Utility command stdin is not enabled: none")
	r.refused(&contracts.UtilityCommandResize{CommandID: "none", Columns: 1, Rows: 1}, contracts.CodeBadRequest, "Utility command resize is only supported for PTY commands: none")

	r.do(&contracts.UtilityCommandStart{CommandID: "ended", Command: "cat; exec sleep 1000", AllowStdin: true})
	r.do(in("ended", "", true))
	r.refused(in("ended", "x", false), contracts.CodeBadRequest, "Utility command stdin is not writable: ended")
	r.do(in("ended", "", true))

	r.do(&contracts.UtilityCommandStart{CommandID: "deaf", Command: "exec sleep 1000", AllowStdin: true})
	r.do(in("deaf", strings.Repeat("x", 1<<20), false)) // more than a pipe holds
	r.refused(in("deaf", strings.Repeat("x", 1<<20), false), contracts.CodeOverloaded, "Utility command stdin is full: deaf")
	r.do(&contracts.UtilityCommandTerminate{CommandID: "deaf"})
	r.exited("deaf")
}

func TestLongOutputArrivesWholeAndInOrder(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	published := 0
	r.before = func(_ context.Context, ev contracts.Event) error {
		if _, ok := ev.(*contracts.UtilityCommandOutput); ok {
			if published++; published%8 == 0 {
				time.Sleep(5 * time.Millisecond) // somebody is slow
			}
		}
		return nil
	}
	r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: `i=0; while [ $i -lt 8 ]; do seq -f "$i %.0f é☃𝄞" 1 30000; i=$((i+1)); done`})
	wantEnd(t, r.exited("c"), 0, "", "")
	var want strings.Builder
	for i := range 8 {
		for n := 1; n <= 30000; n++ {
			fmt.Fprintf(&want, "%d %d é☃𝄞\n", i, n)
		}
	}
	got := r.output("c", contracts.StreamStdout)
	if sha256.Sum256([]byte(got)) != sha256.Sum256([]byte(want.String())) {
		t.Errorf("got %d bytes, want other %d", len(got), want.Len())
	}
}

func TestUnreadOutputHoldsTheCommandBack(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	marker := filepath.Join(r.root, "marker")
	first := true
	r.before = func(_ context.Context, ev contracts.Event) error {
		if _, ok := ev.(*contracts.UtilityCommandOutput); ok && first {
			first = false
			// That something does not happen takes a time in which it would.
			<-time.After(500 * time.Millisecond)
			if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("got %v, want a command that still waits to write", err)
			}
		}
		return nil
	}
	r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: "head -c 4000000 /dev/zero | tr '\\0' x; touch marker"})
	wantEnd(t, r.exited("c"), 0, "", "")
	if got := len(r.output("c", contracts.StreamStdout)); got != 4_000_000 {
		t.Errorf("got %d bytes, want 4000000", got)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("got %v, want a command that ran to its end", err)
	}
}

func TestNothingIsLostWhenNobodyReadsForLong(t *testing.T) {
	t.Parallel()
	var want strings.Builder
	want.WriteString("first\n")
	for n := 1; n <= 9000; n++ {
		fmt.Fprintln(&want, n)
	}
	for name, background := range map[string]string{
		"alone":             "",
		"in the group":      "sleep 1000 & sleep 0.1",
		"outside the group": "set -m; sleep 1000 & echo $! >id",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, Options{Shell: "/bin/bash"}, map[string]string{"id": ""})
			first := true
			r.before = func(_ context.Context, ev contracts.Event) error {
				if _, ok := ev.(*contracts.UtilityCommandOutput); ok && first {
					first = false
					<-time.After(lingerDelay + killDelay) // the command has long exited
				}
				return nil
			}
			r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: "echo first; sleep 0.2; seq 1 9000; " + background})
			wantEnd(t, r.exited("c"), 0, "", "")
			if got := r.output("c", contracts.StreamStdout); got != want.String() {
				t.Errorf("got %d bytes, want %d", len(got), want.Len())
			}
			r.do(&contracts.UtilityCommandStart{CommandID: "clean", Command: "kill -KILL $(cat id)"})
			r.exited("clean")
		})
	}
}

func TestSmallOutputsArriveTogether(t *testing.T) {
	t.Parallel()
	together := false
	for range 100 { // one in which nothing comes between is enough
		ours, theirs, err := os.Pipe()
		must(t, err)
		written := make(chan error)
		go func() { // ends when all is read
			_, err := theirs.Write(make([]byte, 1<<20)) // more than a pipe holds, and so than one read gets
			written <- err
		}()
		o := &output{from: pipe{ours}}
		n, err := o.gather(make([]byte, 1<<20)) // the writer is still there
		together = n == 1<<20 && err == nil
		must(t, ours.Close())
		if err := <-written; together {
			must(t, err)
			must(t, theirs.Close())
			break
		}
		must(t, theirs.Close())
	}
	if !together {
		t.Error("got what one read returns, want all that comes soon after")
	}
}

func TestOutputEndsWithItsWriters(t *testing.T) {
	t.Parallel()
	ours, theirs, err := os.Pipe()
	must(t, err)
	defer ours.Close()
	_, err = theirs.WriteString("last")
	must(t, err)
	must(t, theirs.Close())
	o := &output{from: pipe{ours}}
	buf := make([]byte, 100)
	if n, err := o.gather(buf); string(buf[:n]) != "last" || err != nil && !ended(err) {
		t.Errorf("got %q, %v; want what was written", buf[:n], err)
	}
	if n, err := o.gather(buf); n != 0 || !ended(err) {
		t.Errorf("got %d bytes, %v; want the end", n, err)
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	running, ended := r.witness("witness")
	ctx, cancel := context.WithCancelCause(t.Context())
	impatient := errors.New("impatient")
	r.before = func(ctx context.Context, ev contracts.Event) error {
		<-running
		cancel(impatient)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := r.Do(ctx, "alice", &contracts.UtilityCommandStart{CommandID: "c", Command: "exec 3>witness; echo >&3; exec sleep 1000"}); !errors.Is(err, impatient) {
		t.Errorf("got %v, want %v", err, impatient)
	}
	r.happens("the end of the command", ended)
	if n := r.count(); n > 0 {
		t.Errorf("got %s, want no event", r.history())
	}
}

// reluctant makes owners read nothing until the returned function is called.
func reluctant(r *room) (read func()) {
	reads := make(chan struct{})
	r.reading = func(ctx context.Context) error {
		select {
		case <-reads:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return sync.OnceFunc(func() { close(reads) })
}

func TestBackgroundOutputWaitsForTheOwner(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	read := reluctant(r)
	defer read()
	r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: "(head -c 300000 /dev/zero | tr '\\0' x) & exit 0"})
	late := time.AfterFunc(lingerDelay+killDelay, read) // when processes that nobody listened to would be gone
	defer late.Stop()
	wantEnd(t, r.exited("c"), 0, "", "")
	if got := r.output("c", contracts.StreamStdout); got != strings.Repeat("x", 300_000) {
		t.Errorf("got %d bytes, want all 300000", len(got))
	}
}

func TestCommandThatIsToEndDoesNotFlood(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	defer reluctant(r)()
	deaf := filepath.Join(r.root, "deaf")
	must(t, unix.Mkfifo(deaf, 0o600))
	r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: "trap '' TERM; echo >deaf; yes"})
	if _, err := os.ReadFile(deaf); err != nil {
		t.Fatal(err)
	}
	r.do(&contracts.UtilityCommandTerminate{CommandID: "c"})
	r.exited("c")
	if got := len(r.output("c", contracts.StreamStdout)); got > 2*maxLast {
		t.Errorf("got %d bytes after it was asked to end, want about %d", got, maxLast)
	}
}

func TestCommandsHaveTheirTime(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{MaxRunTime: 100 * time.Millisecond}, nil)
	r.do(&contracts.UtilityCommandStart{CommandID: "long", Command: "exec sleep 1000"})
	wantEnd(t, r.exited("long"), -1, "SIGTERM", "Utility command ran longer than 100ms")
}

func TestOperationsAreListed(t *testing.T) {
	r := newRoom(t, Options{}, nil)
	want := []contracts.UtilityOperation{"command_exec", "file_search", "file_watch", "file_read"}
	if got := r.Operations(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	err := r.Do(t.Context(), "alice", &contracts.Interrupt{})
	if !errors.Is(err, &contracts.Error{Code: contracts.CodeUnsupportedCapability}) {
		t.Errorf("got %v, want a refusal of what is no utility", err)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("got no error, want one without a workspace")
	}
}
