//go:build unix

package utility

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// onTTY is a command on a terminal that may be typed at.
func onTTY(id, line string) *contracts.UtilityCommandStart {
	return &contracts.UtilityCommandStart{CommandID: id, Command: line, TerminalMode: contracts.TerminalPTY, AllowStdin: true}
}

func TestCommandRunsOnATerminal(t *testing.T) {
	t.Setenv("TERM", "")
	t.Setenv("TMUX", "/tmp/outer")
	t.Setenv("COLUMNS", "33")
	r := newRoom(t, Options{Shell: "/bin/sh"}, nil)
	cmd := onTTY("c", `test -t 0 && test -t 1 && test -t 2 && stty size && echo "$TERM|$TMUX|$COLUMNS|$LINES" && echo err >&2`)
	cmd.Env = map[string]string{"LINES": "7"}
	r.do(cmd)
	wantEnd(t, r.exited("c"), 0, "", "")
	if got, want := r.output("c", contracts.StreamStdout), "24 80\r\nxterm-256color|||7\r\nerr\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	first := r.started("c")
	if first.TerminalMode != contracts.TerminalPTY || first.Columns != 80 || first.Rows != 24 || first.PID == 0 {
		t.Errorf("got %+v, want a terminal of 80 x 24 and a process", first)
	}
}

func TestTerminalHasTheKindThatIsAskedFor(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	cmd := onTTY("c", `stty size; echo "$TERM"`)
	cmd.Columns, cmd.Rows, cmd.Env = ptr(int64(132)), ptr(int64(43)), map[string]string{"TERM": "dumb"}
	r.do(cmd)
	wantEnd(t, r.exited("c"), 0, "", "")
	if got := r.output("c", contracts.StreamStdout); got != "43 132\r\ndumb\r\n" {
		t.Errorf("got %q, want what was asked for", got)
	}
}

func TestWhatIsTypedReachesTheTerminal(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	r.do(onTTY("c", "stty -echo; echo ready; cat; echo over; cat; exit 3"))
	r.wrote("c", "ready")
	in := func(content string, eof bool) {
		t.Helper()
		r.do(&contracts.UtilityCommandStdin{CommandID: "c", Content: content, EOF: eof})
	}
	in("one\n", false)
	r.wrote("c", "one\r\n")
	in("two\n", true) // the end for whoever reads now, not of the terminal
	r.wrote("c", "two\r\nover")
	in("three\n", false)
	r.wrote("c", "three\r\n")
	in("", true)
	wantEnd(t, r.exited("c"), 3, "", "")
}

func TestControlCharactersAreSignals(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	r.do(onTTY("c", "echo ready; exec sleep 1000"))
	r.wrote("c", "ready")
	r.do(&contracts.UtilityCommandStdin{CommandID: "c", Content: "\x03"})
	wantEnd(t, r.exited("c"), -1, "SIGINT", "")
}

func TestTerminalThatIsOnlyWatchedTakesNoInput(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	cmd := onTTY("c", "echo ready; exec sleep 1000")
	cmd.AllowStdin = false
	r.do(cmd)
	r.refused(&contracts.UtilityCommandStdin{CommandID: "c", Content: "x"}, contracts.CodeBadRequest, "Utility command stdin is not enabled: c")
	r.refusedFor("bob", &contracts.UtilityCommandResize{CommandID: "c", Columns: 5, Rows: 5}, contracts.CodeAccessDenied,
		"Headless command c is owned by another connection")
}

func TestResizeIsToldToTheProgramAndToAll(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	r.do(onTTY("c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done"))
	r.wrote("c", "ready")
	r.do(&contracts.UtilityCommandResize{CommandID: "c", Columns: 132, Rows: 43})
	r.wrote("c", "43 132\r\n")
	ev, _ := await(r, "the new size", 0, func(e *contracts.UtilityCommandResized) bool { return true })
	if ev.CommandID != "c" || ev.Columns != 132 || ev.Rows != 43 {
		t.Errorf("got %+v, want 132 x 43", ev)
	}
	r.refused(&contracts.UtilityCommandResize{CommandID: "c", Columns: 0, Rows: 1}, contracts.CodeBadRequest, "Utility command columns must be a positive integer")
	r.refused(&contracts.UtilityCommandResize{CommandID: "c", Columns: 1, Rows: 65_536}, contracts.CodeBadRequest, "Utility command rows must be a positive integer")
	r.do(&contracts.UtilityCommandTerminate{CommandID: "c"})
	wantEnd(t, r.exited("c"), -1, "SIGTERM", "Terminated by controller")
	r.refused(&contracts.UtilityCommandResize{CommandID: "c", Columns: 1, Rows: 1}, contracts.CodeNotFound, "Utility command not found: c")
}

// While the size is told the command ends; its last event comes last all the
// same, which the room looks at.
func TestResizeComesBeforeTheEnd(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	told := make(chan struct{})
	r.before = func(ctx context.Context, ev contracts.Event) error {
		if _, ok := ev.(*contracts.UtilityCommandResized); ok {
			must(t, r.Do(ctx, "alice", &contracts.UtilityCommandTerminate{CommandID: "c", Force: true}))
			close(told)
			r.entered()
		}
		return nil
	}
	r.do(onTTY("c", "exec sleep 1000"))
	r.do(&contracts.UtilityCommandResize{CommandID: "c", Columns: 9, Rows: 9})
	<-told
	wantEnd(t, r.exited("c"), -1, "SIGKILL", "Force terminated by controller")
}

// A terminal that is asked to end and does not is killed, too.
func TestTerminalsAreKilledWhenTheyDoNotEnd(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	_, ended := r.witness("witness")
	r.do(onTTY("c", "trap '' TERM HUP; exec 3>witness; echo >&3; echo ready; while :; do sleep 1; done"))
	r.wrote("c", "ready")
	r.do(&contracts.UtilityCommandTerminate{CommandID: "c"})
	wantEnd(t, r.exited("c"), -1, "SIGKILL", "Terminated by controller")
	r.happens("the end of all processes", ended)
}

// Text, characters of several bytes in it, arrives whole however it is cut, and
// the program waits while nobody takes it.
func TestTerminalOutputIsWhole(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	var waiting atomic.Bool
	free := make(chan struct{})
	r.before = func(ctx context.Context, ev contracts.Event) error {
		if _, ok := ev.(*contracts.UtilityCommandOutput); ok && !waiting.Swap(true) {
			<-free
		}
		return nil
	}
	const lines = 40_000
	r.do(onTTY("c", fmt.Sprintf("stty -opost; seq -f '%%g ☃ äöü' 1 %d; echo end", lines)))
	close(free)
	wantEnd(t, r.exited("c"), 0, "", "")
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "%g ☃ äöü\n", float64(i+1))
	}
	want.WriteString("end\n")
	if got := r.output("c", contracts.StreamStdout); got != want.String() {
		t.Errorf("got %d bytes, want the %d that were written", len(got), want.Len())
	}
}

// A process that keeps the terminal open does not hold the command.
func TestBackgroundOfATerminalEndsWithIt(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{Shell: "/bin/bash"}, nil)
	_, ended := r.witness("witness")
	r.do(onTTY("c", "exec 3>witness; echo >&3; set -m; (trap '' HUP; sleep 1000) & disown; echo last"))
	wantEnd(t, r.exited("c"), 0, "", "")
	if got := r.output("c", contracts.StreamStdout); !strings.HasSuffix(got, "last\r\n") {
		t.Errorf("got %q, want all that was written", got)
	}
	r.happens("the end of the background", ended)
}
