//go:build unix

package tool

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// Pipes and devices stop no tool.
func TestPipesStopNobody(t *testing.T) {
	b := on(t, map[string]string{"file": "text"})
	must(t, syscall.Mkfifo(b.Workspace.At("pipe"), 0o600))
	must(t, os.Symlink("pipe", b.Workspace.At("link")))
	for _, path := range []string{"pipe", "link"} {
		for name, a := range map[string]args{
			"read": {"path": path}, "write": {"path": path, "content": "x"}, "edit": {"path": path, "old_string": "a", "new_string": "b"},
		} {
			b.refuses(name, a, path+" is not a regular file")
		}
		b.refuses("grep", args{"pattern": "a", "path": path}, path+" is neither a file nor a directory")
	}
	if got := b.does("grep", args{"pattern": "."}); got != "file\n" {
		t.Errorf("got %q, want the file alone", got)
	}
	if got := b.does("glob", args{"pattern": "p*"}); got != "No files found.\n" {
		t.Errorf("got %q, want no file", got)
	}
}

// While a directory and a file become links to what is outside and back again, no
// tool tells of that or changes it.
func TestNothingOutsideIsSeenOrChangedWhileLinksAreSwappedIn(t *testing.T) {
	outside := t.TempDir()
	put(t, filepath.Join(outside, "file"), "secret")
	b := on(t, map[string]string{"dir/file": "own", "single": "own"})
	stop := swapping(t, map[string]string{b.Workspace.At("dir"): outside, b.Workspace.At("single"): filepath.Join(outside, "file")})
	defer stop()
	seen, changed, refused := 0, 0, 0
	for range 1000 {
		for _, path := range []string{"dir/file", "single"} {
			for name, a := range map[string]args{
				"read": {"path": path}, "grep": {"pattern": "own|secret", "output_mode": "content"}, "glob": {"pattern": "**"},
				"write": {"path": path, "content": "own again"}, "edit": {"path": path, "old_string": "own", "new_string": "my own", "replace_all": true},
			} {
				res := b.call(name, a)
				switch {
				case strings.Contains(res.Text, "secret"):
					t.Fatalf("%s: got %q, want nothing from outside", name, res.Text)
				case res.IsError:
					refused++
				case name == "write" || name == "edit":
					changed++
				default:
					seen++
				}
			}
		}
	}
	if seen == 0 || changed == 0 || refused == 0 {
		t.Errorf("got %d looks, %d changes, %d refusals; want some of each", seen, changed, refused)
	}
	stop()
	entries, err := os.ReadDir(outside)
	must(t, err)
	if got, err := os.ReadFile(filepath.Join(outside, "file")); err != nil || string(got) != "secret" || len(entries) != 1 {
		t.Errorf("got %q, %v, %v outside; want it as it was", got, err, entries)
	}
}

// swapping replaces what is at each path by a link to its target and puts it
// back, as fast as it can, until the function that it returns is called.
func swapping(t *testing.T, targets map[string]string) func() {
	var stopped atomic.Bool
	var all sync.WaitGroup
	for at, target := range targets {
		kept := filepath.Join(t.TempDir(), "kept")
		all.Go(func() { // ends when stopped is set
			for !stopped.Load() {
				if err := os.Rename(at, kept); err != nil {
					t.Errorf("got %v, want what is swapped in its place", err)
					return
				}
				_ = os.Symlink(target, at) // unless a tool has made something there
				for os.Remove(at) != nil || os.Rename(kept, at) != nil {
					_ = os.RemoveAll(at) // what it made
					if os.Rename(kept, at) == nil {
						break
					}
				}
			}
		})
	}
	return func() {
		stopped.Store(true)
		all.Wait()
	}
}
