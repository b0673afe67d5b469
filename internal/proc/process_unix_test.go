//go:build unix

package proc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"
)

var errLate = errors.New("it was too late")

// A stage is a running process with what it said.
type stage struct {
	*Process
	said chan string // its lines; closed at the end of its output
}

// run runs line as a process that is ended with the test.
func run(t *testing.T, line string, log *slog.Logger) *stage {
	t.Helper()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return runWith(t, line, ProcessOptions{Log: log})
}

func runWith(t *testing.T, line string, o ProcessOptions) *stage {
	t.Helper()
	if o.Name = "the process"; o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &stage{Process: NewProcess(exec.Command("/bin/sh", "-c", line), o), said: make(chan string, 1000)}
	if err := s.Start(func(r io.Reader) {
		defer close(s.said)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			s.said <- lines.Text()
		}
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill(errors.New("the test is over"))
		<-s.Done()
	})
	return s
}

// ends waits for the end of the process, and its output, and checks why it ended.
func (s *stage) ends(t *testing.T, want string) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(patience):
		t.Fatalf("got no end, want %q", want)
	}
	if s.Life().Err() == nil {
		t.Error("got a life that goes on, want it ended")
	}
	if got := s.Failure(); got == nil || got.Error() != want {
		t.Errorf("got %v, want %q", got, want)
	}
	for range s.said { // to its end, which has come
	}
}

// says waits for the next line of the process.
func (s *stage) says(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-s.said:
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("got nothing, want %q", want)
	}
}

func TestProcessesEndWithTheirInput(t *testing.T) {
	t.Parallel()
	s := run(t, "while read line; do echo got $line; done; exit 3", nil)
	for _, line := range []string{"a\n", "b\n"} {
		if err := s.Send([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	s.Shutdown(t.Context(), patience, errLate) // what is queued comes first
	s.says(t, "got a")
	s.says(t, "got b")
	s.ends(t, "the process exited: exit status 3")
}

func TestProcessesThatStayAreMadeToEnd(t *testing.T) {
	t.Parallel()
	stubborn := "trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done"
	t.Run("by a signal", func(t *testing.T) {
		t.Parallel()
		s := run(t, "trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.1; done", nil)
		s.says(t, "ready")
		s.Shutdown(t.Context(), time.Millisecond, errLate)
		s.says(t, "asked")
		s.ends(t, errLate.Error())
	})
	t.Run("by force", func(t *testing.T) {
		t.Parallel()
		s := run(t, stubborn, nil)
		s.says(t, "ready")
		s.Shutdown(t.Context(), time.Millisecond, errLate)
		s.says(t, "asked")
		s.ends(t, errLate.Error())
	})
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		s := run(t, stubborn, nil)
		s.says(t, "ready")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Shutdown(ctx, time.Hour, errLate)
		s.ends(t, errLate.Error())
	})
	t.Run("for another reason", func(t *testing.T) {
		t.Parallel()
		s := run(t, stubborn, nil)
		s.says(t, "ready")
		s.End(time.Hour, errors.New("not this"))
		s.Kill(errLate)
		s.Kill(errors.New("nor this"))
		s.ends(t, errLate.Error())
	})
}

func TestProcessesThatCloseTheirOutputAreEnded(t *testing.T) {
	t.Parallel()
	run(t, "exec >&-; exec sleep 1000", nil).ends(t, "the process closed its output")
	run(t, "exec >&-; exit 4", nil).ends(t, "the process exited: exit status 4")
}

func TestProcessesThatDoNotReadAreEnded(t *testing.T) {
	t.Parallel()
	t.Run("many lines", func(t *testing.T) {
		t.Parallel()
		s := runWith(t, "exec sleep 1000", ProcessOptions{stall: 10 * time.Millisecond})
		for i := range 2 * maxWaiting {
			if err := s.Send(bytes.Repeat([]byte("x"), 1<<10)); err != nil && i < maxWaiting {
				t.Fatalf("line %d: got %v, want some time for it to read", i, err)
			}
		}
		s.ends(t, "the process does not read its input")
	})
	t.Run("many bytes", func(t *testing.T) {
		t.Parallel()
		s := run(t, "exec sleep 1000", nil)
		for sent := 0; s.Send(make([]byte, 1<<20)) == nil; sent += 1 << 20 {
			if sent > 2*maxQueueBytes {
				t.Fatal("got no end of what may be queued, want one")
			}
		}
		s.ends(t, "the process does not read its input")
	})
}

// What is more than a pipe holds is read late, and slowly.
func TestProcessesThatReadSlowlyGoOn(t *testing.T) {
	t.Parallel()
	const lines = 10 * maxWaiting
	line := append(bytes.Repeat([]byte("x"), 1<<10), '\n')
	s := run(t, "read line; sleep 0.5; n=1; while read line; do n=$((n+1)); done; echo read $n", nil)
	for i := range lines {
		if err := s.Send(line); err != nil {
			t.Fatalf("line %d: got %v, want it queued", i, err)
		}
	}
	s.Shutdown(t.Context(), patience, errLate)
	s.says(t, fmt.Sprint("read ", lines))
	s.ends(t, "the process exited: exit status 0")
}

// A process that is busy may leave a few lines for as long as it likes.
func TestProcessesThatAreBusyGoOn(t *testing.T) {
	t.Parallel()
	s := runWith(t, "sleep 0.5; read line; echo ${#line}", ProcessOptions{stall: time.Millisecond})
	if err := s.Send(append(bytes.Repeat([]byte("x"), 1<<20), '\n')); err != nil {
		t.Fatal(err)
	}
	s.says(t, fmt.Sprint(1<<20))
	s.ends(t, "the process exited: exit status 0")
}

// Nobody is to lose their grace because something is still said to them.
func TestLinesAfterTheEndOfTheInputAreDropped(t *testing.T) {
	t.Parallel()
	s := run(t, "while read line; do :; done; echo over; exec sleep 1000", nil)
	s.End(time.Hour, errLate)
	s.says(t, "over")
	for i := range 2 * maxWaiting {
		if err := s.Send([]byte("x\n")); err != nil {
			t.Fatalf("got %v at line %d, want it dropped", err, i)
		}
	}
	if err := s.Failure(); err != nil {
		t.Errorf("got the end %v, want none yet", err)
	}
}

// What it left behind has the output open, which ends all the same.
func TestNothingIsLeftOfAProcess(t *testing.T) {
	t.Parallel()
	s := run(t, "(trap '' TERM HUP; echo left; exec sleep 1000) & exec sleep 1000", nil)
	s.says(t, "left")
	s.Kill(errLate)
	s.ends(t, errLate.Error())
	s = run(t, "(trap '' TERM HUP; echo left; exec sleep 1000) & read line", nil)
	s.says(t, "left")
	if err := s.Send([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	s.ends(t, "the process exited: exit status 0")
}

func TestLastWordsAreKeptWithinBounds(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // which the process's goroutine alone writes to
	s := run(t, `i=0; while [ $i -lt 500 ]; do echo "line $i" >&2; i=$((i+1)); done; head -c 100000 /dev/zero | tr '\0' x >&2; echo >&2; echo >&2`,
		slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	s.ends(t, "the process exited: exit status 0")
	if got := strings.Count(log.String(), "stderr="); got != maxStderrRate {
		t.Errorf("got %d lines logged, want %d", got, maxStderrRate)
	}
	if !strings.Contains(log.String(), `msg="the process says" stderr="line 0"`) || strings.Count(log.String(), "says more than is logged") != 1 {
		t.Errorf("got %.200s, want the first line, and that there were more", log.String())
	}
	if got := s.LastWords(); got != strings.Repeat("x", maxStderrLine) {
		t.Errorf("got last words of %d bytes, want the last line that is not blank, of %d", len(got), maxStderrLine)
	}
}

func TestProgramsThatAreNotThereAreNotStarted(t *testing.T) {
	p := NewProcess(exec.Command("/no/such/program"), ProcessOptions{Name: "the process", Log: slog.New(slog.DiscardHandler)})
	err := p.Start(func(io.Reader) { t.Error("got output, want none") })
	if err == nil || !strings.HasPrefix(err.Error(), "start the process: ") || p.Life().Err() == nil {
		t.Errorf("got %v, want an error that says what was started, and a life that ended", err)
	}
}

func TestAccountSaysThatThereIsMore(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"exit 3":              "the process exited: exit status 3",
		"echo no >&2; exit 4": "the process exited: exit status 4; what it said on standard error is in the server's log",
	} {
		s := run(t, line, nil)
		<-s.Done()
		if got := s.Account().Error(); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
