package journal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// damagedOptions make small segments on a machine that does not restart.
var damagedOptions = FileOptions{SegmentBytes: 600, BootID: boot("a")}

const shown = 60 // entries of a victim

// A victim is a journal with some segments and two checkpoints, as the process
// that wrote it left it.
type victim struct {
	dir      string // never opened again
	epoch    string
	segments []string // names, oldest first
	ends     []int64  // of the batches of the newest segment
}

// newVictim writes a journal of notes(1, shown) and ends it as a process that
// dies, or closes it. One that is foreign has other texts.
func newVictim(t *testing.T, closed, foreign bool) *victim {
	t.Helper()
	v := &victim{dir: t.TempDir()}
	s := mustOpen(t, v.dir, damagedOptions)
	v.epoch = s.Epoch()
	for c := uint64(1); c <= shown; c += 2 {
		batch := notes(c, c+1)
		if c%20 == 11 {
			batch[1].Kind = Checkpoint
		}
		if foreign {
			for i := range batch {
				batch[i].Body = bytes.Replace(batch[i].Body, []byte("n"), []byte("x"), 1)
			}
		}
		segments := len(s.segs)
		mustAppend(t, s, batch...)
		if len(s.segs) > segments {
			v.ends = nil
		}
		v.ends = append(v.ends, s.segs[len(s.segs)-1].size)
	}
	for _, seg := range s.segs {
		v.segments = append(v.segments, filepath.Base(seg.path))
	}
	if len(v.segments) < 4 {
		t.Fatalf("got %d segments, want some", len(v.segments))
	}
	if closed {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	} else {
		crash(t, s)
	}
	return v
}

// clone copies a journal and makes the copy one that was not copied, without
// waiting for the disk.
func clone(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	adopt(t, to)
	return to
}

func adopt(t *testing.T, dir string) {
	t.Helper()
	lock, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	m, _, err := readMeta(dir, lock)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, metaName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m.Files = identities(file, lock)
	if _, err := file.Write(m.encode()); err != nil {
		t.Fatal(err)
	}
}

// judge opens a damaged journal and says how that ends. It must be one of three
// ways: nothing that was shown is missing; the epoch is new, and begins beyond
// all that was shown; or the damage is reported. In none does a reader get
// anything but what was written under its cursor.
func judge(t *testing.T, dir, epoch string) (verdict string) {
	t.Helper()
	s, err := Open(dir, damagedOptions)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), dir) {
			t.Errorf("open: got %v, want %v with the file", err, ErrCorrupt)
		}
		return "set aside"
	}
	defer crash(t, s)
	verdict = "served"
	first, last := s.Bounds()
	switch {
	case s.Epoch() != epoch:
		verdict = "new epoch"
		if start := s.EpochStart(); start < shown || start > 1<<53 || last < start {
			t.Errorf("new epoch: got its start %d and last %d, want both beyond %d, and within 2^53", start, last, shown)
		}
	case last != shown:
		t.Errorf("same epoch: got last %d, want %d", last, shown)
	}
	if err := s.Append(notes(last+1, last+2)); err != nil {
		t.Errorf("append: %v", err)
	}
	for after := uint64(0); after <= shown; after += 4 {
		if after < s.EpochStart() && verdict != "new epoch" {
			t.Errorf("same epoch: got its start %d, want 0", s.EpochStart())
		}
		next := after + 1
		err := s.Read(after, func(e Entry) bool {
			if e.Cursor != next && (verdict == "served" || e.Cursor <= shown) || !bytes.Equal(e.Body, note(e.Cursor).Body) {
				t.Errorf("read after %d: got entry %d with %s, want %d", after, e.Cursor, e.Body, next)
				return false
			}
			next = e.Cursor + 1
			return true
		})
		switch {
		case errors.Is(err, ErrCorrupt) && verdict == "served":
			verdict = "told to readers"
		case err == nil && next == last+3, errors.Is(err, ErrCorrupt):
		case errors.Is(err, ErrGap) && next == after+1 && (verdict == "new epoch" || after+1 < first):
		default:
			t.Errorf("read after %d: got up to %d and %v, want all up to %d, or why not", after, next-1, err, last+2)
		}
	}
	return verdict
}

// A damage changes the files of a journal.
type damage struct {
	what string
	do   func(t *testing.T, dir string)
}

func file(name string, change func([]byte) []byte) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, change(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// damages lists what can happen to the files of v, other being another journal.
func damages(t *testing.T, v, other *victim) (list []damage) {
	add := func(do func(*testing.T, string), format string, args ...any) {
		list = append(list, damage{fmt.Sprintf(format, args...), do})
	}
	names := append(slices.Clone(v.segments), metaName, lockName)
	for i, name := range names {
		text, err := os.ReadFile(filepath.Join(v.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		size := len(text)
		add(func(t *testing.T, dir string) { remove(t, filepath.Join(dir, name)) }, "%s is deleted", name)
		for at := range size {
			if alike := i > 0 && i < len(v.segments)-1 || at > headSize+recordHead && i < len(v.segments); alike && at%29 > 0 {
				continue // segments and records are all alike
			}
			add(file(name, func(p []byte) []byte { p[at%len(p)] ^= 1 << (at % 8); return p }), "%s has a flipped bit at %d", name, at)
			if at%29 > 0 {
				continue
			}
			add(file(name, func(p []byte) []byte { return p[:min(at, len(p))] }), "%s is cut to %d", name, at)
			add(file(name, func(p []byte) []byte { clear(p[min(at, len(p)):]); return p }), "%s is zero from %d on", name, at)
			add(file(name, func(p []byte) []byte { clear(p[min(at, len(p)):min(at+20, len(p))]); return p }), "%s is zero for 20 bytes at %d", name, at)
		}
		add(file(name, func(p []byte) []byte { return append(p, p...) }), "%s is there twice over", name)
		add(file(name, func(p []byte) []byte { return append(p, make([]byte, 500)...) }), "%s has zeros behind it", name)
		if i >= len(v.segments) {
			continue
		}
		add(file(name, func(p []byte) []byte { return append(p, p[headSize:]...) }), "%s has its records twice", name)
		for _, as := range []uint64{5, shown + 1, shown + 1000} {
			add(file(name, func(p []byte) []byte { return p }), "%s is as it was", name)
			add(func(t *testing.T, dir string) {
				if err := os.WriteFile(segmentPath(dir, as), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}, "%s is there as %d, too", name, as)
		}
		for _, theirs := range other.segments {
			foreign, err := os.ReadFile(filepath.Join(other.dir, theirs))
			if err != nil {
				t.Fatal(err)
			}
			add(file(name, func([]byte) []byte { return foreign }), "%s is another journal's %s", name, theirs)
		}
		for _, with := range v.segments[i+1:] {
			add(func(t *testing.T, dir string) { swap(t, filepath.Join(dir, name), filepath.Join(dir, with)) }, "%s and %s change places", name, with)
		}
	}
	for _, end := range v.ends { // where nothing is torn
		add(file(v.segments[len(v.segments)-1], func(p []byte) []byte { return p[:end] }), "the newest segment is cut after a batch, to %d", end)
	}
	for _, name := range []string{"notes.txt", "12.seg", "00000000000000000000.seg", "99999999999999999999.seg", fmt.Sprintf("%020d.seg.bak", 7)} {
		add(func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("a text"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "there is a foreign file %s", name)
	}
	for _, as := range []uint64{5, shown + 1, shown + 1000} {
		for _, text := range []string{"", "a text", strings.Repeat("a longer text ", 50)} {
			add(func(t *testing.T, dir string) {
				if err := os.WriteFile(segmentPath(dir, as), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}, "%d bytes lie where a segment %d would", len(text), as)
		}
	}
	return list
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func swap(t *testing.T, a, b string) {
	t.Helper()
	for _, move := range [][2]string{{a, a + ".tmp"}, {b, a}, {a + ".tmp", b}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever happens to the files of a journal, nobody is served anything but
// what was written, under a cursor that means it.
func TestNoDamageIsServed(t *testing.T) {
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprintf("closed=%t", closed), func(t *testing.T) {
			t.Parallel()
			v, other := newVictim(t, closed, false), newVictim(t, closed, true)
			verdicts := map[string]int{}
			for _, d := range damages(t, v, other) {
				dir := clone(t, v.dir)
				d.do(t, dir)
				verdicts[judge(t, dir, v.epoch)]++
				if t.Failed() {
					t.Fatalf("after %s", d.what)
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			for _, end := range []string{"served", "set aside", "told to readers"} {
				if verdicts[end] == 0 {
					t.Errorf("got %v, want some %s", verdicts, end)
				}
			}
			if !closed && verdicts["new epoch"] == 0 { // a closed journal knows what it had, and reports what is missing
				t.Errorf("got %v, want some with a new epoch", verdicts)
			}
			for _, end := range slices.Sorted(maps.Keys(verdicts)) {
				t.Logf("%5d %s", verdicts[end], end)
			}
		})
	}
}
