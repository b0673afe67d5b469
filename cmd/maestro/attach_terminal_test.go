//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
)

// A tty is a terminal on which a program runs, with the test at its keyboard.
type tty struct {
	t     *testing.T
	cmd   *exec.Cmd
	ours  *os.File
	left  *os.File // the terminal as programs have it, so that it is still there after the last
	was   *term.State
	parts chan []byte // what it shows; closed when the terminal is gone
	seen  []byte      // read and not looked for yet

	screen bytes.Buffer // all that shows has read
}

// onTerminal starts a program on a terminal of 100 columns and 30 rows.
func onTerminal(t *testing.T, cmd *exec.Cmd) *tty {
	t.Helper()
	blocking, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer blocking.Close()
	err = pty.Setsize(blocking, &pty.Winsize{Rows: 30, Cols: 100})
	fd, failed := syscall.Dup(int(blocking.Fd()))
	err = errors.Join(err, failed, syscall.SetNonblock(fd, true))
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	ours := os.NewFile(uintptr(fd), "terminal") // Close ends a read of this one
	was, err := term.GetState(int(theirs.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	y := &tty{t: t, cmd: cmd, ours: ours, left: theirs, was: was, parts: make(chan []byte, 1<<16)}
	go y.read() // ends when nobody has the terminal
	t.Cleanup(func() {
		_, _ = cmd.Process.Kill(), cmd.Wait()
		y.close()
	})
	return y
}

// read passes on what the terminal shows, whether or not somebody looks, so that
// the program is never held up.
func (y *tty) read() {
	defer close(y.parts)
	for {
		part := make([]byte, 4096)
		n, err := y.ours.Read(part)
		if err != nil {
			return
		}
		y.parts <- part[:n]
	}
}

// close closes the window.
func (y *tty) close() {
	_, _ = y.left.Close(), y.ours.Close() // more than once is no harm
}

// attachHere starts attach on a terminal and waits for its prompt.
func (r *running) attachHere(t *testing.T, args ...string) *tty {
	t.Helper()
	y := onTerminal(t, program(t, append([]string{"attach", r.ready.BaseURL, "--token-file", r.ready.TokenFile}, args...)...))
	y.shows("in control")
	y.shows("> ")
	return y
}

// shows reads until the terminal shows a text that was not looked for before.
func (y *tty) shows(want string) {
	y.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for !bytes.Contains(y.seen, []byte(want)) {
		select {
		case part, ok := <-y.parts:
			if !ok {
				y.t.Fatalf("got the end and %q, want %q", y.seen, want)
			}
			y.seen = append(y.seen, part...)
			y.screen.Write(part)
		case <-late.C:
			y.t.Fatalf("got %q, want %q", y.seen, want)
		}
	}
	y.seen = y.seen[bytes.Index(y.seen, []byte(want))+len(want):]
}

func (y *tty) types(keys string) {
	y.t.Helper()
	if _, err := io.WriteString(y.ours, keys); err != nil {
		y.t.Fatal(err)
	}
}

// ends waits for the program and checks that the terminal is as it was found.
func (y *tty) ends() error {
	y.t.Helper()
	err := y.cmd.Wait()
	is, failed := term.GetState(int(y.left.Fd()))
	if failed != nil {
		y.t.Fatal(failed)
	}
	if !reflect.DeepEqual(is, y.was) {
		y.t.Errorf("got the terminal as %+v, want it as it was, %+v", is, y.was)
	}
	return err
}

// isRaw checks the mode of the terminal.
func (y *tty) isRaw() {
	y.t.Helper()
	if is, err := term.GetState(int(y.left.Fd())); err != nil || reflect.DeepEqual(is, y.was) {
		y.t.Errorf("got the terminal as it was, and %v, want it in raw mode", err)
	}
}

func TestTerminalIsLeftAsItWasFound(t *testing.T) {
	t.Parallel()
	r := serving(t)
	for name, end := range map[string]func(*tty){
		"Ctrl-D":       func(y *tty) { y.types("\x04") },
		"Ctrl-C twice": func(y *tty) { y.types("\x03\x03") },
		"/quit":        func(y *tty) { y.types("/quit\r") },
		"SIGTERM":      func(y *tty) { _ = y.cmd.Process.Signal(syscall.SIGTERM) },
		"SIGHUP":       func(y *tty) { _ = y.cmd.Process.Signal(syscall.SIGHUP) },
		"SIGHUP twice": func(y *tty) {
			_ = y.cmd.Process.Signal(syscall.SIGHUP)
			y.shows("\x1b[?2004l") // it is leaving
			_ = y.cmd.Process.Signal(syscall.SIGHUP)
		},
	} {
		t.Run(name, func(t *testing.T) {
			y := r.attachHere(t)
			y.isRaw()
			end(y)
			if err := y.ends(); err != nil {
				t.Errorf("got %v, want a quiet end", err)
			}
		})
	}
}

func TestPanicLeavesTheTerminalAsItWasFound(t *testing.T) {
	cmd := program(t)
	cmd.Env = append(cmd.Env, "MAESTRO_TEST_PANIC=1")
	y := onTerminal(t, cmd)
	y.shows("panic: a mistake [recovered, repanicked]\r\n") // with both ends, as before
	if err := y.ends(); exitCode(t, err) != 2 {
		t.Errorf("got %v, want a panic", err)
	}
}

// TestStoppedProgramLeavesTheTerminal stops attach with Ctrl-Z below a shell that
// then looks at the terminal and continues it.
func TestStoppedProgramLeavesTheTerminal(t *testing.T) {
	t.Parallel()
	r := serving(t)
	attach := program(t, "attach", r.ready.BaseURL, "--token-file", r.ready.TokenFile)
	shell := exec.CommandContext(t.Context(), "sh", append([]string{"-c",
		`set -m; "$0" "$@"; echo "status $?:"; stty -a; read -r line; echo "line: $line"; fg; echo bye`}, attach.Args...)...)
	shell.Dir, shell.Env = attach.Dir, attach.Env
	y := onTerminal(t, shell)
	y.shows("in control")
	y.shows("> ")
	y.types("half a li")
	y.shows("half a li")
	y.types("\x1a")
	y.shows("\x1b[?2004l")
	y.shows("status ")
	y.shows(" icanon")
	y.types("hello\r")
	y.shows("line: hello")
	y.shows("half a li")
	y.isRaw()
	y.types("ne")
	y.shows("half a line")
	y.types("\x15\x04")
	y.shows("bye")
	if err := y.ends(); err != nil {
		t.Errorf("got %v, want a quiet end", err)
	}
}

// TestPasteOfAnyLengthIsOnePrompt pastes what a terminal in line mode would cut.
func TestPasteOfAnyLengthIsOnePrompt(t *testing.T) {
	t.Parallel()
	r := serving(t, "--agent", "conformance")
	watcher := r.attach(client.WithHello(contracts.Hello{Role: contracts.RoleViewer, Capabilities: &contracts.Capabilities{RawAgentEvents: true}}))
	y := r.attachHere(t)
	line := strings.Repeat("0123456789", 600)
	paste := line + "\r" + strings.Repeat("世界 \r", 3000) + line
	y.types("say \x1b[200~" + paste + "\x1b[201~!\r")
	y.shows("> say [3002 lines pasted]!")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	want := "say " + strings.ReplaceAll(paste, "\r", "\n") + "!"
	for {
		u, err := watcher.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := u.Event.(*contracts.RawAgentEvent); ok {
			if got, said := e.UserMessage(); said {
				if got != want {
					t.Errorf("got a prompt of %d bytes, want the %d that were pasted", len(got), len(want))
				}
				return
			}
		}
	}
}

// TestHistoryShowsAllOfTheSession asks for it in an attach with the options that it
// has by itself.
func TestHistoryShowsAllOfTheSession(t *testing.T) {
	t.Parallel()
	r := serving(t, "--agent", "conformance")
	y := r.attachHere(t)
	y.types("say hello there\r")
	y.shows("> say hello there")
	y.shows("-- Prompt: ") // the history has the prompt
	y.types("/history\r")
	for _, want := range []string{"-- from the beginning", "> say hello there", "-- now"} {
		y.shows(want)
	}
}

// TestClosedTerminalGivesControlBack closes the window of an attach in control.
func TestClosedTerminalGivesControlBack(t *testing.T) {
	t.Parallel()
	r := serving(t)
	watcher := r.attach()
	y := r.attachHere(t, "--name", "ada")
	y.close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	gone := false
	for had := false; !gone; {
		u, err := watcher.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if info, ok := u.Event.(*contracts.ConnectionInfo); ok && info.ControllerConnectionID.Present {
			controlled := info.ControllerConnectionID.Get() != ""
			had, gone = had || controlled, had && !controlled
		}
		if info, ok := u.Event.(*contracts.ConnectionInfo); ok && gone && len(info.Connections) != 1 {
			t.Errorf("got %d connections, want the watcher's", len(info.Connections))
		}
	}
	if err := y.cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Error(err)
	}
}
