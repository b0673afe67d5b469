package utility

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

func marksOf(paths []string) []mark {
	marks := make([]mark, len(paths))
	for i, path := range paths {
		marks[i] = newMark(path)
	}
	return marks
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
func (h *lister) marks(dir string) []mark {
	top, files := h.ws.GitFiles()
	top = cmp.Or(top, h.ws.Root())
	marks := marksOf(slices.Concat([]string{h.ws.At(dir)}, files, globalIgnoreFiles()))
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
