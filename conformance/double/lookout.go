package double

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A lookout is a file watch. It looks at the whole tree again and again, which
// does for tests. Server.mu guards it, but for what its goroutine owns.
type lookout struct {
	room     *room
	owner    *client
	cmd      *contracts.UtilityFileWatchStart
	root     string
	debounce time.Duration
	over     bool
	done     chan struct{} // closed when it is over

	// Owned by the goroutine.
	self    fs.FileInfo
	seen    map[string]fs.FileInfo
	pending map[string]*change
	order   []string // of pending
}

// A change is what happened to a path and was not told yet.
type change struct {
	kind       contracts.FileChange
	due, limit time.Time
}

const (
	maxLookouts = 64
	lookTime    = 20 * time.Millisecond
)

// startWatch starts a watch.
func (c *client) startWatch(cmd *contracts.UtilityFileWatchStart) *contracts.Error {
	r, p := c.room, c.room.directory(cmd.RootDir)
	info, err := os.Stat(p.real)
	switch {
	case at(r.lookouts, func(l *lookout) bool { return l.cmd.WatchID == cmd.WatchID }) != nil:
		return noTool(contracts.CodeBadRequest, "Utility file watch already exists: "+cmd.WatchID)
	case !p.inside:
		return p.outside()
	case err != nil || !info.IsDir():
		return noTool(contracts.CodeNotFound, "Utility file watch root directory does not exist: "+p.named)
	case len(r.lookouts) >= maxLookouts:
		return noTool(contracts.CodeOverloaded, "Too many utility file watches")
	}
	l := &lookout{room: r, owner: c, cmd: cmd, root: p.real, self: info, done: make(chan struct{}), pending: map[string]*change{},
		debounce: time.Duration(orDefault(cmd.DebounceMS, 100, 0, 60_000)) * time.Millisecond}
	l.seen = l.look()
	r.lookouts = append(r.lookouts, l)
	r.publish(&contracts.UtilityFileWatchStarted{WatchID: cmd.WatchID, RootDir: l.root, IncludePatterns: cmd.IncludePatterns,
		ExcludePatterns: cmd.ExcludePatterns, DebounceMS: l.debounce.Milliseconds(), OwnerConnectionID: c.id})
	go l.run() // ends when it is over
	return nil
}

// stopWatch ends a watch, if it is there.
func (c *client) stopWatch(cmd *contracts.UtilityFileWatchStop) *contracts.Error {
	l := at(c.room.lookouts, func(l *lookout) bool { return l.cmd.WatchID == cmd.WatchID })
	if l == nil {
		return nil
	}
	if e := c.owns(l.owner, "file watch", cmd.WatchID); e != nil {
		return e
	}
	l.stop("Stopped by controller")
	return nil
}

// stop ends the watch and says why.
func (l *lookout) stop(reason string) {
	if l.over {
		return
	}
	l.over = true
	if !l.room.s.has(ReportsAfterStop) {
		close(l.done)
	} else {
		time.AfterFunc(2*l.debounce, func() { close(l.done) })
	}
	l.room.lookouts = slices.DeleteFunc(l.room.lookouts, func(o *lookout) bool { return o == l })
	l.room.publish(&contracts.UtilityFileWatchStopped{WatchID: l.cmd.WatchID, Reason: reason})
}

// run is the watch's goroutine.
func (l *lookout) run() {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return
		case now := <-tick.C:
			if info, err := os.Lstat(l.root); err != nil || !os.SameFile(info, l.self) {
				l.rootGone()
				continue
			}
			l.compare(now)
			l.report(now)
		}
	}
}

func (l *lookout) rootGone() {
	l.room.s.mu.Lock()
	defer l.room.s.mu.Unlock()
	l.stop("Watch root removed")
}

// look lists what is there. Links are not followed.
func (l *lookout) look() map[string]fs.FileInfo {
	seen := map[string]fs.FileInfo{}
	_ = filepath.WalkDir(l.root, func(file string, d fs.DirEntry, err error) error { // what is gone is not there
		name, _ := filepath.Rel(l.root, file)
		if err != nil || name == "." {
			return nil
		}
		if info, err := d.Info(); err == nil {
			seen[filepath.ToSlash(name)] = info
		}
		return nil
	})
	return seen
}

// compare notes what has changed since the last look.
func (l *lookout) compare(now time.Time) {
	before, after := l.seen, l.look()
	if !maps.EqualFunc(before, after, os.SameFile) {
		after = l.settle(after)
	}
	l.seen = after
	for name, info := range after {
		old, known := before[name]
		switch {
		case known && os.SameFile(old, info) && old.ModTime().Equal(info.ModTime()) && old.Size() == info.Size(), known && info.IsDir():
		case known:
			l.note(name, contracts.FileModified, now)
		case l.moved(info, before, after):
			l.note(name, contracts.FileRenamed, now)
		default:
			l.note(name, contracts.FileCreated, now)
		}
	}
	for name := range before {
		if after[name] == nil {
			l.note(name, contracts.FileDeleted, now)
		}
	}
}

// settle looks again until two looks agree: what is moved in the middle of one may be
// seen in neither place.
func (l *lookout) settle(seen map[string]fs.FileInfo) map[string]fs.FileInfo {
	for range 10 { // whoever goes on changing is told of what was seen
		again := l.look()
		if maps.EqualFunc(seen, again, os.SameFile) {
			return again
		}
		seen = again
	}
	return seen
}

// moved reports whether a new name is that of a file whose old name is gone.
func (l *lookout) moved(info fs.FileInfo, before, after map[string]fs.FileInfo) bool {
	for name, old := range before {
		if after[name] == nil && os.SameFile(old, info) && old.ModTime().Equal(info.ModTime()) {
			return true
		}
	}
	return false
}

// note takes in a change.
func (l *lookout) note(name string, kind contracts.FileChange, now time.Time) {
	if !l.admits(name) {
		return
	}
	c := l.pending[name]
	if c == nil {
		c = &change{kind: kind, limit: now.Add(max(10*l.debounce, time.Second))}
		l.pending[name], l.order = c, append(l.order, name)
	}
	if kind != contracts.FileModified || c.kind == contracts.FileDeleted {
		c.kind = kind
	}
	if c.due = now.Add(l.debounce); c.due.After(c.limit) {
		c.due = c.limit
	}
}

// report tells what is due.
func (l *lookout) report(now time.Time) {
	s := l.room.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.over && !s.has(ReportsAfterStop) {
		return
	}
	l.order = slices.DeleteFunc(l.order, func(name string) bool {
		c := l.pending[name]
		if c.due.After(now) {
			return false
		}
		delete(l.pending, name)
		info := l.seen[name]
		if c.kind == contracts.FileCreated && s.has(CreatesAreRenames) {
			c.kind = contracts.FileRenamed
		}
		l.room.publish(&contracts.UtilityFileWatchEvent{WatchID: l.cmd.WatchID, ChangeType: c.kind, Path: filepath.Join(l.root, filepath.FromSlash(name)),
			RelativePath: name, Timestamp: now.UnixMilli(), IsDirectory: info != nil && info.IsDir()})
		return true
	})
}

// builtIn are never told of.
var builtIn = []string{"**/node_modules/**", "**/.git/**", "**/dist/**", "**/build/**", "**/.next/**", "**/.nuxt/**", "**/coverage/**",
	"**/*.log", "**/.DS_Store", "**/thumbs.db"}

// admits reports whether the patterns let a path through.
func (l *lookout) admits(name string) bool {
	fits := func(pattern string) bool { return globs(strings.Split(pattern, "/"), strings.Split(name, "/")) }
	if slices.ContainsFunc(builtIn, fits) && !l.room.s.has(ReportsExcluded) || slices.ContainsFunc(l.cmd.ExcludePatterns, fits) {
		return false
	}
	return len(l.cmd.IncludePatterns) == 0 || slices.ContainsFunc(l.cmd.IncludePatterns, fits)
}

// globs matches the components of a path.
func globs(pattern, names []string) bool {
	switch {
	case len(pattern) == 0:
		return len(names) == 0
	case pattern[0] == "**":
		return globs(pattern[1:], names) || len(names) > 0 && globs(pattern, names[1:])
	case len(names) == 0:
		return false
	}
	fits, _ := path.Match(pattern[0], names[0])
	return fits && globs(pattern[1:], names[1:])
}
