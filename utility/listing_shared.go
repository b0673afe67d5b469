package utility

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/workspace"
)

// A Shared is what the hosts of a workspace share: the listing of its files for
// searches, and its watched directories. The zero value is ready for use, by
// hosts from any goroutine.
type Shared struct {
	mu     sync.Mutex
	lister *lister // nil without hosts
	hosts  int
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
}

// join returns the lister for one more host. The options of the first host count.
func (s *Shared) join(o Options) *lister {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hosts++; s.lister == nil {
		l := &lister{
			ws: o.Workspace, excluded: excludedIn(o.Workspace.Root(), o.Journals),
			followTime: maxFollowTime, quick: quick, limit: maxSearchFiles,
		}
		l.whole = newListingCache(l)
		l.lookout = newLookout(o.Workspace, o.MaxWatchedDirs, l.whole, o.Log)
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
		l.whole.close()
		l.lookout.close()
	}
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
