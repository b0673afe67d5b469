package workspace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// swapAttempts is how often each way of looking is tried while what it looks at
// is replaced.
const swapAttempts = 1000

// While directories and files become links to what is outside and back again, no
// byte and no name from outside is seen.
func TestNothingOutsideIsSeenWhileLinksAreSwappedIn(t *testing.T) {
	quietGit(t)
	outside := t.TempDir()
	for name, text := range map[string]string{"secret": "secret", "deep/secret-name": "secret", "rules": "visible\n", "info/exclude": "visible\n", "config": "[core]\nexcludesFile=" + outside + "/rules\n"} {
		write(t, filepath.Join(outside, name), text)
	}
	newRepository(t, filepath.Join(outside, "repo"), "")
	write(t, filepath.Join(outside, "repo/.git/HEAD"), "ref: refs/heads/secret\n")
	w := open(t, withRepository(map[string]string{
		"swap/own": "own", "holder/deep/own": "own", "file": "own", "sub/visible": "own", "sub/.gitignore": "none\n", ".gitignore": "none\n", "visible": "own",
	}, "."))
	stop := swapping(t, w.Root(), map[string]string{
		"swap": outside, "holder/deep": filepath.Join(outside, "deep"), "file": filepath.Join(outside, "secret"),
		".gitignore": filepath.Join(outside, "rules"), "sub/.gitignore": filepath.Join(outside, "rules"), ".git": filepath.Join(outside, "repo/.git"),
	})
	defer stop()
	seen, refused := 0, 0
	for range swapAttempts {
		if _, err := w.Stat("swap"); errors.Is(err, ErrOutside) {
			refused++
		}
		for what, look := range map[string]func() string{
			"list": func() string { return list(t, w, ".", true) }, "list below": func() string { return list(t, w, "swap", false) },
			"read": func() string {
				return readAll(w, "swap/secret") + readAll(w, "holder/deep/secret-name") + readAll(w, "file")
			},
			"describe": func() string { return describe(w, "swap/secret") + describe(w, "holder/deep/secret-name") },
			"attach":   func() string { return attach(w, "swap/secret", "holder/deep/secret-name", "file") },
			"branch":   func() string { return branchOf(w) },
			"tracked":  func() string { return fmt.Sprint(w.Tracked(t.Context(), nil, 1000)) },
		} {
			got := look()
			if strings.Contains(got, "secret") {
				t.Fatalf("%s: got %q, want nothing from outside", what, got)
			}
			if strings.Contains(got, "own") {
				seen++
			}
		}
	}
	if seen == 0 || refused == 0 {
		t.Errorf("got something from inside %d times and was refused %d times, want both", seen, refused)
	}
}

// swapping replaces each name below root by a link to its target and puts it
// back, as fast as it can, until the function that it returns is called.
func swapping(t *testing.T, root string, targets map[string]string) func() {
	var stopped atomic.Bool
	var all sync.WaitGroup
	links := t.TempDir()
	n := 0
	for name, target := range targets {
		n++
		kept, link, at := filepath.Join(links, fmt.Sprint(n)), filepath.Join(links, fmt.Sprint(n, "link")), filepath.Join(root, name)
		must(t, os.Symlink(target, link))
		all.Go(func() { // ends when stopped is set
			for !stopped.Load() {
				if os.Rename(at, kept) != nil {
					continue // its directory is a link now
				}
				if os.Rename(link, at) == nil {
					for os.Rename(at, link) != nil && !stopped.Load() {
						continue
					}
				}
				for os.Rename(kept, at) != nil && !stopped.Load() {
					continue
				}
			}
		})
	}
	return func() {
		stopped.Store(true)
		all.Wait()
	}
}

// list returns the files in the listing. Those that rules from outside would
// hide must be there if all is set.
func list(t *testing.T, w *Workspace, dir string, all bool) string {
	listing, err := w.List(t.Context(), dir, 1000)
	if err != nil {
		return ""
	}
	if files := strings.Join(listing.Files, " "); !all || strings.Contains(files, "visible") && strings.Contains(files, "sub/visible") {
		return files
	}
	return fmt.Sprintf("hidden by the rules of the secret: %q", listing.Files)
}

func readAll(w *Workspace, name string) string {
	f, err := w.OpenFile(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(f)
	return string(text)
}

// describe returns what is told about a file that is outside alone.
func describe(w *Workspace, name string) string {
	var all string
	if info, err := w.Stat(name); err == nil {
		all += info.Name()
	}
	if info, err := w.Lstat(name); err == nil {
		all += info.Name()
	}
	if real, err := w.Real(name); err == nil {
		all += real
	}
	return all
}

func attach(w *Workspace, paths ...string) string {
	loaded, _ := w.Attachments(paths)
	var all []string
	for _, a := range loaded {
		all = append(all, a.Text+string(a.Data))
	}
	return strings.Join(all, " ")
}

func branchOf(w *Workspace) string {
	if branch := w.GitBranch(); branch != nil {
		return *branch
	}
	return ""
}
