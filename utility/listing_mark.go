package utility

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A mark is what a file that a listing depends on looked like. It is not below
// the directory that is listed, so that nobody tells of its changes.
type mark struct {
	path string      // absolute
	info fs.FileInfo // nil if there was nothing
}

func newMark(path string) mark {
	info, err := os.Stat(path)
	if err != nil {
		info = nil
	}
	return mark{path, info}
}

// holds reports whether it still looks like that. A directory is to be the same
// one, whatever is in it by now.
func (m mark) holds() bool {
	now := newMark(m.path).info
	switch {
	case now == nil || m.info == nil:
		return (now == nil) == (m.info == nil)
	case !os.SameFile(now, m.info):
		return false
	}
	return now.IsDir() || now.Size() == m.info.Size() && now.ModTime().Equal(m.info.ModTime())
}

// hold reports whether all marks do.
func hold(marks []mark) bool {
	return !slices.ContainsFunc(marks, func(m mark) bool { return !m.holds() })
}

// marks returns what the listing of dir depends on beside what is below it: which
// directory that is, the ignore files of those around it, and git's own files.
func (h *lister) marks(ctx context.Context, dir string) []mark {
	marks := []mark{newMark(h.ws.At(dir))}
	top, files := h.gitFiles(ctx)
	for _, file := range append(files, globalIgnoreFiles()...) {
		marks = append(marks, newMark(file))
	}
	for at := h.ws.At(dir); at != top; {
		parent := filepath.Dir(at)
		if parent == at {
			break
		}
		at = parent
		marks = append(marks, newMark(filepath.Join(at, ".gitignore")))
	}
	return marks
}

// gitFiles returns the top directory of the repository around the root, and the
// files in which git keeps what is tracked, ignored and configured. Without a
// repository they are those that one at the root would have.
func (h *lister) gitFiles(ctx context.Context) (top string, files []string) {
	names := []string{"HEAD", "index", "info/exclude", "config"}
	args := []string{"rev-parse", "--show-toplevel"}
	for _, name := range names {
		args = append(args, "--git-path", name)
	}
	out, err := h.git(ctx, args...).Output()
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if err != nil || len(lines) != 1+len(names) {
		for _, name := range names {
			files = append(files, h.ws.At(filepath.Join(".git", name)))
		}
		return h.ws.Root(), files
	}
	for _, file := range lines[1:] {
		if !filepath.IsAbs(file) {
			file = h.ws.At(file)
		}
		files = append(files, file)
	}
	return lines[0], files
}

// globalIgnoreFiles returns the user's ignore file, where it usually is, and the
// files that may name another one.
func globalIgnoreFiles() []string {
	var files []string
	for _, key := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"} {
		if file := os.Getenv(key); file != "" {
			files = append(files, file)
		}
	}
	home, err := os.UserHomeDir()
	config := os.Getenv("XDG_CONFIG_HOME")
	if err == nil {
		files = append(files, filepath.Join(home, ".gitconfig"))
		config = cmp.Or(config, filepath.Join(home, ".config"))
	}
	if config != "" {
		files = append(files, filepath.Join(config, "git", "config"), filepath.Join(config, "git", "ignore"))
	}
	return files
}
