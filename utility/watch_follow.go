package utility

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"time"

	"github.com/seed-028515a8/maestro/workspace"
)

// errNotTold says that the system does not tell of a directory, because it tells
// of too many others.
var errNotTold = errors.New("too many directories to follow")

// follow has the listing told what happens in a directory from now on, and returns
// the directories in it. The one that it lies in has been followed before. late
// says that something happened in it about asked or later, and nobody told. A
// directory that is gone, which is told, or is not ours to read, is no error.
func (l *lookout) follow(dir string, asked time.Time) (below []string, late bool, err error) {
	name := filepath.FromSlash(dir)
	var parent *node
	if l.begin(); dir != "." {
		if parent = l.find(filepath.Dir(name)); parent == nil {
			return nil, false, nil
		}
	}
	f, info, err := l.openDir(parent, name)
	switch {
	case err != nil && dir == ".":
		return nil, false, errNotTold
	case outOfFiles(err):
		return nil, false, err
	case err != nil:
		return nil, false, nil
	}
	defer f.Close()
	at := l.find(name)
	if at != nil && !at.id.is(info) {
		if at == l.tree.top {
			l.drop(at)
			l.begin()
		} else {
			l.handleGone(parent, filepath.Base(name))
		}
		at = nil
	}
	if at == nil {
		if at = l.plant(parent, name, info); at == nil {
			return nil, false, nil
		}
	}
	switch {
	case at.key != "":
	case at.claimed:
		l.compare(at) // what happened since it was polled is news to watches
	default:
		l.attach(at, f)
	}
	if at.key == "" {
		return nil, false, errNotTold // the listing gives up what it follows then
	}
	fresh := !at.followed
	at.followed = true
	late = fresh && changedSince(f.Stat, asked)
	_ = inBatches(f, func(entries []fs.DirEntry) error { // what cannot be read is not listed either
		for _, e := range entries {
			switch {
			case e.IsDir() && !workspace.VersionControl(e.Name()):
				below = append(below, path.Join(dir, e.Name()))
			case e.Name() == ".gitignore":
				late = late || fresh && changedSince(e.Info, asked)
			}
		}
		return nil
	})
	return below, late, nil
}

// follows reports whether the listing is told what happens in a directory.
func (l *lookout) follows(dir string) bool {
	at := l.find(filepath.FromSlash(dir))
	return at != nil && at.followed && at.key != ""
}

// find returns a directory of the tree, nil if it is not in it.
func (l *lookout) find(path string) *node {
	at := l.tree.top
	for _, name := range steps(path) {
		if at == nil {
			break
		}
		at = at.children[name]
	}
	return at
}

// unfollow has the listing told of nothing any more.
func (l *lookout) unfollow() {
	if l.tree.top != nil {
		l.unfollowAll(l.tree.top)
	}
	if l.tree.full = false; l.tree.top == nil {
		l.closeSource()
	}
}

func (l *lookout) unfollowAll(at *node) {
	for _, child := range at.children {
		l.unfollowAll(child)
	}
	if at.followed = false; !at.claimed {
		l.forget(at)
	}
}

// isDeaf reports whether the system does not watch a directory that the listing
// follows, at or below this one.
func (at *node) isDeaf() bool {
	if at.followed && at.key == "" {
		return true
	}
	for _, child := range at.children {
		if child.isDeaf() {
			return true
		}
	}
	return false
}
