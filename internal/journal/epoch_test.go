package journal

import (
	"os"
	"path/filepath"
	"testing"
)

// What was shown and is no longer there ends the epoch, also if no machine
// restarted: its cursors would be used again for other entries.
func TestMissingEntriesEndTheEpoch(t *testing.T) {
	for what, damage := range map[string]func(t *testing.T, path string, size int64){
		"the newest segment lacks its last batch": func(t *testing.T, path string, size int64) { truncate(t, path, size-50) },
		"the newest segment is empty":             func(t *testing.T, path string, _ int64) { truncate(t, path, 0) },
		"the newest segment is zero": func(t *testing.T, path string, size int64) {
			truncate(t, path, 0)
			truncate(t, path, size)
		},
		"the end of the newest segment is zero": func(t *testing.T, path string, size int64) {
			truncate(t, path, size-100)
			truncate(t, path, size)
		},
		"the newest segment is missing": func(t *testing.T, path string, _ int64) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir, FileOptions{BootID: boot("a"), SegmentBytes: 500})
			for c := uint64(1); c <= 30; c++ {
				mustAppend(t, s, note(c))
			}
			epoch, newest := s.Epoch(), s.segs[len(s.segs)-1]
			crash(t, s)
			damage(t, newest.path, newest.size)

			s = mustOpen(t, dir, FileOptions{BootID: boot("a"), SegmentBytes: 500})
			first, last := s.Bounds()
			if s.Epoch() == epoch || last < 30 {
				t.Errorf("got epoch %s and last %d, want a new epoch and no cursor twice", s.Epoch(), last)
			}
			mustAppend(t, s, note(last+1))
			if got := cursors(t, s, 0); first != 1 || len(got) == 0 || got[len(got)-1] != last+1 {
				t.Errorf("got %v, want what is left and %d", got, last+1)
			}
		})
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// A copy begins an epoch of its own: the original may have gone on, and so may
// other copies. A directory that was renamed is no copy.
func TestACopyBeginsAnEpoch(t *testing.T) {
	for what, tt := range map[string]struct {
		copy func(t *testing.T, s *File, dir string) (copied string) // s has been appended to
		kept bool
	}{
		"made while the store is open": {copy: func(t *testing.T, s *File, dir string) string {
			return copyOf(t, dir)
		}},
		"made after it was closed": {copy: func(t *testing.T, s *File, dir string) string {
			closeStore(t, s)
			return copyOf(t, dir)
		}},
		"put in the place of the original": {copy: func(t *testing.T, s *File, dir string) string {
			backup := copyOf(t, dir)
			mustAppend(t, s, notes(31, 40)...)
			closeStore(t, s)
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(backup, dir); err != nil {
				t.Fatal(err)
			}
			return dir
		}},
		"written over the original's files": {copy: func(t *testing.T, s *File, dir string) string {
			backup := copyOf(t, dir)
			mustAppend(t, s, notes(31, 40)...)
			closeStore(t, s)
			names, err := os.ReadDir(backup)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				text, err := os.ReadFile(filepath.Join(backup, name.Name()))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name.Name()), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			return dir
		}},
		"renamed": {kept: true, copy: func(t *testing.T, s *File, dir string) string {
			closeStore(t, s)
			moved := filepath.Join(t.TempDir(), "moved")
			if err := os.Rename(dir, moved); err != nil {
				t.Fatal(err)
			}
			return moved
		}},
		"renamed after a crash": {kept: true, copy: func(t *testing.T, s *File, dir string) string {
			crash(t, s)
			moved := filepath.Join(t.TempDir(), "moved")
			if err := os.Rename(dir, moved); err != nil {
				t.Fatal(err)
			}
			return moved
		}},
	} {
		for _, durable := range []bool{false, true} {
			t.Run(what, func(t *testing.T) {
				opts := FileOptions{BootID: boot("a"), Durable: durable}
				dir := filepath.Join(t.TempDir(), "journal")
				s := mustOpen(t, dir, opts)
				mustAppend(t, s, notes(1, 30)...)
				epoch := s.Epoch()
				s = mustOpen(t, tt.copy(t, s, dir), opts)
				if kept := s.Epoch() == epoch; kept != tt.kept {
					t.Errorf("got epoch %s after %s, want it kept: %t", s.Epoch(), epoch, tt.kept)
				}
				_, last := s.Bounds()
				mustAppend(t, s, note(last+1))
				if got := cursors(t, s, 0); len(got) != 31 {
					t.Errorf("got %v, want all of the 30 and another", got)
				}
				again := s.Epoch()
				closeStore(t, s)
				if s = mustOpen(t, s.dir, opts); s.Epoch() != again {
					t.Errorf("opened again: got epoch %s, want %s", s.Epoch(), again)
				}
			})
		}
	}
}

// A copy that was made while entries were written has an older state of some
// files than of others. It is cut where they do not fit.
func TestACopyOfAJournalInUseIsCut(t *testing.T) {
	dir := t.TempDir()
	opts := FileOptions{BootID: boot("a"), SegmentBytes: 500}
	s := mustOpen(t, dir, opts)
	mustAppend(t, s, notes(1, 5)...)
	early := copyOf(t, dir)
	for c := uint64(6); c <= 30; c++ {
		mustAppend(t, s, note(c))
	}
	late := copyOf(t, dir)
	for _, path := range segmentFiles(t, late) {
		forgetSynced(t, path) // what is known to be synced is not explained away
	}
	first := filepath.Base(s.segs[0].path)
	if err := os.Rename(filepath.Join(early, first), filepath.Join(late, first)); err != nil {
		t.Fatal(err)
	}
	c := mustOpen(t, late, opts)
	if got := cursors(t, c, 0); len(got) != 5 || c.Epoch() == s.Epoch() {
		t.Errorf("got %v in epoch %s, want 1 to 5 in a new one", got, c.Epoch())
	}
}

// Closing lets go of what a checkpoint replaces that has just been written.
func TestClosingKeepsTheBound(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, FileOptions{SegmentBytes: 500, RetainBytes: 2000})
	for c := uint64(1); c <= 100; c++ {
		mustAppend(t, s, note(c))
	}
	mark := note(101)
	mark.Kind = Checkpoint
	mustAppend(t, s, mark)
	closeStore(t, s)
	s = mustOpen(t, dir, FileOptions{})
	if first, last := s.Bounds(); first == 1 || last != 101 || s.size() > 2000 {
		t.Errorf("got entries %d to %d in %d bytes, want the newest in 2000", first, last, s.size())
	}
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func closeStore(t *testing.T, s *File) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
