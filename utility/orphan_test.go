//go:build unix

package utility

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-028515a8/maestro/contracts"
)

// witness makes a FIFO in the room and returns a channel that is closed once
// every process that opened it for writing has ended. The first write sends a
// token.
func (r *room) witness(name string) (written, ended <-chan struct{}) {
	r.t.Helper()
	path := filepath.Join(r.root, name)
	must(r.t, unix.Mkfifo(path, 0o600))
	w, e := make(chan struct{}), make(chan struct{})
	go func() { // ends with the last writer
		defer close(e)
		f, err := os.Open(path)
		if err != nil {
			r.t.Error(err)
			return
		}
		defer f.Close()
		if _, err := io.ReadFull(f, make([]byte, 1)); err != nil {
			r.t.Errorf("got %v, want a byte from the command", err)
			return
		}
		close(w)
		if _, err := io.Copy(io.Discard, f); err != nil {
			r.t.Error(err)
		}
	}()
	return w, e
}

// happens fails the test if c is not closed in time.
func (r *room) happens(what string, c <-chan struct{}) {
	r.t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		r.t.Fatalf("got nothing, want: %s", what)
	}
}

// families are commands that have started processes of their own.
var families = map[string]string{
	"obedient":          "sleep 1000 & echo >&3; sleep 1000",
	"deaf grandchild":   "(trap '' TERM; echo >&3; while :; do sleep 1; done) & wait",
	"everyone is deaf":  "trap '' TERM; sleep 1000 & echo >&3; sleep 1000",
	"without its shell": "exec sh -c 'sleep 1000 & echo >&3; sleep 1000'",
}

func TestNoProcessOfACommandIsLeft(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(r *room){
		"terminate": func(r *room) { r.do(&contracts.UtilityCommandTerminate{CommandID: "c"}) },
		"force":     func(r *room) { r.do(&contracts.UtilityCommandTerminate{CommandID: "c", Force: true}) },
		"disown":    func(r *room) { r.Disown("alice") },
		"stop":      func(r *room) { must(r.t, r.Stop(r.t.Context(), "Interrupted")) },
		"close":     func(r *room) { must(r.t, r.Close(r.t.Context())) },
	} {
		for name, line := range families {
			t.Run(how+" "+name, func(t *testing.T) {
				t.Parallel()
				r := newRoom(t, Options{}, nil)
				running, ended := r.witness("witness")
				r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: "exec 3>witness; " + line})
				r.happens("the start of the command", running)
				end(r)
				r.exited("c")
				r.happens("the end of every process", ended)
			})
		}
	}
}

func TestBackgroundProcessesAreHeardAndThenEnded(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	_, ended := r.witness("witness")
	began := time.Now()
	r.do(&contracts.UtilityCommandStart{CommandID: "c",
		Command: "exec 3>witness; echo >&3; (trap 'echo late; exit' TERM; sleep 1000 & wait) & echo early"})
	wantEnd(t, r.exited("c"), 0, "", "")
	if got := r.output("c", contracts.StreamStdout); got != "early\nlate\n" {
		t.Errorf("got %q, want what both wrote", got)
	}
	if took := time.Since(began); took < lingerDelay {
		t.Errorf("got an end after %s, want at least the %s that output is waited for", took, lingerDelay)
	}
	r.happens("the end of the background processes", ended)
}

func TestSilentBackgroundProcessesEndWithTheirCommand(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	_, ended := r.witness("witness")
	r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: "exec 3>witness; echo >&3; sleep 1000 >/dev/null 2>&1 & true"})
	wantEnd(t, r.exited("c"), 0, "", "")
	r.happens("the end of the background process", ended)
}

func TestClosingDoesNotWaitForWhoeverDoesNotRead(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{}, nil)
	running, ended := r.witness("witness")
	stuck := make(chan struct{})
	r.before = func(ctx context.Context, ev contracts.Event) error {
		if _, ok := ev.(*contracts.UtilityCommandOutput); ok {
			close(stuck)
			<-ctx.Done()
		}
		return ctx.Err()
	}
	r.do(&contracts.UtilityCommandStart{CommandID: "c", Command: "exec 3>witness; echo >&3; yes"})
	r.happens("the start of the command", running)
	r.happens("output", stuck)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	r.happens("the end of the command", ended)
	err := r.Do(t.Context(), "alice", &contracts.UtilityCommandStart{CommandID: "d", Command: "true"})
	if !errors.Is(err, &contracts.Error{Code: contracts.CodeRuntimeNotReady}) {
		t.Errorf("got %v, want a refusal after the end", err)
	}
	r.mu.Lock()
	clear(r.open) // its last event had nowhere to go
	r.mu.Unlock()
}

func TestFailedPublishEndsTheCommand(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	for name, broken := range map[string]func(contracts.Event) bool{
		"started": func(ev contracts.Event) bool { return true },
		"output":  func(ev contracts.Event) bool { return ev.EventType() != "utility_command_started" },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t, Options{}, nil)
			running, ended := r.witness("witness")
			r.before = func(_ context.Context, ev contracts.Event) error {
				<-running
				if broken(ev) {
					return full
				}
				return nil
			}
			err := r.Do(t.Context(), "alice", &contracts.UtilityCommandStart{CommandID: "c", Command: "exec 3>witness; echo >&3; while :; do echo y; done"})
			if want := map[string]error{"started": full}[name]; !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			r.happens("the end of the command", ended)
			must(t, r.Stop(t.Context(), "Interrupted"))
			clear(r.open)
		})
	}
}

func TestDisownedCallStartsNothing(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{MaxCommands: 1}, nil)
	leaving, release := make(chan struct{}), make(chan struct{})
	r.before = func(_ context.Context, ev contracts.Event) error {
		if _, ok := ev.(*contracts.UtilityCommandExited); ok {
			close(leaving)
			<-release
		}
		return nil
	}
	r.do(&contracts.UtilityCommandStart{CommandID: "first", Command: "true"})
	r.happens("the end of the first command", leaving)
	result := make(chan error)
	go func() { // ends with the call
		result <- r.Do(t.Context(), "bob", &contracts.UtilityCommandStart{CommandID: "second", Command: "true"})
	}()
	r.entered() // it waits for the first one's place
	r.Disown("bob")
	if err := <-result; err == nil {
		t.Error("got no error, want the call to end with its connection")
	}
	close(release)
	must(t, r.Stop(t.Context(), "Interrupted"))
	if strings.Contains(r.history(), "second") {
		t.Errorf("got %s, want nothing of the second", r.history())
	}
}

func TestWhatStartsWhileStoppingEnds(t *testing.T) {
	t.Parallel()
	r := newRoom(t, Options{MaxCommands: 1}, nil)
	leaving, release := make(chan struct{}), make(chan struct{})
	r.before = func(_ context.Context, ev contracts.Event) error {
		if e, ok := ev.(*contracts.UtilityCommandExited); ok && e.CommandID == "first" {
			close(leaving)
			<-release
		}
		return nil
	}
	r.do(&contracts.UtilityCommandStart{CommandID: "first", Command: "true"})
	r.happens("the end of the first command", leaving)
	started, stopped := make(chan error), make(chan error)
	go func() { // ends with the call
		started <- r.Do(t.Context(), "alice", &contracts.UtilityCommandStart{CommandID: "second", Command: "exec sleep 1000"})
	}()
	r.entered() // it waits for the first one's place
	go func() { stopped <- r.Stop(t.Context(), "Interrupted") }()
	for told := false; !told; runtime.Gosched() {
		r.Host.mu.Lock()
		for c := range r.calls {
			told = c.stopped != ""
		}
		r.Host.mu.Unlock()
	}
	close(release)
	must(t, <-started)
	must(t, <-stopped)
	n := r.count()
	wantEnd(t, r.exited("second"), -1, "SIGTERM", "Interrupted while utility command was still running")
	if got := r.count(); got != n {
		t.Errorf("got %s, want everything before Stop returned", r.history())
	}
}
