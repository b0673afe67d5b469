package workspace

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxGitFile is how much of HEAD and of a .git file is read; both hold one
// line.
const maxGitFile = 4 << 10

// GitBranch returns the branch that is checked out in the repository around the
// root. It returns nil outside a repository and on a detached HEAD. It reads
// git's files and starts no process.
func (w *Workspace) GitBranch() *string {
	_, dir := w.repositoryAround()
	if dir == "" {
		return nil
	}
	branch := w.branch(dir)
	if branch == "" || branch == ".invalid" { // the reftable format stores the name in another file
		return nil
	}
	return &branch
}

// branch returns the branch that HEAD in a git directory names, or "".
func (w *Workspace) branch(dir string) string {
	ref, _ := strings.CutPrefix(w.firstLine(filepath.Join(dir, "HEAD")), "ref:")
	branch, ok := strings.CutPrefix(strings.TrimSpace(ref), "refs/heads/")
	if !ok {
		return ""
	}
	return branch
}

// GitFiles returns the top directory of the repository around the root, and the
// files in which git, its user and the system store what is tracked, ignored and
// configured there. Without a repository top is "", and the files are those that
// a repository at the root would have. All paths are absolute, unless the
// environment names others.
func (w *Workspace) GitFiles() (top string, files []string) {
	top, dir := w.repositoryAround()
	dir = cmp.Or(dir, filepath.Join(w.path, ".git"))
	common := w.commonDir(dir)
	files = configFiles()
	if _, own := userConfig(); own != "" {
		files = append(files, filepath.Join(own, "ignore"))
	}
	return top, append(files,
		filepath.Join(dir, "HEAD"), filepath.Join(dir, "index"), filepath.Join(dir, "config.worktree"),
		filepath.Join(dir, "commondir"), filepath.Join(common, "info", "exclude"), filepath.Join(common, "config"))
}

// repositoryAround returns the top and the git directory of the innermost
// repository that contains the root. Without one both are "".
func (w *Workspace) repositoryAround() (top, git string) {
	for top = w.path; ; top = filepath.Dir(top) {
		git, wrong := w.gitDir(top)
		switch {
		case git != "":
			return top, git
		case wrong || top == filepath.Dir(top):
			return "", ""
		}
	}
}

// gitDir returns the git directory of the repository whose top is at an absolute
// path, or "". In a linked worktree or a submodule .git is a file that names the
// git directory. wrong says that this file does not name one: then git does not
// search further up.
func (w *Workspace) gitDir(top string) (dir string, wrong bool) {
	dir = filepath.Join(top, ".git")
	info, err := w.statAt(dir)
	switch {
	case err != nil:
		return "", false
	case info.Mode().IsRegular():
		named, ok := strings.CutPrefix(w.firstLine(dir), "gitdir: ")
		if !ok {
			return "", true
		}
		if dir = named; !filepath.IsAbs(dir) {
			dir = filepath.Join(top, dir)
		}
		wrong = true
	}
	if !w.isGitDir(dir) {
		return "", wrong
	}
	return dir, false
}

// isGitDir reports whether dir has the contents by which git recognizes a git
// directory.
func (w *Workspace) isGitDir(dir string) bool {
	for _, name := range []string{"objects", "refs"} {
		if info, err := w.statAt(filepath.Join(w.commonDir(dir), name)); err != nil || !info.IsDir() {
			return false
		}
	}
	head := w.firstLine(filepath.Join(dir, "HEAD"))
	if ref, ok := strings.CutPrefix(head, "ref:"); ok {
		return strings.HasPrefix(strings.TrimSpace(ref), "refs/")
	}
	const id = 40 // hexadecimal digits of the shortest object ID
	return len(head) >= id && strings.Trim(head[:id], "0123456789abcdefABCDEF") == ""
}

// commonDir returns the git directory that the linked worktrees of dir share.
func (w *Workspace) commonDir(dir string) string {
	common := w.firstLine(filepath.Join(dir, "commondir"))
	switch {
	case common == "":
		return dir
	case filepath.IsAbs(common):
		return common
	}
	return filepath.Join(dir, common)
}

// firstLine returns the first line of the regular file at an absolute path, or
// "" without such a file.
func (w *Workspace) firstLine(path string) string {
	line, _, _ := strings.Cut(w.textAt(path, maxGitFile, true), "\n")
	return strings.TrimSuffix(line, "\r")
}

// statAt describes the file at an absolute path. A symbolic link below the root
// cannot lead outside.
func (w *Workspace) statAt(path string) (os.FileInfo, error) {
	if rel, err := w.Rel(path); err == nil {
		return w.Stat(rel)
	}
	return os.Stat(path)
}

// lstatAt is statAt, but does not follow a symbolic link at the end of path.
func (w *Workspace) lstatAt(path string) (os.FileInfo, error) {
	if rel, err := w.Rel(path); err == nil {
		return w.Lstat(rel)
	}
	return os.Lstat(path)
}

// openAt opens the file at an absolute path, with the rule of statAt. It does not
// wait for the writer of a named pipe.
func (w *Workspace) openAt(path string) (*os.File, error) {
	if rel, err := w.Rel(path); err == nil {
		return w.OpenFile(rel)
	}
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// textAt returns the first limit bytes of the regular file at an absolute path,
// without the last line if it is cut. It returns "" if the file cannot be read, or
// if it is a symbolic link and links is not set. Git's files may lie outside the
// root, but a symbolic link below the root cannot lead outside.
func (w *Workspace) textAt(path string, limit int, links bool) string {
	f, err := w.openAt(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	if !links {
		if named, err := w.lstatAt(path); err != nil || !os.SameFile(named, info) {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return ""
	}
	if len(text) <= limit {
		return string(text)
	}
	whole := string(text[:limit])
	return whole[:strings.LastIndexByte(whole, '\n')+1]
}
