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

	"github.com/seed-028515a8/maestro/workspace"
)

// A stamp is what is known of a name beside itself: whether it is a directory,
// and for other things something that changes when they do; without that it is
// a file that may have changed.
type stamp uint64

const stampDir stamp = 1

func dirStamp(isDir bool) stamp {
	if isDir {
		return stampDir
	}
	return 0
}

// coarse is how far apart two changes of a file must be at least for the file
// system to give them different times.
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

// know notes what a directory contains. It reports false if there is no room
// for that.
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

// readBatch is how many entries of a directory are read at once.
const readBatch = 1024

// An arrival says how what is found in a directory came there.
type arrival struct {
	from  string // with the directory, which was called so before; "" if it is new
	known bool   // it may have been there before, unseen
}

func (a *arrival) below(name string) *arrival {
	if a == nil || a.from == "" {
		return a
	}
	return &arrival{from: filepath.Join(a.from, name)}
}

// pass adds a directory to the tree that lies between the workspace's root and
// that of a, or is the latter.
func (l *lookout) pass(parent *node, name string, a *audience) *node {
	at, f := l.enter(parent, name, []*audience{a})
	if f != nil {
		_ = f.Close()
	}
	return at
}

// visit adds a directory to the tree, with all below it, for those of the
// audiences that are about it. What is found there is told if it arrived; with
// nil it has been there.
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
		say(holders, pathTooLong)
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

// fill adds all below a directory to the tree. f is the directory if it is open,
// and closed.
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
			l.tell(at, news{op: appeared, path: filepath.Join(at.path, name), from: below.from, known: below.known, isDir: m == stampDir})
		}
		if m == stampDir {
			l.visit(at, name, below, holders)
		}
	}
}

// list notes what is in a directory, as far as it can be read: nothing if there
// is no room for that.
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
			return context.Canceled // nobody asks any more
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

// errTooManyNames says that a directory has more names than there is room for.
var errTooManyNames = errors.New("too many names in a directory")

// blind notes that not all that is in a directory can be known, and says so.
func (l *lookout) blind(at *node) {
	at.blind = true
	say(at.holders, tooManyNames)
}

// inBatches calls each with what is in a directory, so many entries at a time
// that few are in memory at once, until there are no more or it fails.
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

// reopen opens a directory of the tree if it still is where it was.
func (l *lookout) reopen(at *node) (*os.File, error) {
	f, info, err := l.openDir(at.parent, at.path)
	if err == nil && !at.id.is(info) {
		_ = f.Close()
		f, err = nil, fs.ErrNotExist
	}
	return f, err
}

// enter adds one directory to the tree for watches and returns it open, or nil if
// it is not there, or there is no room.
func (l *lookout) enter(parent *node, name string, who []*audience) (*node, *os.File) {
	path := name
	if parent != nil {
		path = filepath.Join(parent.path, name)
	}
	if l.tree.claimed >= l.limit {
		say(who, tooManyDirs)
		return nil, nil
	}
	f, info, err := l.openDir(parent, path)
	if err != nil {
		if outOfFiles(err) {
			say(who, systemLimit)
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
		say(who, systemLimit)
	}
	return at, f
}

// plant adds an open directory to the tree. It returns nil if it is there already.
func (l *lookout) plant(parent *node, path string, info fs.FileInfo) *node {
	id := identify(info)
	if !l.vacate(id, parent) {
		return nil
	}
	path = strings.Clone(path) // which may be a part of a whole listing
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

// openDir opens a directory of the tree. It does not follow symbolic links: what
// is opened lies in what the parent is.
func (l *lookout) openDir(parent *node, path string) (*os.File, fs.FileInfo, error) {
	if parent != nil { // do not open anything else, it may be a device
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

// absent reports whether err means that there is nothing of that name, or
// nothing that may be looked at.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) ||
		errors.Is(err, workspace.ErrOutside)
}

// outOfFiles reports whether err means that too many files are open.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// isRoot reports whether the workspace's root still is where it was.
func (l *lookout) isRoot(at identity) bool {
	found, err := os.Stat(l.ws.Root())
	return err == nil && at.is(found) || err != nil && !absent(err)
}

// liesIn reports whether an open directory lies in parent.
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

// vacate takes a directory out of the tree that has come into parent from
// another place in the tree, which was not reported yet. It reports false if it
// is in both, as file systems may be mounted twice: the system reports what
// happens in it for one place only.
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
			l.stale = true // the tree was changed too much to tell
			return false
		}
	}
	l.handleGone(old.parent, filepath.Base(old.path))
	return true
}

// attach has the system watch a directory. It reports false if the system does
// not; what watches are about is polled then.
func (l *lookout) attach(at *node, f *os.File) bool {
	delete(l.tree.polled, at)
	if l.source != nil && !l.tree.full && l.budget.take(at.claimed) {
		key, err := l.source.add(f, l.ws.At(at.path))
		if err == nil {
			at.key = key
			l.tree.keys[key] = at
			return true
		}
		l.budget.give(1)
		l.tree.full = !absent(err)
	}
	if at.claimed {
		l.pollInstead(at)
	}
	return false
}

// pollInstead has a directory polled that the system does not watch.
func (l *lookout) pollInstead(at *node) {
	l.tree.polled[at] = struct{}{}
	if len(l.tree.polled) == 1 {
		l.pollAt = time.Now().Add(l.pollGap)
	}
}

// unwatch has the system watch a directory no more.
func (l *lookout) unwatch(at *node) {
	if at.key != "" {
		l.source.remove(at.key)
		l.budget.give(1)
		delete(l.tree.keys, at.key)
		at.key = ""
	}
}

// sync finds what has changed in the tree while reports were lost. It begins
// anew with the system: what it watches may be gone without a report, and what
// it has not reported yet no longer matters.
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
	l.listings.lose(l.tree.top == nil || l.tree.top.isDeaf()) // what was lost is not told, and what happens from now on is
	now := time.Now()
	l.syncAt = now.Add(max(now.Sub(began), l.pollGap))
}

func (l *lookout) compareAll(at *node) {
	below := slices.Collect(maps.Values(at.children)) // not what is found now
	l.compare(at)
	for _, child := range below {
		if !child.gone && l.ctx.Err() == nil {
			l.compareAll(child)
		}
	}
}

// polls reports whether there is something to poll: what the system does not
// watch, and an empty root. That it was removed is not reported while it is open,
// which it is as long as there is a host.
func (l *lookout) polls() bool {
	top := l.tree.top
	return len(l.tree.polled) > 0 || top != nil && len(top.holders) > 0 && len(top.names) == 0
}

// poll looks for changes in the directories that the system does not watch.
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
		l.listings.lose(true)
		l.drop(top)
	}
	now := time.Now()
	l.pollAt = now.Add(max(l.pollGap, 9*now.Sub(began)))
}

// compare tells what has changed in a directory, and has the system watch it if
// it will.
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
		say(at.holders, systemLimit)
		say(at.passers, systemLimit)
	}
	if !at.claimed {
		return // the listing looks for what has changed by itself
	}
	// What is gone makes room for what is new, so it is looked for first.
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
	_ = inBatches(f, func(entries []fs.DirEntry) error { // what is not read is for the next time
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

// compareGone tells what is gone from a directory, or is another directory now.
// It tells nothing if the directory has more names than there is room for.
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

// compareName tells what has become of something in a directory.
func (l *lookout) compareName(at *node, name string, info fs.FileInfo, now time.Time) {
	path := filepath.Join(at.path, name)
	old, known := at.names[name]
	m := stampOf(info, now)
	if known && (old == stampDir) != (m == stampDir) {
		l.handleGone(at, name)
		known = false
	}
	switch noted := l.know(at, name, m); {
	case !noted: // it would be news each time
	case !known:
		l.tell(at, news{op: appeared, path: path, known: at.blind, isDir: m == stampDir})
	case m != stampDir && (old == 0 || old != m):
		l.tell(at, news{op: written, path: path})
	}
	if m == stampDir && at.misses(name) {
		l.visit(at, name, &arrival{known: known && old == stampDir}, at.holders)
	}
}
