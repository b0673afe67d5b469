package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	j, err := New(NewMemory(MemoryOptions{}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	alone := j.windowLimit()
	view := j.Follow(bare{})
	s := mustOpen(t, t.TempDir(), FileOptions{})
	small := mustOpen(t, t.TempDir(), FileOptions{RetainBytes: 1000})
	middle := mustOpen(t, t.TempDir(), FileOptions{RetainBytes: 1 << 20})
	for _, tt := range []struct {
		name      string
		got, want int
	}{
		{"window bytes", j.opts.WindowBytes, 8_388_608}, {"window entries", j.opts.WindowEntries, 65_536},
		{"window without followers", alone, 262_144}, {"window with one", j.windowLimit(), 8_388_608},
		{"bytes of a memory store", j.store.(*Memory).retain, 67_108_864},
		{"bytes of all windows", int(j.opts.Shared.windowBytes), 268_435_456},
		{"turns", cap(j.opts.Shared.turns), max(1, runtime.GOMAXPROCS(0)/2)},
		{"bytes of a file store", int(s.opts.RetainBytes), 268_435_456}, {"of its segments", int(s.opts.SegmentBytes), 8_388_608},
		{"of the smallest segments", int(small.opts.SegmentBytes), 65_536}, {"of other segments", int(middle.opts.SegmentBytes), 131_072},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, tt.got, tt.want)
		}
	}
	view.Close()
	view.Close()
	if got := j.windowLimit(); got != alone {
		t.Errorf("got a window of %d bytes after the last follower, want %d", got, alone)
	}
}

// The bytes on disk are read by later versions.
func TestBytesOnDisk(t *testing.T) {
	e := Entry{Cursor: 0x0102030405060708, Time: 0x1112131415161718, Kind: Checkpoint, Class: 5, TextStart: 1, TextEnd: 2, Body: []byte("abc")}
	h := segmentHead{first: 2, prev: 1, checkpoint: 3, synced: 4, time: 5, journal: "e0123456789abcdef0123456789abcdef"}
	for _, tt := range []struct {
		name string
		got  []byte
		want string
	}{
		{"record", appendRecord(nil, &e, false), "0c08880e03000000" + "0807060504030201" + "1817161514131211" + "0305" + "0100000002000000" + "616263"},
		{"record of a batch that goes on", appendRecord(nil, &e, true), "14e2301603000000" + "0807060504030201" + "1817161514131211" + "8305" + "0100000002000000" + "616263"},
		{"header", h.append(nil), hex.EncodeToString([]byte("maestroj")) + "03000000" + "0200000000000000" + "0100000000000000" + "0300000000000000" +
			"0400000000000000" + "0500000000000000" + hex.EncodeToString([]byte(h.journal)) + "f7269f42"},
	} {
		if got := hex.EncodeToString(tt.got); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestJournalThatCannotBeMade(t *testing.T) {
	store := NewMemory(MemoryOptions{})
	mustAppend(t, store, notes(1, 5)...)
	for _, opts := range []Options{{WindowBytes: -1}, {WindowEntries: -1}, {After: 6}} {
		if _, err := New(store, opts); err == nil {
			t.Errorf("%+v: got no error, want one", opts)
		}
	}
	if j, err := New(store, Options{After: 5}); err != nil || j.Head() != 5 {
		t.Errorf("got %v, want a journal that ends where it is to go on", err)
	}
	s := mustOpen(t, t.TempDir(), FileOptions{})
	mustAppend(t, s, note(1))
	s.ops.read = func(string) (*os.File, error) { return nil, errFault }
	if _, err := New(s, Options{}); !errors.Is(err, errFault) {
		t.Errorf("got %v, want %v", err, errFault)
	}
}

func TestEntriesThatCannotBeStored(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{})
	mustAppend(t, s, note(1))
	for name, e := range map[string]Entry{
		"kind": {Cursor: 2, Kind: Joint + 1}, "parts": {Cursor: 2, Kind: Joint}, "body": {Cursor: 2, Body: make([]byte, MaxBody+1)},
		"span": {Cursor: 2, Body: []byte("abc"), TextStart: 2, TextEnd: 1}, "end": {Cursor: 2, Body: []byte("abc"), TextEnd: 4},
		"hole": {Cursor: 3}, "past": {Cursor: 1},
	} {
		if err := s.Append([]Entry{e}); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
	mustAppend(t, s, Entry{Cursor: 2, Kind: Checkpoint, Body: []byte("abc"), TextStart: 3, TextEnd: 3})
	for _, store := range []Store{s, NewMemory(MemoryOptions{})} {
		if err := store.Append(nil); err != nil {
			t.Errorf("got %v for no entries, want nil", err)
		}
	}
}

// A record whose checksum is right is not read if no store writes such a record.
func TestImpossibleRecordsAreNotRead(t *testing.T) {
	for name, tt := range map[string]struct {
		e    Entry
		size uint32
		ok   bool
	}{
		"empty":          {Entry{}, 0, true},
		"longest":        {Entry{Kind: Joint, TextStart: 1, TextEnd: MaxBody}, MaxBody, true},
		"too long":       {Entry{}, MaxBody + 1, false},
		"unknown kind":   {Entry{Kind: Joint + 1, TextStart: 1, TextEnd: 1}, 3, false},
		"backward span":  {Entry{TextStart: 2, TextEnd: 1}, 3, false},
		"span to end":    {Entry{TextStart: 3, TextEnd: 3}, 3, true},
		"span too long":  {Entry{TextEnd: 4}, 3, false},
		"joint":          {Entry{Kind: Joint, TextStart: 1, TextEnd: 1}, 1, true},
		"joint no parts": {Entry{Kind: Joint}, 3, false},
	} {
		p := appendRecord(nil, &tt.e, false)
		binary.LittleEndian.PutUint32(p[4:], tt.size)
		if _, n, more, ok := parseHead(p); ok != tt.ok || n != int(tt.size) || more {
			t.Errorf("%s: got possible %v with %d bytes, want %v", name, ok, n, tt.ok)
		}
		if err := (&Entry{Kind: tt.e.Kind, TextStart: tt.e.TextStart, TextEnd: tt.e.TextEnd, Body: make([]byte, tt.size)}).check(); (err == nil) != tt.ok {
			t.Errorf("%s: got %v from check, want ok %v", name, err, tt.ok)
		}
	}
}

// A segment ends at its limit of bytes, or where its entries are as old as a quarter of the
// limit of age.
func TestSegmentsEndAtTheirLimits(t *testing.T) {
	const record = recordHead + 100
	s := mustOpen(t, t.TempDir(), FileOptions{SegmentBytes: headSize + 3*record, RetainAge: 4 * time.Second})
	for i, tt := range []struct {
		time int64
		segs int
	}{{0, 1}, {1000, 1}, {1000, 1}, {1000, 2}, {2000, 2}, {2001, 3}, {3001, 3}, {3002, 4}} {
		mustAppend(t, s, Entry{Cursor: uint64(i + 1), Time: tt.time, Body: make([]byte, 100)})
		if len(s.segs) != tt.segs {
			t.Errorf("entry %d at %d ms: got %d segments, want %d", i+1, tt.time, len(s.segs), tt.segs)
		}
	}
	s.wg.Wait()
}

func TestClosedStoresRefuseEntries(t *testing.T) {
	for _, s := range []Store{mustOpen(t, t.TempDir(), FileOptions{}), NewMemory(MemoryOptions{})} {
		mustAppend(t, s, note(1))
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := s.Append(notes(2, 2)); !errors.Is(err, errClosed) {
			t.Errorf("%T: got %v, want %v", s, err, errClosed)
		}
		if _, ok := s.(*File); ok && !errors.Is(s.Sync(), errClosed) {
			t.Errorf("%T: got another error from Sync, want %v", s, errClosed)
		}
	}
}

func TestMemoryStoreMayBeSmallerThanAnEntry(t *testing.T) {
	s := NewMemory(MemoryOptions{RetainBytes: 1})
	mustAppend(t, s, withCheckpoints(1, 2, 2)...)
	if first, last := s.Bounds(); first != 3 || last != 2 {
		t.Errorf("got entries %d to %d, want none after 2", first, last)
	}
	if after, ok := s.Rewind(3, 1); ok || s.LastCheckpoint() != 0 {
		t.Errorf("got an entry after %d and a checkpoint at %d, want neither", after, s.LastCheckpoint())
	}
	for after, want := range []error{ErrGap, ErrGap, nil, ErrGap} {
		if err := s.Read(uint64(after), func(Entry) bool { return true }); !errors.Is(err, want) {
			t.Errorf("read after %d: got %v, want %v", after, err, want)
		}
	}
}

// A memory store uses about the memory that its entries need.
func TestMemoryStoreFillsItsBlocks(t *testing.T) {
	s := NewMemory(MemoryOptions{RetainBytes: 1 << 20})
	for c := uint64(1); c <= 20_000; c++ {
		mustAppend(t, s, Entry{Cursor: c, Body: make([]byte, 100)})
	}
	buffers, entries := 0, 0
	for _, b := range s.blocks {
		buffers += cap(b.buf)
		entries += len(b.entries)
	}
	if want := 1 << 20 / (100 + entryBytes); s.size > 1<<20 || entries > want || entries < want*7/8 || buffers > 1<<20 {
		t.Errorf("got %d entries in %d bytes and buffers of %d, want about %d in at most 1 MiB", entries, s.size, buffers, want)
	}
}

// A read returns at most its limit, but at least one frame, from memory and from the store.
func TestReadKeepsToItsLimit(t *testing.T) {
	for _, window := range []int{1, 100} {
		j := journalOf(t, NewMemory(MemoryOptions{}), Options{WindowEntries: window})
		v := j.Follow(bare{})
		for range 20 {
			if _, err := j.Append(Entry{Body: make([]byte, 100)}); err != nil {
				t.Fatal(err)
			}
		}
		for limit, want := range map[int]int{1: 1, 99: 1, 100: 1, 199: 1, 200: 2, 250: 2, 300: 3} {
			frames, next, err := v.Read(new([]byte), 0, 10, 0, limit)
			if len(frames) != 100*want || next != uint64(want) || err != nil {
				t.Errorf("window of %d, limit %d: got %d bytes up to %d, %v, want %d frames", window, limit, len(frames), next, err, want)
			}
		}
		if _, next, err := v.Read(new([]byte), 21, 30, 0, 0); next != 21 || !errors.Is(err, ErrGap) {
			t.Errorf("after the end: got %d, %v, want 21 and %v", next, err, ErrGap)
		}
		if frames, next, err := v.Read(new([]byte), 5, 4, 0, 0); len(frames) > 0 || next != 5 || err != nil {
			t.Errorf("up to an older cursor: got %q, %d, %v, want nothing", frames, next, err)
		}
	}
}

// A follower that skips everything stored does not hold its turn for long: a read takes a
// bounded number of bytes from the store.
func TestReadOfSkippedEntriesIsBounded(t *testing.T) {
	j := journalOf(t, NewMemory(MemoryOptions{}), Options{WindowEntries: 1})
	v := j.Follow(bare{})
	for range 200 {
		if _, err := j.Append(Entry{Class: 1, Body: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	reads := 0
	for after := uint64(0); after < 200; reads++ {
		frames, next, err := v.Read(new([]byte), after, 200, 1, 1000)
		if len(frames) > 0 || err != nil || next <= after || next-after > scanFactor+1 {
			t.Fatalf("after %d: got %d bytes up to %d, %v, want about %d entries passed over", after, len(frames), next, err, scanFactor)
		}
		after = next
	}
	if reads < 200/(scanFactor+1) || reads > 200/scanFactor+1 {
		t.Errorf("got %d reads, want about %d", reads, 200/scanFactor)
	}
}

// A batch that needs the meta file is refused if that cannot be written.
func TestMetaFileThatCannotBeWrittenRefusesTheBatch(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	blocker := filepath.Join(dir, metaName+".new")
	if err := os.Mkdir(blocker, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(notes(1, 2)); err == nil || !strings.Contains(err.Error(), "reserve cursors") {
		t.Errorf("got %v, want that cursors cannot be reserved", err)
	}
	if err := os.Remove(blocker); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, notes(1, 2)...)
	if got := s.meta.Reserved; got != 2+1_048_576 {
		t.Errorf("got cursors reserved up to %d, want 1,048,576 more than used", got)
	}
	if err := os.Mkdir(blocker, 0o700); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, note(3)) // is reserved already
}

func TestSegmentThatCannotBeRemovedStays(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{SegmentBytes: 400, RetainBytes: 400})
	mustAppend(t, s, notes(1, 3)...)
	oldest := s.segs[0].path
	if err := errors.Join(os.Remove(oldest), os.MkdirAll(filepath.Join(oldest, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	mark := note(4)
	mark.Kind = Checkpoint
	mustAppend(t, s, mark)
	s.wg.Wait()
	mustAppend(t, s, notes(5, 30)...)
	if err := s.Sync(); err == nil || !strings.Contains(err.Error(), "remove journal segment") {
		t.Errorf("got %v, want that a segment cannot be removed", err)
	}
	if first, _ := s.Bounds(); first != 1 {
		t.Errorf("got entries from %d on, want 1", first)
	}
	if err := os.Remove(filepath.Join(oldest, "in the way")); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); err != nil {
		t.Error(err)
	}
	if first, _ := s.Bounds(); first != 4 {
		t.Errorf("got entries from %d on, want 4", first)
	}
}

// A journal of the version before is read, and continues in a segment of this version.
func TestSegmentOfTheVersionBeforeIsRead(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, notes(1, 3)...)
	path := s.segs[0].path
	closeStore(t, s)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[8] = oldSegmentVersion
	binary.LittleEndian.PutUint32(text[headSize-4:], crc32.Checksum(text[:headSize-4], castagnoli()))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, FileOptions{})
	joint := (&Parts{Open: []byte("open"), Hidden: []byte("hidden")}).Joint()
	joint.Cursor = 4
	mustAppend(t, s, joint)
	closeStore(t, s)
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
		t.Errorf("got another segment of the version before, and %v, want it unchanged", err)
	}
	s = mustOpen(t, dir, FileOptions{})
	defer closeStore(t, s)
	if first, last := s.Bounds(); first != 1 || last != 4 || len(s.segs) != 2 {
		t.Errorf("got entries %d to %d in %d segments, want 1 to 4 in 2", first, last, len(s.segs))
	}
}

func TestOtherVersionsAreNotRead(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, note(1))
	seg, m := s.segs[0], s.meta
	closeStore(t, s)
	text, err := os.ReadFile(seg.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []byte{0, 1, 4} {
		other := slices.Clone(text[:headSize])
		other[8] = version
		binary.LittleEndian.PutUint32(other[headSize-4:], crc32.Checksum(other[:headSize-4], castagnoli()))
		if err := os.WriteFile(seg.path, append(other, text[headSize:]...), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, FileOptions{}); !errors.Is(err, errVersion) || !strings.Contains(err.Error(), seg.path) {
			t.Errorf("segment of version %d: got %v, want %v and the file", version, err, errVersion)
		}
		if _, err := Repair(dir); !errors.Is(err, ErrCorrupt) {
			t.Errorf("segment of version %d: got %v, want that nothing can be kept", version, err)
		}
	}
	m.Version = metaVersion + 1
	for want, text := range map[string][]byte{
		"unknown journal format version 3": m.encode(), "has more than 4096 bytes": bytes.Repeat([]byte(" "), metaMax+1),
	} {
		if err := os.WriteFile(filepath.Join(dir, metaName), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, FileOptions{}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("meta file of %d bytes: got %v, want %q", len(text), err, want)
		}
	}
}

func TestAllSegmentsMissingAreReported(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, notes(1, 3)...)
	closeStore(t, s)
	if err := os.Remove(s.segs[0].path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, FileOptions{}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "the segment of cursor 3 is missing") {
		t.Errorf("got %v, want the missing segment", err)
	}
}

func TestLastWritten(t *testing.T) {
	dir := t.TempDir()
	at := time.Unix(1_700_000_000, 0)
	if err := os.Chtimes(dir, at, at); err != nil {
		t.Fatal(err)
	}
	if got, err := LastWritten(dir); err != nil || !got.Equal(at) {
		t.Errorf("got %v, %v without a lock file, want the directory's %v", got, err, at)
	}
	s := mustOpen(t, dir, FileOptions{})
	mustAppend(t, s, note(1))
	later := at.Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, lockName), later, later); err != nil {
		t.Fatal(err)
	}
	if got, err := LastWritten(dir); err != nil || !got.Equal(later) {
		t.Errorf("got %v, %v, want the lock file's %v", got, err, later)
	}
	if _, err := LastWritten(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
}

// A run of frames is returned as it lies in memory if it is long; short ones are
// copied together.
func TestLongRunsAreNotCopied(t *testing.T) {
	j, err := New(NewMemory(MemoryOptions{}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	v := j.Follow(bare{})
	defer v.Close()
	for range 100 {
		if _, err := j.Append(Entry{Body: bytes.Repeat([]byte("x"), 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(after uint64) (frames []byte, next uint64, copied bool) {
		t.Helper()
		buf := make([]byte, 0, 1<<20)
		frames, next, err := v.Read(&buf, after, math.MaxUint64, 0, 1<<20)
		if err != nil || next == after || len(frames) != int(next-after)*1000 {
			t.Fatalf("after %d: got %d bytes up to %d, %v", after, len(frames), next, err)
		}
		return frames, next, &frames[0] == &buf[:1][0]
	}
	longest, copies := 0, 0
	for after := range uint64(99) {
		run, next, copied := read(after)
		switch {
		case copied:
			copies++
		case next < 100 && len(run) < 8<<10:
			t.Errorf("after %d: got a run of %d bytes alone, want at least 8 KiB", after, len(run))
		default:
			longest = max(longest, len(run))
			if again, _, _ := read(after); &again[0] != &run[0] {
				t.Errorf("after %d: got another copy for a second follower, want the same memory", after)
			}
		}
	}
	if longest < 32<<10 || copies == 0 {
		t.Errorf("got a longest run of %d bytes, and %d copies; want most of a chunk of 64 KiB, and some", longest, copies)
	}
}

// The memory of a large batch is released.
func TestLargeBatchLeavesNoBuffer(t *testing.T) {
	s := mustOpen(t, t.TempDir(), FileOptions{})
	mustAppend(t, s, note(1))
	if cap(s.buf) == 0 {
		t.Error("got no buffer after a small batch, want it kept")
	}
	mustAppend(t, s, Entry{Cursor: 2, Body: make([]byte, 1<<20)})
	if cap(s.buf) != 0 {
		t.Errorf("got a buffer of %d bytes, want none", cap(s.buf))
	}
}

// Whichever file cannot be read when a journal is opened: Open says so, and a later
// one finds what it would have found.
func TestEveryFileThatCannotBeReadIsReported(t *testing.T) {
	for _, now := range []string{"a", "b"} { // b: the machine restarted
		for _, closed := range []bool{false, true} {
			dir := t.TempDir()
			s := mustOpen(t, dir, FileOptions{SegmentBytes: 400, BootID: boot("a")})
			for c := uint64(1); c <= 30; c++ {
				mustAppend(t, s, note(c))
			}
			newest := s.segs[len(s.segs)-1]
			crash(t, s)
			truncate(t, newest.path, newest.size-1)
			acknowledged(t, dir, 29)
			for n := 1; ; n++ {
				calls := 0
				s, err := open(dir, FileOptions{BootID: boot(now)}, fileOps{createSegment, reopenSegment, func(path string) (*os.File, error) {
					f, err := openRegular(path)
					if calls++; calls == n {
						_ = f.Close()
						if !closed {
							return nil, errFault
						}
					}
					return f, err
				}})
				if calls < n {
					if err != nil {
						t.Fatal(err)
					}
					s.ops.read = openRegular
					if got := cursors(t, s, 0); !slices.Equal(got, sequence(1, 29)) {
						t.Errorf("got %v, want 1 to 29", got)
					}
					crash(t, s)
					break
				}
				if !errors.Is(err, errFault) && !errors.Is(err, os.ErrClosed) {
					t.Errorf("boot %s, file %d, closed %v: got %v, want the failure", now, n, closed, err)
				}
			}
		}
	}
}

func TestEveryPathThatIsInTheWayIsReported(t *testing.T) {
	for _, name := range []string{lockName, metaName, "segment"} {
		dir := t.TempDir()
		s := mustOpen(t, dir, FileOptions{})
		mustAppend(t, s, note(1))
		closeStore(t, s)
		path := filepath.Join(dir, name)
		if name == "segment" {
			path = s.segs[0].path
		}
		if err := errors.Join(os.Remove(path), os.Symlink(path, path)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, FileOptions{}); err == nil || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("open with a loop as %s: got %v, want an error that names it", name, err)
		}
		if _, err := Repair(dir); err == nil || errors.Is(err, ErrCorrupt) {
			t.Errorf("repair with a loop as %s: got %v, want an error", name, err)
		}
		if _, err := Open(path, FileOptions{}); err == nil {
			t.Errorf("%s: got a journal in the place of a file, want an error", name)
		}
	}
}

func TestRepairReportsWhatItCannotCopy(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, filepath.Join(dir, "journal"), FileOptions{})
	mustAppend(t, s, note(1))
	seg := s.segs[0]
	fresh := filepath.Join(dir, "fresh")
	part := func(path string, size int64) *salvagedSegment {
		return &salvagedSegment{segment: segment{path: path, size: size, last: 1, head: seg.head}}
	}
	for _, tt := range []struct {
		part *salvagedSegment
		dir  string
		want error
	}{
		{part(seg.path+".none", seg.size), fresh, os.ErrNotExist},
		{part(seg.path, seg.size+1), fresh, io.EOF},
		{part(seg.path, seg.size), filepath.Join(dir, "none", "fresh"), os.ErrNotExist},
		{part(seg.path, seg.size), fresh, nil},
	} {
		if err := copyParts([]*salvagedSegment{tt.part}, 1, tt.dir, s.lock); !errors.Is(err, tt.want) {
			t.Errorf("%s to %s: got %v, want %v", tt.part.path, tt.dir, err, tt.want)
		}
	}
}
