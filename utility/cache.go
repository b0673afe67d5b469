package utility

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxListingAge bounds what a listing may miss that neither the system nor
	// a mark tells, such as an ignore file that git's configuration includes.
	maxListingAge = 30 * time.Second

	// maxUntold is how long a listing is used of whose changes nobody tells.
	maxUntold = 200 * time.Millisecond

	// maxIdle is how long changes are told while nobody searches.
	maxIdle = 10 * time.Minute

	// maxTouched is about how many paths git is asked one by one, rather than
	// for all there are.
	maxTouched = 64
)

// A listings keeps the listing of the workspace, and has it follow what happens
// there. Its zero value is ready and its methods may be called from any
// goroutine.
//
// The listing is made by one goroutine at a time, a search's at first. When it
// is there, another one goes on and has the system tell of everything that
// appears and goes. From then on a search asks git about that alone.
type listings struct {
	work sync.WaitGroup // what goes on; none is added once closed

	// Owned by who has the turn.
	feed  *feed         // nil unless the system is to tell
	again time.Time     // when it may be tried to have it tell
	pause time.Duration // how long that was put off the last time; 0 if it went well

	mu      sync.Mutex
	closed  bool
	turn    chan struct{}   // 1-buffered; holds a token while somebody makes the listing; never closed; nil before the first search
	ctx     context.Context // of work; ends with close
	cancel  context.CancelFunc
	idle    *time.Timer         // calls rest
	found   *finding            // the newest listing; nil before the first
	told    bool                // of changes to found
	stale   bool                // what happened takes a new listing
	touched map[string]struct{} // absolute paths that appeared or went; at most maxTouched
	part    part                // the part of a listing that was searched last
}

// A part is the files of a listing that lie below a directory.
type part struct {
	of    *finding
	dir   string
	files []candidate
}

// list returns the files below rel. They are those of the moment, but for what
// the system has yet to tell. If it does not tell they are those of maxUntold
// before the call at the earliest.
func (h *lister) list(ctx context.Context, rel string) (*finding, error) {
	dir, err := h.ws.Real(rel)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxSearchTime)
	defer cancel()
	if dir != "." && h.listings.tooLarge() {
		return h.listAnew(ctx, dir)
	}
	f, err := h.listAll(ctx)
	if err != nil || dir == "." {
		return f, err
	}
	return h.listings.below(f, filepath.ToSlash(dir)), nil
}

// listAll returns all files of the workspace.
func (h *lister) listAll(ctx context.Context) (*finding, error) {
	return h.listSince(ctx, time.Now())
}

// listSince is listAll for who has been waiting for it since then.
func (h *lister) listSince(ctx context.Context, then time.Time) (*finding, error) {
	c := &h.listings
	turn := c.open()
	if f := c.current(then); f != nil {
		h.refresh(f)
		return f, nil
	}
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return c.outdated(), nil
	}
	if ctx.Err() != nil { // both were so
		<-turn
		return c.outdated(), nil
	}
	f := c.current(then) // another search may have made it meanwhile
	var err error
	if f == nil {
		f, err = h.renew(ctx)
		if _, told := c.last(); err == nil && f.complete && !told && h.goOn(false) {
			return f, nil // the turn is not over
		}
	}
	<-turn
	return f, err
}

// open returns the channel of the turn.
func (c *listings) open() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn == nil {
		c.turn = make(chan struct{}, 1)
		c.ctx, c.cancel = context.WithCancel(context.Background())
		c.idle = time.AfterFunc(maxIdle, c.rest) // stopped by close
	}
	c.idle.Reset(maxIdle)
	return c.turn
}

// rest ends what the system tells while nobody searches. The next search lists
// the workspace anew.
func (c *listings) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.work.Go(func() { // ends at once, for nobody else has the turn for long
		c.turn <- struct{}{}
		defer func() { <-c.turn }()
		c.set(nil, false)
		if c.feed != nil {
			c.feed.close()
			c.feed = nil
		}
	})
}

// close ends what goes on, and waits for that. There are no searches any more.
func (c *listings) close() {
	c.mu.Lock()
	c.closed = true
	if c.cancel != nil {
		c.cancel()
		c.idle.Stop()
	}
	c.mu.Unlock()
	c.work.Wait()
	if c.feed != nil {
		c.feed.close()
	}
}

// current returns the listing if it is true by now, or was asked for after then by
// somebody else, else nil: that it took long to make is no reason to make another.
func (c *listings) current(then time.Time) *finding {
	c.mu.Lock()
	f, told, changed := c.found, c.told, c.stale || len(c.touched) > 0
	c.mu.Unlock()
	switch {
	case f == nil || changed:
		return nil
	case !told && f.asked.Before(then) && time.Since(f.asked) > maxUntold:
		return nil
	case told && !hold(f.marks):
		return nil
	}
	return f
}

// outdated returns the last listing, which is not all that is there by now.
func (c *listings) outdated() *finding {
	f := &finding{}
	if last, _ := c.last(); last != nil {
		f.files, f.unsure = last.files, last.unsure
	}
	return f
}

// tooLarge reports whether the workspace had more files than may be listed, so
// that a directory in it is better listed by itself.
func (c *listings) tooLarge() bool {
	f, _ := c.last()
	return f != nil && !f.complete && time.Since(f.asked) <= maxListingAge
}

func (c *listings) last() (f *finding, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found, c.told
}

func (c *listings) set(f *finding, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found, c.told, c.part = f, told, part{}
}

// below returns the part of f that lies below a directory, by paths relative to
// that.
func (c *listings) below(f *finding, dir string) *finding {
	c.mu.Lock()
	p := c.part
	c.mu.Unlock()
	if p.of != f || p.dir != dir {
		var paths []string
		for _, file := range f.files {
			if rel, ok := strings.CutPrefix(file.path, dir+"/"); ok {
				paths = append(paths, rel)
			}
		}
		p = part{f, dir, newCandidates(paths)}
		c.mu.Lock()
		c.part = p
		c.mu.Unlock()
	}
	return &finding{files: p.files, complete: f.complete, unsure: f.unsure}
}

// renew makes the listing true again. The caller has the turn.
func (h *lister) renew(ctx context.Context) (*finding, error) {
	c := &h.listings
	c.mu.Lock()
	f, whole, touched := c.found, c.stale || !c.told, c.touched
	c.stale, c.touched = false, nil // what happens from now on is told again
	c.mu.Unlock()
	if !whole && len(touched) > 0 && hold(f.marks) {
		if f, ok := h.patch(ctx, f, touched); ok {
			c.set(f, true)
			return f, nil
		}
	}
	old := f
	f, err := h.listAnew(ctx, ".")
	switch {
	case err == nil && ctx.Err() == nil, err == nil && !errors.Is(ctx.Err(), context.Canceled) && (old == nil || !old.complete):
		c.set(f, false)
	default:
		c.lose() // what was known stays, to be made true
	}
	return f, err
}

// patch returns the listing as it is after something has happened to a few paths.
// It reports false if that takes a new one.
func (h *lister) patch(ctx context.Context, old *finding, touched map[string]struct{}) (*finding, bool) {
	var paths, dirs, files []string
	for path := range touched {
		rel, err := filepath.Rel(h.ws.Root(), path)
		name := filepath.ToSlash(rel)
		switch {
		case err != nil || within(name, old.nested):
			return nil, false
		case h.isApart(rel):
			continue
		}
		info, err := h.ws.Lstat(rel)
		switch {
		case err != nil || ofVersionControl(name): // not to be found
		case info.IsDir():
			dirs = append(dirs, name)
		case info.Mode().IsRegular() || info.Mode()&fs.ModeSymlink != 0:
			files = append(files, name)
		}
		paths = append(paths, name)
	}
	if !old.byGit && len(dirs)+len(files) > 0 {
		return nil, false // the workspace tells only of all files
	}
	// Directories are followed before git is asked, so that nothing is missed.
	if _, err := h.cover(ctx, old, h.notIgnored(ctx, old, dirs), nil); err != nil {
		return nil, false
	}
	now, ok := h.listSome(ctx, dirs, files)
	if !ok {
		return nil, false
	}
	f := *old
	f.files = make([]candidate, 0, len(old.files)+len(now))
	for _, file := range old.files {
		if !within(file.path, paths) {
			f.files = append(f.files, file)
		}
	}
	f.files = append(f.files, newCandidates(h.leaveOut(".", now))...)
	return &f, len(f.files) <= maxSearchFiles
}

// listSome returns those of files that git does not ignore, or tracks, and the
// files below dirs. It reports false if git cannot tell.
func (h *lister) listSome(ctx context.Context, dirs, files []string) ([]string, bool) {
	ignored, err := h.ignored(ctx, files)
	if err != nil {
		return nil, false
	}
	var now []string
	rest := dirs // git reads all it tracks for these
	for _, file := range files {
		if ignored[file] {
			rest = append(rest, file)
		} else {
			now = append(now, file)
		}
	}
	if len(rest) == 0 {
		return now, true
	}
	more, ok := h.askGitAbout(ctx, rest)
	return append(now, more...), ok
}

// within reports whether a path is one of dirs, or below it.
func within(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		rest, ok := strings.CutPrefix(path, dir)
		return ok && (rest == "" || rest[0] == '/')
	})
}
