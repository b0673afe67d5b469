package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// filesOf returns the contents of the files in dir that a journal consists of.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"*" + segmentSuffix, metaName} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			found[filepath.Base(path)] = string(text)
		}
	}
	return found
}

// Whatever the damage, what a repair keeps is a journal that opens, in a new
// epoch, and holds what its owner needs. What was there is beside it.
func TestRepairKeepsWhatItCan(t *testing.T) {
	v, other := newVictim(t, false, false), newVictim(t, false, true)
	outcomes := map[string]int{}
	for i, d := range damages(t, v, other) {
		if i%5 > 0 {
			continue // each kind is there many times
		}
		dir := clone(t, v.dir)
		d.do(t, dir)
		before := filesOf(t, dir)
		kept, err := Repair(dir)
		first, last, aside := kept.First, kept.Last, kept.Aside
		if err != nil {
			outcomes["nothing kept"]++
			if after := filesOf(t, dir); !errors.Is(err, ErrCorrupt) || len(after) != len(before) {
				t.Errorf("got %v and %d files, want %v and the %d that were there", err, len(after), ErrCorrupt, len(before))
			}
		} else {
			outcomes["kept"]++
			if last == shown {
				outcomes["up to the end"]++
			}
			repaired(t, dir, v.epoch, first, last)
			for name, text := range filesOf(t, aside) {
				if before[name] != text {
					t.Errorf("%s is not what it was before", name)
				}
				delete(before, name)
			}
			if len(before) > 0 {
				t.Errorf("got all but %d files beside the journal, want all", len(before))
			}
		}
		if t.Failed() {
			t.Fatalf("after %s", d.what)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%v", outcomes)
	if outcomes["up to the end"] < outcomes["kept"]/2 || outcomes["kept"] < 9*outcomes["nothing kept"] {
		t.Errorf("got %v, want most kept up to the end", outcomes)
	}
}

// repaired checks that dir has the entries from first to last, and goes on in a
// new epoch.
func repaired(t *testing.T, dir, epoch string, first, last uint64) {
	t.Helper()
	if err := Check(dir); err != nil {
		t.Errorf("check: %v", err)
		return
	}
	s, err := Open(dir, damagedOptions)
	if err != nil {
		t.Error(err)
		return
	}
	defer crash(t, s)
	point, err := RestorePoint(s)
	if err != nil || first != 1 && point != s.LastCheckpoint() || point < first || point > last {
		t.Errorf("got restore point %d and %v, want one in %d to %d", point, err, first, last)
	}
	from, now := s.Bounds()
	if s.Epoch() == epoch || from != first || now != s.EpochStart() || now <= shown {
		t.Errorf("got %d to %d of epoch %s that began at %d, want from %d on and a new epoch beyond %d", from, now, s.Epoch(), s.EpochStart(), first, shown)
	}
	mustAppend(t, s, note(now+1))
	if got, want := cursors(t, s, first-1), append(sequence(first, last), now+1); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A journal that is in use is not repaired, and one that cannot be is not
// touched.
func TestRepairLeavesAJournalInUseAlone(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, note(1))
	if _, err := Repair(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("got %v, want %v", err, ErrLocked)
	}
	if got := cursors(t, s, 0); len(got) != 1 {
		t.Errorf("got %v, want 1", got)
	}
}

// An epoch that ended within what is kept leaves a hole in the cursors, which
// stays.
func TestRepairKeepsHoles(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{BootID: boot("a")})
	mustAppend(t, s, notes(1, 5)...)
	crash(t, s)
	s = mustOpen(t, dir, FileOptions{BootID: boot("b")})
	_, start := s.Bounds()
	for c := start + 1; c <= start+5; c++ {
		mustAppend(t, s, note(c))
	}
	seg := s.segs[1]
	closeStore(t, s)
	text, err := os.ReadFile(seg.path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)-60] ^= 1 // in the fourth record of five
	if err := os.WriteFile(seg.path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(dir); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v, want %v", err, ErrCorrupt)
	}
	if _, used, err := salvage(dir, s.lock); err != nil || used != s.meta.Reserved {
		t.Errorf("got cursors used up to %d, %v, want all that were reserved, up to %d", used, err, s.meta.Reserved)
	}
	if kept, err := Repair(dir); err != nil || kept.Last != start+3 || kept.Newest != start+5 {
		t.Fatalf("got %+v and %v, want the entries to %d, of %d", kept, err, start+3, start+5)
	}
	s = mustOpen(t, dir, FileOptions{})
	if got, want := cursors(t, s, 0), append(sequence(1, 5), sequence(start+1, start+3)...); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAJournalWithoutEntriesIsSound(t *testing.T) {
	dir := t.TempDir()
	closeStore(t, mustOpen(t, dir, FileOptions{}))
	if err := Check(dir); err != nil {
		t.Errorf("got %v, want a sound journal", err)
	}
}

// flip changes a bit of a file.
func flip(t *testing.T, path string, off int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[off] ^= 1
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Check reads what Open does not: the segments before the newest.
func TestCheckReadsOldSegments(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{SegmentBytes: 200})
	mustAppend(t, s, notes(1, 3)...)
	mustAppend(t, s, notes(4, 6)...)
	oldest := s.segs[0].path
	closeStore(t, s)
	flip(t, oldest, headSize+recordHead)
	closeStore(t, mustOpen(t, dir, FileOptions{}))
	if err := Check(dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want %v", err, ErrCorrupt)
	}
}

// Open removes no file of a journal that is damaged.
func TestDamagedHeaderRemovesNoSegments(t *testing.T) {
	for damaged := range 3 {
		dir := t.TempDir()
		s := mustOpen(t, dir, FileOptions{SegmentBytes: 200})
		for c := uint64(1); c <= 7; c += 3 {
			mustAppend(t, s, notes(c, c+2)...)
		}
		paths := segmentFiles(t, dir)
		closeStore(t, s)
		flip(t, paths[damaged], 20)
		if _, err := Open(dir, FileOptions{}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(paths[damaged])) {
			t.Errorf("got %v, want %v in %s", err, ErrCorrupt, paths[damaged])
		}
		if left := segmentFiles(t, dir); len(paths) != 3 || !slices.Equal(left, paths) {
			t.Errorf("got segments %v, want the three that were there: %v", left, paths)
		}
	}
}

// A damaged header before one intact record is damage, and no segment that has just begun.
func TestRecordBehindADamagedHeaderIsNotDropped(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{BootID: boot("a")})
	mustAppend(t, s, note(1))
	path := s.segs[0].path
	crash(t, s)
	flip(t, path, 20)
	if _, err := Open(dir, FileOptions{BootID: boot("a")}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("open: got %v, want %v", err, ErrCorrupt)
	}
	if err := ReadDir(dir, func(Entry) error { return nil }); !errors.Is(err, ErrCorrupt) {
		t.Errorf("read: got %v, want %v", err, ErrCorrupt)
	}
}

// Without a meta file, the entries tell which cursors were used.
func TestRepairWithoutMetaGoesOnBeyondTheEntries(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, notes(1, 7)...)
	closeStore(t, s)
	if err := os.Remove(filepath.Join(dir, metaName)); err != nil {
		t.Fatal(err)
	}
	if _, used, err := salvage(dir, s.lock); err != nil || used != 7 {
		t.Errorf("got cursors used up to %d, %v, want 7", used, err)
	}
}

// A repair that did not come to its end is noticed.
func TestInterruptedRepairIsReported(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, note(1))
	path := s.segs[0].path
	closeStore(t, s)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(dir, "repaired")
	if _, err := replace(dir, fresh); err == nil { // there is nothing to put in the place of the journal
		t.Error("got no error without a repaired journal")
	}
	if err := Check(dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want %v", err, ErrCorrupt)
	}
	if kept, err := os.ReadFile(filepath.Join(dir, "damaged-1", filepath.Base(path))); err != nil || !bytes.Equal(kept, text) {
		t.Errorf("got %v, want the segment beside the journal", err)
	}
}
