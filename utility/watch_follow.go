package utility

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"time"

	"github.com/seed-028515a8/maestro/workspace"
)

// errNotTold says that the system does not watch a directory, because it
// watches too many others.
var errNotTold = errors.New("too many directories to follow")

// follow makes the system report changes in a directory to the listing, and
// returns its subdirectories. The parent must be followed already. late says
// that the directory may have changed at asked or later without a report. A
// directory that was removed, which is reported, or cannot be read is no error.
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
		l.compare(at) // changes since the last poll are new to watches
	default:
		l.attach(at, f)
	}
	if at.key == "" {
		return nil, false, errNotTold // the listing then stops following
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

// follows reports whether changes in a directory are reported to the listing.
func (l *lookout) follows(dir string) bool {
	at := l.find(filepath.FromSlash(dir))
	return at != nil && at.followed && at.key != ""
}

// find returns a directory of the tree, or nil.
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

// unfollow stops all reports to the listing.
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

// isDeaf reports whether the system does not watch some directory that the
// listing follows, at or below this one.
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
