package utility

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// A stamp is what is known of a name: whether it is a directory, and for a file
// a hash that changes with the file. Zero means a file that may have changed.
type stamp uint64

const stampDir stamp = 1

func dirStamp(isDir bool) stamp {
	if isDir {
		return stampDir
	}
	return 0
}

// coarse is the minimum time between two changes of a file for the file system
// to give them different times.
const coarse = 100 * time.Millisecond

func stampOf(info fs.FileInfo, now time.Time) stamp {
	if info.IsDir() || now.Sub(info.ModTime()) < coarse {
		return dirStamp(info.IsDir())
	}
	m := uint64(14695981039346656037)
	for _, part := range []uint64{uint64(info.Size()), uint64(info.ModTime().UnixNano()), uint64(info.Mode().Type()), idOf(info).number()} {
		m = (m ^ part) * 1099511628211
		m ^= m >> 29
	}
	return stamp(m|2) &^ stampDir
}

// know records a name in a directory. It returns false if there are too many
// names.
func (l *lookout) know(at *node, name string, m stamp) bool {
	if _, known := at.names[name]; !known {
		if l.tree.names >= l.names {
			l.blind(at)
			return false
		}
		l.tree.names++
	}
	at.names[name] = m
	return true
}

// readBatch is the number of directory entries read at once.
const readBatch = 1024

// An arrival says how the content of a directory came there.
type arrival struct {
	from  string // the former path, if it was renamed with its directory; "" if it is new
	known bool   // it may have existed before, unseen
}

func (a *arrival) below(name string) *arrival {
	if a == nil || a.from == "" {
		return a
	}
	return &arrival{from: filepath.Join(a.from, name)}
}

// pass adds a directory between the workspace's root and the root of a, or the
// root of a itself, to the tree.
func (l *lookout) pass(parent *node, name string, a *audience) *node {
	at, f := l.enter(parent, name, []*audience{a})
	if f != nil {
		_ = f.Close()
	}
	return at
}

// visit adds a directory and all below it to the tree, for those of the
// audiences that cover it. If how is not nil, it reports what it finds there as
// appeared.
func (l *lookout) visit(parent *node, name string, how *arrival, who []*audience) {
	path := filepath.Join(parent.path, name)
	var holders []*audience
	for _, a := range who {
		if a.listens() && a.covers(path) {
			holders = append(holders, a)
		}
	}
	if len(holders) == 0 || l.ctx.Err() != nil {
		return
	}
	if len(path) > maxPathBytes {
		notify(holders, pathTooLong)
		return
	}
	at, f := parent.children[name], (*os.File)(nil)
	switch {
	case at == nil:
		at, f = l.enter(parent, name, holders)
	case !l.claim(at, holders):
		return
	}
	if at != nil {
		l.fill(at, f, how, holders)
	}
}

// fill adds all below a directory to the tree. f is the directory if it is
// open; fill closes it.
func (l *lookout) fill(at *node, f *os.File, how *arrival, holders []*audience) {
	for _, a := range holders {
		if !slices.Contains(at.holders, a) {
			at.holders = append(at.holders, a)
		}
	}
	if at.names == nil {
		l.list(at, f)
	} else if f != nil {
		_ = f.Close()
	}
	for name, m := range at.names {
		if at.gone {
			return
		}
		below := how.below(name)
		if how != nil && how.from != "" && !l.tree.hasLeft(below.from) {
			below = &arrival{}
		}
		if how != nil {
			l.tell(at, treeChange{kind: contracts.FileCreated, path: filepath.Join(at.path, name), from: below.from, known: below.known, isDir: m == stampDir})
		}
		if m == stampDir {
			l.visit(at, name, below, holders)
		}
	}
}

// list records the names in a directory, as far as it can be read. It records
// none if there are too many.
func (l *lookout) list(at *node, f *os.File) {
	at.names = make(map[string]stamp)
	if f == nil {
		var err error
		if f, err = l.reopen(at); err != nil {
			return
		}
	}
	defer f.Close()
	now := time.Now()
	err := inBatches(f, func(entries []fs.DirEntry) error {
		if !slices.ContainsFunc(at.holders, (*audience).listens) {
			return context.Canceled // no watch asks for it any more
		}
		if l.tree.names+len(entries) > l.names {
			return errTooManyNames
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				l.know(at, e.Name(), stampOf(info, now))
			}
		}
		return nil
	})
	if errors.Is(err, errTooManyNames) {
		l.tree.names -= len(at.names)
		at.names = make(map[string]stamp)
		l.blind(at)
	}
}

// errTooManyNames says that the names of a directory exceed the bound.
var errTooManyNames = errors.New("too many names in a directory")

// blind records that some names of a directory are unknown, and notifies its
// watches.
func (l *lookout) blind(at *node) {
	at.blind = true
	notify(at.holders, tooManyNames)
}

// inBatches calls each with the entries of a directory, readBatch at a time to
// bound memory, until the end or an error.
func inBatches(dir *os.File, each func([]fs.DirEntry) error) error {
	for {
		entries, err := dir.ReadDir(readBatch)
		if failed := each(entries); failed != nil {
			return failed
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// reopen opens a directory of the tree if it still is at its path.
func (l *lookout) reopen(at *node) (*os.File, error) {
	f, info, err := l.openDir(at.parent, at.path)
	if err == nil && !at.id.is(info) {
		_ = f.Close()
		f, err = nil, fs.ErrNotExist
	}
	return f, err
}

// enter adds one directory to the tree for watches and returns it open. It
// returns nil if the directory does not exist or a limit is reached.
func (l *lookout) enter(parent *node, name string, who []*audience) (*node, *os.File) {
	path := name
	if parent != nil {
		path = filepath.Join(parent.path, name)
	}
	if l.tree.claimed >= l.limit {
		notify(who, tooManyDirs)
		return nil, nil
	}
	f, info, err := l.openDir(parent, path)
	if err != nil {
		if outOfFiles(err) {
			notify(who, systemLimit)
			l.stale = true // look again later
		}
		return nil, nil
	}
	at := l.plant(parent, path, info)
	if at == nil {
		_ = f.Close()
		return nil, nil
	}
	at.claimed = true
	l.tree.claimed++
	if !l.attach(at, f) {
		notify(who, systemLimit)
	}
	return at, f
}

// plant adds an open directory to the tree. It returns nil if it is in the tree
// already.
func (l *lookout) plant(parent *node, path string, info fs.FileInfo) *node {
	id := identify(info)
	if !l.vacate(id, parent) {
		return nil
	}
	path = strings.Clone(path) // path may be part of a whole listing
	at := &node{path: path, parent: parent, id: id}
	switch {
	case parent == nil:
		l.tree.top = at
	case parent.children == nil:
		parent.children = map[string]*node{filepath.Base(path): at}
	default:
		parent.children[filepath.Base(path)] = at
	}
	if id.fileID != (fileID{}) {
		l.tree.ids[id.fileID] = at
	}
	return at
}

// openDir opens a directory of the tree. It does not follow symbolic links: the
// opened directory is a child of parent.
func (l *lookout) openDir(parent *node, path string) (*os.File, fs.FileInfo, error) {
	if parent != nil { // opening anything but a directory may have an effect, for example on a device
		if info, err := l.ws.Lstat(path); err != nil {
			return nil, nil, err
		} else if !info.IsDir() {
			return nil, nil, syscall.ENOTDIR
		}
	}
	f, err := l.ws.OpenFile(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil || !info.IsDir():
	case parent == nil && l.isRoot(identify(info)), parent != nil && l.liesIn(f, info, parent, path):
		return f, info, nil
	}
	_ = f.Close()
	return nil, nil, cmp.Or(err, fs.ErrNotExist)
}

// absent reports whether err means that the path does not exist or may not be
// opened.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) ||
		errors.Is(err, workspace.ErrOutside)
}

// outOfFiles reports whether err means that too many files are open.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// isRoot reports whether at is still the workspace's root.
func (l *lookout) isRoot(at identity) bool {
	found, err := os.Stat(l.ws.Root())
	return err == nil && at.is(found) || err != nil && !absent(err)
}

// liesIn reports whether an open directory is a child of parent.
func (l *lookout) liesIn(f *os.File, info fs.FileInfo, parent *node, path string) bool {
	if up, ok := above(f); ok {
		return parent.id.is(up)
	}
	real, err := l.ws.Real(path)
	if err != nil || real != path {
		return false
	}
	found, err := l.ws.Lstat(path)
	return err == nil && os.SameFile(info, found)
}

// vacate removes a directory from the tree that has moved to parent from
// elsewhere in the tree, which has not been reported yet. It returns false if
// the directory is in both places, as a file system may be mounted twice. The
// system reports changes in it for one place only.
func (l *lookout) vacate(id identity, parent *node) bool {
	old := l.tree.ids[id.fileID]
	if old == nil {
		return true
	}
	if found, err := l.ws.Lstat(old.path); err == nil && id.is(found) {
		return false
	}
	for at := parent; at != nil; at = at.parent {
		if at == old {
			l.stale = true // the tree changed too much to decide
			return false
		}
	}
	l.handleGone(old.parent, filepath.Base(old.path))
	return true
}

// attach makes the system watch a directory. It returns false if the system
// refuses; a directory with watches is then polled.
func (l *lookout) attach(at *node, f *os.File) bool {
	delete(l.tree.polled, at)
	watched := len(l.tree.keys)
	if l.source != nil && !l.tree.full && watched < l.most && (at.claimed || watched < l.forListings) {
		key, err := l.source.add(f, l.ws.At(at.path))
		if err == nil {
			at.key = key
			l.tree.keys[key] = at
			return true
		}
		l.tree.full = !absent(err)
	}
	if at.claimed {
		l.pollInstead(at)
	}
	return false
}

// pollInstead polls a directory that the system does not watch.
func (l *lookout) pollInstead(at *node) {
	l.tree.polled[at] = struct{}{}
	if len(l.tree.polled) == 1 {
		l.pollAt = time.Now().Add(l.pollGap)
	}
}

// unwatch makes the system stop watching a directory.
func (l *lookout) unwatch(at *node) {
	if at.key != "" {
		l.source.remove(at.key)
		delete(l.tree.keys, at.key)
		at.key = ""
	}
}

// sync compares the tree with the directories after reports were lost. It opens
// a new source: the old one may have stopped watching directories without a
// report, and its queued reports do not matter any more.
func (l *lookout) sync() {
	began := time.Now()
	l.closeSource()
	l.stale, l.tree.full = false, false
	if l.tree.top != nil {
		l.openSource()
		l.compareAll(l.tree.top)
	}
	if l.tree.top == nil {
		l.closeSource()
	}
	l.listings.markStale(l.tree.top == nil || l.tree.top.isDeaf()) // the loss itself is not reported; later changes are, unless deaf
	now := time.Now()
	l.syncAt = now.Add(max(now.Sub(began), l.pollGap))
}

func (l *lookout) compareAll(at *node) {
	below := slices.Collect(maps.Values(at.children)) // without directories found now
	l.compare(at)
	for _, child := range below {
		if !child.gone && l.ctx.Err() == nil {
			l.compareAll(child)
		}
	}
}

// polls reports whether something must be polled: directories that the system
// does not watch, or an empty root. The system does not report the removal of
// the root while a host has it open.
func (l *lookout) polls() bool {
	top := l.tree.top
	return len(l.tree.polled) > 0 || top != nil && len(top.holders) > 0 && len(top.names) == 0
}

// poll compares the directories that the system does not watch.
func (l *lookout) poll() {
	began := time.Now()
	l.tree.full = false // there may be room again
	if l.source == nil {
		l.openSource()
	}
	for at := range maps.Clone(l.tree.polled) {
		if !at.gone && l.ctx.Err() == nil {
			l.compare(at)
		}
	}
	if top := l.tree.top; top != nil && !l.isRoot(top.id) {
		l.listings.markStale(true)
		l.drop(top)
	}
	now := time.Now()
	l.pollAt = now.Add(max(l.pollGap, 9*now.Sub(began)))
}

// compare reports the changes in a directory, and tries to make the system
// watch it.
func (l *lookout) compare(at *node) {
	f, err := l.reopen(at)
	switch {
	case err != nil && !absent(err):
		l.stale = l.stale || outOfFiles(err)
		if at.claimed {
			l.tree.polled[at] = struct{}{}
		}
		return
	case err != nil && at.parent == nil:
		l.drop(at)
		return
	case err != nil:
		l.handleGone(at.parent, filepath.Base(at.path))
		return
	}
	defer f.Close()
	if !l.attach(at, f) {
		notify(at.holders, systemLimit)
		notify(at.passers, systemLimit)
	}
	if !at.claimed {
		return // the listing finds its changes itself
	}
	// Removed names make room for new ones, so they are handled first.
	if err := l.compareGone(at, f); errors.Is(err, errTooManyNames) {
		l.blind(at)
		return
	} else if err != nil || len(at.holders) == 0 {
		return
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return
	}
	now := time.Now()
	_ = inBatches(f, func(entries []fs.DirEntry) error { // the next comparison gets what is not read now
		for _, e := range entries {
			if at.gone {
				return fs.ErrNotExist
			}
			if info, err := e.Info(); err == nil {
				l.compareName(at, e.Name(), info, now)
			}
		}
		return nil
	})
}

// compareGone reports names that are gone from a directory, or are another
// directory now. If the directory has too many names, it reports nothing.
func (l *lookout) compareGone(at *node, f *os.File) error {
	gone, lost := maps.Clone(at.names), maps.Clone(at.children)
	count, room := 0, l.names-l.tree.names+len(at.names)
	err := inBatches(f, func(entries []fs.DirEntry) error {
		if count += len(entries); count > room && len(at.holders) > 0 {
			return errTooManyNames
		}
		for _, e := range entries {
			delete(gone, e.Name())
			if child := lost[e.Name()]; child != nil {
				if info, err := e.Info(); err == nil && child.id.is(info) {
					delete(lost, e.Name())
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name := range gone {
		l.handleGone(at, name)
	}
	for name := range lost {
		if at.children[name] != nil {
			l.handleGone(at, name)
		}
	}
	return nil
}

// compareName reports the change of one name in a directory.
func (l *lookout) compareName(at *node, name string, info fs.FileInfo, now time.Time) {
	path := filepath.Join(at.path, name)
	old, known := at.names[name]
	m := stampOf(info, now)
	if known && (old == stampDir) != (m == stampDir) {
		l.handleGone(at, name)
		known = false
	}
	switch noted := l.know(at, name, m); {
	case !noted: // otherwise it would be reported each time
	case !known:
		l.tell(at, treeChange{kind: contracts.FileCreated, path: path, known: at.blind, isDir: m == stampDir})
	case m != stampDir && (old == 0 || old != m):
		l.tell(at, treeChange{kind: contracts.FileModified, path: path})
	}
	if m == stampDir && at.misses(name) {
		l.visit(at, name, &arrival{known: known && old == stampDir}, at.holders)
	}
}
