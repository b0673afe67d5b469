//go:build unix

package command

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// collect runs line and returns what it wrote.
func collect(t *testing.T, ctx context.Context, line string) (string, Exit, error) {
	t.Helper()
	var text strings.Builder
	e, err := Command{Line: line, Dir: t.TempDir(), Env: os.Environ()}.Run(ctx, func(s string) error {
		text.WriteString(s)
		return nil
	})
	return text.String(), e, err
}

func TestCommandReportsOutputAndExit(t *testing.T) {
	for _, tt := range []struct {
		line   string
		output string
		code   int
		signal string
	}{
		{"echo a; echo b >&2; echo c", "a\nb\nc\n", 0, ""},
		{"exit 3", "", 3, ""},
		{"kill -TERM $$", "", -1, "SIGTERM"},
		{"cat", "", 0, ""}, // standard input is empty
		{`printf 'a\377b'`, "a\uFFFDb", 0, ""},
	} {
		output, e, err := collect(t, t.Context(), tt.line)
		if err != nil || output != tt.output || e.Code != tt.code || e.Signal != tt.signal {
			t.Errorf("%s: got %q, %+v, %v; want %q, code %d, signal %q", tt.line, output, e, err, tt.output, tt.code, tt.signal)
		}
	}
}

func TestLongOutputArrivesWhole(t *testing.T) {
	output, _, err := collect(t, t.Context(), "head -c 1000000 /dev/zero | tr '\\0' x")
	if err != nil || output != strings.Repeat("x", 1_000_000) {
		t.Errorf("got %d bytes, %v; want 1000000 times x", len(output), err)
	}
}

func TestEndedContextLeavesNoProcessOfTheGroup(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"obedient":          "sleep 1000 & echo >&3; sleep 1000",
		"deaf grandchild":   "(trap '' TERM; echo >&3; while :; do sleep 1000; done) & wait",
		"everyone is deaf":  "trap '' TERM; sleep 1000 & echo >&3; sleep 1000",
		"without its shell": "exec sh -c 'sleep 1000 & echo >&3; sleep 1000'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, running, ended := hosttest.Witness(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			stopped := errors.New("stopped")
			go func() { // ends when the command runs
				<-running
				cancel(stopped)
			}()
			began := time.Now()
			_, e, err := collect(t, ctx, "exec 3>"+path+"; "+line)
			if !errors.Is(err, stopped) || e.Success() {
				t.Errorf("got %+v, %v; want a failure and error %v", e, err, stopped)
			}
			if took := time.Since(began); took > hosttest.Patience {
				t.Errorf("got %s, want an end after a second or so", took)
			}
			hosttest.Happens(t, "the end of every process of the group", ended)
		})
	}
}

func TestBackgroundProcessesAreHeardAndThenEnded(t *testing.T) {
	t.Parallel()
	path, _, ended := hosttest.Witness(t)
	began := time.Now()
	output, e, err := collect(t, t.Context(), "exec 3>"+path+"; echo >&3; (trap 'echo late; exit' TERM; sleep 1000 & wait) & echo early")
	if err != nil || !e.Success() {
		t.Errorf("got %+v, %v; want success", e, err)
	}
	if !strings.HasPrefix(output, "early\n") {
		t.Errorf("got output %q, want it to begin with that of the command", output)
	}
	if took := time.Since(began); took < lingerDelay || took > hosttest.Patience {
		t.Errorf("got %s, want at least the %s that output is waited for", took, lingerDelay)
	}
	hosttest.Happens(t, "the end of the background processes", ended)
}

func TestFailedEmitEndsTheCommand(t *testing.T) {
	path, _, ended := hosttest.Witness(t)
	full := errors.New("full")
	_, err := Command{Line: "exec 3>" + path + "; echo >&3; while :; do echo y; done", Dir: t.TempDir(), Env: os.Environ()}.
		Run(t.Context(), func(string) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("got error %v, want %v", err, full)
	}
	hosttest.Happens(t, "the end of the command", ended)
}

func TestUnreadOutputHoldsTheCommandBack(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "marker")
	unread := true
	_, err := Command{Line: "head -c 4000000 /dev/zero; touch " + marker, Dir: t.TempDir(), Env: os.Environ()}.
		Run(t.Context(), func(string) error {
			if unread {
				unread = false
				// That something does not happen takes a time in which it would.
				<-time.After(500 * time.Millisecond)
				if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("got %v, want a command that still waits to write", err)
				}
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("got %v, want a command that ran to its end", err)
	}
}

func TestCommandThatCannotStartIsAnError(t *testing.T) {
	_, err := Command{Line: "true", Dir: filepath.Join(t.TempDir(), "absent")}.Run(t.Context(), func(string) error { return nil })
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v, want %v", err, os.ErrNotExist)
	}
}
