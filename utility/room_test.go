package utility

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// Whoever starts a goroutine waits for it: none outlives the tests. Commands would
// inherit that signals are ignored, as they are in the background of a script, but
// not that they are taken.
func TestMain(m *testing.M) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of a test; it is generous because real processes
// share the machine.
const patience = 30 * time.Second

// A room is a host in a workspace of its own, whose events it records. An event
// that the wire or the order of a command or watch does not allow fails the test.
type room struct {
	*Host
	t    testing.TB
	root string // of the workspace

	mu      sync.Mutex
	events  []contracts.Event
	changed chan struct{}                                // closed and replaced at each event
	open    map[string]bool                              // commands and watches between their first and last event
	before  func(context.Context, contracts.Event) error // called before each event is recorded
	after   func(contracts.Event)                        // called once it is
	reading func(context.Context) error                  // waits for owners of commands to read; nil: they do
}

// newRoom makes a room with files, named by slash-separated paths.
func newRoom(t testing.TB, o Options, files map[string]string) *room {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, filepath.Join(dir, filepath.FromSlash(name)), content)
	}
	return roomAt(t, o, dir)
}

// roomAt makes a room of a directory.
func roomAt(t testing.TB, o Options, dir string) *room {
	t.Helper()
	root, err := filepath.EvalSymlinks(dir)
	must(t, err)
	o.Workspace, err = workspace.Open(root)
	must(t, err)
	t.Cleanup(func() { must(t, o.Workspace.Close()) })
	return roomOf(t, o, root)
}

// beside makes another room of the same workspace, as another session of the
// process has it.
func (r *room) beside() *room {
	r.t.Helper()
	return roomOf(r.t, r.opts, r.root)
}

// roomOf makes a room of a workspace, whose searches wait for listings however
// slow the machine is.
func roomOf(t testing.TB, o Options, root string) *room {
	t.Helper()
	h, err := New(o)
	must(t, err)
	if h.quick != patience {
		h.quick = patience
	}
	r := &room{Host: h, t: t, root: root, changed: make(chan struct{}), open: make(map[string]bool)}
	h.Start(r.record, func(ctx context.Context, _ string) error {
		if r.reading == nil {
			return nil
		}
		return r.reading(ctx)
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Errorf("close: got %v, want an end in time", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for id := range r.open {
			t.Errorf("%s: got no last event, want one", id)
		}
	})
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write creates a file and the directories it lies in.
func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

// record is the room's publish.
func (r *room) record(ctx context.Context, events ...contracts.Event) error {
	for _, ev := range events {
		if r.before != nil {
			if err := r.before(ctx, ev); err != nil {
				return err
			}
		}
		r.mu.Lock()
		r.check(ev)
		r.events = append(r.events, ev)
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
		if r.after != nil {
			r.after(ev)
		}
	}
	return nil
}

func (r *room) check(ev contracts.Event) {
	enc, err := contracts.EncodeEvent(ev)
	if err != nil {
		r.t.Errorf("%T: got an event that the wire does not allow: %v", ev, err)
	}
	if len(enc.Body) > contracts.MaxEventBytes {
		r.t.Errorf("%T: got %d bytes, want at most %d", ev, len(enc.Body), contracts.MaxEventBytes)
	}
	id, want := "", true
	switch e := ev.(type) {
	case *contracts.UtilityCommandStarted:
		id, want = "command "+e.CommandID, false
	case *contracts.UtilityCommandOutput:
		id = "command " + e.CommandID
		if n := len(e.Content); n == 0 || n > contracts.MaxTextBytes {
			r.t.Errorf("%s: got output of %d bytes, want 1 to %d", id, n, contracts.MaxTextBytes)
		}
	case *contracts.UtilityCommandResized:
		id = "command " + e.CommandID
	case *contracts.UtilityCommandExited:
		id = "command " + e.CommandID
	case *contracts.UtilityFileWatchStarted:
		id, want = "watch "+e.WatchID, false
	case *contracts.UtilityFileWatchEvent:
		id = "watch " + e.WatchID
	case *contracts.UtilityFileWatchStopped:
		id = "watch " + e.WatchID
	default:
		return
	}
	if r.open[id] != want {
		r.t.Errorf("%s: got %s, want it between the first and the last event", id, ev.EventType())
	}
	switch ev.(type) {
	case *contracts.UtilityCommandStarted, *contracts.UtilityFileWatchStarted:
		r.open[id] = true
	case *contracts.UtilityCommandExited, *contracts.UtilityFileWatchStopped:
		delete(r.open, id)
	}
}

// do serves a command of alice that must be accepted.
func (r *room) do(cmd contracts.Command) {
	r.t.Helper()
	r.as("alice", cmd)
}

func (r *room) as(owner string, cmd contracts.Command) {
	r.t.Helper()
	if err := r.Do(r.t.Context(), owner, cmd); err != nil {
		r.t.Fatalf("%s: got %v, want it accepted", cmd.CommandType(), err)
	}
}

// refused expects a command of alice to be refused in these words.
func (r *room) refused(cmd contracts.Command, code contracts.Code, text string) {
	r.t.Helper()
	r.refusedFor("alice", cmd, code, text)
}

func (r *room) refusedFor(owner string, cmd contracts.Command, code contracts.Code, text string) {
	r.t.Helper()
	err := r.Do(r.t.Context(), owner, cmd)
	var refusal *contracts.Error
	if !errors.As(err, &refusal) || refusal.Code != code || refusal.Message != text || refusal.Type != contracts.ErrorTool || refusal.RequestID == "" {
		r.t.Errorf("%s: got %#v, want %s %q with a request id", cmd.CommandType(), err, code, text)
	}
}

// await returns the first event at or after from that matches, and its place.
func await[E contracts.Event](r *room, what string, from int, match func(E) bool) (E, int) {
	r.t.Helper()
	late := time.After(patience)
	for {
		r.mu.Lock()
		events, changed := r.events, r.changed
		r.mu.Unlock()
		for i := from; i < len(events); i++ {
			if ev, ok := events[i].(E); ok && match(ev) {
				return ev, i
			}
		}
		select {
		case <-changed:
		case <-late:
			r.t.Fatalf("got %s; want %s", r.history(), what)
		}
	}
}

// exited waits for the last event of a command.
func (r *room) exited(id string) *contracts.UtilityCommandExited {
	r.t.Helper()
	ev, _ := await(r, "the end of "+id, 0, func(e *contracts.UtilityCommandExited) bool { return e.CommandID == id })
	return ev
}

// started waits for the first event of a command.
func (r *room) started(id string) *contracts.UtilityCommandStarted {
	r.t.Helper()
	ev, _ := await(r, "the start of "+id, 0, func(e *contracts.UtilityCommandStarted) bool { return e.CommandID == id })
	return ev
}

// output returns what a command has written to a stream so far.
func (r *room) output(id string, stream contracts.Stream) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var text strings.Builder
	for _, ev := range r.events {
		if e, ok := ev.(*contracts.UtilityCommandOutput); ok && e.CommandID == id && e.Stream == stream {
			text.WriteString(e.Content)
		}
	}
	return text.String()
}

// wrote waits until a command has written text to its standard output.
func (r *room) wrote(id, text string) {
	r.t.Helper()
	await(r, fmt.Sprintf("%q from %s", text, id), 0, func(e *contracts.UtilityCommandOutput) bool {
		return e.CommandID == id && strings.Contains(r.output(id, contracts.StreamStdout), text)
	})
}

// entered waits until a call is under way.
func (r *room) entered() {
	r.t.Helper()
	for began := time.Now(); ; {
		r.Host.mu.Lock()
		n := len(r.calls)
		r.Host.mu.Unlock()
		if n > 0 {
			return
		}
		if time.Since(began) > patience {
			r.t.Fatal("got no call, want one")
		}
		runtime.Gosched()
	}
}

// count returns how many events there are so far.
func (r *room) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events)
}

// history describes the last events.
func (r *room) history() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, ev := range r.events[max(0, len(r.events)-20):] {
		text := fmt.Sprintf("%+v", ev)
		fmt.Fprintf(&b, "%s%s; ", ev.EventType(), text[:min(len(text), 200)])
	}
	return b.String()
}

func ptr[T any](v T) *T { return &v }
