package utility

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed-028515a8/maestro/internal/workspace"
)

const (
	// maxListingAge bounds the age of a listing, because neither the system nor
	// a fileState reports some changes, such as of an ignore file that git's
	// configuration includes. If listing takes long, the bound is ageFactor
	// times as long.
	maxListingAge = 30 * time.Second
	ageFactor     = 60

	// maxUntold bounds the age of a listing whose changes the system does not
	// report.
	maxUntold = 200 * time.Millisecond

	// quick separates small workspaces from large ones by the time to list all
	// files. In a small workspace a search waits until the listing is up to
	// date. In a large one it waits slowWait at most and uses the old listing,
	// which the worker updates in the background. A large workspace is not
	// listed again for restFactor times as long as listing took, so that listing
	// takes at most a fifth of the time.
	quick      = 100 * time.Millisecond
	slowWait   = 10 * time.Millisecond
	restFactor = 4

	// maxIdle is how long a listing is kept without a search.
	maxIdle = 10 * time.Minute

	// maxTouched bounds the changed paths that are checked one by one. If there
	// are more, all files are listed.
	maxTouched = 1024
)

// A lister keeps the listing of a workspace. Its methods may be called from any
// goroutine.
//
// One goroutine at a time, the worker, changes the listing. A search starts it
// when the listing is out of date. The worker also makes the lookout follow
// every directory. From then on it checks only the paths that the system
// reports.
type lister struct {
	// Static.
	ws         *workspace.Workspace
	excluded   string        // directory whose content is excluded, slash-separated and relative to the root; "" if there is none
	followTime time.Duration // bounds each part of a search's background work
	quick      time.Duration // see the constant quick
	limit      int           // bound of the files in a listing
	lookout    *lookout

	ctx    context.Context // of the worker; ends with close
	cancel context.CancelFunc
	work   sync.WaitGroup // waits for the worker; not added to once closed

	// Owned by the worker.
	again time.Time     // when following may be tried again
	pause time.Duration // the last delay before following was tried again; 0 after a success

	mu       sync.Mutex
	closed   bool
	idle     *time.Timer         // calls expire; nil before the first search
	busy     bool                // a worker runs
	began    time.Time           // when the worker began
	changed  chan struct{}       // closed and replaced when current changes or the worker ends
	current  *listing            // the newest listing; nil before the first
	resting  time.Time           // until then all files are not listed again
	reported bool                // the system reports changes to current
	stale    bool                // the changes need a new listing
	touched  map[string]struct{} // slash-separated paths that appeared or disappeared; at most maxTouched
}

// A need is what a listing needs to be up to date.
type need int

const (
	upToDate   need = iota
	needPatch       // the touched paths must be checked
	needRelist      // all files must be listed
)

// list returns a listing, and rel as a directory in it. In a small workspace
// the listing is up to date, except for changes that the system has not
// reported yet. If the system does not report changes, the listing is at most
// maxUntold old. For large workspaces see [quick].
func (c *lister) list(ctx context.Context, rel string) (f *listing, dir string, err error) {
	if dir, err = c.ws.Real(rel); err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, maxSearchTime)
	defer cancel()
	return c.newest(ctx, time.Now()), filepath.ToSlash(dir), nil
}

// newest returns the listing for a search that arrived at then.
func (c *lister) newest(ctx context.Context, then time.Time) *listing {
	c.mu.Lock()
	if c.idle == nil && !c.closed {
		c.idle = time.AfterFunc(maxIdle, c.expire) // stopped by close
	} else if c.idle != nil {
		c.idle.Reset(maxIdle)
	}
	c.mu.Unlock()
	for {
		f, need := c.state(then)
		if need == upToDate {
			if time.Since(f.asked) > max(maxListingAge, ageFactor*f.took) {
				c.begin(needRelist) // for the searches after this one
			}
			return f
		}
		began, changed := c.begin(need)
		if changed == nil {
			return c.outdated()
		}
		var late <-chan time.Time
		if f != nil && f.took > c.quick {
			late = time.After(time.Until(began.Add(slowWait)))
		}
		select {
		case <-changed:
		case <-late:
			return f
		case <-ctx.Done():
			return c.outdated()
		}
	}
}

// state returns the listing and what it needs for a search that arrived at
// then. A listing begun after then is up to date, even if listing took longer
// than its age bound.
func (c *lister) state(then time.Time) (*listing, need) {
	c.mu.Lock()
	f, told, stale, touched, resting := c.current, c.reported, c.stale, len(c.touched) > 0, time.Now().Before(c.resting)
	c.mu.Unlock()
	switch {
	case f == nil:
		return nil, needRelist
	case !f.asOf.Before(then):
		return f, upToDate
	case stale, !told && time.Since(f.asked) > maxUntold:
		return f, needRelist
	case told && touched && (resting || allUnchanged(f.dependencies)):
		return f, needPatch
	case told && !allUnchanged(f.dependencies):
		return f, needRelist
	}
	return f, upToDate
}

// begin starts a worker unless one runs or it is too early for need. It returns
// when the worker began and a channel that is closed at its next change; nil if
// there is no worker.
func (c *lister) begin(need need) (began time.Time, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.busy:
	case c.closed, need == needRelist && c.current != nil && time.Now().Before(c.resting):
		return time.Time{}, nil
	default:
		c.start(func() { c.update(need) }) // ends when the listing is followed, after at most a few followTime, or with close
	}
	return c.began, c.changed
}

// start starts a worker. The caller holds c.mu, and no worker runs.
func (c *lister) start(job func()) {
	c.busy, c.began = true, time.Now()
	c.work.Go(func() {
		job()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.busy = false
		c.wake()
	})
}

// wake wakes the waiting searches. The caller holds c.mu.
func (c *lister) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// expire drops an unused listing and stops following its directories.
func (c *lister) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
	case c.busy:
		c.idle.Reset(maxIdle)
	default:
		c.start(func() { // ends with the keeper's next job
			c.unfollow()
			c.set(nil, false)
		})
	}
}

// close ends the worker and waits for it. No search may follow.
func (c *lister) close() {
	c.mu.Lock()
	c.closed = true
	c.cancel()
	if c.idle != nil {
		c.idle.Stop()
	}
	c.mu.Unlock()
	c.work.Wait()
}

// outdated returns the newest listing, which may be out of date. It counts as
// incomplete in a small workspace, where a search waits until the listing is up
// to date.
func (c *lister) outdated() *listing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return &listing{}
	}
	old := *c.current
	old.complete = old.complete && old.took > c.quick
	return &old
}

// set makes f the current listing.
func (c *lister) set(f *listing, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.reported = f, told
	c.wake()
}

// touch records a report of the system about a path, which is slash-separated
// and relative to the root. The lookout calls it.
func (c *lister) touch(path string, op fsnotify.Op) {
	name := path[strings.LastIndexByte(path, '/')+1:]
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stale:
	case name == ".gitignore", name == ".git":
		c.stale, c.touched = true, nil
	case op == fsnotify.Write: // it exists as before
	case len(c.touched) == maxTouched:
		c.stale, c.touched = true, nil
	default:
		if c.touched == nil {
			c.touched = make(map[string]struct{})
		}
		c.touched[path] = struct{}{}
	}
}

// markStale records that reports were lost. If deaf is set, later changes are
// not reported either.
func (c *lister) markStale(deaf bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale, c.touched, c.reported = true, nil, c.reported && !deaf
}

// update is the worker. It brings the listing up to date and follows its
// directories.
func (c *lister) update(need need) {
	if need == needPatch && c.applyTouched() {
		return
	}
	readAll := true
	for range maxRounds {
		f := c.relist()
		if !f.complete {
			break
		}
		done, overlooked := c.follow(f, readAll)
		if done {
			break
		}
		readAll = overlooked
	}
}

// applyTouched checks the touched paths. It returns false if all files must be
// listed and it is not too early for that.
func (c *lister) applyTouched() bool {
	asOf := time.Now()
	c.mu.Lock()
	f, touched := c.current, c.touched
	ok := c.reported && !c.stale
	c.touched = nil // later reports are recorded again
	c.mu.Unlock()
	if ok {
		ctx, cancel := context.WithTimeout(c.ctx, maxSearchTime)
		defer cancel()
		if now := c.patch(ctx, f, touched); now != nil {
			now.asOf = asOf
			c.set(now, true)
			return true
		}
	}
	c.markStale(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.resting)
}

// relist lists all files. The first listing may take no longer than searches
// wait for it; if the time does not suffice, they get a part, and a second
// attempt has more time.
func (c *lister) relist() (f *listing) {
	began := time.Now()
	c.mu.Lock()
	c.stale, c.touched = false, nil // reports from now on count for the new listing
	last := c.current
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, c.followTime)
	defer cancel()
	if last == nil {
		short, cancel := context.WithTimeout(ctx, maxSearchTime*3/4)
		defer cancel()
		if f = c.listAll(short); f.hurried {
			c.set(f, false)
		}
	}
	if f == nil || f.hurried {
		f = c.listAll(ctx)
	}
	if took := time.Since(began); took > c.quick {
		c.mu.Lock()
		c.resting = time.Now().Add(restFactor * took)
		c.mu.Unlock()
	}
	if last == nil || last.hurried || !f.hurried {
		c.set(f, false)
	} else {
		c.markStale(false)
	}
	return f
}

// patch returns the listing with a few touched paths checked, or nil if all
// files must be listed. Ignore rules decide about new files. A file that was
// listed before is listed again: if it is ignored, it is tracked.
func (c *lister) patch(ctx context.Context, old *listing, touched map[string]struct{}) *listing {
	f, e := *old, old.edit()
	var dirs, files, unknown []string // those that exist now
	for name := range touched {
		if c.isExcluded(name) {
			continue
		}
		e.hide(name)
		e.hideBelow(name)
		info, err := c.ws.Lstat(filepath.FromSlash(name))
		_, _, known := e.place(name)
		switch {
		case err != nil || workspace.VersionControl(name): // not listed
		case info.IsDir():
			dirs = append(dirs, name)
		case !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
		case known:
			files = append(files, name)
		default:
			unknown = append(unknown, name)
		}
	}
	listed, ok := c.ws.Listed(ctx, unknown, false)
	into, sure := c.ws.Listed(ctx, dirs, true)
	if !ok || !sure {
		return nil
	}
	files = append(files, listed...)
	// Directories are followed before their files are listed, so that no change
	// is missed.
	if _, err := c.followDirs(ctx, old, into, nil, true); err != nil {
		return nil
	}
	for _, dir := range into {
		own, err := c.ws.List(ctx, filepath.FromSlash(dir), c.limit)
		if err != nil || !own.Complete {
			return nil
		}
		for _, file := range own.Files {
			files = append(files, dir+"/"+file)
		}
	}
	for _, file := range files {
		if !c.isExcluded(file) {
			e.show(file)
		}
	}
	for _, dir := range dirs {
		for _, file := range e.goneBelow(dir) {
			if info, err := c.ws.Lstat(filepath.FromSlash(file)); err == nil && !info.IsDir() {
				e.show(file)
			}
		}
	}
	if f.index = e.index; f.count > c.limit {
		return nil
	}
	return &f
}
