package journal

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"
	"testing/synctest"
)

var errFault = errors.New("input/output error")

// A faulty file fails as its fields say.
type faulty struct {
	segmentFile
	truncate, sync error
}

func (f *faulty) Truncate(size int64) error {
	if f.truncate != nil {
		return f.truncate
	}
	return f.segmentFile.Truncate(size)
}

func (f *faulty) Sync() error {
	if f.sync != nil {
		return f.sync
	}
	return f.segmentFile.Sync()
}

// Retention may remove a segment between the moment a reader finds it and the
// moment it opens its file. The reader is told, and passes over nothing.
func TestASegmentThatGoesWhileItIsReadIsAGap(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{SegmentBytes: 400, RetainBytes: 2000})
	last := uint64(0)
	fill := func(upTo uint64) {
		for ; last < upTo; last++ {
			e := note(last + 1)
			if e.Cursor%10 == 0 {
				e.Kind = Checkpoint
			}
			mustAppend(t, s, e)
		}
	}
	fill(20)
	j, err := New(s, Options{WindowEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	view := j.Follow(bare{})
	opened := 0
	s.ops.read = func(path string) (*os.File, error) {
		if opened++; opened == 2 { // the reader has read one segment and found the next, which now goes, and those after it stay
			for {
				if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
					break
				}
				fill(last + 1)
				if err := s.Sync(); err != nil {
					t.Error(err)
				}
			}
		}
		return os.Open(path)
	}
	var got []uint64
	err = s.Read(0, func(e Entry) bool { got = append(got, e.Cursor); return true })
	if len(got) == 0 || !slices.Equal(got, sequence(1, uint64(len(got)))) || !errors.Is(err, ErrGap) {
		t.Errorf("got %v and %v, want some from 1 on and %v", got, err, ErrGap)
	}
	s.ops.read = os.Open
	if frames, next, err := view.Read(new([]byte), got[len(got)-1], 20, 0, 0); len(frames) > 0 || next != got[len(got)-1] || !errors.Is(err, ErrGap) {
		t.Errorf("a follower: got %q, %d and %v, want %v", frames, next, err, ErrGap)
	}
}

// A file that vanished, though it was to be kept, is damage and no gap.
func TestASegmentThatVanishesIsReported(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{SegmentBytes: 400})
	for c := uint64(1); c <= 30; c++ {
		mustAppend(t, s, note(c))
	}
	if err := os.Remove(s.segs[1].path); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(0, func(Entry) bool { return true }); !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrGap) {
		t.Errorf("got %v, want %v", err, ErrCorrupt)
	}
}

// A segment that cannot be opened stops a reader there, and is no gap.
func TestAReaderThatCannotOpenASegmentIsTold(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{SegmentBytes: 400})
	for c := uint64(1); c <= 30; c++ {
		mustAppend(t, s, note(c))
	}
	second := s.segs[1]
	s.ops.read = func(path string) (*os.File, error) {
		if path == second.path {
			return nil, errFault
		}
		return os.Open(path)
	}
	var got []uint64
	err := s.Read(0, func(e Entry) bool { got = append(got, e.Cursor); return true })
	if !errors.Is(err, errFault) || errors.Is(err, ErrGap) || !slices.Equal(got, sequence(1, second.head.prev)) {
		t.Errorf("got %v and %v, want 1 to %d and %v", got, err, second.head.prev, errFault)
	}
	s.ops.read = os.Open
	if got := cursors(t, s, second.head.prev); !slices.Equal(got, sequence(second.head.first, 30)) {
		t.Errorf("afterwards: got %v, want all from %d on", got, second.head.first)
	}
}

// A segment that cannot be created refuses its batch and leaves no trace.
func TestASegmentThatCannotBeCreatedRefusesTheBatch(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{SegmentBytes: 400})
	mustAppend(t, s, notes(1, 5)...)
	s.ops.create = func(string) (segmentFile, error) { return nil, errFault }
	for range 2 {
		if err := s.Append(notes(6, 20)); !errors.Is(err, errFault) {
			t.Errorf("got %v, want %v", err, errFault)
		}
	}
	mustAppend(t, s, note(6)) // fits the segment that is there
	s.ops.create = createSegment
	mustAppend(t, s, notes(7, 20)...)
	crash(t, s)
	s = mustOpen(t, dir, FileOptions{})
	if got := cursors(t, s, 0); !slices.Equal(got, sequence(1, 20)) {
		t.Errorf("got %v, want 1 to 20", got)
	}
}

// A segment that cannot be synced breaks the store, whoever syncs it. What it
// had accepted is there when it is opened again.
func TestASyncThatFailsBreaksTheStore(t *testing.T) {
	for _, who := range []string{"the owner", "retention", "closing"} {
		t.Run(who, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir, FileOptions{SegmentBytes: 400, BootID: boot("a")})
			s.ops.create = func(path string) (segmentFile, error) {
				f, err := createSegment(path)
				return &faulty{segmentFile: f, sync: errFault}, err
			}
			epoch, last := s.Epoch(), uint64(5)
			mustAppend(t, s, notes(1, last)...)
			switch who {
			case "the owner":
				if err := s.Sync(); !errors.Is(err, ErrBroken) || !errors.Is(err, errFault) {
					t.Errorf("sync: got %v, want %v", err, ErrBroken)
				}
			case "retention": // a second segment seals the first, which is synced beside appends
				last = 20
				mustAppend(t, s, notes(6, last)...)
				s.wg.Wait()
			}
			if who != "closing" {
				if err := s.Append(notes(last+1, last+1)); !errors.Is(err, ErrBroken) {
					t.Errorf("append: got %v, want %v", err, ErrBroken)
				}
			}
			if err := s.Close(); !errors.Is(err, errFault) {
				t.Errorf("close: got %v, want %v", err, errFault)
			}
			s = mustOpen(t, dir, FileOptions{BootID: boot("a")})
			if got := cursors(t, s, 0); !slices.Equal(got, sequence(1, last)) || s.Epoch() != epoch {
				t.Errorf("opened again: got %v in %s, want 1 to %d in %s", got, s.Epoch(), last, epoch)
			}
		})
	}
}

// A store whose newest segment cannot be opened or cut is not opened, and not
// locked: it can be when the fault is gone.
func TestARecoveryThatFailsMayBeRepeated(t *testing.T) {
	for what, reopen := range map[string]func(string) (segmentFile, error){
		"open": func(string) (segmentFile, error) { return nil, errFault },
		"truncate": func(path string) (segmentFile, error) {
			f, err := reopenSegment(path)
			return &faulty{segmentFile: f, truncate: errFault}, err
		},
	} {
		dir := t.TempDir()
		s := mustOpen(t, dir, FileOptions{BootID: boot("a")})
		epoch := s.Epoch()
		mustAppend(t, s, notes(1, 9)...)
		size := s.segs[0].size
		mustAppend(t, s, notes(10, 12)...)
		path := s.segs[0].path
		crash(t, s)
		truncate(t, path, size+20)
		acknowledged(t, dir, 9)
		if _, err := open(dir, FileOptions{BootID: boot("a")}, fileOps{createSegment, reopen, os.Open}); !errors.Is(err, errFault) {
			t.Errorf("%s: got %v, want %v", what, err, errFault)
		}
		s = mustOpen(t, dir, FileOptions{BootID: boot("a")})
		mustAppend(t, s, note(10))
		if got := cursors(t, s, 0); !slices.Equal(got, sequence(1, 10)) || s.Epoch() != epoch {
			t.Errorf("%s: got %v in %s, want 1 to 10 in %s", what, got, s.Epoch(), epoch)
		}
	}
}

// A machine that stops may leave a sealed segment torn. What follows it goes, and
// the store goes on where it ends.
func TestAppendingGoesOnAfterATornSealedSegment(t *testing.T) {
	for cut := int64(1); cut <= 60; cut += 7 { // of a last batch of 51 bytes, and the one before
		dir := t.TempDir()
		opts := FileOptions{BootID: boot("a"), SegmentBytes: 400, Durable: true}
		s := mustOpen(t, dir, opts)
		for c := uint64(1); c <= 30; c++ {
			mustAppend(t, s, note(c))
		}
		epoch, torn := s.Epoch(), s.segs[1]
		s.wg.Wait()
		crash(t, s)
		for _, path := range segmentFiles(t, dir) {
			forgetSynced(t, path) // nothing of it was
		}
		truncate(t, torn.path, torn.size-cut)

		opts.BootID = boot("b")
		s = mustOpen(t, dir, opts)
		_, last := s.Bounds()
		if s.Epoch() != epoch || last >= torn.last || last < torn.head.first {
			t.Fatalf("cut by %d: got last %d in %s, want some of %d to %d in %s", cut, last, s.Epoch(), torn.head.first, torn.last, epoch)
		}
		for c := last + 1; c <= 60; c++ {
			mustAppend(t, s, note(c))
		}
		for range 2 {
			for after := range uint64(60) {
				if got := cursors(t, s, after); !slices.Equal(got, sequence(after+1, 60)) {
					t.Fatalf("cut by %d: read after %d: got %v, want the rest up to 60", cut, after, got)
				}
			}
			crash(t, s)
			s = mustOpen(t, dir, opts)
		}
	}
}

// A stalled file waits with Sync until it is released.
type stalled struct {
	segmentFile
	release <-chan struct{}
}

func (f stalled) Sync() error {
	<-f.release
	return f.segmentFile.Sync()
}

// Where the disk is too slow to let old segments go, appending waits for it, and
// the journal does not grow without a bound.
func TestAppendWaitsForASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 4000
		s := mustOpen(t, t.TempDir(), FileOptions{RetainBytes: bound, SegmentBytes: 500})
		release := make(chan struct{})
		s.ops.create = func(path string) (segmentFile, error) {
			f, err := createSegment(path)
			return stalled{f, release}, err
		}
		go func() { // ends with the last entry
			for c := uint64(1); c <= 500; c++ {
				e := note(c)
				if c%20 == 0 {
					e.Kind = Checkpoint
				}
				if err := s.Append([]Entry{e}); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		if _, last := s.Bounds(); last == 0 || last == 500 || s.size() > 2*bound+500 {
			t.Errorf("got %d entries and %d bytes while the disk stalls, want about %d bytes", last, s.size(), 2*bound)
		}
		close(release)
		synctest.Wait()
		if first, last := s.Bounds(); last != 500 || first == 1 || s.size() > 2*bound+500 {
			t.Errorf("got entries %d to %d in %d bytes, want the last ones", first, last, s.size())
		}
		closeStore(t, s)
		if s.size() > bound+500 {
			t.Errorf("closed: got %d bytes, want %d", s.size(), bound)
		}
	})
}
