//go:build unix

package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A repair that cannot copy or move what it keeps says so: the path of a file is too long.
func TestRepairThatFailsIsReported(t *testing.T) {
	name := filepath.Base(segmentPath("", 1))
	for _, folder := range []string{"repaired", "damaged-1"} {
		dir := t.TempDir()
		for want := unix.PathMax - len("/"+folder+"/"+name); len(dir) < want; {
			n := min(200, want-len(dir)-1)
			if want-len(dir)-1-n == 1 {
				n-- // the last folder needs a slash and a letter
			}
			dir = filepath.Join(dir, strings.Repeat("d", n))
		}
		s := mustOpen(t, dir, FileOptions{})
		mustAppend(t, s, notes(1, 3)...)
		path := s.segs[0].path
		closeStore(t, s)
		if _, err := Repair(dir); !errors.Is(err, unix.ENAMETOOLONG) {
			t.Errorf("%s: got %v, want %v", folder, err, unix.ENAMETOOLONG)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: got %v, want the segment where it was", folder, err)
		}
		if err := Check(dir); (err == nil) != (folder == "repaired") {
			t.Errorf("%s: got %v, want the journal as it was, or that its repair was interrupted", folder, err)
		}
	}
}

// A FIFO in the place of a file is damage. Nobody waits for its other end.
func TestFIFOIsDamage(t *testing.T) {
	for _, name := range []string{metaName, "segment", "oldest"} {
		t.Run(name, func(t *testing.T) {
			dir := clone(t, newVictim(t, false, false).dir)
			paths, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
			if err != nil || len(paths) < 2 {
				t.Fatalf("got segments %q and %v, want some", paths, err)
			}
			path := map[string]string{metaName: filepath.Join(dir, metaName), "segment": paths[len(paths)-1], "oldest": paths[0]}[name]
			if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := Check(dir); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("check: got %v, want %v", err, ErrCorrupt)
			}
			kept, err := Repair(dir)
			if err != nil {
				t.Fatalf("repair: %v", err)
			}
			if err := Check(dir); err != nil {
				t.Errorf("the repaired journal: %v", err)
			}
			if info, err := os.Lstat(filepath.Join(kept.Aside, filepath.Base(path))); err != nil || info.Mode().IsRegular() {
				t.Errorf("got %v and %v, want the FIFO moved aside", info, err)
			}
		})
	}
}
