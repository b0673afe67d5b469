package utility

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/seed-028515a8/maestro/workspace"
)

const (
	// settleTime is how old the last change of a directory must be for its
	// modification time to tell the next one: file systems count in steps of up
	// to two seconds.
	settleTime = 2 * time.Second

	// maxFollowTime bounds what goes on behind a search: listing the workspace
	// anew and having it followed, and looking for what is not there.
	maxFollowTime = 10 * time.Second

	// minPause is how long it is left alone at first when the workspace cannot be
	// followed. Each time in a row it is twice as long, and at most maxIdle.
	minPause = 30 * time.Second

	// maxRounds is how often a workspace that goes on changing is listed in a
	// row before following it is left to the next search.
	maxRounds = 3

	// readBatch is how many entries of a directory are read at once.
	readBatch = 1024
)

// goOn has the system tell what happens in the workspace. It takes over the turn,
// lists the workspace anew first if that is asked for, and returns at once. It
// reports false if that cannot be: the caller keeps the turn.
func (h *lister) goOn(anew bool) bool {
	c := &h.listings
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || time.Now().Before(c.again) {
		return false
	}
	if c.feed == nil {
		var err error
		if c.feed, err = newFeed(h.share, c); err != nil {
			c.giveUp()
			return false
		}
	}
	c.work.Go(func() { // ends when all is followed, twice followTime at the most, or with close
		h.follow(c.ctx, anew)
		<-c.turn
		h.makeSure(c.ctx)
	})
	return true
}

// giveUp leaves the workspace to be listed at every search, for a while: what
// there is too little of belongs to others as well, who may give it back.
func (c *listings) giveUp() {
	c.pause = min(max(minPause, 2*c.pause), maxIdle)
	c.again = time.Now().Add(c.pause)
}

// refresh has a listing that is old made anew, unless somebody is at it.
func (h *lister) refresh(f *finding) {
	if time.Since(f.asked) <= maxListingAge {
		return
	}
	turn := h.listings.open()
	select {
	case turn <- struct{}{}:
		if !h.goOn(true) {
			<-turn
		}
	default:
	}
}

// follow is the goroutine that goes on. It has the turn.
func (h *lister) follow(ctx context.Context, anew bool) {
	ctx, cancel := context.WithTimeout(ctx, h.followTime)
	defer cancel()
	f, _ := h.listings.last()
	var err error
	if anew { // what is known stays in use until then
		f, err = h.listAnew(ctx, ".")
	}
	for range maxRounds {
		if err != nil || !f.complete || h.followFrom(ctx, f) {
			return
		}
		f, err = h.renew(ctx)
	}
}

// followFrom has the system tell what happens after f was listed. It reports
// false if that began too late.
func (h *lister) followFrom(ctx context.Context, f *finding) bool {
	c := &h.listings
	known := dirsOf(f.files)
	missed, err := h.cover(ctx, f, slices.Collect(maps.Keys(known)), known)
	if err != nil { // the system tells of no more, or there is no time left
		c.giveUp()
		last, _ := c.last()
		c.set(last, false)
		c.feed.close()
		c.feed = nil
		return true
	}
	c.pause = 0
	c.mu.Lock()
	defer c.mu.Unlock()
	if missed || c.stale {
		return false
	}
	c.found, c.told = f, true
	return true
}

// makeSure leaves out the tracked files that are not there, once the system
// tells of those that go from now on. Searches go on while git looks for them.
func (h *lister) makeSure(ctx context.Context) {
	c := &h.listings
	before, told := c.last()
	if !told || !before.unsure {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, h.followTime)
	defer cancel()
	gone, err := h.gone(ctx)
	if err != nil {
		return
	}
	astray := h.astray(before.files)
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return
	}
	f, told := c.last()
	if !told || !f.asked.Equal(before.asked) {
		return // it was listed anew
	}
	sure := *f
	sure.unsure = false
	sure.files = slices.DeleteFunc(slices.Clone(f.files), func(file candidate) bool {
		return astray[path.Dir(file.path)] || gone[file.path] && !h.isThere(".", file.path) // it may have come back
	})
	c.set(&sure, true)
}

// astray returns the directories of files that are none by now: git sees what lies
// behind a link in the place of one, also outside the workspace.
func (h *lister) astray(files []candidate) map[string]bool {
	astray := make(map[string]bool)
	for _, dir := range slices.Sorted(maps.Keys(dirsOf(files))) { // each after the one it lies in
		info, err := h.ws.Lstat(filepath.FromSlash(dir))
		if err != nil || !info.IsDir() || astray[path.Dir(dir)] {
			astray[dir] = true
		}
	}
	return astray
}

// dirsOf returns the directories that files lie in, up to ".".
func dirsOf(files []candidate) map[string]struct{} {
	dirs := map[string]struct{}{".": {}}
	last := ""
	for _, c := range files {
		dir := path.Dir(c.path)
		if dir == last {
			continue // most files lie where the one before does
		}
		last = dir
		for has := false; !has; dir = path.Dir(dir) {
			if _, has = dirs[dir]; !has {
				dirs[dir] = struct{}{}
			}
		}
	}
	return dirs
}

// cover has the system tell what happens in dirs, and in all below them that are
// neither known nor ignored, nor kept apart. missed says that something may have
// happened in one of them after f was asked for and before it was told.
func (h *lister) cover(ctx context.Context, f *finding, dirs []string, known map[string]struct{}) (missed bool, err error) {
	for len(dirs) > 0 {
		var unknown []string
		for _, dir := range dirs {
			if ctx.Err() != nil {
				return missed, context.Cause(ctx)
			}
			below, late, err := h.coverOne(dir, f.asked)
			if err != nil {
				return missed, err
			}
			missed = missed || late
			for _, dir := range below {
				if _, is := known[dir]; !is && !h.isApart(dir) {
					unknown = append(unknown, dir)
				}
			}
		}
		dirs = h.notIgnored(ctx, f, unknown)
	}
	return missed, nil
}

// coverOne has the system tell what happens in dir, and returns the directories
// in it. late says that something happened in it about asked or later, and nobody
// told.
//
// The system may be led out of the workspace by a link that was swapped in. That
// is no harm: what it tells and what is read here are names to ask git for.
func (h *lister) coverOne(dir string, asked time.Time) (below []string, late bool, err error) {
	name := h.ws.At(filepath.FromSlash(dir))
	fresh, err := h.listings.feed.add(name)
	if err != nil {
		return nil, false, err
	}
	d, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO that was swapped in would block
	if err != nil {
		return nil, false, nil // it is gone, which is told, or not ours to read
	}
	defer d.Close()
	late = fresh && changedSince(d.Stat, asked)
	_ = inBatches(d, func(entries []fs.DirEntry) error { // what cannot be read is not listed either
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

// changedSince reports whether a file has changed about a time or later.
func changedSince(stat func() (os.FileInfo, error), then time.Time) bool {
	info, err := stat()
	return err != nil || info.ModTime().After(then.Add(-settleTime))
}

// notIgnored returns those of dirs in which there may be something to list. What
// git does not rule out for certain may.
func (h *lister) notIgnored(ctx context.Context, f *finding, dirs []string) []string {
	if len(dirs) == 0 || !f.byGit {
		return dirs
	}
	var rest, asked []string
	for _, dir := range dirs {
		if within(dir, f.nested) { // git fails if it is asked about another repository
			rest = append(rest, dir)
		} else {
			asked = append(asked, dir)
		}
	}
	ignored, _ := h.ignored(ctx, asked)
	return append(rest, slices.DeleteFunc(asked, func(dir string) bool { return ignored[dir] })...)
}
