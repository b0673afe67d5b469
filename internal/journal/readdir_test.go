package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestReadDirReadsWhatAnotherProcessWrites(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, FileOptions{SegmentBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	read := func() (cursors []uint64, err error) {
		err = ReadDir(dir, func(e Entry) error {
			if want := fmt.Sprint("body ", e.Cursor); string(e.Body) != want {
				t.Errorf("entry %d: got %q, want %q", e.Cursor, e.Body, want)
			}
			cursors = append(cursors, e.Cursor)
			return nil
		})
		return cursors, err
	}
	if got, err := read(); len(got) > 0 || err != nil {
		t.Errorf("an empty journal: got %v, %v", got, err)
	}
	for first := uint64(1); first < 200; first += 2 {
		batch := []Entry{{Cursor: first, Body: fmt.Append(nil, "body ", first)}, {Cursor: first + 1, Body: fmt.Append(nil, "body ", first+1)}}
		if err := s.Append(batch); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := read(); len(got) != 200 || got[0] != 1 || got[199] != 200 || err != nil {
		t.Errorf("got %d entries, %v, want 200 in order", len(got), err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	if err != nil || len(segments) < 3 {
		t.Fatalf("got %d segments, %v, want several", len(segments), err)
	}
	stop := errors.New("stop")
	if err := ReadDir(dir, func(Entry) error { return stop }); err != stop {
		t.Errorf("got %v, want the error of the function", err)
	}

	// Retention removes the older segments while they are read.
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	count := 0
	err = ReadDir(kept, func(e Entry) error {
		if count++; count > 1 {
			return nil
		}
		for _, segment := range segments[:len(segments)-1] {
			err = errors.Join(err, os.Remove(filepath.Join(kept, filepath.Base(segment))))
		}
		return err
	})
	if err != nil || count != 200 {
		t.Errorf("while segments are removed: got %d entries, %v, want 200", count, err)
	}

	// The newest segment ends within a batch.
	newest := segments[len(segments)-1]
	whole, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut")
	if err := os.CopyFS(cut, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cut, filepath.Base(newest)), whole[:len(whole)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	dir = cut
	if got, err := read(); len(got) != 198 || err != nil {
		t.Errorf("with an unfinished batch: got %d entries, %v, want 198", len(got), err)
	}

	// An older segment is damaged, and a middle one is missing a byte.
	oldest, err := os.ReadFile(filepath.Join(cut, filepath.Base(segments[0])))
	if err != nil {
		t.Fatal(err)
	}
	oldest[len(oldest)-2] ^= 1
	if err := os.WriteFile(filepath.Join(cut, filepath.Base(segments[0])), oldest, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("with a damaged segment: got %v, want ErrCorrupt", err)
	}
	damaged := append([]byte(nil), whole...)
	damaged[headSize+recordHead+1] ^= 1 // intact records follow
	if err := os.WriteFile(filepath.Join(cut, filepath.Base(newest)), damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	oldest[len(oldest)-2] ^= 1
	if err := os.WriteFile(filepath.Join(cut, filepath.Base(segments[0])), oldest, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("with damage before intact entries: got %v, want ErrCorrupt", err)
	}

	// The newest segment has just begun, or its header is damaged.
	damaged = append([]byte(nil), whole...)
	damaged[20] ^= 1
	for size, want := range map[int]error{0: nil, headSize - 1: nil, headSize: nil, headSize + recordHead: nil, len(damaged): ErrCorrupt} {
		if err := os.WriteFile(filepath.Join(cut, filepath.Base(newest)), damaged[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read(); !errors.Is(err, want) {
			t.Errorf("with a damaged header and %d bytes: got %v, want %v", size, err, want)
		}
	}

	// A segment in the middle is missing, or ends between the records of a batch.
	if err := os.WriteFile(filepath.Join(cut, filepath.Base(newest)), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	middle := filepath.Join(cut, filepath.Base(segments[2]))
	info, err := os.Stat(middle)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{info.Size() - recordHead - int64(len("body 50")), headSize, headSize - 1} {
		if err := os.Truncate(middle, size); err != nil {
			t.Fatal(err)
		}
		if _, err := read(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("with a sealed segment of %d bytes instead of %d: got %v, want ErrCorrupt", size, info.Size(), err)
		}
	}
	if err := os.Remove(middle); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without a segment in the middle: got %v, want ErrCorrupt", err)
	}
}

// What Open refuses, ReadDir reports too: maestro sessions verify must not call it sound.
func TestReadDirMissesWhatOpenMisses(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	s, err := Open(whole, FileOptions{SegmentBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for cursor := range uint64(100) {
		if err := s.Append([]Entry{{Cursor: cursor + 1, Body: fmt.Append(nil, "body ", cursor+1)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	paths, err := segmentPaths(whole)
	if err != nil || len(paths) < 4 {
		t.Fatalf("got %d segments, %v, want at least 4", len(paths), err)
	}
	name := func(i int) string { return filepath.Base(paths[i]) }
	newest := name(len(paths) - 1)
	for _, test := range []struct {
		name  string
		spoil func(dir string) error
	}{
		{"newest cut to 10 bytes", func(dir string) error { return os.Truncate(filepath.Join(dir, newest), 10) }},
		{"newest cut to its header", func(dir string) error { return os.Truncate(filepath.Join(dir, newest), headSize) }},
		{"newest removed", func(dir string) error { return os.Remove(filepath.Join(dir, newest)) }},
		{"one in the middle removed", func(dir string) error { return os.Remove(filepath.Join(dir, name(1))) }},
		{"oldest removed, without a checkpoint", func(dir string) error { return os.Remove(filepath.Join(dir, name(0))) }},
		{"meta removed", func(dir string) error { return os.Remove(filepath.Join(dir, metaName)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "journal")
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			count := 0
			read := func() error { count = 0; return ReadDir(dir, func(Entry) error { count++; return nil }) }
			if err := read(); err != nil || count != 100 {
				t.Fatalf("before: got %d entries, %v, want 100", count, err)
			}
			if err := test.spoil(dir); err != nil {
				t.Fatal(err)
			}
			if err := read(); !errors.Is(err, ErrCorrupt) {
				t.Errorf("ReadDir: got %d entries, %v, want ErrCorrupt", count, err)
			}
			if err := Check(dir); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Check: got %v, want ErrCorrupt", err)
			}
		})
	}
}
