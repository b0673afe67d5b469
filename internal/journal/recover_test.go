package journal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A journal cut off anywhere in its newest segment opens with the batches that
// are whole, and goes on from there.
func TestATornTailIsCut(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	ends := map[int64]uint64{0: 0, headSize: 0} // sizes after whole batches
	last := uint64(0)
	for n := range uint64(8) {
		mustAppend(t, s, notes(last+1, last+1+n%3)...)
		last += 1 + n%3
		ends[s.segs[0].size] = last
	}
	path, epoch := s.segs[0].path, s.Epoch()
	crash(t, s)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := uint64(0)
	for size := range int64(len(whole)) {
		want = max(want, ends[size])
		if err := os.WriteFile(path, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		acknowledged(t, dir, want)
		s, err := Open(dir, FileOptions{})
		if err != nil || s.Epoch() != epoch {
			t.Fatalf("cut to %d bytes: got %v, want the same epoch", size, err)
		}
		mustAppend(t, s, note(want+1))
		if got := cursors(t, s, 0); !slices.Equal(got, sequence(1, want+1)) {
			t.Fatalf("cut to %d bytes: got %v, want 1 to %d", size, got, want+1)
		}
		crash(t, s)
	}
}

// What an index learnt of a batch that was cut off is forgotten with it.
func TestACutBatchLeavesNoTraceInTheIndex(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, note(1))
	long := notes(2, 5)
	for i := range long {
		long[i].Body = bytes.Repeat([]byte("x"), indexStride)
	}
	mustAppend(t, s, long...)
	seg := s.segs[0]
	crash(t, s)
	if err := os.Truncate(seg.path, seg.size-1); err != nil {
		t.Fatal(err)
	}
	acknowledged(t, dir, 1)
	s = mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, notes(2, 9)...)
	for after := range uint64(9) {
		if got := cursors(t, s, after); !slices.Equal(got, sequence(after+1, 9)) {
			t.Errorf("read after %d: got %v, want %d to 9", after, got, after+1)
		}
	}
}

// A segment whose first batch a crash left unfinished was never there.
func TestAnUnfinishedSegmentIsRemoved(t *testing.T) {
	mark := note(3)
	mark.Kind = Checkpoint // begins a segment
	for size := int64(0); ; size++ {
		dir := t.TempDir()
		s := mustOpen(t, dir, FileOptions{BootID: boot("a")})
		mustAppend(t, s, notes(1, 2)...)
		mustAppend(t, s, mark, note(4))
		second := s.segs[1]
		crash(t, s)
		if size == second.size {
			break
		}
		if err := os.Truncate(second.path, size); err != nil {
			t.Fatal(err)
		}
		acknowledged(t, dir, 2)
		s = mustOpen(t, dir, FileOptions{BootID: boot("a")})
		if got := s.LastCheckpoint(); got != 0 {
			t.Fatalf("cut to %d bytes: got checkpoint %d, want none", size, got)
		}
		mustAppend(t, s, note(3))
		if got := cursors(t, s, 0); !slices.Equal(got, sequence(1, 3)) {
			t.Fatalf("cut to %d bytes: got %v, want 1 to 3", size, got)
		}
		crash(t, s)
	}
}

// A changed bit in the last batch looks like a crash; anywhere before it, it
// is reported and nothing is removed.
func TestDamageIsReportedWhereItIs(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, notes(1, 50)...)
	tail := s.segs[0].size
	mustAppend(t, s, note(51))
	path := s.segs[0].path
	crash(t, s)
	acknowledged(t, dir, 50)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		damaged := slices.Clone(whole)
		damaged[at] ^= 1 << rand.N(8)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, FileOptions{})
		if int64(at) >= tail {
			if err != nil {
				t.Fatalf("damage at %d: %v", at, err)
			}
			if _, last := s.Bounds(); last != 50 {
				t.Fatalf("damage at %d: got last %d, want 50", at, last)
			}
			crash(t, s)
			continue
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
			t.Fatalf("damage at %d: got %v, want %v with the file", at, err, ErrCorrupt)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, damaged) {
			t.Fatalf("damage at %d: the file was changed", at)
		}
	}
}

// Damage in a segment that Open does not read is found by whoever reads it.
func TestDamageInAnOldSegmentIsFoundByReaders(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{SegmentBytes: 1 << 10})
	for c := range uint64(100) {
		mustAppend(t, s, note(c+1))
	}
	old := s.segs[1]
	damaged, err := os.ReadFile(old.path)
	if err != nil {
		t.Fatal(err)
	}
	damaged[len(damaged)/2] ^= 4
	if err := os.WriteFile(old.path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, FileOptions{SegmentBytes: 1 << 10})
	last := uint64(0)
	err = s.Read(0, func(e Entry) bool { last = e.Cursor; return true })
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), old.path) {
		t.Errorf("got %v, want %v with the file", err, ErrCorrupt)
	}
	if last < old.head.first || last >= old.last {
		t.Errorf("got entries up to %d, want those of %d to %d before the damage", last, old.head.first, old.last)
	}
	if got := cursors(t, s, old.last); !slices.Equal(got, sequence(old.last+1, 100)) {
		t.Errorf("after the damage: got %v, want %d to 100", got, old.last+1)
	}
}

// A missing file is damage too, wherever it was.
func TestAMissingFileIsReported(t *testing.T) {
	for _, missing := range []int{-1, 0, 2} { // the meta file, the newest segment, one in the middle
		dir := t.TempDir()
		s := mustOpen(t, dir, FileOptions{SegmentBytes: 1 << 10})
		for c := range uint64(100) {
			mustAppend(t, s, note(c+1))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, metaName)
		if missing >= 0 {
			paths := segmentFiles(t, dir)
			path = paths[len(paths)-1-missing]
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, FileOptions{})
		if err == nil {
			err = s.Read(0, func(Entry) bool { return true })
			crash(t, s)
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("without %s: got %v, want %v", path, err, ErrCorrupt)
		}
	}
}

// A process that dies keeps the epoch and every cursor; so does a machine
// that stops after a clean end.
func TestTheEpochSurvivesTheProcess(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{BootID: boot("a")})
	epoch := s.Epoch()
	mustAppend(t, s, notes(1, 9)...)
	crash(t, s)
	s = mustOpen(t, dir, FileOptions{BootID: boot("a")})
	if _, last := s.Bounds(); s.Epoch() != epoch || last != 9 {
		t.Errorf("after the process died: got %s and %d, want %s and 9", s.Epoch(), last, epoch)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, FileOptions{BootID: boot("b")})
	if _, last := s.Bounds(); s.Epoch() != epoch || last != 9 {
		t.Errorf("after a clean end: got %s and %d, want %s and 9", s.Epoch(), last, epoch)
	}
}

// A machine that stops may lose entries that were shown: the epoch changes, and
// no cursor is used twice. What is left stays readable.
func TestALostTailEndsTheEpoch(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{BootID: boot("a"), SegmentBytes: 1 << 10})
	epoch := s.Epoch()
	for c := range uint64(100) {
		mustAppend(t, s, note(c+1))
	}
	third := s.segs[2]
	crash(t, s)
	if err := os.Truncate(third.path, third.size-5); err != nil { // while later segments survived
		t.Fatal(err)
	}
	kept := third.last - 1
	for _, path := range segmentFiles(t, dir)[1:] { // as if nothing had been synced
		forgetSynced(t, path)
	}

	s = mustOpen(t, dir, FileOptions{BootID: boot("b"), SegmentBytes: 1 << 10})
	if s.Epoch() == epoch {
		t.Error("the epoch did not change")
	}
	_, floor := s.Bounds()
	if floor < 100 {
		t.Fatalf("got last cursor %d, want at least the 100 that were used", floor)
	}
	if got := cursors(t, s, 0); !slices.Equal(got, sequence(1, kept)) {
		t.Errorf("got %v, want 1 to %d", got, kept)
	}
	for _, after := range []uint64{kept + 1, 100, floor - 1, floor + 1} {
		if err := s.Read(after, func(Entry) bool { return true }); !errors.Is(err, ErrGap) {
			t.Errorf("read after %d: got %v, want %v", after, err, ErrGap)
		}
	}
	again := s.Epoch()
	crash(t, s) // the new epoch and numbering hold even if nothing is appended
	s = mustOpen(t, dir, FileOptions{BootID: boot("b"), SegmentBytes: 1 << 10})
	if _, last := s.Bounds(); s.Epoch() != again || last != floor {
		t.Errorf("opened again: got %s and %d, want %s and %d", s.Epoch(), last, again, floor)
	}
	mustAppend(t, s, notes(floor+1, floor+3)...)
	want := append(sequence(1, kept), sequence(floor+1, floor+3)...)
	if got := cursors(t, s, 0); !slices.Equal(got, want) {
		t.Errorf("after appending: got %v, want %v", got, want)
	}
	if got := cursors(t, s, kept); !slices.Equal(got, sequence(floor+1, floor+3)) {
		t.Errorf("across the hole: got %v, want %d to %d", got, floor+1, floor+3)
	}
	if err := s.Read(kept+1, func(Entry) bool { return true }); !errors.Is(err, ErrGap) {
		t.Errorf("within the hole: got %v, want %v", err, ErrGap)
	}
}

// A follower gets from one side of a hole in the numbering to the other.
func TestFollowersCrossAHole(t *testing.T) {
	t.Run("wide", func(t *testing.T) { crossHole(t, 0) })
	t.Run("narrow", func(t *testing.T) { crossHole(t, 20) }) // both sides are read when the window is warmed
}

// crossHole loses all cursors after 5 up to floor, or as many as a new epoch
// skips if that is zero.
func crossHole(t *testing.T, floor uint64) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{BootID: boot("a")})
	mustAppend(t, s, notes(1, 5)...)
	crash(t, s)
	s = mustOpen(t, dir, FileOptions{BootID: boot("b")})
	if floor > 0 {
		s.meta.Floor, s.last = floor, floor
	}
	j, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := j.Follow(bare{})
	head := j.Head()
	for _, after := range []uint64{0, 5} {
		frames, next, err := v.Read(new([]byte), after, head, 0, 0)
		if want := int(5-after) * len(`{"n":1}`); len(frames) != want || next != head || err != nil {
			t.Errorf("read after %d: got %q, %d, %v, want %d bytes, %d", after, frames, next, err, want, head)
		}
	}
	if _, err := j.Append(notes(head+1, head+2)...); err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		if again {
			if j, err = New(s, Options{}); err != nil {
				t.Fatal(err)
			}
			v = j.Follow(bare{})
		}
		var got []byte
		for after := uint64(0); after < j.Head(); {
			frames, next, err := v.Read(new([]byte), after, j.Head(), 0, 0)
			if err != nil || next <= after {
				t.Fatalf("read after %d: got to %d, %v", after, next, err)
			}
			got, after = append(got, frames...), next
		}
		var want []byte
		for _, e := range append(notes(1, 5), notes(head+1, head+2)...) {
			want = append(want, e.Body...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// bare is a form whose frames are bodies.
type bare struct{}

func (bare) AppendMessage(dst []byte, _ uint64, body []byte) []byte  { return append(dst, body...) }
func (bare) AppendSnapshot(dst []byte, _ uint64, body []byte) []byte { return append(dst, body...) }

// forgetSynced rewrites a segment's header as if nothing before was synced.
func forgetSynced(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, ok, err := parseSegmentHead(text)
	if !ok || err != nil {
		t.Fatalf("%s: header: %v", path, err)
	}
	head.synced = 0
	if err := os.WriteFile(path, append(head.append(nil), text[headSize:]...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What was synced is not explained away by a machine restart.
func TestDamageBelowTheSyncedIsReportedAfterAReboot(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{BootID: boot("a"), SegmentBytes: 1 << 10})
	for c := range uint64(100) {
		mustAppend(t, s, note(c+1))
		if c%10 == 0 {
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	crash(t, s)
	paths := segmentFiles(t, dir)
	newest := paths[len(paths)-1]
	text, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	head, ok, _ := parseSegmentHead(text)
	if !ok || head.synced == 0 {
		t.Fatalf("got synced %d in the newest segment, want some", head.synced)
	}
	head.synced = head.first // pretend that its first record was synced, then lose it
	damaged := append(head.append(nil), text[headSize:]...)
	damaged[headSize] ^= 1
	if err := os.WriteFile(newest, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, FileOptions{BootID: boot("b")}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want %v", err, ErrCorrupt)
	}
}

// An intact header that does not belong in its place is damage.
func TestASegmentThatDoesNotFitIsReported(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{SegmentBytes: 400})
	for c := uint64(1); c <= 30; c++ {
		mustAppend(t, s, note(c))
	}
	segs := slices.Clone(s.segs)
	closeStore(t, s)
	last := segs[2]
	text, err := os.ReadFile(last.path)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*segmentHead){
		"another first cursor":     func(h *segmentHead) { h.first++ },
		"another journal":          func(h *segmentHead) { h.journal = newEpoch() },
		"continues itself":         func(h *segmentHead) { h.prev = h.first },
		"continues an earlier one": func(h *segmentHead) { h.prev = segs[1].head.first - 1 },
	} {
		head := last.head
		change(&head)
		if err := os.WriteFile(last.path, append(head.append(nil), text[headSize:]...), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir, FileOptions{})
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(last.path)+" at offset 0") {
			t.Errorf("%s: got %v, want %v at the header", what, err, ErrCorrupt)
		}
		if err := ReadDir(dir, func(Entry) error { return nil }); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v from ReadDir, want %v", what, err, ErrCorrupt)
		}
	}
}

// A new epoch of a store that is durable from now on does not end with the machine.
func TestAStoreThatBecomesDurableKeepsItsNextEpoch(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{BootID: boot("a")})
	mustAppend(t, s, notes(1, 5)...)
	crash(t, s)
	s = mustOpen(t, dir, FileOptions{BootID: boot("b"), Durable: true})
	epoch, start := s.Epoch(), s.EpochStart()
	if start < 5 || s.Changed() == "" {
		t.Errorf("got epoch %s from %d on, changed because of %q, want a new one", epoch, start, s.Changed())
	}
	mustAppend(t, s, note(start+1))
	crash(t, s)
	s = mustOpen(t, dir, FileOptions{BootID: boot("c"), Durable: true})
	if got := cursors(t, s, 0); s.Epoch() != epoch || s.Changed() != "" || !slices.Equal(got, append(sequence(1, 5), start+1)) {
		t.Errorf("got %v in %s, changed because of %q, want all in %s", got, s.Epoch(), s.Changed(), epoch)
	}
}

// With Durable nobody saw what was lost, so the epoch goes on.
func TestADurableStoreKeepsItsEpoch(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{BootID: boot("a"), Durable: true})
	epoch := s.Epoch()
	mustAppend(t, s, notes(1, 9)...)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, note(10))
	size := s.segs[0].size
	crash(t, s)
	if err := os.Truncate(s.segs[0].path, size-3); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, FileOptions{BootID: boot("b"), Durable: true})
	if _, last := s.Bounds(); s.Epoch() != epoch || last != 9 {
		t.Errorf("got %s and %d, want %s and 9", s.Epoch(), last, epoch)
	}
}

// An unknown boot counts as another one.
func TestAnUnknownBootEndsTheEpochAfterACrash(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{BootID: boot("")})
	epoch := s.Epoch()
	mustAppend(t, s, note(1))
	crash(t, s)
	s = mustOpen(t, dir, FileOptions{BootID: boot("")})
	if got := cursors(t, s, 0); s.Epoch() == epoch || !slices.Equal(got, []uint64{1}) {
		t.Errorf("got epoch %s and %v, want a new one and 1", s.Epoch(), got)
	}
}
