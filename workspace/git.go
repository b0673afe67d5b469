package workspace

import (
	"os"
	"path/filepath"
	"strings"
)

// maxGitFile bounds what is read of HEAD and of a .git file; both are a line.
const maxGitFile = 4 << 10

// GitBranch returns the branch that is checked out in the repository around the
// root, or nil outside a repository and on a detached HEAD. It reads git's
// files and starts no process.
func (w *Workspace) GitBranch() *string {
	dir := gitDir(w.path)
	if dir == "" {
		return nil
	}
	ref, ok := strings.CutPrefix(firstLine(filepath.Join(dir, "HEAD")), "ref:")
	branch, isBranch := strings.CutPrefix(strings.TrimSpace(ref), "refs/heads/")
	if !ok || !isBranch || branch == "" || branch == ".invalid" { // the reftable format keeps the name elsewhere
		return nil
	}
	return &branch
}

// gitDir returns the git directory of the innermost repository that holds path,
// or "". In a linked worktree or a submodule .git is a file that names it.
func gitDir(path string) string {
	for {
		dotGit := filepath.Join(path, ".git")
		if info, err := os.Stat(dotGit); err == nil {
			if info.IsDir() {
				return dotGit
			}
			dir, ok := strings.CutPrefix(firstLine(dotGit), "gitdir:")
			if !ok {
				return ""
			}
			if dir = strings.TrimSpace(dir); filepath.IsAbs(dir) {
				return dir
			}
			return filepath.Join(path, dir)
		}
		parent := filepath.Dir(path)
		if parent == path {
			return ""
		}
		path = parent
	}
}

// firstLine returns the first line of a regular file, or "" if there is none.
func firstLine(path string) string {
	line, _, _ := strings.Cut(textOf(path, maxGitFile), "\n")
	return strings.TrimSuffix(line, "\r")
}
