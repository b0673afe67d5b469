package utility

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// A dirTree is the directories that watches are about, and those between them and
// the workspace's root, and those that the listing of searches follows. The keeper
// owns it.
type dirTree struct {
	top     *node // the workspace's root; nil while there is nothing to watch
	claimed int   // nodes that watches are about; at most lookout.limit
	names   int   // in all nodes; at most lookout.names
	keys    map[string]*node
	ids     map[fileID]*node // if files have ids
	polled  map[*node]struct{}
	left    map[string]bool // what was in the directory that was renamed last; nil if it was none, or has come to its new place
	full    bool            // the system watches no more, until it is asked again
}

func newDirTree() dirTree {
	return dirTree{keys: make(map[string]*node), ids: make(map[fileID]*node), polled: make(map[*node]struct{})}
}

// hasLeft reports whether a path may have been renamed with the directory that
// it lay in. What is in a directory by now may also have been made there.
func (t *dirTree) hasLeft(path string) bool { return t.left == nil || t.left[path] }

// A node is one directory of the tree.
type node struct {
	path     string // relative to the workspace's root
	parent   *node
	id       identity
	key      string           // what its reports begin with; "" if the system does not watch it
	names    map[string]stamp // what is in it; nil without holders
	children map[string]*node // nil without any
	holders  []*audience      // report what happens in it
	passers  []*audience      // have their root further down
	claimed  bool             // it has holders or passers; then it is polled if the system does not watch it
	followed bool             // the listing is told what happens in it
	blind    bool             // there was no room for some of the names
	gone     bool             // it is no longer in the tree
}

// misses reports whether the directory of that name is not in the tree for all
// watches that it should be there for.
func (at *node) misses(name string) bool {
	child := at.children[name]
	return child == nil || slices.ContainsFunc(at.holders, func(a *audience) bool {
		return a.covers(child.path) && !slices.Contains(child.holders, a)
	})
}

// A news is what the keeper tells a watch: paths are relative to the
// workspace's root.
type news struct {
	op    newsOp
	path  string
	from  string // what has appeared was renamed from there; "" if that is not known
	known bool   // what has appeared took the place of something
	isDir bool   // what has appeared is a directory
}

// A newsOp is what has happened to a path.
type newsOp int

const (
	appeared newsOp = iota
	written
	vanished
)

// join makes what w is about part of the tree. It reports false if the watch's
// root is not there, or the watch is over.
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

// enroll makes what an audience is about part of the tree. It reports false if its
// directory is not there.
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

// begin opens the source if there is nothing to watch yet.
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

// claim counts a directory among those that watches are about. It reports false
// if there are too many.
func (l *lookout) claim(at *node, who []*audience) bool {
	if at.claimed {
		return true
	}
	if l.tree.claimed >= l.limit {
		say(who, tooManyDirs)
		return false
	}
	at.claimed = true
	l.tree.claimed++
	if at.key == "" {
		l.pollInstead(at)
		say(who, systemLimit)
	}
	return true
}

// leave takes all that only w is about out of the tree.
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

// dismiss has no more watches join an audience.
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

// disclaim takes a directory out of those that watches are about.
func (l *lookout) disclaim(at *node) {
	if at.claimed {
		at.claimed = false
		l.tree.claimed--
		delete(l.tree.polled, at)
	}
}

// forget takes one directory out of the tree.
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

// drop takes a directory that is gone out of the tree, with all below it, and
// says that of everything that was known to be in it. Watches of it end.
func (l *lookout) drop(at *node) {
	for name := range at.names {
		if child := at.children[name]; child != nil {
			l.drop(child)
		}
		path := filepath.Join(at.path, name)
		if l.tree.left != nil {
			l.tree.left[path] = true
		}
		l.tell(at, news{op: vanished, path: path})
	}
	for _, child := range at.children { // of directories that nobody reports
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

// tell passes a change in a directory on.
func (l *lookout) tell(at *node, c news) {
	for _, a := range at.holders {
		a.tell(c)
	}
}

// handle takes in one report of the system.
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

// pathOf returns what a name in a report stands for; "" if that is not in the
// tree.
func (l *lookout) pathOf(name string) string {
	if at := l.tree.keys[filepath.Dir(name)]; at != nil {
		return filepath.Join(at.path, filepath.Base(name))
	}
	return ""
}

// handleEnd takes in that the system watches a directory no more, because it was
// removed or renamed. What it lies in reports that, too, unless that is polled,
// or is not the workspace's.
func (l *lookout) handleEnd(at *node) {
	l.unwatch(at)
	if at == l.tree.top {
		l.listings.lose(true)
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

// handleGone takes in that a name is gone. One that is not known was gone when
// its directory was listed.
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
		l.tell(at, news{op: vanished, path: filepath.Join(at.path, name)})
	}
}

// handleNew takes in a name that has appeared. It may be known: from a listing,
// or because it took the place of something.
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
	l.tell(at, news{op: appeared, path: path, from: from, known: known, isDir: isDir})
	if isDir && at.misses(name) {
		l.visit(at, name, &arrival{from: from}, at.holders)
	}
}

// handleWritten takes in that a file was written to. One that is not known may be
// gone: what is written to an open file the system reports under the name that it
// had.
func (l *lookout) handleWritten(at *node, name string) {
	path := filepath.Join(at.path, name)
	m, known := at.names[name]
	if !known {
		if info, err := l.ws.Lstat(path); err != nil || info.IsDir() {
			return
		}
	}
	if m == stampDir {
		return // what happened in it is told by itself
	}
	l.know(at, name, 0)
	l.tell(at, news{op: written, path: path})
}
