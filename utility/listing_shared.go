package utility

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/workspace"
)

// A Shared is what the hosts of a process have in common: how many directories
// they have the system watch, which it limits for each user and not for each
// session, and what is known of each workspace. It may be given to hosts from any
// goroutine.
type Shared struct {
	watched share

	mu      sync.Mutex
	listers map[*workspace.Workspace]*lister // those that hosts use
}

// NewShared returns what hosts are to share that have it in their options. It
// holds nothing open once all of these are closed.
func NewShared() *Shared {
	return &Shared{
		watched: share{most: maxWatched(), forListings: maxFollowed()},
		listers: make(map[*workspace.Workspace]*lister),
	}
}

// A lister knows a workspace: its files, as searches list them, and its
// directories, in so far as they are watched. Its methods may be called from any
// goroutine.
type lister struct {
	// Static.
	ws         *workspace.Workspace
	envPass    []string
	hosted     bool
	apart      []string      // directories whose content is no part of the workspace; slash-separated, relative to its root
	followTime time.Duration // bounds each part of what goes on behind a search
	quick      time.Duration // that a listing takes for which searches wait
	limit      int           // of files
	lookout    *lookout
	whole      *listings // of the root

	doubts [questions]doubt // that git would answer

	mu      sync.Mutex
	part    *listings      // of a directory in a workspace that is too large; nil before that is searched
	parting sync.WaitGroup // the ends of others

	hosts int // that use it; guarded by Shared.mu
}

// join returns the lister of the workspace. Of several hosts the options of the
// first count.
func (s *Shared) join(o Options) *lister {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listers[o.Workspace]
	if l == nil {
		l = &lister{
			ws: o.Workspace, envPass: o.EnvPass, hosted: o.Hosted, apart: apartIn(o.Workspace.Root(), o.Journals),
			followTime: maxFollowTime, quick: quick, limit: maxSearchFiles,
		}
		l.whole = newListings(l, ".")
		l.lookout = newLookout(o.Workspace, o.MaxWatchedDirs, &s.watched, l.whole, o.Log)
		s.listers[o.Workspace] = l
	}
	l.hosts++
	return l
}

// leave closes the lister once no host uses it, and waits for that. None of the
// caller's searches and watches may be under way.
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
	if l.part != nil { // nothing changes it any more
		l.part.close()
	}
	l.parting.Wait()
	l.lookout.close()
}

// apartIn returns those of dirs, which are absolute, that lie in a workspace. One
// that the workspace lies in cannot be kept apart from it.
func apartIn(root string, dirs []string) []string {
	var apart []string
	for _, dir := range dirs {
		rel, err := filepath.Rel(root, resolved(dir))
		if err == nil && filepath.IsLocal(rel) && rel != "." {
			apart = append(apart, foldCase(filepath.ToSlash(rel)))
		}
	}
	return apart
}

// resolved returns an absolute path without symbolic links, in so far as it
// exists.
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

// isApart reports whether a path, which is relative to the root and has no links
// in it, is a directory that is kept apart, or lies in one.
func (l *lister) isApart(path string) bool {
	return len(l.apart) > 0 && within(foldCase(filepath.ToSlash(path)), l.apart)
}

// leaveOut returns files, which are relative to dir, without those that are kept
// apart.
func (l *lister) leaveOut(dir string, files []string) []string {
	if l.isApart(dir) {
		return nil
	}
	var below []string // what is kept apart, relative to dir
	for _, path := range l.apart {
		rel, ok := path, true
		if dir != "." {
			rel, ok = strings.CutPrefix(path, foldCase(filepath.ToSlash(dir))+"/")
		}
		if ok {
			below = append(below, rel)
		}
	}
	if len(below) == 0 {
		return files
	}
	return slices.DeleteFunc(files, func(file string) bool { return within(foldCase(file), below) })
}
