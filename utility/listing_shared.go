package utility

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/workspace"
)

// A Shared is the state that the hosts of a process share: the number of
// directories that the system watches, which the system limits per user and not
// per session, and the lister of each workspace. It may be used by hosts from
// any goroutine.
type Shared struct {
	watched share

	mu      sync.Mutex
	listers map[*workspace.Workspace]*lister // those that hosts use
}

// NewShared returns a Shared for the options of hosts. It holds nothing open
// once all these hosts are closed.
func NewShared() *Shared {
	s := &Shared{listers: make(map[*workspace.Workspace]*lister)}
	s.watched.most, s.watched.forListings = watchLimits()
	return s
}

// A lister knows a workspace: the listing of its files for searches, and its
// watched directories. Its methods may be called from any goroutine.
type lister struct {
	// Static.
	ws         *workspace.Workspace
	excluded   []string      // directories whose content is excluded; slash-separated, relative to the root
	followTime time.Duration // bounds each part of a search's background work
	quick      time.Duration // see the constant quick
	limit      int           // bound of the files in a listing
	lookout    *lookout
	whole      *listingCache

	hosts int // that use it; guarded by Shared.mu
}

// join returns the lister of the workspace. If several hosts use it, the
// options of the first count.
func (s *Shared) join(o Options) *lister {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listers[o.Workspace]
	if l == nil {
		l = &lister{
			ws: o.Workspace, excluded: excludedIn(o.Workspace.Root(), o.Journals),
			followTime: maxFollowTime, quick: quick, limit: maxSearchFiles,
		}
		l.whole = newListingCache(l)
		l.lookout = newLookout(o.Workspace, o.MaxWatchedDirs, &s.watched, l.whole, o.Log)
		s.listers[o.Workspace] = l
	}
	l.hosts++
	return l
}

// leave closes the lister after its last host has left, and waits for that. The
// caller must have no running search or watch.
func (s *Shared) leave(l *lister) {
	s.mu.Lock()
	l.hosts--
	last := l.hosts == 0
	if last {
		delete(s.listers, l.ws)
	}
	s.mu.Unlock()
	if !last {
		return
	}
	l.whole.close()
	l.lookout.close()
}

// excludedIn returns those of dirs, which are absolute, that are in the
// workspace. A directory that contains the workspace cannot be excluded.
func excludedIn(root string, dirs []string) []string {
	var apart []string
	for _, dir := range dirs {
		rel, err := filepath.Rel(root, resolved(dir))
		if err == nil && filepath.IsLocal(rel) && rel != "." {
			apart = append(apart, foldCase(filepath.ToSlash(rel)))
		}
	}
	return apart
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
// links, is an excluded directory or below one.
func (l *lister) isExcluded(path string) bool {
	path = foldCase(filepath.ToSlash(path))
	return slices.ContainsFunc(l.excluded, func(dir string) bool {
		rest, ok := strings.CutPrefix(path, dir)
		return ok && (rest == "" || rest[0] == '/')
	})
}

// withoutExcluded returns files without those in excluded directories.
func (l *lister) withoutExcluded(files []string) []string {
	if len(l.excluded) == 0 {
		return files
	}
	return slices.DeleteFunc(files, l.isExcluded)
}

// A share is the number of directories that the system may watch for the hosts
// of this process. Its methods may be called from any goroutine.
type share struct {
	most        int
	forListings int // bound of taken up to which a directory without client watches may take one

	mu    sync.Mutex // locked while others are held, never the reverse
	taken int
}

// take takes one, for a client's watch or for a listing only. It returns false
// if none is left.
func (s *share) take(forWatch bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= s.most || !forWatch && s.taken >= s.forListings {
		return false
	}
	s.taken++
	return true
}

// give returns n.
func (s *share) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
}
