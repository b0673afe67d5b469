package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
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
	w := open(t, map[string]string{
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
	files := withRepository(map[string]string{".git/info/exclude": "*.mine\n", ".gitignore": "*.log\n!keep.log\n",
		"a.log": "", "keep.log": "", "a.mine": "", "a.user": "", "sub/.gitignore": "!*.log\n!*.user\n", "sub/a.log": "", "sub/a.user": "", "sub/a.mine": ""}, ".")
	write(t, filepath.Join(home, ".config/git/ignore"), "*.user\n")
	w := open(t, files)
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
	for name, text := range withRepository(map[string]string{
		".git/info/exclude": "*.mine\n", ".gitignore": "/in/root/top.txt\n*.log\n", "in/.gitignore": "root/x\n",
		"in/root/top.txt": "", "in/root/x": "", "in/root/y": "", "in/root/y.log": "", "in/root/y.mine": "", "in/root/sub/x": "",
	}, ".") {
		write(t, filepath.Join(dir, name), text)
	}
	wantFiles(t, openDir(t, filepath.Join(dir, "in/root")), ".", "y", "sub/x")
	write(t, filepath.Join(dir, ".gitignore"), "in\n") // the root itself: then it is a tree of its own
	wantFiles(t, openDir(t, filepath.Join(dir, "in/root")), ".", "y", "y.log", "y.mine", "x", "top.txt", "sub/x")
}

func TestRepositoriesBelowHaveTheirOwnRules(t *testing.T) {
	quietGit(t)
	files := withRepository(map[string]string{
		".gitignore": "*.log\nhidden\n", "nested/.git/info/exclude": "*.mine\n", "nested/a.log": "", "nested/a.mine": "", "nested/sub/a.log": "",
		"hidden/a": "", "module/.git": "gitdir: ../.git/modules/module\n", "module/a.log": "",
		"broken/.git": "gitdir: none\n", "broken/a.log": "", "bare/.git/HEAD": "ref: refs/heads/main\n", "bare/a.log": "", "bare/b": "",
	}, ".", "nested", "hidden")
	for name, text := range withRepository(map[string]string{}, ".") {
		files[strings.Replace(name, ".git", ".git/modules/module", 1)] = text
	}
	w := open(t, files)
	wantFiles(t, w, ".", ".gitignore", "nested/a.log", "nested/sub/a.log", "module/a.log", "bare/b")
	wantFiles(t, w, "nested/sub", "a.log")
	wantFiles(t, w, "hidden")
}

func TestListingIsBounded(t *testing.T) {
	quietGit(t)
	files := map[string]string{"deep/a/b/c/d/last": ""}
	for i := range 20 {
		files[fmt.Sprintf("near%02d", i)] = ""
		files[fmt.Sprintf("deep/f%02d", i)] = ""
	}
	w := open(t, files)
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

// Folders are read at once, and still the listing is in one order and a shorter
// one is its beginning.
func TestListingIsTheSameEveryTime(t *testing.T) {
	quietGit(t)
	files := map[string]string{".gitignore": "no*\n"}
	for i := range 2 * walkBatch {
		files[fmt.Sprintf("d%d/f", i)], files[fmt.Sprintf("d%d/e/f", i)], files[fmt.Sprintf("d%d/no", i)] = "", "", ""
	}
	w := open(t, files)
	all, err := w.List(t.Context(), ".", 10_000)
	if must(t, err); len(all.Files) != 4*walkBatch+1 || !all.Complete {
		t.Fatalf("got %d files, complete %v; want all", len(all.Files), all.Complete)
	}
	for limit := 0; limit <= len(all.Files); limit += 41 {
		part, err := w.List(t.Context(), ".", limit)
		must(t, err)
		if !slices.Equal(part.Files, all.Files[:limit]) || part.Complete != (limit == len(all.Files)) {
			t.Errorf("limit %d: got %d files, complete %v; want the first", limit, len(part.Files), part.Complete)
		}
	}
}

// What is left out because it is ignored does not make a listing incomplete, and
// what was not looked at does.
func TestManyIgnoredFilesAreNotTakenForAll(t *testing.T) {
	quietGit(t)
	files := map[string]string{".gitignore": "no*\n", "yes": ""}
	for i := range 2 * moreEntries {
		files[fmt.Sprintf("no%d", i)] = ""
	}
	w := open(t, files)
	for limit, complete := range map[int]bool{5000: true, 2: false} {
		listing, err := w.List(t.Context(), ".", limit)
		if must(t, err); listing.Complete != complete {
			t.Errorf("limit %d: got %d files, complete %v; want complete %v", limit, len(listing.Files), listing.Complete, complete)
		}
	}
	write(t, filepath.Join(w.Root(), ".gitignore"), strings.Repeat("#", maxIgnoreFile-3)+"\nno*")
	if listing, err := w.List(t.Context(), ".", 10_000); err != nil || len(listing.Files) != 2*moreEntries+2 {
		t.Errorf("got %d files, %v; want all, as the line beyond the bound does not count", len(listing.Files), err)
	}
}

// A file of rules that nobody can have meant must not hold a search for long.
func TestHostileRulesAreBounded(t *testing.T) {
	quietGit(t)
	files := map[string]string{".gitignore": strings.Repeat(strings.Repeat("*?", 2000)+"\n", 250)}
	for i := range 90 {
		files[".gitignore"] += strings.Repeat("*?", 100+i) + "[z]\n"
	}
	for i := range 2000 {
		files[fmt.Sprintf("%0200d", i)] = ""
	}
	w := open(t, files)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	listing, err := w.List(ctx, ".", 10_000)
	if err != nil || listing.Complete {
		t.Errorf("got complete %v, %v; want a listing that was cut short", listing.Complete, err)
	}
	if _, ok := parseRule(strings.Repeat("?", maxPathBytes+1), false); ok {
		t.Error("got a rule that only a path which is too long could match, want none")
	}
}

func TestLinkedIgnoreFilesDoNotCount(t *testing.T) {
	quietGit(t)
	w := open(t, map[string]string{"rules": "f\n", "f": ""})
	must(t, os.Symlink("rules", filepath.Join(w.Root(), ".gitignore")))
	wantFiles(t, w, ".", ".gitignore", "f", "rules")
}

// What is said of names is what a listing of all files does with them.
func TestNamesAreListedAsFilesAre(t *testing.T) {
	quietGit(t)
	r := rand.New(rand.NewPCG(*seed, 0))
	root := t.TempDir()
	newRepository(t, root, "")
	for i := range 100 {
		grammars()[0].newCase(t, r, root, fmt.Sprintf("case%d", i)).fill(r, root)
	}
	write(t, filepath.Join(root, "nested/.gitignore"), "*.log\n")
	write(t, filepath.Join(root, "nested/x.log"), "")
	write(t, filepath.Join(root, ".svn/entries"), "")
	newRepository(t, filepath.Join(root, "nested/again"), "")
	write(t, filepath.Join(root, "nested/again/y.log"), "")
	for _, dir := range []string{".", "nested", "case1"} {
		w := openDir(t, filepath.Join(root, dir))
		listing, err := w.List(t.Context(), ".", 100_000)
		must(t, err)
		slices.Sort(listing.Files)
		var files, dirs, looked []string
		must(t, filepath.WalkDir(w.Root(), func(path string, e fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(w.Root(), path)
			name := filepath.ToSlash(rel)
			switch {
			case err != nil || name == ".":
				return err
			case !e.IsDir():
				files = append(files, name)
				return nil
			}
			dirs = append(dirs, name)
			if slices.ContainsFunc(listing.Files, func(file string) bool { return strings.HasPrefix(file, name+"/") }) {
				looked = append(looked, name)
			}
			return nil
		}))
		r.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
		got, ok := w.Listed(t.Context(), files, false)
		slices.Sort(got)
		if !ok || !slices.Equal(got, listing.Files) {
			t.Errorf("%s: got %d of %d files listed, want %d", dir, len(got), len(files), len(listing.Files))
		}
		if hidden := len(files) - len(listing.Files); dir == "." && hidden < 50 {
			t.Errorf("got %d files hidden, want some", hidden)
		}
		into, ok := w.Listed(t.Context(), dirs, true)
		for _, name := range looked {
			if !ok || !slices.Contains(into, name) {
				t.Errorf("%s: got %q not looked into, want its files found", dir, name)
			}
		}
		if len(into) == len(dirs) && dir == "." {
			t.Error("got every directory looked into, want some ignored")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := openDir(t, root).Listed(ctx, []string{"a"}, false); ok {
		t.Error("got an answer after the end, want none")
	}
}
