package utility

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/workspace"
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

// A Shared is what the hosts of a workspace share: the listing of its files for
// searches, and its watched directories. The zero value is ready for use, by
// hosts from any goroutine.
type Shared struct {
	mu     sync.Mutex
	lister *lister // nil without hosts
	hosts  int
}

// join returns the lister for one more host. The options of the first host count.
func (s *Shared) join(o Options) *lister {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hosts++; s.lister == nil {
		l := &lister{
			ws: o.Workspace, excluded: excludedIn(o.Workspace.Root(), o.Journals),
			followTime: maxFollowTime, quick: quick, limit: maxSearchFiles, changed: make(chan struct{}),
		}
		l.ctx, l.cancel = context.WithCancel(context.Background())
		l.lookout = newLookout(o.Workspace, o.MaxWatchedDirs, l, o.Log)
		s.lister = l
	}
	return s.lister
}

// leave closes the lister after its last host has left, and waits for that. The
// caller must have no running search or watch.
func (s *Shared) leave() {
	s.mu.Lock()
	l := s.lister
	if s.hosts--; s.hosts > 0 {
		l = nil
	} else {
		s.lister = nil
	}
	s.mu.Unlock()
	if l != nil {
		l.close()
		l.lookout.close()
	}
}

// excludedIn returns dir, which is absolute, relative to the workspace if it is
// in it, else "". A directory that contains the workspace cannot be excluded.
func excludedIn(root, dir string) string {
	rel, err := filepath.Rel(root, workspace.Resolve(dir))
	if dir == "" || err != nil || !filepath.IsLocal(rel) || rel == "." {
		return ""
	}
	return foldCase(filepath.ToSlash(rel))
}

// isExcluded reports whether a path, which is relative to the root and without
// links, is the excluded directory or below it.
func (l *lister) isExcluded(path string) bool {
	rest, ok := strings.CutPrefix(foldCase(filepath.ToSlash(path)), l.excluded)
	return ok && l.excluded != "" && (rest == "" || rest[0] == '/')
}
