package utility

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed-028515a8/maestro/workspace"
)

const (
	// maxReports bounds what the system has reported and nobody has looked at.
	// More than that is lost, as if the system had lost it, and looked for in
	// the tree instead.
	maxReports = 16_384

	// maxNames bounds the names that are known of all watched directories; they
	// take some sixty bytes each.
	maxNames = 1_000_000

	// maxPathBytes bounds how deep directories are watched: to look at one takes
	// the longer, the deeper it lies.
	maxPathBytes = 4096

	// pollGap is how long directories that the system does not watch are left
	// alone between two looks at them. They take a tenth of the time at most.
	pollGap = 500 * time.Millisecond
)

// A source is the system's way to tell what happens in directories. Systems
// allow few of them per user.
type source struct {
	events <-chan fsnotify.Event // closed by close, as faults is
	faults <-chan error

	// add has what happens in a directory, and to it, reported from now on, by a
	// name that begins with the key returned. path is where it lies.
	add    func(dir *os.File, path string) (key string, err error)
	remove func(key string) // of what is gone, too
	close  func()
}

// A lookout is the directories of a workspace that watches of any session are
// about, or the listing of searches: each is watched by the system once.
//
// It has one goroutine, and while something is watched two more, one of them the
// source's. The taker takes what the system reports and never waits for anything.
// The keeper owns the tree: it looks at what was taken, and lets watches join and
// leave. It waits for watches that are slow to take changes, and what is lost
// meanwhile it finds by comparing the tree with what it knows of it. A session
// takes changes as fast as its journal is written. Only one with a client on
// standard streams may take longer, and it is the only one of its process.
type lookout struct {
	// Static after the first watch.
	ws       *workspace.Workspace
	limit    int    // of directories that watches are about
	budget   *share // of directories that the system watches; each of tree.keys is taken from it
	names    int    // that are known in all directories
	listings *listings
	pollGap  time.Duration
	log      *slog.Logger
	open     func() (*source, error)

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	jobs   chan func()   // unbuffered; what the keeper is to do next; never closed
	more   chan struct{} // 1-buffered; a token means that there are reports; never closed
	keeper sync.WaitGroup

	mu      sync.Mutex
	reports []fsnotify.Event // at most maxReports
	lost    bool             // there were more

	// Owned by the keeper.
	source    *source // nil while there is nothing to watch, or the system refuses it
	taker     sync.WaitGroup
	tree      dirTree
	audiences map[string]*audience // by their names
	stale     bool                 // reports were lost, and what they were about was not looked for
	syncAt    time.Time            // when it may be; doing so all the time would leave no time for anything else
	pollAt    time.Time
}

func newLookout(ws *workspace.Workspace, limit int, budget *share, listings *listings, log *slog.Logger) *lookout {
	l := &lookout{
		ws: ws, limit: limit, budget: budget, names: maxNames, listings: listings, pollGap: pollGap, log: log, open: openSource,
		jobs: make(chan func()), more: make(chan struct{}, 1), tree: newDirTree(), audiences: make(map[string]*audience),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.keeper.Go(l.keep) // ends with close
	return l
}

// close ends the goroutines. No watch may be left.
func (l *lookout) close() {
	l.cancel()
	l.keeper.Wait()
}

// do has the keeper do a job and waits for it. It reports false if ctx ended
// before the job began, or the lookout is closed.
func (l *lookout) do(ctx context.Context, job func()) bool {
	done := make(chan struct{})
	select {
	case l.jobs <- func() { defer close(done); job() }:
		<-done
		return true
	case <-ctx.Done():
	case <-l.ctx.Done():
	}
	return false
}

// keep is the keeper.
func (l *lookout) keep() {
	defer l.closeSource()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case job := <-l.jobs:
			job()
		case <-l.more:
			l.look()
		case <-timer.C:
		}
		now := time.Now()
		if l.stale && !now.Before(l.syncAt) {
			l.sync()
		}
		if l.polls() && !now.Before(l.pollAt) {
			l.poll()
		}
		timer.Reset(l.rest())
	}
}

// rest returns how long there is nothing to do unless something is reported.
func (l *lookout) rest() time.Duration {
	wait := time.Hour
	if l.stale {
		wait = min(wait, time.Until(l.syncAt))
	}
	if l.polls() {
		wait = min(wait, time.Until(l.pollAt))
	}
	return max(wait, 0)
}

// openSource begins to hear from the system.
func (l *lookout) openSource() {
	s, err := l.open()
	if err != nil {
		if len(l.tree.polled) == 0 { // once, and not each time
			l.log.Warn("watch files", slog.Any("err", err))
		}
		return // directories are polled
	}
	l.source = s
	l.taker.Go(func() { l.take(s) }) // ends with the source
}

// closeSource ends that, and forgets what was reported and what was watched.
func (l *lookout) closeSource() {
	if l.source == nil {
		return
	}
	l.source.close()
	l.taker.Wait()
	l.source = nil
	l.taken()
	for _, at := range l.tree.keys {
		at.key = ""
	}
	l.budget.give(len(l.tree.keys))
	clear(l.tree.keys)
}

// take is the taker.
func (l *lookout) take(s *source) {
	for events, faults := s.events, s.faults; events != nil || faults != nil; {
		select {
		case ev, ok := <-events:
			if !ok {
				events = nil
			} else if ev.Name != "" && ev.Op != fsnotify.Chmod {
				l.put(ev)
			}
		case err, ok := <-faults:
			switch {
			case !ok:
				faults = nil
			case errors.Is(err, fsnotify.ErrEventOverflow):
				l.lose()
			case errors.Is(err, syscall.EINVAL): // what was renamed is to be watched no more, and is not: it is gone, too
			default:
				l.log.Warn("watch files", slog.Any("err", err))
			}
		}
	}
}

func (l *lookout) put(ev fsnotify.Event) {
	l.mu.Lock()
	if len(l.reports) < maxReports {
		l.reports = append(l.reports, ev)
	} else {
		l.lost = true
	}
	l.mu.Unlock()
	l.wake()
}

func (l *lookout) lose() {
	l.mu.Lock()
	l.lost = true
	l.mu.Unlock()
	l.wake()
}

func (l *lookout) wake() {
	select {
	case l.more <- struct{}{}:
	default: // it looks again anyhow
	}
}

// taken returns what was reported since the last call, and whether some of it
// was lost.
func (l *lookout) taken() ([]fsnotify.Event, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reports, lost := l.reports, l.lost
	l.reports, l.lost = nil, false
	return reports, lost
}

// look takes in what was reported.
func (l *lookout) look() {
	reports, lost := l.taken()
	for _, ev := range reports {
		l.handle(ev)
	}
	if lost {
		l.stale = true
		l.listings.lose(false)
	}
}
