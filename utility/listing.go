package utility

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A listing is the files of the workspace at one time. It is immutable.
type listing struct {
	index
	complete bool          // no bound left anything out
	hurried  bool          // time left something out
	asked    time.Time     // when all files were listed; all earlier changes are in it
	asOf     time.Time     // likewise, including the changes reported since
	took     time.Duration // how long listing all files took

	dependencies []fileState // the files that it depends on, and their states
}

// listAll lists the files that the workspace's rules do not ignore, and those
// that git tracks nevertheless.
func (h *lister) listAll(ctx context.Context) *listing {
	f := &listing{asked: time.Now(), dependencies: h.dependencies()}
	f.asOf = f.asked
	own, _ := h.ws.List(ctx, ".", h.limit) // without the root there are no files
	slices.Sort(own.Files)
	files := append(own.Files, h.ws.Tracked(ctx, own.Files, h.limit+1-len(own.Files))...)
	f.hurried = ctx.Err() != nil
	f.complete = own.Complete && !f.hurried && len(files) <= h.limit
	f.index = newIndex(slices.DeleteFunc(files[:min(len(files), h.limit)], h.isExcluded))
	f.took = time.Since(f.asked)
	return f
}

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

// dependencies returns the states of the files that a listing depends on
// besides those below the root: the root itself, the ignore files above it, and
// git's own files.
func (h *lister) dependencies() []fileState {
	top, files := h.ws.GitFiles()
	files = append(files, h.ws.Root())
	for at := h.ws.Root(); top != "" && at != top; {
		at = filepath.Dir(at)
		files = append(files, filepath.Join(at, ".gitignore"))
	}
	marks := make([]fileState, len(files))
	for i, path := range files {
		marks[i] = newFileState(path)
	}
	return marks
}
