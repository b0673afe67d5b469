package hecate

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// newTestLog returns a log in memory without its goroutine, so that the test alone changes it.
func newTestLog(t *testing.T) *scopeLog {
	opts := &Options{RetainBytes: 256 << 20, MaxSessions: 100, Log: slog.New(slog.DiscardHandler)}
	l, err := newLog(opts, journal.NewMemory(journal.MemoryOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	l.stop()
	l.wg.Wait()
	t.Cleanup(func() {
		if err := l.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// keepRun appends a run with the types to a session.
func (l *scopeLog) keepRun(t *testing.T, id, name string, types ...string) (*session, *run) {
	t.Helper()
	s := l.session(id, func(*session) {})
	runID := wire.ULID("run", time.Now(), [10]byte([]byte(name + strings.Repeat(".", 10))[:10]))
	var drafts []wire.Draft
	for _, kind := range types {
		drafts = append(drafts, wire.Draft{RunID: runID, Type: kind, At: time.Now()})
	}
	if err := l.revived(s, func() error { return s.keep(l, "e", s.Cursor+1, drafts) }); err != nil {
		t.Fatal(err)
	}
	return s, l.index.Runs[runID]
}

func TestRunThatLeftTheIndexDoesNotBeginAgain(t *testing.T) {
	l := newTestLog(t)
	s, r := l.keepRun(t, "a", "one", "run.queued", "run.finished")
	l.keepRun(t, "a", "two", "run.queued")
	l.index.evictRuns(1)
	if !r.Abandoned || len(s.Runs) != 1 || len(l.index.Ended) != 0 {
		t.Fatalf("got %+v, want the ended run away", r)
	}
	next := l.index.Next
	err := l.revived(s, func() error {
		return s.keep(l, "e", s.Cursor+1, []wire.Draft{{RunID: r.ID, Type: "gap.run_disconnected", At: time.Now()}})
	})
	if err != nil || l.index.Runs[r.ID] != nil || l.index.Next != next {
		t.Errorf("got %+v and number %d, %v; want no event, because sequence 0 has been used", l.index.Runs[r.ID], l.index.Next, err)
	}
}

func TestMarkersOfOtherRunsAfterAnError(t *testing.T) {
	l := newTestLog(t)
	runs := map[string]*run{}
	for _, id := range []string{"a", "b", "c"} {
		_, runs[id] = l.keepRun(t, id, id, "run.queued", "run.started")
		runs[id].Extents = nil
	}
	l.oldest = 0 // as if retention had moved since the log was opened
	bad := l.index.Sessions["b"]
	state := bad.State
	bad.State = json.RawMessage("{")
	if err := l.markPruned(); err == nil {
		t.Error("got no error for a state that cannot be decoded")
	}
	for id, want := range map[string]int{"a": 1, "b": 0, "c": 1} {
		if got := len(runs[id].Markers); got != want {
			t.Errorf("%s: got %d markers, want %d", id, got, want)
		}
	}
	bad.State = state
	if err := l.markPruned(); err != nil || len(runs["b"].Markers) != 1 {
		t.Errorf("got %v and %d markers, want the one that was missing", err, len(runs["b"].Markers))
	}
	for id, s := range l.index.Sessions {
		if s.live != nil {
			t.Errorf("the translation of %s is in memory, and nobody follows it", id)
		}
	}
	_, gone := l.keepRun(t, "a", "gone", "run.queued", "run.finished")
	l.index.remove(gone.ID)
	gone.Extents = nil
	if err := l.markRun(gone); err != nil || len(gone.Markers) != 0 || l.index.Runs[gone.ID] != nil {
		t.Errorf("got %v, %+v; want no marker for a run that has left the index", err, gone)
	}
}

func TestIndexThatIsTooLongLosesTheOldest(t *testing.T) {
	l := newTestLog(t)
	_, old := l.keepRun(t, "a", "old", "run.queued", "run.finished")
	_, newer := l.keepRun(t, "b", "newer", "run.queued", "run.finished")
	_, open := l.keepRun(t, "c", "open", "run.queued")
	if !l.halve() || !old.Abandoned || newer.Abandoned || open.Abandoned || l.index.Sessions["a"] != nil {
		t.Errorf("got %t, %t, %t; want only the oldest run away, and its session", old.Abandoned, newer.Abandoned, open.Abandoned)
	}
	for l.halve() {
	}
	if len(l.index.Runs) != 1 || open.Abandoned || len(l.index.Sessions) != 1 || len(l.index.tasks) != 1 {
		t.Errorf("got %d runs of %d sessions, want the open one", len(l.index.Runs), len(l.index.Sessions))
	}
}
