package journal_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/internal/journal"
)

// joined returns a journal of its own store that shares with others.
func joined(t *testing.T, shared *journal.Shared, store journal.Store) *journal.Journal {
	t.Helper()
	j, err := journal.New(store, journal.Options{Shared: shared})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// fill appends n entries of a kilobyte.
func fill(t *testing.T, j *journal.Journal, n int) {
	t.Helper()
	e := plain(strings.Repeat("x", 1<<10))
	for range n {
		mustAppend(t, j, e)
	}
}

func TestWindowsOfAProcessHaveOneBound(t *testing.T) {
	const bound = 8 << 20
	shared := journal.NewShared(journal.SharedOptions{WindowBytes: bound})
	var all []*journal.Journal
	for range 20 {
		j := joined(t, shared, journal.NewMemory(journal.MemoryOptions{}))
		j.Follow(lines("x"))
		all = append(all, j)
	}
	first := all[0].Follow(lines("x"))
	before, shortened := int64(0), 0
	for range 10 {
		for _, j := range all {
			fill(t, j, 100)
			got := shared.WindowBytes()
			if got > bound {
				t.Fatalf("got %d bytes in windows, want at most %d", got, bound)
			}
			if got < before {
				// A window has up to 1 MiB, and 100 KiB have come since.
				if shortened++; got > bound*3/4+128<<10 || got < bound*3/4-1<<20 {
					t.Errorf("got %d bytes in windows after they were shortened, want about %d", got, bound*3/4)
				}
			}
			before = got
			readAll(t, first, all[0], all[0].Head()-1, 0) // it is read all the time
		}
	}
	if shortened == 0 {
		t.Error("got windows that were never shortened")
	}
	if head := all[0].Head(); !all[0].InWindow(head - 200) {
		t.Error("the window that was read has less than 200 entries")
	}
	kept := 0
	for _, j := range all[1:] {
		if j.InWindow(j.Head() - 200) {
			kept++
		}
	}
	if kept == len(all)-1 {
		t.Error("every window that was not read has 200 entries, want some shortened")
	}
	all[0].Close()
	for _, j := range all[1:] {
		fill(t, j, 1000)
		if got := shared.WindowBytes(); got > bound {
			t.Fatalf("got %d bytes after a journal was closed, want at most %d", got, bound)
		}
	}
	for _, j := range all {
		j.Close()
		j.Close()
	}
	if got := shared.WindowBytes(); got != 0 {
		t.Errorf("got %d bytes in windows of no journal, want none", got)
	}
}

func TestWindowThatNobodyFollowsIsShort(t *testing.T) {
	shared := journal.NewShared(journal.SharedOptions{})
	j := joined(t, shared, journal.NewMemory(journal.MemoryOptions{}))
	const most = 256 << 10
	fill(t, j, 1000)
	if got := shared.WindowBytes(); got > most {
		t.Errorf("before anybody followed: got %d bytes, want at most %d", got, most)
	}
	v, other := j.Follow(lines("x")), j.Follow(lines("y"))
	from := j.Head()
	fill(t, j, 1000)
	if got := shared.WindowBytes(); got < 1000<<10 || !j.InWindow(from) {
		t.Errorf("while somebody follows: got %d bytes, want all entries there", got)
	}
	v.Close()
	if !j.InWindow(from) {
		t.Error("while one still follows: some entries are gone")
	}
	other.Close()
	if got := shared.WindowBytes(); got > most {
		t.Errorf("after the last has left: got %d bytes, want at most %d", got, most)
	}
	if got := len(readAll(t, j.Follow(lines("x")), j, from, 0)); got != 1000 {
		t.Errorf("got %d entries, want the 1000 from the store", got)
	}
}

// A crowded store counts those that read from it.
type crowded struct {
	journal.Store
	now, most atomic.Int32
}

func (c *crowded) Read(after uint64, fn func(journal.Entry) bool) error {
	if n := c.now.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	defer c.now.Add(-1)
	time.Sleep(time.Millisecond) // of the bubble's time: all others get here
	return c.Store.Read(after, fn)
}

// Many that read a long history backwards at the same time read it one after the other,
// a block at a time.
func TestBackwardReadersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := journal.NewShared(journal.SharedOptions{Turns: 2})
		store := &crowded{Store: journal.NewMemory(journal.MemoryOptions{})}
		j := joined(t, shared, store)
		fill(t, j, 2000)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				got := 0
				for _, err := range j.Backward(j.Head() + 1) {
					if got++; err != nil {
						t.Error(err)
					}
				}
				if got != 2000 {
					t.Errorf("got %d entries, want 2000", got)
				}
			})
		}
		wg.Wait()
		if got := store.most.Load(); got != 2 {
			t.Errorf("got %d that read at the same time, want 2", got)
		}
	})
}
