package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGitBranchIsReadFromHead(t *testing.T) {
	for _, tt := range []struct{ head, want string }{
		{"ref: refs/heads/main\n", "main"},
		{"ref: refs/heads/fix/a-b\r\n", "fix/a-b"},
		{"ref:refs/heads/x", "x"},
		{"ref: refs/remotes/origin/main\n", ""},
		{"3f786850e387550fdab836ed7e6dc881de23001b\n", ""}, // detached
		{"ref: refs/heads/.invalid\n", ""},                 // kept elsewhere
		{"ref: refs/heads/\n", ""},
		{"", ""},
	} {
		w := open(t, withRepository(map[string]string{".git/HEAD": tt.head}, "."))
		wantBranch(t, w, tt.want)
	}
}

// wantBranch checks the branch of w; "" means none.
func wantBranch(t *testing.T, w *Workspace, want string) {
	t.Helper()
	got := w.GitBranch()
	if got == nil && want != "" || got != nil && (*got != want || *got == "") {
		t.Errorf("%s: got branch %v, want %q", w.Root(), got, want)
	}
}

func TestGitBranchIsThatOfTheRepositoryAround(t *testing.T) {
	dir := t.TempDir()
	newRepository(t, dir, "")
	write(t, filepath.Join(dir, ".git", "HEAD"), "ref: refs/heads/outer\n")
	write(t, filepath.Join(dir, "a", "b", "file"), "")
	wantBranch(t, openDir(t, filepath.Join(dir, "a", "b")), "outer")

	write(t, filepath.Join(dir, "a", ".git", "HEAD"), "ref: refs/heads/inner\n")
	wantBranch(t, openDir(t, filepath.Join(dir, "a", "b")), "outer") // that is not all that git needs

	newRepository(t, filepath.Join(dir, "a"), "")
	write(t, filepath.Join(dir, "a", ".git", "HEAD"), "ref: refs/heads/inner\n")
	wantBranch(t, openDir(t, filepath.Join(dir, "a", "b")), "inner")
}

func openDir(t *testing.T, dir string) *Workspace {
	t.Helper()
	w, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func TestGitBranchOfLinkedWorktree(t *testing.T) {
	dir := t.TempDir()
	newRepository(t, filepath.Join(dir, "main"), "")
	write(t, filepath.Join(dir, "main", ".git", "worktrees", "w", "HEAD"), "ref: refs/heads/tree\n")
	write(t, filepath.Join(dir, "main", ".git", "worktrees", "w", "commondir"), "../..\n")
	for name, gitdir := range map[string]string{
		"relative": "../main/.git/worktrees/w",
		"absolute": filepath.Join(dir, "main", ".git", "worktrees", "w"),
	} {
		write(t, filepath.Join(dir, name, ".git"), "gitdir: "+gitdir+"\n")
		wantBranch(t, openDir(t, filepath.Join(dir, name)), "tree")
	}
}

func TestGitBranchBehindALinkOutIsNotTold(t *testing.T) {
	outside := t.TempDir()
	newRepository(t, outside, "")
	w := open(t, nil)
	must(t, os.Symlink(filepath.Join(outside, ".git"), filepath.Join(w.Root(), ".git")))
	wantBranch(t, w, "")
}

func TestGitBranchWithoutRepository(t *testing.T) {
	for name, content := range map[string]string{
		".git":   "not a git file",
		"nogit":  "",
		".git/x": "no HEAD", ".git/HEAD": "ref: refs/heads/main",
	} {
		wantBranch(t, open(t, map[string]string{name: content}), "")
	}
}

func TestGitBranchFollowsTheHead(t *testing.T) {
	w := open(t, withRepository(map[string]string{".git/HEAD": "ref: refs/heads/one\n"}, "."))
	wantBranch(t, w, "one")
	write(t, filepath.Join(w.Root(), ".git", "HEAD"), "ref: refs/heads/two\n")
	wantBranch(t, w, "two")
	if err := os.Remove(filepath.Join(w.Root(), ".git", "HEAD")); err != nil {
		t.Fatal(err)
	}
	wantBranch(t, w, "")
}

func TestHugeHeadIsNotRead(t *testing.T) {
	w := open(t, withRepository(map[string]string{".git/HEAD": strings.Repeat("x", 2*maxGitFile) + "\nref: refs/heads/main\n"}, "."))
	wantBranch(t, w, "")
}
