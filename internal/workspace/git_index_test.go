package workspace

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func wantTracked(t *testing.T, what string, w *Workspace, listed []string, want ...string) {
	t.Helper()
	if got := w.Tracked(t.Context(), listed, 100); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// Every version of an index names the same files.
func TestTrackedFilesAreReadFromTheIndex(t *testing.T) {
	long := strings.Repeat("long/", 40) + "file"
	for _, format := range []string{"sha1", "sha256"} {
		for _, version := range []string{"2", "3", "4"} {
			quietGit(t)
			root := t.TempDir()
			git(t, root, "init", "-q", "--object-format="+format)
			names := []string{"a", "a.b", "d/b", "ab", "gone", long, "sparse", "sub/x", "sub/y ☃\n", "x.log"}
			for _, name := range names {
				write(t, filepath.Join(root, name), name)
			}
			must(t, os.Symlink("none", filepath.Join(root, "link")))
			git(t, root, append([]string{"add", "-f", "link"}, names...)...)
			if version == "3" { // which git writes only for such entries
				git(t, root, "update-index", "--skip-worktree", "sparse")
			}
			git(t, root, "update-index", "--index-version", version)
			must(t, os.Remove(filepath.Join(root, "gone")))
			w := openDir(t, root)
			wantTracked(t, format+" "+version, w, nil, "a", "a.b", "ab", "d/b", "link", long, "sparse", "sub/x", "sub/y ☃\n", "x.log")
			wantTracked(t, "others than those listed", w, []string{".git", "a", "ab", "b", long, "sub/x", "zzz"}, "a.b", "d/b", "link", "sparse", "sub/y ☃\n", "x.log")
			wantTracked(t, "below the top", openDir(t, filepath.Join(root, "sub")), nil, "x", "y ☃\n")
			if got := w.Tracked(t.Context(), nil, 2); len(got) != 2 {
				t.Errorf("got %q, want two", got)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if got := w.Tracked(ctx, nil, 100); got != nil {
				t.Errorf("got %q after the end of the call, want none", got)
			}
		}
	}
}

func TestFilesBehindLinksAndOfModulesAreNotTracked(t *testing.T) {
	quietGit(t)
	root, outside := t.TempDir(), t.TempDir()
	git(t, root, "init", "-q")
	for _, name := range []string{"in/f", "out/f", "kept/f", "module/f", "dir"} {
		write(t, filepath.Join(root, name), "")
	}
	write(t, filepath.Join(outside, "f"), "")
	git(t, root, "add", "in", "out", "kept", "dir")
	git(t, filepath.Join(root, "module"), "init", "-q")
	git(t, filepath.Join(root, "module"), "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "one")
	git(t, root, "-c", "advice.addEmbeddedRepo=false", "add", "module")
	for name, to := range map[string]string{"in": "kept", "out": outside} {
		must(t, os.RemoveAll(filepath.Join(root, name)))
		must(t, os.Symlink(to, filepath.Join(root, name)))
	}
	must(t, os.Remove(filepath.Join(root, "dir")))
	write(t, filepath.Join(root, "dir/new"), "")
	wantTracked(t, "root", openDir(t, root), nil, "kept/f")
	wantTracked(t, "no repository", openDir(t, outside), nil)
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"), false)
	entry := append(make([]byte, 24), 0, 0, 0x81, 0xa4)
	entry = append(append(entry, make([]byte, 34)...), "\x00name\x00"...)
	f.Add(append([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01"), entry...), false)
	f.Fuzz(func(t *testing.T, index []byte, sha256 bool) {
		for name := range indexFiles(bufio.NewReaderSize(bytes.NewReader(index), maxIndexPath), sha256) {
			if len(name) > 2*maxIndexPath {
				t.Errorf("got a path of %d bytes, want a bound", len(name))
			}
		}
	})
}
