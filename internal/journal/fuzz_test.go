package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

const fuzzJournal = "e0123456789abcdef0123456789abcdef"

// Whatever a segment file holds, opening and reading either works or says that
// it is corrupt, and reads no more than there is.
func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	s, err := Open(dir, FileOptions{BootID: boot("a")})
	if err != nil {
		f.Fatal(err)
	}
	mark := note(4)
	mark.Kind = Checkpoint
	if err := errors.Join(s.Append([]Entry{mark}), s.Append(notes(5, 9))); err != nil {
		f.Fatal(err)
	}
	path := s.segs[0].path
	if err := s.release(); err != nil {
		f.Fatal(err)
	}
	seed, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	head := segmentHead{first: 4, prev: 3, checkpoint: 4, journal: fuzzJournal}
	seed = append(head.append(nil), seed[headSize:]...)
	f.Add(seed, false, false)
	f.Add(seed[:len(seed)-3], true, false)
	f.Add(seed, true, true)
	f.Add([]byte{}, false, true)
	f.Add(append(seed, make([]byte, 500)...), false, false)

	f.Fuzz(func(t *testing.T, text []byte, rebooted, sealed bool) {
		dir := t.TempDir()
		m := meta{Version: metaVersion, Journal: fuzzJournal, Epoch: fuzzJournal, Boot: "a", Open: true, Unsynced: true, Reserved: 100}
		writeUnsynced(t, dir, m)
		if err := os.WriteFile(segmentPath(dir, 4), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if sealed { // an intact segment follows
			head := segmentHead{first: 10, prev: 9, journal: fuzzJournal}
			later := note(10)
			if err := os.WriteFile(segmentPath(dir, 10), appendRecord(head.append(nil), &later, false), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		opts := FileOptions{BootID: boot("a")}
		if rebooted {
			opts.BootID = boot("b")
		}
		s, err := Open(dir, opts)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errVersion) {
				t.Fatalf("open: got %v, want %v", err, ErrCorrupt)
			}
			return
		}
		defer s.release() // not Close, which waits for the disk
		first, last := s.Bounds()
		size, next := 0, first
		err = s.Read(max(first, 1)-1, func(e Entry) bool {
			if e.Cursor < next {
				t.Fatalf("got entry %d, want %d or later", e.Cursor, next)
			}
			next = e.Cursor + 1
			size += len(e.Body)
			return true
		})
		if err != nil && !errors.Is(err, ErrCorrupt) && !(errors.Is(err, ErrGap) && first > last) {
			t.Fatalf("read from %d: got %v, want %v", first, err, ErrCorrupt)
		}
		if size > len(text)+100 {
			t.Fatalf("got %d bytes of bodies from a file of %d", size, len(text))
		}
	})
}

// writeUnsynced writes a meta file and a lock file without waiting for the disk.
func writeUnsynced(t *testing.T, dir string, m meta) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, metaName))
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, lockName))
	if err != nil {
		t.Fatal(err)
	}
	m.Files = identities(file, lock)
	_, err = file.Write(m.encode())
	if err = errors.Join(err, file.Close(), lock.Close()); err != nil {
		t.Fatal(err)
	}
}
