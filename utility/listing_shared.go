package utility

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
)

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
	rel, err := filepath.Rel(root, resolved(dir))
	if dir == "" || err != nil || !filepath.IsLocal(rel) || rel == "." {
		return ""
	}
	return foldCase(filepath.ToSlash(rel))
}

// resolved returns an absolute path with the symbolic links in its existing
// part resolved.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	dir := filepath.Dir(path)
	if dir == path {
		return path
	}
	return filepath.Join(resolved(dir), filepath.Base(path))
}

// isExcluded reports whether a path, which is relative to the root and without
// links, is the excluded directory or below it.
func (l *lister) isExcluded(path string) bool {
	rest, ok := strings.CutPrefix(foldCase(filepath.ToSlash(path)), l.excluded)
	return ok && l.excluded != "" && (rest == "" || rest[0] == '/')
}
