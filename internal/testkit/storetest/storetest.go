// Package storetest has the tests that every [journal.Store] must pass.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"github.com/seed-028515a8/maestro/internal/journal"
)

// Open makes an empty store that retains about retain bytes. If retain is 0, it
// retains everything that a test writes. A store may also keep entries that no
// later checkpoint replaces. The suite closes the store.
type Open func(t *testing.T, retain int) journal.Store

// Reopen closes a store and opens the same one again, as after a restart.
type Reopen func(t *testing.T, s journal.Store) journal.Store

// Run runs the suite. reopen is nil for a store that ends with its process.
func Run(t *testing.T, open Open, reopen Reopen) {
	for _, test := range []struct {
		name   string
		run    func(*suite)
		reopen bool // it needs Reopen
	}{
		{"AnEmptyStoreHasNothing", (*suite).empty, false},
		{"EntriesComeBackWhole", (*suite).whole, false},
		{"NumberingMayBeginAnywhere", (*suite).begin, false},
		{"ARefusedBatchLeavesNoTrace", (*suite).refused, false},
		{"BodiesMayBeReused", (*suite).reused, false},
		{"ReadStopsWhenTold", (*suite).stops, false},
		{"RetentionRemovesTheOldest", (*suite).retention, false},
		{"TheNewestCheckpointIsFound", (*suite).checkpoint, false},
		{"ReadersMayRunBesideAppends", (*suite).concurrent, false},
		{"RetentionMayOvertakeReaders", (*suite).overtaken, false},
		{"AnyHistoryReadsBack", (*suite).model, false},
		{"CloseMayBeRepeated", (*suite).closes, false},
		{"EverythingSurvivesReopening", (*suite).reopened, true},
		{"RetentionSparesTheCheckpoint", (*suite).spared, true},
	} {
		if !test.reopen || reopen != nil {
			t.Run(test.name, func(t *testing.T) { test.run(&suite{t, open, reopen}) })
		}
	}
}

type suite struct {
	*testing.T
	open   Open
	reopen Reopen
}

// start opens a store and closes it when the test ends.
func (t *suite) start(retain int) journal.Store {
	t.Helper()
	s := t.open(t.T, retain)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// entry returns an entry with a content derived from its cursor.
func entry(cursor uint64, kind journal.Kind, size int) journal.Entry {
	body := fmt.Appendf(nil, `{"n":%d,"text":"`, cursor)
	start := len(body)
	for len(body) < size {
		body = append(body, byte('a'+cursor%26))
	}
	end := len(body)
	return journal.Entry{
		Cursor: cursor, Time: int64(cursor) * 1000, Kind: kind, Class: journal.Class(cursor),
		TextStart: uint32(start), TextEnd: uint32(end), Body: append(body, `"}`...),
	}
}

// entries returns count messages, the first at cursor first.
func entries(first uint64, count, size int) (list []journal.Entry) {
	for i := range count {
		list = append(list, entry(first+uint64(i), journal.Message, size))
	}
	return list
}

// marked returns count entries, the first at cursor first. An entry is a
// checkpoint if its cursor is a multiple of 100.
func marked(first uint64, count, size int) []journal.Entry {
	list := entries(first, count, size)
	for i := range list {
		if list[i].Cursor%100 == 0 {
			list[i].Kind = journal.Checkpoint
		}
	}
	return list
}

func (t *suite) append(s journal.Store, list []journal.Entry) {
	t.Helper()
	if err := s.Append(list); err != nil {
		t.Fatalf("append %d entries from %d: %v", len(list), list[0].Cursor, err)
	}
}

// read returns the entries after the cursor after.
func read(s journal.Store, after uint64) (list []journal.Entry, err error) {
	err = s.Read(after, func(e journal.Entry) bool {
		e.Body = bytes.Clone(e.Body)
		list = append(list, e)
		return true
	})
	return list, err
}

// holds checks that a read after the cursor after returns want.
func (t *suite) holds(s journal.Store, after uint64, want []journal.Entry) {
	t.Helper()
	got, err := read(s, after)
	if err != nil {
		t.Fatalf("read after %d: %v", after, err)
	}
	if len(got) != len(want) {
		t.Fatalf("read after %d: got %d entries, want %d", after, len(got), len(want))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("read after %d: got entry %+v, want %+v", after, got[i], want[i])
		}
	}
}

func (t *suite) bounds(s journal.Store, first, last uint64) {
	t.Helper()
	if gotFirst, gotLast := s.Bounds(); gotFirst != first || gotLast != last {
		t.Fatalf("bounds: got %d to %d, want %d to %d", gotFirst, gotLast, first, last)
	}
}

func (t *suite) gap(s journal.Store, after uint64) {
	t.Helper()
	if got, err := read(s, after); !errors.Is(err, journal.ErrGap) || len(got) > 0 {
		t.Fatalf("read after %d: got %d entries and %v, want %v", after, len(got), err, journal.ErrGap)
	}
}

func (t *suite) empty() {
	s := t.start(0)
	t.bounds(s, 0, 0)
	t.holds(s, 0, nil)
	t.gap(s, 1)
	if got := s.LastCheckpoint(); got != 0 {
		t.Errorf("last checkpoint: got %d, want 0", got)
	}
	if s.Epoch() == "" {
		t.Error("got no epoch")
	}
	if other := t.start(0); other.Epoch() == s.Epoch() {
		t.Errorf("two stores have epoch %s", s.Epoch())
	}
	if err := s.Sync(); err != nil {
		t.Errorf("sync: %v", err)
	}
}

func (t *suite) whole() {
	s := t.start(0)
	want := entries(1, 40, 50)
	want = append(want, entry(41, journal.Snapshot, 200<<10), entry(42, journal.Note, 0), entry(43, journal.Checkpoint, 10))
	want = append(want, journal.Entry{Cursor: 44, Body: []byte{}}, entry(45, journal.Joint, 100))
	t.append(s, want[:1])
	t.append(s, want[1:30])
	t.append(s, want[30:])
	t.bounds(s, 1, 45)
	for after := range uint64(46) {
		t.holds(s, after, want[after:])
	}
	t.gap(s, 46)
}

func (t *suite) begin() {
	s := t.start(0)
	want := entries(1001, 20, 30)
	t.append(s, want)
	t.bounds(s, 1001, 1020)
	t.holds(s, 1000, want)
	t.gap(s, 999)
	t.gap(s, 0)
}

func (t *suite) refused() {
	s := t.start(0)
	want := entries(1, 5, 30)
	t.append(s, want)
	long := entry(6, journal.Message, 30)
	long.TextEnd = uint32(len(long.Body) + 1)
	for name, batch := range map[string][]journal.Entry{
		"hole":          entries(7, 2, 30),
		"repetition":    entries(5, 2, 30),
		"hole within":   {entry(6, journal.Message, 30), entry(8, journal.Message, 30)},
		"unknown kind":  {entry(6, journal.Message, 30), entry(7, journal.Kind(100), 30)},
		"span too long": {long},
	} {
		if err := s.Append(batch); err == nil {
			t.Errorf("%s: got no error", name)
		}
		t.bounds(s, 1, 5)
		t.holds(s, 0, want)
	}
	more := entries(6, 3, 30)
	t.append(s, more)
	t.holds(s, 0, append(want, more...))
}

func (t *suite) reused() {
	s := t.start(0)
	list := entries(1, 3, 30)
	t.append(s, list)
	for _, e := range list {
		clear(e.Body)
	}
	t.holds(s, 0, entries(1, 3, 30))
}

func (t *suite) stops() {
	s := t.start(0)
	t.append(s, entries(1, 10, 30))
	calls := 0
	if err := s.Read(2, func(e journal.Entry) bool { calls++; return e.Cursor < 5 }); err != nil {
		t.Fatal(err)
	}
	if calls != 3 {
		t.Errorf("got %d calls, want 3", calls)
	}
}

func (t *suite) retention() {
	const retain, size, count = 64 << 10, 200, 5000
	s := t.start(retain)
	all := marked(1, count, size)
	for len(all) > 0 {
		n := min(len(all), 7)
		t.append(s, all[:n])
		all = all[n:]
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	first, last := s.Bounds()
	if last != count || first == 1 {
		t.Fatalf("bounds: got %d to %d, want the oldest gone and %d kept", first, last, count)
	}
	if kept := int(last-first) * size; kept < retain/4 || kept > 2*retain {
		t.Errorf("got %d bytes of bodies kept, want about %d", kept, retain)
	}
	t.holds(s, first-1, marked(first, int(last-first)+1, size))
	t.gap(s, first-2)
	t.gap(s, 0)
}

func (t *suite) checkpoint() {
	s := t.start(0)
	t.append(s, []journal.Entry{entry(1, journal.Checkpoint, 30), entry(2, journal.Message, 30)})
	if got := s.LastCheckpoint(); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
	t.append(s, entries(3, 2, 30))
	t.append(s, []journal.Entry{entry(5, journal.Message, 30), entry(6, journal.Checkpoint, 30)})
	if got := s.LastCheckpoint(); got != 6 {
		t.Errorf("got %d, want 6", got)
	}
}

// concurrent runs readers that follow the newest entry while a writer appends.
func (t *suite) concurrent() {
	t.followed(0, 3000, 4, func(c uint64) journal.Entry { return entry(c, journal.Message, int(c%500)) })
}

// overtaken runs readers that are sometimes too slow.
func (t *suite) overtaken() {
	t.followed(16<<10, 5000, 3, func(c uint64) journal.Entry { return marked(c, 1, 100)[0] })
}

// followed appends count entries beside readers, who must not miss one. A reader that
// retention overtakes must learn it, and goes on with the oldest entry.
func (t *suite) followed(retain int, count uint64, readers int, at func(cursor uint64) journal.Entry) {
	s := t.start(retain)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() { // ends when it has read the last entry, or failed
			for after := uint64(0); after < count; {
				err := s.Read(after, func(e journal.Entry) bool {
					after++
					if want := at(after); !reflect.DeepEqual(e, want) {
						t.Errorf("got entry %+v, want %+v", e, want)
						after = count
					}
					return after < count
				})
				switch first, _ := s.Bounds(); {
				case err == nil:
				case retain == 0 || !errors.Is(err, journal.ErrGap):
					t.Errorf("read after %d: %v", after, err)
					return
				default:
					after = max(after, first-1)
				}
			}
		})
	}
	for c := uint64(1); c <= count; c++ {
		if err := s.Append([]journal.Entry{at(c)}); err != nil {
			t.Errorf("append: %v", err)
			break
		}
	}
	wg.Wait()
}

// model compares a random history with a slice.
func (t *suite) model() {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	s := t.open(t.T, 32<<10)
	defer func() { s.Close() }()
	var want []journal.Entry
	mark, epoch, floor := uint64(0), s.Epoch(), uint64(1)
	for range 400 {
		switch op := r.IntN(20); {
		case op == 0 && t.reopen != nil:
			s = t.reopen(t.T, s)
		case op < 3:
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		default:
			var batch []journal.Entry
			for range 1 + r.IntN(5) {
				kind := journal.Kind(r.IntN(3))
				if r.IntN(50) == 0 {
					kind = journal.Checkpoint
				}
				e := entry(uint64(len(want)+len(batch)+1), kind, r.IntN(2000))
				if kind == journal.Checkpoint {
					mark = e.Cursor
				}
				batch = append(batch, e)
			}
			t.append(s, batch)
			want = append(want, batch...)
		}
		first, last := s.Bounds()
		if last != uint64(len(want)) || first < floor && last > 0 {
			t.Fatalf("bounds: got %d to %d, want at least %d to %d", first, last, floor, len(want))
		}
		floor = max(floor, first)
		if got := s.LastCheckpoint(); got != mark && (got != 0 || t.reopen != nil) {
			t.Fatalf("last checkpoint: got %d, want %d", got, mark)
		}
		if s.Epoch() != epoch {
			t.Fatalf("epoch: got %s, want %s", s.Epoch(), epoch)
		}
		if before, n := r.Uint64N(last+3), 1+r.Uint64N(60); last > 0 {
			top := min(before, last+1)
			got, ok := s.Rewind(before, n)
			now, _ := s.Bounds() // retention may have moved meanwhile
			from := func(oldest uint64) uint64 { return max(oldest+n, top) - n - 1 }
			if ok && (top <= first || got < from(first) || got > from(now)) || !ok && top > now {
				t.Fatalf("rewind by %d from %d of %d to %d, oldest now %d: got %d, %t", n, before, first, last, now, got, ok)
			}
		}
		after := r.Uint64N(last + 2)
		got, err := read(s, after)
		switch now, _ := s.Bounds(); {
		case errors.Is(err, journal.ErrGap) && (after+1 < now || after > last):
		case err != nil:
			t.Fatalf("read after %d of %d to %d: %v", after, now, last, err)
		case after+1 < first || after > last:
			t.Fatalf("read after %d of %d to %d: got no error", after, first, last)
		default:
			if len(got) != len(want)-int(after) || len(got) > 0 && !reflect.DeepEqual(got, want[after:]) {
				t.Fatalf("read after %d: got %d entries, want the %d appended", after, len(got), len(want)-int(after))
			}
		}
	}
}

func (t *suite) closes() {
	s := t.open(t.T, 0)
	t.append(s, entries(1, 1, 10))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Append(entries(2, 1, 10)); err == nil {
		t.Error("append after close: got no error")
	}
}

func (t *suite) reopened() {
	s := t.open(t.T, 0)
	defer func() { s.Close() }()
	epoch := s.Epoch()
	s = t.reopen(t.T, s)
	t.bounds(s, 0, 0)
	want := append(entries(1, 300, 900), entry(301, journal.Checkpoint, 50))
	t.append(s, want)
	for range 2 {
		s = t.reopen(t.T, s)
		t.holds(s, 0, want)
		if s.Epoch() != epoch || s.LastCheckpoint() != 301 {
			t.Fatalf("got epoch %s and checkpoint %d, want %s and 301", s.Epoch(), s.LastCheckpoint(), epoch)
		}
		more := entries(uint64(len(want)+1), 50, 60)
		t.append(s, more)
		want = append(want, more...)
		t.holds(s, 0, want)
	}
}

func (t *suite) spared() {
	s := t.open(t.T, 32<<10)
	defer func() { s.Close() }()
	next := uint64(1)
	fill := func(count int) {
		for range count {
			t.append(s, entries(next, 1, 200))
			next++
		}
	}
	mark := func() uint64 {
		t.append(s, []journal.Entry{entry(next, journal.Checkpoint, 200)})
		next++
		return next - 1
	}
	for range 3 {
		fill(20)
		last := mark()
		fill(1000)
		s = t.reopen(t.T, s)
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		if got := s.LastCheckpoint(); got != last {
			t.Fatalf("last checkpoint: got %d, want %d", got, last)
		}
		if first, _ := s.Bounds(); first > last || last > 1000 && first == 1 {
			t.Fatalf("first: got %d, want the entries before %d gone and no others", first, last)
		}
		got, err := read(s, last-1)
		if err != nil || len(got) != int(next-last) {
			t.Fatalf("read from the checkpoint: got %d entries and %v, want %d", len(got), err, next-last)
		}
	}
}
