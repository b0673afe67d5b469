package utility

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// A fileState is the state of a file that a listing depends on. The file is not
// below the listed directory, so the system does not report its changes.
type fileState struct {
	path string      // absolute
	info fs.FileInfo // nil if the file did not exist
}

func newFileState(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		info = nil
	}
	return fileState{path, info}
}

func fileStatesOf(paths []string) []fileState {
	marks := make([]fileState, len(paths))
	for i, path := range paths {
		marks[i] = newFileState(path)
	}
	return marks
}

// unchanged reports whether the file is still in that state. A directory must
// be the same one, with any content.
func (m fileState) unchanged() bool {
	now := newFileState(m.path).info
	switch {
	case now == nil || m.info == nil:
		return (now == nil) == (m.info == nil)
	case !os.SameFile(now, m.info):
		return false
	}
	return now.IsDir() || now.Size() == m.info.Size() && now.ModTime().Equal(m.info.ModTime())
}

// allUnchanged reports whether all files are unchanged.
func allUnchanged(marks []fileState) bool {
	return !slices.ContainsFunc(marks, func(m fileState) bool { return !m.unchanged() })
}

// dependencies returns the states of the files that the listing of dir depends
// on besides those below it: dir itself, the ignore files above it, and git's
// own files.
func (h *lister) dependencies(dir string) []fileState {
	top, files := h.ws.GitFiles()
	top = cmp.Or(top, h.ws.Root())
	marks := fileStatesOf(slices.Concat([]string{h.ws.At(dir)}, files, globalIgnoreFiles()))
	for at := h.ws.At(dir); at != top; {
		parent := filepath.Dir(at)
		if parent == at {
			break
		}
		at = parent
		marks = append(marks, newFileState(filepath.Join(at, ".gitignore")))
	}
	return marks
}

// globalIgnoreFiles returns the default path of the user's ignore file, and the
// configuration files that may name another.
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
