package utility

import (
	"context"
	"os"
	"path"
	"slices"
	"time"
)

const (
	// settleTime is how old a directory's last change must be for its
	// modification time to reveal the next change. File systems have a time
	// resolution of up to two seconds.
	settleTime = 2 * time.Second

	// maxFollowTime bounds each part of the background work of a search: listing
	// the workspace and following it.
	maxFollowTime = time.Minute

	// minPause is the first delay after the workspace could not be followed. It
	// doubles with each failure, up to maxIdle.
	minPause = 30 * time.Second

	// maxRounds bounds how often a workspace that keeps changing is listed in a
	// row. Then the next search tries to follow it again.
	maxRounds = 3

	// followBatch is the number of directories followed in a row. Searches and
	// reports of the system wait meanwhile.
	followBatch = 16
)

// follow makes the system report changes since f was listed. With readAll it
// also reads directories that are followed already, to find those without
// files. done is false if a change came before the reports began; overlooked
// says that a reported directory may not be followed.
func (c *lister) follow(f *listing, readAll bool) (done, overlooked bool) {
	if time.Now().Before(c.again) {
		return true, false
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.followTime)
	defer cancel()
	known := f.dirs()
	all := make([]string, 0, len(known))
	for dir := range known {
		all = append(all, dir)
	}
	missed, err := c.followDirs(ctx, f, all, known, readAll)
	if err != nil { // the system's limit is reached, or the time is over
		// Other programs share that limit and may release some of it.
		c.pause = min(max(minPause, 2*c.pause), maxIdle)
		c.again = time.Now().Add(c.pause)
		c.unfollow()
		return true, false
	}
	c.pause = 0
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported = !missed && !c.stale
	return c.reported, c.stale
}

// unfollow stops the system's reports for the listing.
func (c *lister) unfollow() {
	c.lookout.do(context.Background(), c.lookout.unfollow)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported = false
}

// dirs returns the directories that contain files, and all above them up to
// ".".
func (f *listing) dirs() map[string]struct{} {
	dirs := map[string]struct{}{".": {}}
	last := ""
	for _, b := range f.blocks {
		for i, file := range b.files {
			dir := path.Dir(file.path)
			if dir == last || b.sieves[i].gone {
				continue // most files are in the same directory as the one before
			}
			last = dir
			for has := false; !has; dir = path.Dir(dir) {
				if _, has = dirs[dir]; !has {
					dirs[dir] = struct{}{}
				}
			}
		}
	}
	return dirs
}

// followDirs makes the system report changes in dirs and in all directories
// below them, except those in known, ignored ones and excluded ones. Without
// readAll it does not read directories that are followed already. missed says
// that a directory may have changed after f was listed and before the reports
// began.
func (h *lister) followDirs(ctx context.Context, f *listing, dirs []string, known map[string]struct{}, readAll bool) (missed bool, err error) {
	for len(dirs) > 0 {
		slices.Sort(dirs) // parents come before their children
		var unknown []string
		for batch := range slices.Chunk(dirs, followBatch) {
			giveWay()
			var found []string
			var failed error
			anyLate := false
			done := h.lookout.do(ctx, func() {
				for _, dir := range batch {
					if failed == nil && (readAll || !h.lookout.follows(dir)) {
						var below []string
						var late bool
						below, late, failed = h.lookout.follow(dir, f.asked)
						found, anyLate = append(found, below...), anyLate || late
					}
				}
			})
			if !done {
				return false, context.Cause(ctx)
			}
			if failed != nil {
				return false, failed
			}
			missed = missed || anyLate
			for _, dir := range found {
				if _, is := known[dir]; !is && !h.isExcluded(dir) {
					unknown = append(unknown, dir)
				}
			}
		}
		dirs, _ = h.ws.Listed(ctx, unknown, true) // directories that may be ignored count
	}
	return missed, nil
}

// changedSince reports whether a file may have changed at then or later.
func changedSince(stat func() (os.FileInfo, error), then time.Time) bool {
	info, err := stat()
	return err != nil || info.ModTime().After(then.Add(-settleTime))
}
