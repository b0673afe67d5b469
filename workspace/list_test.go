package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func wantFiles(t *testing.T, w *Workspace, dir string, want ...string) {
	t.Helper()
	listing, err := w.List(t.Context(), dir, 1000)
	if err != nil || !listing.Complete {
		t.Errorf("%s: got %v, complete %v; want all", dir, err, listing.Complete)
	}
	slices.Sort(listing.Files)
	slices.Sort(want)
	if !slices.Equal(listing.Files, want) {
		t.Errorf("%s: got %q, want %q", dir, listing.Files, want)
	}
}

func TestListingLeavesOutWhatIsNotTheUsers(t *testing.T) {
	quietGit(t)
	w := open(t, Options{}, map[string]string{
		".hidden/f": "", "a/.svn/x": "", ".hg/x": "", "a/b/.git/x": "", "sub/deep/f": "", "node_modules/m/f": "", "x.log": "",
	})
	must(t, os.Symlink("sub", filepath.Join(w.Root(), "link")))
	must(t, os.Symlink("..", filepath.Join(w.Root(), "sub/up")))
	must(t, os.Symlink("/etc", filepath.Join(w.Root(), "out")))
	wantFiles(t, w, ".", ".hidden/f", "sub/deep/f", "sub/up", "node_modules/m/f", "x.log", "link", "out")
	wantFiles(t, w, "sub", "deep/f", "up")
	wantFiles(t, w, "link/up/sub/deep", "f")
	if _, err := w.List(t.Context(), "out", 10); !errors.Is(err, ErrOutside) {
		t.Errorf("got %v, want %v", err, ErrOutside)
	}
	for _, dir := range []string{"none", "x.log"} {
		if _, err := w.List(t.Context(), dir, 10); err == nil {
			t.Errorf("%s: got no error, want one", dir)
		}
	}
	if _, err := w.List(t.Context(), "none", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestRulesOfTheUserAndTheRepositoryHold(t *testing.T) {
	quietGit(t)
	home, err := os.UserHomeDir()
	must(t, err)
	files := map[string]string{".git/HEAD": "ref: refs/heads/main\n", ".git/info/exclude": "*.mine\n", ".gitignore": "*.log\n!keep.log\n",
		"a.log": "", "keep.log": "", "a.mine": "", "a.user": "", "sub/.gitignore": "!*.log\n!*.user\n", "sub/a.log": "", "sub/a.user": "", "sub/a.mine": ""}
	write(t, filepath.Join(home, ".config/git/ignore"), "*.user\n")
	w := open(t, Options{}, files)
	want := []string{".gitignore", "keep.log", "sub/.gitignore", "sub/a.log", "sub/a.user"}
	wantFiles(t, w, ".", want...)
	wantFiles(t, w, "sub", ".gitignore", "a.log", "a.user")

	write(t, filepath.Join(home, "elsewhere"), "keep.*\n")
	write(t, filepath.Join(home, ".gitconfig"), "[user]\n\texcludesFile = no\n[core]\n\t; comment\n\tExcludesFile = \"~/elsewhere\"\n")
	wantFiles(t, w, ".", append(want, "a.user")...) // a rule of the repository comes before one of the user
	must(t, os.Remove(filepath.Join(w.Root(), ".gitignore")))
	wantFiles(t, w, ".", "a.log", "a.user", "sub/.gitignore", "sub/a.log", "sub/a.user")
}

func TestRulesAroundTheRootHold(t *testing.T) {
	quietGit(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		".git/HEAD": "ref: refs/heads/main\n", ".git/info/exclude": "*.mine\n", ".gitignore": "/in/root/top.txt\n*.log\n", "in/.gitignore": "root/x\n",
		"in/root/top.txt": "", "in/root/x": "", "in/root/y": "", "in/root/y.log": "", "in/root/y.mine": "", "in/root/sub/x": "",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	wantFiles(t, openDir(t, filepath.Join(dir, "in/root")), ".", "y", "sub/x")
	write(t, filepath.Join(dir, ".gitignore"), "in\n") // the root itself: then it is a tree of its own
	wantFiles(t, openDir(t, filepath.Join(dir, "in/root")), ".", "y", "y.log", "y.mine", "x", "top.txt", "sub/x")
}

func TestRepositoriesBelowHaveTheirOwnRules(t *testing.T) {
	quietGit(t)
	w := open(t, Options{}, map[string]string{
		".git/HEAD": "", ".gitignore": "*.log\nhidden\n", "nested/.git/HEAD": "", "nested/.git/info/exclude": "*.mine\n",
		"nested/a.log": "", "nested/a.mine": "", "nested/sub/a.log": "", "hidden/.git/HEAD": "", "hidden/a": "", "module/.git": "gitdir: ../.git/modules/module\n", "module/a.log": "",
	})
	wantFiles(t, w, ".", ".gitignore", "nested/a.log", "nested/sub/a.log", "module/a.log")
	wantFiles(t, w, "nested/sub", "a.log")
	wantFiles(t, w, "hidden")
	for dir, want := range map[string]bool{".": true, "nested": false, "nested/sub": false, "module": false, "none/x": true} {
		if got := w.Repository(dir); got != want {
			t.Errorf("%s: got %v, want %v: it is in the repository of the root", dir, got, want)
		}
	}
	if openDir(t, t.TempDir()).Repository(".") {
		t.Error("got a repository, want none")
	}
}

func TestListingIsBounded(t *testing.T) {
	quietGit(t)
	files := map[string]string{"deep/a/b/c/d/last": ""}
	for i := range 20 {
		files[fmt.Sprintf("near%02d", i)] = ""
		files[fmt.Sprintf("deep/f%02d", i)] = ""
	}
	w := open(t, Options{}, files)
	for limit, complete := range map[int]bool{41: true, 40: false, 25: false, 1: false} {
		listing, err := w.List(t.Context(), ".", limit)
		if err != nil || listing.Complete != complete || len(listing.Files) != limit {
			t.Errorf("limit %d: got %d, complete %v, %v; want %v", limit, len(listing.Files), listing.Complete, err, complete)
		}
		if limit == 25 && !slices.Contains(listing.Files, "near19") {
			t.Errorf("got %q, want the nearer files first", listing.Files)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if listing, err := w.List(ctx, ".", 100); err != nil || listing.Complete || len(listing.Files) > 0 {
		t.Errorf("got %d, complete %v, %v; want nothing in no time", len(listing.Files), listing.Complete, err)
	}
}

// A file of rules that nobody can have meant must not hold a search for long.
func TestHostileRulesAreBounded(t *testing.T) {
	quietGit(t)
	files := map[string]string{".gitignore": strings.Repeat(strings.Repeat("*?", 2000)+"\n", 250)}
	for i := range 2000 {
		files[fmt.Sprintf("%0200d", i)] = ""
	}
	w := open(t, Options{}, files)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	listing, err := w.List(ctx, ".", 10_000)
	if err != nil || listing.Complete {
		t.Errorf("got complete %v, %v; want a listing that was cut short", listing.Complete, err)
	}
	if _, ok := parseRule(strings.Repeat("a", maxRuleBytes+1)); ok {
		t.Error("got a rule of a line that is too long, want none")
	}
}

func TestLinkedIgnoreFilesDoNotCount(t *testing.T) {
	quietGit(t)
	w := open(t, Options{}, map[string]string{"rules": "f\n", "f": ""})
	must(t, os.Symlink("rules", filepath.Join(w.Root(), ".gitignore")))
	wantFiles(t, w, ".", ".gitignore", "f", "rules")
}
