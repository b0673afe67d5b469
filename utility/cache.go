package utility

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// maxListingAge bounds what a listing may miss that neither the system nor
	// a mark tells, such as an ignore file that git's configuration includes.
	// A listing that takes long is used for ageFactor times as long.
	maxListingAge = 30 * time.Second
	ageFactor     = 60

	// maxUntold is how long a listing is used of whose changes nobody tells.
	maxUntold = 200 * time.Millisecond

	// quick separates small workspaces from large ones. If listing all files took
	// less, a search waits until the listing is true. If it took more, a search
	// waits slowWait and then uses the listing as it is, which is brought up to
	// date behind it. A large workspace is listed again after restFactor times as
	// long as that took, so that it takes a fifth of the time at most.
	quick      = 100 * time.Millisecond
	slowWait   = 10 * time.Millisecond
	restFactor = 4

	// maxIdle is how long a listing is kept while nobody searches.
	maxIdle = 10 * time.Minute

	// maxTouched bounds the changed paths that are looked at one by one. Beyond
	// that all files are listed.
	maxTouched = 1024
)

// A listings keeps the listing of a directory: the workspace's root, or one in a
// workspace that is too large. Its methods may be called from any goroutine.
//
// One goroutine at a time, the worker, changes the listing. A search starts it
// when it finds that the listing is not true. For the root the worker also has the
// lookout follow every directory. From then on it only looks at the paths that the
// system reports.
type listings struct {
	// Static.
	of  *lister
	dir string // relative to the root

	ctx    context.Context // of the worker; ends with close
	cancel context.CancelFunc
	work   sync.WaitGroup // the worker; none is added once closed

	// Owned by the worker.
	again time.Time     // when it may be tried to have the system tell
	pause time.Duration // how long that was put off the last time; 0 if it went well

	mu      sync.Mutex
	closed  bool
	idle    *time.Timer         // calls rest; nil before the first search
	busy    bool                // the worker works
	began   time.Time           // when it began
	changed chan struct{}       // closed and replaced when found is another one, or the worker ends
	found   *finding            // the newest listing; nil before the first
	failed  error               // why there is none
	resting time.Time           // when all files may be listed again
	told    bool                // of changes to found
	stale   bool                // what happened takes a new listing
	touched map[string]struct{} // slash-separated paths that appeared or went; at most maxTouched
}

func newListings(of *lister, dir string) *listings {
	c := &listings{of: of, dir: dir, changed: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// A need is what it takes to make a listing true.
type need int

const (
	nothing need = iota
	patch        // what was touched is to be looked at
	anew         // all files are to be listed
)

// list returns a listing, and the directory in it that rel is. In a small workspace
// the listing is true, but for changes that the system has yet to report. Without
// such reports it is that of maxUntold before the call at the earliest. For large
// workspaces see [quick].
func (h *lister) list(ctx context.Context, rel string) (f *finding, dir string, err error) {
	if dir, err = h.ws.Real(rel); err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, maxSearchTime)
	defer cancel()
	if f, err = h.whole.newest(ctx, time.Now()); err == nil && dir != "." && !f.complete {
		f, err = h.partOf(dir).newest(ctx, time.Now())
		return f, ".", err
	}
	return f, filepath.ToSlash(dir), err
}

// partOf returns the listings of a directory in a workspace that has more files
// than may be listed. There are those of one directory at a time.
func (h *lister) partOf(dir string) *listings {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.part == nil || h.part.dir != dir {
		if old := h.part; old != nil {
			h.parting.Go(old.close) // ends soon: what the worker does ends with it
		}
		h.part = newListings(h, dir)
	}
	return h.part
}

// newest returns the listing for a search that came at then.
func (c *listings) newest(ctx context.Context, then time.Time) (*finding, error) {
	c.use()
	for {
		f, need := c.state(then)
		if need == nothing {
			if time.Since(f.asked) > max(maxListingAge, ageFactor*f.took) {
				c.begin(anew) // for the searches after this one
			}
			return f, nil
		}
		began, changed := c.begin(need)
		if changed == nil {
			return c.outdated(), nil
		}
		var late <-chan time.Time
		if f != nil && f.took > c.of.quick {
			late = time.After(time.Until(began.Add(slowWait)))
		}
		select {
		case <-changed:
		case <-late:
			return f, nil
		case <-ctx.Done():
			return c.outdated(), nil
		}
		if f, err := c.last(); f == nil && err != nil {
			return nil, err
		}
	}
}

// use restarts the time after which an unused listing is given up.
func (c *listings) use() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == nil && !c.closed {
		c.idle = time.AfterFunc(maxIdle, c.rest) // stopped by close
	} else if c.idle != nil {
		c.idle.Reset(maxIdle)
	}
}

// state returns the listing and what it takes to make it true for a search that
// came at then: that it took long to make is no reason to make another.
func (c *listings) state(then time.Time) (*finding, need) {
	c.mu.Lock()
	f, told, stale, touched, resting := c.found, c.told, c.stale, len(c.touched) > 0, time.Now().Before(c.resting)
	c.mu.Unlock()
	switch {
	case f == nil:
		return nil, anew
	case !f.asOf.Before(then):
		return f, nothing
	case stale, !told && time.Since(f.asked) > maxUntold:
		return f, anew
	case told && touched && (resting || hold(f.marks)):
		return f, patch
	case told && !hold(f.marks):
		return f, anew
	}
	return f, nothing
}

// begin has the worker work, unless it does or it is not time for what is needed.
// It returns when it began and what is closed when there is news; nil if there is
// no worker.
func (c *listings) begin(need need) (began time.Time, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.busy:
	case c.closed, need == anew && c.found != nil && time.Now().Before(c.resting):
		return time.Time{}, nil
	default:
		c.busy, c.began, c.failed = true, time.Now(), nil
		c.work.Go(func() { // ends when the listing is followed, a few times followTime at the most, or with close
			c.make(need)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.busy = false
			c.tell()
		})
	}
	return c.began, c.changed
}

// tell wakes the searches that wait. Call with c.mu held.
func (c *listings) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// rest gives up a listing that nobody uses, and what the system tells for it.
func (c *listings) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
	case c.busy:
		c.idle.Reset(maxIdle)
	default:
		c.busy = true
		c.work.Go(func() { // ends with the keeper's next job
			c.unfollow()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.busy, c.found = false, nil
			c.tell()
		})
	}
}

// close ends the worker and waits for that. There are no searches any more.
func (c *listings) close() {
	c.mu.Lock()
	c.closed = true
	c.cancel()
	if c.idle != nil {
		c.idle.Stop()
	}
	c.mu.Unlock()
	c.work.Wait()
}

// outdated returns the newest listing, which may not be all that is there by now.
// One that is made behind searches is complete all the same: they wait for no more.
func (c *listings) outdated() *finding {
	f, _ := c.last()
	if f == nil {
		return &finding{}
	}
	old := *f
	old.complete = f.complete && f.took > c.of.quick
	return &old
}

// last returns the newest listing, or why there is none.
func (c *listings) last() (*finding, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found, c.failed
}

// set shows a listing to searches.
func (c *listings) set(f *finding, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found, c.failed, c.told = f, nil, told
	c.tell()
}

// touch notes what the system reports about a path, which is slash-separated and
// relative to the root. The lookout calls it.
func (c *listings) touch(path string, op fsnotify.Op) {
	name := path[strings.LastIndexByte(path, '/')+1:]
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stale:
	case name == ".gitignore", name == ".git":
		c.stale, c.touched = true, nil
	case op == fsnotify.Write: // it is there as before
	case len(c.touched) == maxTouched:
		c.stale, c.touched = true, nil
	default:
		if c.touched == nil {
			c.touched = make(map[string]struct{})
		}
		c.touched[path] = struct{}{}
	}
}

// lose notes that changes were not reported. With deaf, later ones are not either.
func (c *listings) lose(deaf bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale, c.touched, c.told = true, nil, c.told && !deaf
}

// make is the worker. It makes the listing true and has it followed.
func (c *listings) make(need need) {
	if need == patch && c.renew() {
		return
	}
	readAll := true
	for range maxRounds {
		f, err := c.listAnew()
		if err != nil || !f.complete || c.dir != "." {
			break
		}
		done, overlooked := c.follow(f, readAll)
		if done {
			break
		}
		readAll = overlooked
	}
	c.makeSure()
}

// renew brings the listing up to date with what happened to a few paths. It reports
// false if that takes a new listing and it is time for one.
func (c *listings) renew() bool {
	asOf := time.Now()
	c.mu.Lock()
	f, touched := c.found, c.touched
	ok := c.told && !c.stale
	c.touched = nil // what happens from now on is told again
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
	c.lose(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.resting)
}

// listAnew lists all files. It first takes no longer than a search waits. If that
// was not enough, the searches get what there is, and it lists once more with more
// time.
func (c *listings) listAnew() (f *finding, err error) {
	began := time.Now()
	last := c.next()
	ctx, cancel := context.WithTimeout(c.ctx, c.of.followTime)
	defer cancel()
	if last == nil || last.took < maxSearchTime/2 {
		short, cancel := context.WithTimeout(ctx, maxSearchTime*3/4)
		f, err = c.of.listAnew(short, c.dir)
		cancel()
		if err == nil && f.hurried() {
			if last == nil {
				c.set(f, false)
			}
			for i := range c.of.doubts {
				c.of.doubts[i].lift()
			}
		}
	}
	if err == nil && (f == nil || f.hurried()) {
		f, err = c.of.listAnew(ctx, c.dir)
	}
	c.mu.Lock()
	if took := time.Since(began); took > c.of.quick {
		c.resting = time.Now().Add(restFactor * took)
	}
	c.mu.Unlock()
	switch {
	case err == nil && (last == nil || last.hurried() || !f.hurried()):
		c.set(f, false)
	case err == nil || c.ctx.Err() != nil:
		c.lose(false) // what was known stays, to be made true
	default:
		c.fail(err)
	}
	return f, err
}

// hurried reports whether there was not enough time for the listing.
func (f *finding) hurried() bool { return !f.complete && !f.full }

// next starts a new listing: what is reported from now on counts for that one. It
// returns the listing before.
func (c *listings) next() (last *finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale, c.touched = false, nil
	return c.found
}

// fail notes that there is no listing any more.
func (c *listings) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found, c.failed = nil, err
	c.tell()
}

// patch returns the listing as it is after something has happened to a few paths,
// nil if that takes a new one.
//
// The workspace's own rules say which new files are to be listed: git would take
// longer to start. A file that was listed once is listed again: if it is ignored,
// it is tracked.
func (c *listings) patch(ctx context.Context, old *finding, touched map[string]struct{}) *finding {
	h, f, e := c.of, *old, old.edit()
	var dirs, files, unknown []string // that are there by now
	for name := range touched {
		if h.isApart(name) {
			continue
		}
		e.hide(name)
		e.hideBelow(name)
		info, err := h.ws.Lstat(filepath.FromSlash(name))
		_, _, known := e.place(name)
		switch {
		case err != nil || ofVersionControl(name): // not to be found
		case info.IsDir():
			dirs = append(dirs, name)
		case !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
		case known:
			files = append(files, name)
		default:
			unknown = append(unknown, name)
		}
	}
	listed, ok := h.ws.Listed(ctx, unknown, false)
	into, sure := h.ws.Listed(ctx, dirs, true)
	if !ok || !sure {
		return nil
	}
	files = append(files, listed...)
	// Directories are followed before their files are listed, so that nothing is
	// missed.
	if _, err := h.cover(ctx, old, into, nil, true); err != nil {
		return nil
	}
	for _, dir := range into {
		own, err := h.ws.List(ctx, filepath.FromSlash(dir), h.limit)
		if err != nil || !own.Complete {
			return nil
		}
		for _, file := range own.Files {
			files = append(files, dir+"/"+file)
		}
	}
	for _, file := range h.leaveOut(".", files) {
		e.show(file)
	}
	for _, dir := range dirs {
		for _, file := range e.goneBelow(dir) {
			if h.isThere(".", file) {
				e.show(file)
			}
		}
	}
	if f.index = e.index; f.count > h.limit {
		return nil
	}
	return &f
}

// within reports whether a path is one of dirs, or below it.
func within(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		rest, ok := strings.CutPrefix(path, dir)
		return ok && (rest == "" || rest[0] == '/')
	})
}
