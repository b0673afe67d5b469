package utility

import (
	"context"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

const (
	// settleTime is how old the last change of a directory must be for its
	// modification time to tell the next one: file systems count in steps of up
	// to two seconds.
	settleTime = 2 * time.Second

	// maxFollowTime bounds each part of what goes on behind a search: listing the
	// workspace anew, having it followed, and looking for what is not there.
	maxFollowTime = time.Minute

	// minPause is how long it is left alone at first when the workspace cannot be
	// followed. Each time in a row it is twice as long, and at most maxIdle.
	minPause = 30 * time.Second

	// maxRounds is how often a workspace that goes on changing is listed in a
	// row before following it is left to the next search.
	maxRounds = 3

	// followBatch is how many directories are followed in a row. Searches, and what
	// is reported meanwhile, wait that long.
	followBatch = 16
)

// follow has the system tell what happens after f was listed. With readAll it looks
// for directories without files also where it has looked before. done is false if
// the system began to tell too late; overlooked says that there may be directories
// that were told of and not followed.
func (c *listings) follow(f *finding, readAll bool) (done, overlooked bool) {
	if time.Now().Before(c.again) {
		return true, false
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.of.followTime)
	defer cancel()
	known := f.dirs()
	all := make([]string, 0, len(known))
	for dir := range known {
		all = append(all, dir)
	}
	missed, err := c.of.cover(ctx, f, all, known, readAll)
	if err != nil { // the system tells of no more, or there is no time left
		// What there is too little of belongs to others as well, who may give it back.
		c.pause = min(max(minPause, 2*c.pause), maxIdle)
		c.again = time.Now().Add(c.pause)
		c.unfollow()
		return true, false
	}
	c.pause = 0
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = !missed && !c.stale
	return c.told, c.stale
}

// unfollow has the system tell of nothing any more.
func (c *listings) unfollow() {
	if c.dir == "." {
		c.of.lookout.do(context.Background(), c.of.lookout.unfollow)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = false
}

// makeSure leaves out the tracked files that are not there, once the system
// tells of those that go from now on.
func (c *listings) makeSure() {
	c.mu.Lock()
	f, told := c.found, c.told
	c.mu.Unlock()
	if !told || !f.unsure {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.of.followTime)
	defer cancel()
	gone, err := c.of.gone(ctx)
	if err != nil {
		return
	}
	e := f.edit()
	dirs := f.dirs()
	if !c.of.lookout.do(ctx, func() {
		// The lookout has opened these, and their ends are told.
		maps.DeleteFunc(dirs, func(dir string, _ struct{}) bool { return c.of.lookout.follows(dir) })
	}) {
		return
	}
	for dir := range dirs { // git sees what lies behind a link in the place of one, also outside the workspace
		if info, err := c.of.ws.Lstat(filepath.FromSlash(dir)); err != nil || !info.IsDir() {
			e.hideBelow(dir)
		}
	}
	for file := range gone {
		if !c.of.isThere(".", file) { // it may have come back
			e.hide(file)
		}
	}
	sure := *f
	sure.index, sure.unsure = e.index, false
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = &sure
}

// dirs returns the directories that files lie in, up to ".".
func (f *finding) dirs() map[string]struct{} {
	dirs := map[string]struct{}{".": {}}
	last := ""
	f.paths(func(file string) {
		dir := path.Dir(file)
		if dir == last {
			return // most files lie where the one before does
		}
		last = dir
		for has := false; !has; dir = path.Dir(dir) {
			if _, has = dirs[dir]; !has {
				dirs[dir] = struct{}{}
			}
		}
	})
	return dirs
}

// cover has the system tell what happens in dirs, and in all below them that are
// neither known nor ignored, nor kept apart. Without readAll it does not look into
// those that are followed already. missed says that something may have happened in
// one of them after f was asked for and before it was told.
func (h *lister) cover(ctx context.Context, f *finding, dirs []string, known map[string]struct{}, readAll bool) (missed bool, err error) {
	for len(dirs) > 0 {
		slices.Sort(dirs) // each after the one it lies in
		var unknown []string
		for batch := range slices.Chunk(dirs, followBatch) {
			giveWay()
			done := h.lookout.do(ctx, func() {
				for _, dir := range batch {
					if !readAll && h.lookout.follows(dir) {
						continue
					}
					var below []string
					var late bool
					if below, late, err = h.lookout.follow(dir, f.asked); err != nil {
						return
					}
					missed = missed || late
					for _, dir := range below {
						if _, is := known[dir]; !is && !h.isApart(dir) {
							unknown = append(unknown, dir)
						}
					}
				}
			})
			if !done {
				return missed, context.Cause(ctx)
			}
			if err != nil {
				return missed, err
			}
		}
		dirs, _ = h.ws.Listed(ctx, unknown, true) // what is not ruled out for certain counts
	}
	return missed, nil
}

// changedSince reports whether a file has changed about a time or later.
func changedSince(stat func() (os.FileInfo, error), then time.Time) bool {
	info, err := stat()
	return err != nil || info.ModTime().After(then.Add(-settleTime))
}
