package journal_test

import (
	"testing"

	"github.com/seed-028515a8/maestro/internal/journal"
)

func TestMergedEntriesAreCounted(t *testing.T) {
	j, _ := newJournal(t, journal.Options{WindowEntries: 1})
	v := j.Follow(lines("x"))
	mustAppend(t, j, text("a", "1"), text("a", "2"), text("a", "3"), text("b", "4"), plain("end"))
	if n := j.Merged(); n != 0 {
		t.Errorf("before anybody read: got %d, want 0", n)
	}
	equal(t, readAll(t, v, j, 0, 0), frame("a", 3, "123"), frame("b", 4, "4"), "x m 5 end\n")
	if n := j.Merged(); n != 2 {
		t.Errorf("got %d, want the 2 that came in the frame of the third", n)
	}
	readAll(t, v, j, 3, 0)
	if n := j.Merged(); n != 2 {
		t.Errorf("after a read that merged nothing: got %d, want 2", n)
	}
	readAll(t, v, j, 0, 0)
	if n := j.Merged(); n != 4 {
		t.Errorf("after a second follower: got %d, want 4", n)
	}
}

func TestEntriesInMemoryAreNotMerged(t *testing.T) {
	j, _ := newJournal(t, journal.Options{})
	v := j.Follow(lines("x"))
	mustAppend(t, j, text("a", "1"), text("a", "2"))
	readAll(t, v, j, 0, 0)
	if n := j.Merged(); n != 0 {
		t.Errorf("got %d, want 0", n)
	}
}
