package utility

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// A dirTree is the watched directories, those between them and the workspace's
// root, and those that the listing of searches follows. The keeper owns it.
type dirTree struct {
	top     *node // the workspace's root; nil while nothing is watched
	claimed int   // nodes with watches; at most lookout.limit
	names   int   // in all nodes; at most lookout.names
	keys    map[string]*node
	ids     map[fileID]*node // if files have ids
	polled  map[*node]struct{}
	left    map[string]bool // the names in the directory that was renamed last; nil if there was none, or it has reached its new path
	full    bool            // the system refuses more watches, until it is asked again
}

func newDirTree() dirTree {
	return dirTree{keys: make(map[string]*node), ids: make(map[fileID]*node), polled: make(map[*node]struct{})}
}

// hasLeft reports whether a path may have been renamed with its directory. A
// path in the renamed directory may also be new.
func (t *dirTree) hasLeft(path string) bool { return t.left == nil || t.left[path] }

// A node is one directory of the tree.
type node struct {
	path     string // relative to the workspace's root
	parent   *node
	id       identity
	key      string           // the prefix of its reports; "" if the system does not watch it
	names    map[string]stamp // the names in it; nil without holders
	children map[string]*node // nil without any
	holders  []*audience      // report changes in it
	passers  []*audience      // have their root below it
	claimed  bool             // it has holders or passers; if the system does not watch it, it is polled
	followed bool             // the listing gets its changes
	blind    bool             // some names in it are unknown
	gone     bool             // it was removed from the tree
}

// misses reports whether the subdirectory name lacks a node, or a holder that
// covers it.
func (at *node) misses(name string) bool {
	child := at.children[name]
	return child == nil || slices.ContainsFunc(at.holders, func(a *audience) bool {
		return a.covers(child.path) && !slices.Contains(child.holders, a)
	})
}

// A treeChange is a change that the keeper passes to audiences. Paths are
// relative to the workspace's root.
type treeChange struct {
	kind  contracts.FileChange // created, modified or deleted
	path  string
	from  string // the former path of a renamed one; "" if unknown
	known bool   // it replaced something
	isDir bool   // it is a directory
}

// join adds the directories of w to the tree. It returns false if the watch's
// root does not exist, or the watch has ended.
func (l *lookout) join(w *watch) bool {
	if a := l.audiences[w.audience.name]; a != nil {
		a.add(w)
		return true
	}
	a := w.audience
	l.audiences[a.name] = a
	a.add(w)
	if !l.enroll(a) || w.ctx.Err() != nil { // it may have ended before the tree was complete
		l.leave(w)
		return false
	}
	return true
}

// enroll adds the directories of an audience to the tree. It returns false if
// its root does not exist.
func (l *lookout) enroll(a *audience) bool {
	l.begin()
	who := []*audience{a}
	at := l.tree.top
	if at == nil {
		at = l.pass(nil, ".", a)
	}
	for _, name := range steps(a.real) {
		if at == nil || !l.claim(at, who) {
			return false
		}
		at.passers = append(at.passers, a)
		next := at.children[name]
		if next == nil {
			next = l.pass(at, name, a)
		}
		at = next
	}
	if at == nil || !l.claim(at, who) {
		return false
	}
	l.fill(at, nil, nil, who)
	return true
}

// begin opens the source if nothing is watched yet.
func (l *lookout) begin() {
	if l.source == nil && l.tree.top == nil {
		l.openSource()
		l.tree.full = false
	}
}

// steps returns the components of a path; the root has none.
func steps(path string) []string {
	if path == "." {
		return nil
	}
	return strings.Split(path, string(filepath.Separator))
}

// claim counts a directory as one with watches. It returns false if there are
// too many.
func (l *lookout) claim(at *node, who []*audience) bool {
	if at.claimed {
		return true
	}
	if l.tree.claimed >= l.limit {
		notify(who, tooManyDirs)
		return false
	}
	at.claimed = true
	l.tree.claimed++
	if at.key == "" {
		l.pollInstead(at)
		notify(who, systemLimit)
	}
	return true
}

// leave removes the directories from the tree that only w watches.
func (l *lookout) leave(w *watch) {
	a := w.audience
	if !a.remove(w) {
		return
	}
	l.dismiss(a)
	if l.tree.top != nil {
		l.release(l.tree.top, a)
	}
	if l.tree.top == nil {
		l.closeSource()
	}
}

// dismiss prevents watches from joining an audience.
func (l *lookout) dismiss(a *audience) {
	if l.audiences[a.name] == a {
		delete(l.audiences, a.name)
	}
}

func (l *lookout) release(at *node, a *audience) {
	is := func(other *audience) bool { return other == a }
	at.holders, at.passers = slices.DeleteFunc(at.holders, is), slices.DeleteFunc(at.passers, is)
	for _, child := range at.children {
		l.release(child, a)
	}
	if len(at.holders) == 0 {
		l.tree.names -= len(at.names)
		at.names, at.blind = nil, false
	}
	if len(at.holders)+len(at.passers) == 0 {
		l.disclaim(at)
		if !at.followed {
			l.forget(at)
		}
	}
}

// disclaim stops counting a directory as one with watches.
func (l *lookout) disclaim(at *node) {
	if at.claimed {
		at.claimed = false
		l.tree.claimed--
		delete(l.tree.polled, at)
	}
}

// forget removes one directory from the tree.
func (l *lookout) forget(at *node) {
	l.unwatch(at)
	l.disclaim(at)
	if id := at.id.fileID; l.tree.ids[id] == at {
		delete(l.tree.ids, id)
	}
	l.tree.names -= len(at.names)
	at.names, at.gone = nil, true
	if at.parent != nil {
		delete(at.parent.children, filepath.Base(at.path))
	} else {
		l.tree.top = nil
	}
}

// drop removes a directory that is gone, and all below it, from the tree, and
// reports its known names as vanished. Watches rooted there end.
func (l *lookout) drop(at *node) {
	for name := range at.names {
		if child := at.children[name]; child != nil {
			l.drop(child)
		}
		path := filepath.Join(at.path, name)
		if l.tree.left != nil {
			l.tree.left[path] = true
		}
		l.tell(at, treeChange{kind: contracts.FileDeleted, path: path})
	}
	for _, child := range at.children { // those without known names
		l.drop(child)
	}
	for _, a := range at.holders {
		if a.real == at.path {
			a.end("Watch root removed")
			l.dismiss(a)
		}
	}
	l.forget(at)
}

// tell passes a change in a directory to its holders.
func (l *lookout) tell(at *node, c treeChange) {
	for _, a := range at.holders {
		a.tell(c)
	}
}

// handle processes one report of the system.
func (l *lookout) handle(ev fsnotify.Event) {
	at := l.tree.keys[filepath.Dir(ev.Name)]
	gone := ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename)
	if at == nil {
		if at = l.tree.keys[ev.Name]; at != nil && gone {
			l.handleEnd(at)
		}
		return
	}
	name := filepath.Base(ev.Name)
	if at.followed {
		l.listings.touch(filepath.ToSlash(filepath.Join(at.path, name)), ev.Op)
	}
	switch {
	case ev.Has(fsnotify.Create):
		l.handleNew(at, name, l.pathOf(movedFrom(ev)))
		l.tree.left = nil
	case gone:
		l.tree.left = nil
		if ev.Has(fsnotify.Rename) && at.children[name] != nil {
			l.tree.left = make(map[string]bool)
		}
		l.handleGone(at, name)
	case ev.Has(fsnotify.Write) && len(at.holders) > 0:
		l.handleWritten(at, name)
	}
}

// pathOf returns the path for a name in a report; "" if it is not in the tree.
func (l *lookout) pathOf(name string) string {
	if at := l.tree.keys[filepath.Dir(name)]; at != nil {
		return filepath.Join(at.path, filepath.Base(name))
	}
	return ""
}

// handleEnd handles the end of the system's watch on a directory that was
// removed or renamed. The parent's watch reports that too, unless the parent is
// polled or outside the workspace.
func (l *lookout) handleEnd(at *node) {
	l.unwatch(at)
	if at == l.tree.top {
		l.listings.markStale(true)
		l.drop(at)
		return
	}
	if at.followed {
		at.followed = false
		l.listings.touch(filepath.ToSlash(at.path), fsnotify.Remove)
	}
	if at.claimed {
		l.pollInstead(at)
	}
}

// handleGone handles a name that is gone. An unknown name was gone when its
// directory was listed.
func (l *lookout) handleGone(at *node, name string) {
	_, known := at.names[name]
	if known {
		delete(at.names, name)
		l.tree.names--
	}
	if child := at.children[name]; child != nil {
		l.drop(child)
	}
	if known || at.blind {
		l.tell(at, treeChange{kind: contracts.FileDeleted, path: filepath.Join(at.path, name)})
	}
}

// handleNew handles a name that has appeared. It may be known from a listing,
// or because it replaced something.
func (l *lookout) handleNew(at *node, name, from string) {
	if len(at.holders) == 0 {
		return
	}
	path := filepath.Join(at.path, name)
	info, err := l.ws.Lstat(path)
	l.stale = l.stale || outOfFiles(err)
	isDir := err == nil && info.IsDir()
	old, known := at.names[name]
	if child := at.children[name]; child != nil && (!isDir || !child.id.is(info)) || known && (old == stampDir) != isDir {
		l.handleGone(at, name)
		known = false
	}
	l.know(at, name, dirStamp(isDir))
	l.tell(at, treeChange{kind: contracts.FileCreated, path: path, from: from, known: known, isDir: isDir})
	if isDir && at.misses(name) {
		l.visit(at, name, &arrival{from: from}, at.holders)
	}
}

// handleWritten handles a write to a file. An unknown file may be gone: the
// system reports writes to an open file under its former name.
func (l *lookout) handleWritten(at *node, name string) {
	path := filepath.Join(at.path, name)
	m, known := at.names[name]
	if !known {
		if info, err := l.ws.Lstat(path); err != nil || info.IsDir() {
			return
		}
	}
	if m == stampDir {
		return // changes in it are reported themselves
	}
	l.know(at, name, 0)
	l.tell(at, treeChange{kind: contracts.FileModified, path: path})
}

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
