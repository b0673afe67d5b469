package hecate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/transport/hecate"
)

// all returns all events of a run.
func (w *world) all(path string) (all []wire.Event, first uint64) {
	w.t.Helper()
	for after := int64(-1); ; {
		var p page
		w.get(fmt.Sprintf("%s/events?limit=500&after_sequence=%d", path, after), &p)
		all = append(all, p.events(w.t)...)
		if !p.More {
			return all, p.First
		}
		after = int64(*p.Next)
	}
}

// markers checks the gap.events_pruned events of a run, whose ranges join, and returns the
// first sequence that is not pruned, and how many there are.
func markers(t *testing.T, all []wire.Event) (first uint64, n int) {
	t.Helper()
	for _, ev := range all {
		if ev.Type != "gap.events_pruned" {
			continue
		}
		var data struct {
			First  uint64 `json:"first_pruned_sequence"`
			Last   uint64 `json:"last_pruned_sequence"`
			At     string `json:"pruned_at"`
			Reason string
		}
		if err := json.Unmarshal(ev.Data, &data); err != nil || data.First != first || data.Last < data.First || data.Reason != "retention_window" {
			t.Errorf("got the marker %s after %d, want the range that follows", ev.Data, first)
		}
		if _, err := time.Parse(time.RFC3339Nano, data.At); err != nil {
			t.Error(err)
		}
		first = data.Last + 1
		n++
	}
	return first, n
}

func TestPrunedEventsLeaveAMarker(t *testing.T) { // E35, E36
	w := newWorld(t, func(o *hecate.Options) { o.RetainBytes = 512 << 10 })
	w.task0()
	w.prompt("a", "many")
	path, info := w.run("a", 1, "completed")
	before, _ := w.all(path)
	var after []wire.Event
	var start uint64
	for late := time.Now().Add(patience); ; {
		w.prompt("b", "many")
		if after, start = w.all(path); start > 0 {
			break
		}
		if time.Now().After(late) {
			t.Fatal("nothing was pruned")
		}
	}
	late := time.Now().Add(patience)
	for first, n := markers(t, after); n == 0 || first != start; first, n = markers(t, after) {
		if time.Now().After(late) {
			t.Fatalf("E35: got %d markers up to %d, want markers up to %d", n, first, start)
		}
		after, start = w.all(path)
	}
	for _, ev := range after {
		switch {
		case ev.Type == "gap.events_pruned":
		case ev.Sequence < start || ev.Sequence > info.Last:
			t.Errorf("E35: got sequence %d, want %d to %d", ev.Sequence, start, info.Last)
		case !bytes.Equal(ev.Raw, before[ev.Sequence].Raw):
			t.Errorf("E35: got %s, want the bytes before: %s", ev.Raw, before[ev.Sequence].Raw)
		}
	}
	if last := after[len(after)-1]; last.Type != "gap.events_pruned" || last.Sequence <= info.Last {
		t.Errorf("E20: got %s with %d at the end, want a marker after the terminal event", last.Type, last.Sequence)
	}
	if id, ev := w.stream(path+"/events", "Last-Event-ID", "0").event(); ev == nil || id != fmt.Sprint(after[0].Sequence) {
		t.Errorf("E36: got %s after a pruned cursor, want %d", id, after[0].Sequence)
	}
	w.restart()
	w.open("", "a")
	again, _ := w.all(path)
	if len(again) < len(after) || !bytes.Equal(again[0].Raw, after[0].Raw) {
		t.Errorf("got %d events after a restart, want the %d before", len(again), len(after))
	}
}

func TestOldEventsArePruned(t *testing.T) { // E35, by age
	w := newWorld(t, func(o *hecate.Options) { o.RetainAge = 400 * time.Millisecond })
	w.task0()
	w.prompt("a", "slow")
	path, _ := w.run("a", 1, "")
	for late := time.Now().Add(patience); ; {
		w.prompt("b", "hello")
		all, start := w.all(path)
		if first, n := markers(t, all); n > 0 && first <= start {
			return
		}
		if time.Now().After(late) {
			t.Fatal("nothing was pruned")
		}
	}
}

func TestLongRunKeepsItsMarkers(t *testing.T) { // E35
	w := newWorld(t, func(o *hecate.Options) { o.RetainBytes = 256 << 10 })
	w.task0()
	w.prompt("a", "slow")
	path, _ := w.run("a", 1, "")
	for late := time.Now().Add(patience); ; {
		w.prompt("b", "many")
		all, _ := w.all(path)
		if _, n := markers(t, all); n > 0 {
			break
		}
		if time.Now().After(late) {
			t.Fatal("nothing was pruned")
		}
	}
	for range 12 { // the entry of the marker is pruned as well
		w.prompt("b", "many")
	}
	w.restart() // from a checkpoint
	w.open("", "a")
	all, _ := w.all(path)
	last := int64(-1)
	for _, ev := range all {
		if int64(ev.Sequence) <= last {
			t.Errorf("got sequence %d after %d", ev.Sequence, last)
		}
		last = int64(ev.Sequence)
	}
	if _, n := markers(t, all); n == 0 {
		t.Errorf("got %v, want the markers", kinds(all))
	}
}

func TestSessionWhoseHistoryWasLost(t *testing.T) { // a reset
	w := newWorld(t, nil)
	w.prompt("a", "slow")
	path, _ := w.run("a", 1, "")
	w.until(path, "tool.completed")
	w.crash("a")
	w.open("", "a")
	all := w.until(path, "gap.run_disconnected")
	for i, ev := range all {
		if ev.Sequence != uint64(i) {
			t.Errorf("got sequence %d at %d", ev.Sequence, i)
		}
	}
	w.until(path, "run.failed")
	w.prompt("a", "hello")
	w.run("a", 2, "completed")
}

// A garbled store returns one event as a text that is no event.
type garbled struct {
	journal.Store
	what string
}

func (g garbled) Read(after uint64, do func(journal.Entry) bool) error {
	return g.Store.Read(after, func(e journal.Entry) bool {
		if bytes.Contains(e.Body, []byte(g.what)) {
			e.Body = []byte(`{"type":"of a later version"}`)
		}
		return do(e)
	})
}

func TestEventThatCannotBeReadLeavesAGap(t *testing.T) {
	w := newWorld(t, nil)
	w.store = func(s journal.Store) journal.Store { return garbled{s, "tool_start"} }
	w.task0()
	w.prompt("a", "many")
	path, _ := w.run("a", 1, "completed")
	all, _ := w.all(path)
	if i := at(all, "gap.run_disconnected", "event_unreadable"); i < 0 || at(all, "run.finished", "") < i {
		t.Errorf("got %v, want a gap before the end", kinds(all))
	}
}
