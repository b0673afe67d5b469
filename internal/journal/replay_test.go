package journal

import (
	"context"
	"errors"
	"testing"
)

// replayed returns the cursors that Replay passes on.
func replayed(t *testing.T, j *Journal, until uint64) (cursors []uint64) {
	t.Helper()
	err := j.Replay(t.Context(), until, func(e Entry) error {
		cursors = append(cursors, e.Cursor)
		return nil
	})
	if err != nil {
		t.Fatalf("replay until %d: %v", until, err)
	}
	return cursors
}

// withCheckpoints are notes, with checkpoints at some cursors.
func withCheckpoints(first, last uint64, at ...uint64) []Entry {
	list := notes(first, last)
	for _, c := range at {
		list[c-first].Kind = Checkpoint
	}
	return list
}

func TestReplayBeginsAtTheCheckpointBefore(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{SegmentBytes: 20_000})
	const last = 5 * replayBlock
	mustAppend(t, s, withCheckpoints(1, last, 2000, 3000)...)
	j := journalOf(t, s, Options{})
	for _, tt := range []struct{ until, from, to uint64 }{
		{1, 1, 1}, {replayBlock + 5, 1, replayBlock + 5}, {1999, 1, 1999},
		{2000, 2000, 2000}, {2999, 2000, 2999}, {3000, 3000, 3000}, {last, 3000, last}, {last + 9, 3000, last},
	} {
		got := replayed(t, j, tt.until)
		if n := uint64(len(got)); n != tt.to-tt.from+1 || got[0] != tt.from || got[n-1] != tt.to {
			t.Errorf("until %d: got %d entries from %d, want %d to %d", tt.until, n, got[0], tt.from, tt.to)
		}
	}
}

func TestReplayOfRemovedEntriesIsTheOldestCheckpoint(t *testing.T) {
	s := NewMemory(MemoryOptions{})
	mustAppend(t, s, withCheckpoints(100, 300, 200, 250)...) // the entries before 100 are missing
	j := journalOf(t, s, Options{})
	if got := replayed(t, j, 150); len(got) != 1 || got[0] != 200 {
		t.Errorf("got %d, want only the checkpoint at 200", got)
	}
	s = NewMemory(MemoryOptions{})
	mustAppend(t, s, notes(100, 300)...)
	none := func(Entry) error { return nil }
	if err := journalOf(t, s, Options{}).Replay(t.Context(), 150, none); !errors.Is(err, ErrGap) {
		t.Errorf("without a checkpoint: got %v, want ErrGap", err)
	}
	if err := journalOf(t, NewMemory(MemoryOptions{}), Options{After: 7}).Replay(t.Context(), 5, none); !errors.Is(err, ErrGap) {
		t.Errorf("without entries: got %v, want ErrGap", err)
	}
}

func TestReplayEndsWithItsCaller(t *testing.T) {
	s := NewMemory(MemoryOptions{})
	mustAppend(t, s, notes(1, 2*replayBlock)...)
	j := journalOf(t, s, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	seen, enough := 0, errors.New("enough")
	err := j.Replay(ctx, 2*replayBlock, func(Entry) error {
		seen++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || seen > replayBlock {
		t.Errorf("got %v after %d entries, want the end of the context after one block", err, seen)
	}
	if err = j.Replay(t.Context(), 9, func(Entry) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v, want the error of the function", err)
	}
}
