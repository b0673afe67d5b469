package journal

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

const fuzzEpoch = "e0123456789abcdef0123456789abcdef"

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
	f.Add(seed, false, false)
	f.Add(seed[:len(seed)-3], true, false)
	f.Add(seed, true, true)
	f.Add([]byte{}, false, true)
	f.Add(append(seed, make([]byte, 500)...), false, false)

	f.Fuzz(func(t *testing.T, text []byte, rebooted, sealed bool) {
		dir := t.TempDir()
		m := meta{Version: metaVersion, Epoch: fuzzEpoch, Boot: "a", Open: true, Unsynced: true, Reserved: 100}
		state, err := json.Marshal(m) // not m.write, which waits for the disk
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, metaName), state, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(segmentPath(dir, 4), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if sealed { // an intact segment follows
			head := segmentHead{first: 10, prev: 9, epoch: m.Epoch}
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
