//go:build unix

package pty

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// Programs would inherit that a signal is ignored, as it is in the background of a
// script, but not that it is taken.
func TestMain(m *testing.M) {
	for _, sig := range []os.Signal{os.Interrupt, unix.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of a test; it is generous because real processes
// share the machine.
const patience = 20 * time.Second

// start runs a line on a terminal until the test ends.
func start(t *testing.T, line string) *Terminal {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Dir = t.TempDir()
	term, err := Start(cmd, DefaultSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		term.Group().Stop(0, nil)
		if err := term.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	if err := term.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return term
}

// until reads until what was read ends with text.
func until(t *testing.T, term *Terminal, text string) string {
	t.Helper()
	var got bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.HasSuffix(got.String(), text) {
		n, err := term.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			t.Fatalf("got %q, then %v; want %q", got.String(), err, text)
		}
	}
	return got.String()
}

func typed(t *testing.T, term *Terminal, text string) {
	t.Helper()
	if _, err := term.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestProgramHasATerminalOfItsOwn(t *testing.T) {
	t.Parallel()
	term := start(t, `test -t 0 && test -t 1 && test -t 2 && stty size && echo $$ $(ps -o sid=,tpgid= -p $$) && tty >/dev/tty && ls -l /proc/self/fd 2>/dev/null | grep -c -- '->'`)
	got, err := io.ReadAll(term)
	if err != nil {
		t.Fatal(err)
	}
	id := term.Group().ID()
	want := fmt.Sprintf("24 80\r\n%d %d %d\r\n/dev/", id, id, id)
	if !strings.HasPrefix(string(got), want) {
		t.Errorf("got %q, want %q and the terminal's name", got, want)
	}
}

func TestLastBytesOfAProgramAreRead(t *testing.T) {
	t.Parallel()
	for i := range 200 {
		term := start(t, "seq 1 3000; exec printf 'the end'")
		if i%2 == 0 { // the program has ended before anything is read; so much fits
			term = start(t, "seq 1 400; exec printf 'the end'")
			<-term.Group().Exited()
		}
		got, err := io.ReadAll(term)
		if err != nil || !strings.HasSuffix(string(got), "00\r\nthe end") || !strings.HasPrefix(string(got), "1\r\n2\r\n") {
			t.Fatalf("run %d: got %d bytes that end with %q, %v; want all", i, len(got), got[max(0, len(got)-20):], err)
		}
	}
}

func TestTerminalMayBeClosedAndOpenedAgain(t *testing.T) {
	t.Parallel()
	term := start(t, "exec 0<&- 1>&- 2>&-; sleep 0.1; seq 1 3000 >/dev/tty; sleep 0.1; exec 0<>/dev/tty 1>&0; stty -echo; echo ready; read x; echo \"got $x\"")
	got := until(t, term, "ready\r\n")
	if !strings.HasPrefix(got, "1\r\n2\r\n") || !strings.Contains(got, "\r\n3000\r\n") {
		t.Errorf("got %d bytes, want all that was written meanwhile", len(got))
	}
	typed(t, term, "this\n")
	if rest, err := io.ReadAll(term); err != nil || string(rest) != "got this\r\n" {
		t.Errorf("got %q, %v; want what was typed", rest, err)
	}
}

func TestProgramIsToldOfTheSize(t *testing.T) {
	t.Parallel()
	term := start(t, `trap 'stty size' WINCH; echo ready; while :; do read line && echo "$line"; done`)
	until(t, term, "ready\r\n")
	for _, size := range []Size{{132, 43}, {132, 43}, {1, 1}, {65535, 65535}} {
		got, err := term.Resize(size)
		if err != nil || got != size {
			t.Fatalf("got %v, %v; want %v", got, err, size)
		}
		until(t, term, fmt.Sprintf("%d %d\r\n", size.Rows, size.Columns))
	}
}

func TestWhatIsTypedArrives(t *testing.T) {
	t.Parallel()
	term := start(t, "stty -echo; echo ready; cat; echo over")
	until(t, term, "ready\r\n")
	typed(t, term, "one\n")
	until(t, term, "one\r\n")
	typed(t, term, "\x04") // the end of the input
	until(t, term, "over\r\n")
}

func TestInterruptCharacterReachesTheForeground(t *testing.T) {
	t.Parallel()
	term := start(t, "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.1; done")
	until(t, term, "ready\r\n")
	typed(t, term, "\x03")
	until(t, term, "caught\r\n")
	<-term.Group().Exited()
	if code, signal := term.Group().Status(); code != 7 || signal != "" {
		t.Errorf("got code %d, signal %q; want 7", code, signal)
	}
}

// Of a terminal as the library opens it, neither would end.
func TestWaitsEndAtTheirDeadlineAndWithTheTerminal(t *testing.T) {
	t.Parallel()
	term := start(t, "stty raw -echo; echo ready; sleep 1000")
	until(t, term, "ready\n")
	waits := map[string]func() error{
		"read": func() error {
			_, err := term.Read(make([]byte, 10))
			return err
		},
		"write": func() error {
			_, err := term.Write(make([]byte, 1<<20)) // nobody reads it
			return err
		},
	}
	deadlines := map[string]func(time.Time) error{"read": term.SetReadDeadline, "write": term.SetWriteDeadline}
	for name, wait := range waits {
		if err := deadlines[name](time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if err := wait(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got %v, want that its time is over", name, err)
		}
		if err := deadlines[name](time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	ends := make(chan error, len(waits))
	for _, wait := range waits {
		go func() { ends <- wait() }()
	}
	closes := make(chan error, 2)
	for range cap(closes) {
		go func() { closes <- term.Close() }()
	}
	for range cap(closes) {
		if err := <-closes; err != nil {
			t.Error(err)
		}
	}
	for range waits {
		if err := <-ends; !errors.Is(err, os.ErrClosed) {
			t.Errorf("got %v, want that it was closed", err)
		}
	}
}

// An interactive shell puts each job in a group of its own.
func TestJobsEndWithTheGroup(t *testing.T) {
	t.Parallel()
	term := start(t, "TERM=xterm PS1='> ' exec /bin/bash --norc --noprofile -i")
	until(t, term, "> ") // bash asks for marks around what is pasted
	typed(t, term, "stty -echo; trap '' HUP TERM; (trap '' HUP; sleep 1000) & (trap '' HUP; sleep 1000) & echo ids $(jobs -p | tr '\\n' ' ')rea''dy\n")
	said := until(t, term, "ready\r\n\x1b[?2004h> ")
	var shell, one, two int
	if _, err := fmt.Sscanf(said[strings.LastIndex(said, "ids "):], "ids %d %d", &one, &two); err != nil {
		t.Fatalf("%q: %v", said, err)
	}
	shell = term.Group().ID()
	term.Group().Stop(10*time.Millisecond, nil)
	for _, id := range []int{shell, one, two} {
		if err := unix.Kill(-id, 0); err == nil && running(id) {
			t.Errorf("got a group %d with members, want none", id)
		}
	}
}

// running reports whether a process is there and has not ended.
func running(id int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(id)).Output()
	return err == nil && !strings.HasPrefix(string(out), "Z")
}

func TestProgramThatCannotBeStartedLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/nowhere/at/all")
	if _, err := Start(cmd, DefaultSize); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that there is no such program", err)
	}
}
