package workspace

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// age makes everything below the root look as if it had last changed long ago.
func age(t *testing.T, dir string) {
	t.Helper()
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() == fs.ModeSymlink {
			return err
		}
		return os.Chtimes(path, long, long)
	}))
}

func TestListingIsCurrentUntilSomethingChanges(t *testing.T) {
	quietGit(t)
	home, err := os.UserHomeDir()
	must(t, err)
	outer := t.TempDir()
	root := filepath.Join(outer, "in/root")
	for name, text := range withRepository(map[string]string{
		".git/index": "", "in/.gitignore": "x\n", "in/root/.gitignore": "*.log\n", "in/root/a": "", "in/root/sub/deep/f": "",
		"in/root/empty/x.log": "", "in/root/nested/f": "",
	}, ".", "in/root/nested") {
		write(t, filepath.Join(outer, name), text)
	}
	w := openDir(t, root)
	for _, tt := range []struct {
		what   string
		change func() error
	}{
		{"a new file", func() error { return os.WriteFile(filepath.Join(root, "sub/deep/new"), nil, 0o600) }},
		{"a file less", func() error { return os.Remove(filepath.Join(root, "a")) }},
		{"a file where there were only ignored ones", func() error { return os.WriteFile(filepath.Join(root, "empty/y"), nil, 0o600) }},
		{"other rules", func() error { return os.WriteFile(filepath.Join(root, ".gitignore"), []byte("*.lag\n"), 0o600) }},
		{"new rules", func() error { return os.WriteFile(filepath.Join(root, "sub/.gitignore"), []byte("*"), 0o600) }},
		{"rules around", func() error { return os.WriteFile(filepath.Join(outer, "in/.gitignore"), nil, 0o600) }},
		{"new rules around", func() error { return os.WriteFile(filepath.Join(outer, ".gitignore"), []byte("y\n"), 0o600) }},
		{"the repository's rules", func() error { return os.MkdirAll(filepath.Join(outer, ".git/info/exclude"), 0o700) }},
		{"a nested one's rules", func() error { return os.MkdirAll(filepath.Join(root, "nested/.git/info/exclude"), 0o700) }},
		{"the user's rules", func() error { return os.MkdirAll(filepath.Join(home, ".config/git/ignore"), 0o700) }},
		{"the user's settings", func() error { return os.WriteFile(filepath.Join(home, ".gitconfig"), nil, 0o600) }},
		{"what is tracked", func() error { return os.WriteFile(filepath.Join(outer, ".git/index"), []byte("x"), 0o600) }},
		{"a directory less", func() error { return os.RemoveAll(filepath.Join(root, "sub")) }},
	} {
		age(t, outer)
		age(t, home)
		listing, err := w.List(t.Context(), ".", 1000)
		must(t, err)
		if !w.Current(listing) {
			t.Fatalf("before %s: got a listing that is not current, want it to be", tt.what)
		}
		must(t, tt.change())
		if w.Current(listing) {
			t.Errorf("after %s: got a current listing, want none", tt.what)
		}
	}
}

func TestListingBelowDependsOnTheRulesAbove(t *testing.T) {
	quietGit(t)
	w := open(t, Options{}, map[string]string{"a/b/f": ""})
	age(t, w.Root())
	listing, err := w.List(t.Context(), "a/b", 1000)
	must(t, err)
	write(t, filepath.Join(w.Root(), "a/.gitignore"), "f\n")
	if w.Current(listing) {
		t.Error("got a current listing, want none")
	}
}

func TestListingIsNotTrustedSoonAfterAChange(t *testing.T) {
	quietGit(t)
	w := open(t, Options{}, map[string]string{"a": ""})
	listing, err := w.List(t.Context(), ".", 1000)
	must(t, err)
	if w.Current(listing) {
		t.Error("got a current listing of a directory that was just written, want none")
	}
	age(t, w.Root())
	listing, err = w.List(t.Context(), ".", 0)
	must(t, err)
	if w.Current(listing) || w.Current(Listing{Complete: true}) {
		t.Error("got a current listing without all that is there, want none")
	}
}
