package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// note returns an entry whose content follows from its cursor.
func note(cursor uint64) Entry {
	return Entry{Cursor: cursor, Time: int64(cursor), Body: fmt.Appendf(nil, `{"n":%d}`, cursor)}
}

func notes(first, last uint64) []Entry {
	var list []Entry
	for c := first; c <= last; c++ {
		list = append(list, note(c))
	}
	return list
}

func mustOpen(t *testing.T, dir string, opts FileOptions) *File {
	t.Helper()
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func mustAppend(t *testing.T, s Store, entries ...Entry) {
	t.Helper()
	if err := s.Append(entries); err != nil {
		t.Fatalf("append from %d: %v", entries[0].Cursor, err)
	}
}

// crash lets go of s as the death of its process would.
func crash(t *testing.T, s *File) {
	t.Helper()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wg.Wait()
	if err := s.release(); err != nil {
		t.Fatal(err)
	}
}

// acknowledged makes head the newest cursor that the store in dir remembers to
// have appended: what the death of its process leaves in the middle of the batch
// after it.
func acknowledged(t *testing.T, dir string, head uint64) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, lockName), binary.LittleEndian.AppendUint64(nil, head), 0o600); err != nil {
		t.Fatal(err)
	}
}

// cursors returns the cursors after the cursor after and checks their bodies.
func cursors(t *testing.T, s Store, after uint64) []uint64 {
	t.Helper()
	var list []uint64
	err := s.Read(after, func(e Entry) bool {
		if want := note(e.Cursor); !bytes.Equal(e.Body, want.Body) {
			t.Errorf("entry %d: got body %s, want %s", e.Cursor, e.Body, want.Body)
		}
		list = append(list, e.Cursor)
		return true
	})
	if err != nil {
		t.Fatalf("read after %d: %v", after, err)
	}
	return list
}

func sequence(first, last uint64) []uint64 {
	var list []uint64
	for c := first; c <= last; c++ {
		list = append(list, c)
	}
	return list
}

func segmentFiles(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func boot(id string) func() string { return func() string { return id } }

func TestAStoreIsOpenOnce(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	if _, err := Open(dir, FileOptions{}); !errors.Is(err, ErrLocked) {
		t.Fatalf("got %v, want %v", err, ErrLocked)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, FileOptions{})
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	s := mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, note(1))
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A failing file takes so many bytes, then writes short.
type failing struct {
	segmentFile
	room     *int64
	truncate error
}

var errFull = errors.New("no space left on device")

func (f failing) WriteAt(p []byte, off int64) (int, error) {
	if int64(len(p)) <= *f.room {
		*f.room -= int64(len(p))
		return f.segmentFile.WriteAt(p, off)
	}
	n, err := f.segmentFile.WriteAt(p[:*f.room], off)
	return n, errors.Join(err, errFull)
}

func (f failing) Truncate(size int64) error {
	if f.truncate != nil {
		return f.truncate
	}
	return f.segmentFile.Truncate(size)
}

// failAfter makes every new segment of s share room bytes.
func failAfter(s *File, room *int64, truncate error) {
	s.ops.create = func(path string) (segmentFile, error) {
		f, err := createSegment(path)
		if err != nil {
			return nil, err
		}
		return failing{f, room, truncate}, nil
	}
}

// A full disk refuses a batch; once there is space again, appending goes on as
// if nothing had happened.
func TestAShortWriteIsUndone(t *testing.T) {
	for room := int64(0); room < 300; room += 7 {
		dir := t.TempDir()
		s := mustOpen(t, dir, FileOptions{SegmentBytes: 200})
		left := room
		failAfter(s, &left, nil)
		last := uint64(0)
		var err error
		for {
			if err = s.Append(notes(last+1, last+2)); err != nil {
				break
			}
			last += 2
		}
		if !errors.Is(err, errFull) {
			t.Fatalf("room for %d: got %v, want %v", room, err, errFull)
		}
		if got := cursors(t, s, 0); !slices.Equal(got, sequence(1, last)) {
			t.Fatalf("room for %d: got %v, want 1 to %d", room, got, last)
		}
		left = 1 << 20
		mustAppend(t, s, notes(last+1, last+5)...)
		crash(t, s)
		s = mustOpen(t, dir, FileOptions{})
		if got := cursors(t, s, 0); !slices.Equal(got, sequence(1, last+5)) {
			t.Fatalf("room for %d, reopened: got %v, want 1 to %d", room, got, last+5)
		}
	}
}

func TestAWriteThatCannotBeUndoneBreaksTheStore(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{})
	room := int64(200)
	failAfter(s, &room, errors.New("input/output error"))
	mustAppend(t, s, note(1))
	for range 2 {
		if err := s.Append(notes(2, 9)); !errors.Is(err, ErrBroken) {
			t.Errorf("append: got %v, want %v", err, ErrBroken)
		}
		room = 1 << 20
	}
	if err := s.Sync(); !errors.Is(err, ErrBroken) {
		t.Errorf("sync: got %v, want %v", err, ErrBroken)
	}
	if got := cursors(t, s, 0); !slices.Equal(got, []uint64{1}) {
		t.Errorf("got %v, want 1", got)
	}
}

// Old entries go by their own times, but not the newest checkpoint and what
// follows it. A segment holds a quarter of the age, however small its batches.
func TestAgeRemovesSegments(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{RetainAge: time.Hour})
	const minute = 60_000
	fill := func(first, last uint64, mark uint64) {
		for c := first; c <= last; c++ {
			e := note(c)
			e.Time = int64(c) * minute
			if c%mark == 0 {
				e.Kind = Checkpoint
			}
			mustAppend(t, s, e)
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	fill(1, 180, 1000)
	if first, _ := s.Bounds(); first != 1 {
		t.Errorf("without a checkpoint: got first %d, want 1", first)
	}
	if len(s.segs) > 13 {
		t.Errorf("got %d segments for 180 minutes, want 12 of 15 minutes each", len(s.segs))
	}
	fill(181, 361, 30)
	if first, _ := s.Bounds(); first < 270 || first > 300 {
		t.Errorf("got first %d, want between 270 and 300", first)
	}
	fill(362, 600, 1000)
	if first, _ := s.Bounds(); first < 345 || first > 360 {
		t.Errorf("got first %d, want about the newest checkpoint, 360", first)
	}
}

// A followed index finds every entry, however it was built.
func TestEveryEntryIsFoundByItsCursor(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	body := bytes.Repeat([]byte("x"), 10_000)
	for c := uint64(1); c <= 300; c++ {
		mustAppend(t, s, Entry{Cursor: c, Body: body[:rand.N(len(body))]})
	}
	for range 2 {
		for range 300 {
			after := rand.N(uint64(300))
			got := uint64(0)
			if err := s.Read(after, func(e Entry) bool { got = e.Cursor; return false }); err != nil || got != after+1 {
				t.Fatalf("read after %d: got %d and %v", after, got, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, dir, FileOptions{})
	}
}

// A reader begins at most about a stride of the index before its entry, even in a
// segment that was written before the store was opened.
func TestReadersBeginNearTheirEntry(t *testing.T) {
	const size, last = 10_000, 100
	dir := t.TempDir()
	opts := FileOptions{SegmentBytes: last / 2 * (recordHead + size)}
	s := mustOpen(t, dir, opts)
	for c := uint64(1); c <= last; c++ {
		mustAppend(t, s, Entry{Cursor: c, Body: make([]byte, size)})
	}
	near := func(what string, from uint64) {
		t.Helper()
		for after := from; after < last; after++ {
			p, err := s.locate(after)
			if err != nil {
				t.Fatal(err)
			}
			if skipped := after + 1 - p.from.cursor; skipped > indexStride/(recordHead+size)+1 {
				t.Fatalf("%s: entry %d is reached over %d others", what, after+1, skipped)
			}
		}
		for _, seg := range s.segs {
			if most := int(seg.size/indexStride) + 1; len(seg.index.points) > most {
				t.Errorf("%s: got %d points for %d bytes, want at most %d", what, len(seg.index.points), seg.size, most)
			}
		}
	}
	near("after writing", 0)
	newest := s.segs[len(s.segs)-1].head.first
	closeStore(t, s)
	s = mustOpen(t, dir, opts)
	near("opened again", newest-1)
	if err := s.Read(0, func(Entry) bool { return true }); err != nil {
		t.Fatal(err)
	}
	near("read once", 0)
}

// watched counts the files that are open.
type watched struct {
	segmentFile
	open *int
}

func (w watched) Close() error {
	*w.open--
	return w.segmentFile.Close()
}

func TestSealedSegmentsAreClosed(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{SegmentBytes: 200})
	open, made := 0, 0
	s.ops.create = func(path string) (segmentFile, error) {
		f, err := createSegment(path)
		open++
		made++
		return watched{f, &open}, err
	}
	for first := uint64(1); first < 200; first += 10 {
		mustAppend(t, s, notes(first, first+9)...)
	}
	for range 2 {
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		if open != 1 || made < 10 {
			t.Errorf("got %d of %d segments open after a sync, want the newest", open, made)
		}
	}
	closeStore(t, s)
	if open != 0 {
		t.Errorf("got %d segments open after the end, want none", open)
	}
}

// bounded is a store that says only what it has.
type bounded struct {
	Store
	first, last, mark uint64
}

func (b bounded) Bounds() (first, last uint64) { return b.first, b.last }
func (b bounded) LastCheckpoint() uint64       { return b.mark }

func TestRestorePointIsTheNewestCheckpointOrTheFirstEntry(t *testing.T) {
	for _, tt := range []struct {
		store bounded
		want  uint64
		err   error
	}{
		{bounded{}, 0, nil},
		{bounded{first: 1, last: 1}, 1, nil},
		{bounded{first: 1, last: 9}, 1, nil},
		{bounded{first: 1, last: 9, mark: 9}, 9, nil},
		{bounded{first: 4, last: 9, mark: 5}, 5, nil},
		{bounded{first: 4, last: 9}, 0, ErrCorrupt},
		{bounded{first: 2, last: 2}, 0, ErrCorrupt},
		{bounded{first: 5, last: 4, mark: 3}, 0, nil}, // all entries were removed
	} {
		if got, err := RestorePoint(tt.store); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%+v: got %d, %v, want %d, %v", tt.store, got, err, tt.want, tt.err)
		}
	}
}
