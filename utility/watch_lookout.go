package utility

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed-028515a8/maestro/internal/workspace"
)

const (
	// maxReports bounds the system's reports that wait for the keeper. If there
	// are more, the rest is lost, as in an overflow of the system, and the
	// keeper compares the tree instead.
	maxReports = 16_384

	// maxNames bounds the known names in all watched directories. A name takes
	// about 60 bytes.
	maxNames = 1_000_000

	// maxPathBytes bounds the paths of watched directories, because opening a
	// directory takes longer the deeper it is.
	maxPathBytes = 4096

	// pollGap is the minimum time between two polls of directories that the
	// system does not watch. Polling takes at most a tenth of the time.
	pollGap = 500 * time.Millisecond
)

// A source is the system's interface for reporting changes in directories.
// Systems allow few per user.
type source struct {
	events <-chan fsnotify.Event // closed by close, like faults
	faults <-chan error

	// add makes the system report changes in a directory and of the directory
	// itself. The names in the reports begin with the returned key. path is the
	// directory's path.
	add    func(dir *os.File, path string) (key string, err error)
	remove func(key string) // also for a removed directory
	close  func()
}

// A lookout watches the directories of a workspace for the watches of all
// sessions and for the listing of searches. The system watches each directory
// once.
//
// It has one goroutine, and two more while something is watched, one of them
// the source's. The taker queues the system's reports and never waits. The
// keeper owns the tree: it processes the reports, and adds and removes watches.
// It waits for watches that are slow to take changes. If reports are lost
// meanwhile, it compares the tree with the directories.
type lookout struct {
	// Static after the first watch.
	ws       *workspace.Workspace
	limit    int // bounds the directories with watches
	names    int // bounds the known names in all directories
	listings *lister
	pollGap  time.Duration
	log      *slog.Logger
	open     func() (*source, error)

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	jobs   chan func() // unbuffered; the keeper's jobs; never closed
	keeper sync.WaitGroup
	lost   atomic.Bool // some reports were dropped

	// Owned by the keeper.
	most        int                 // bounds the directories that the system watches
	forListings int                 // likewise, for directories without watches
	source      *source             // nil while nothing is watched, or the system refuses it
	reports     chan fsnotify.Event // from the taker; never closed; nil without a source
	taker       sync.WaitGroup
	tree        dirTree
	audiences   map[string]*audience // by their names
	stale       bool                 // reports were lost, and the tree has not been compared since
	syncAt      time.Time            // when the tree may be compared; doing so all the time would take all the time
	pollAt      time.Time
}

func newLookout(ws *workspace.Workspace, limit int, listings *lister, log *slog.Logger) *lookout {
	l := &lookout{
		ws: ws, limit: limit, names: maxNames, listings: listings, pollGap: pollGap, log: log, open: openSource,
		jobs: make(chan func()), tree: newDirTree(), audiences: make(map[string]*audience),
	}
	l.most, l.forListings = watchLimits()
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.keeper.Go(l.keep) // ends with close
	return l
}

// close ends the goroutines. All watches must have left.
func (l *lookout) close() {
	l.cancel()
	l.keeper.Wait()
}

// do runs job on the keeper and waits for it. It returns false if ctx ended
// meanwhile, when the job may be running, or the lookout is closed.
func (l *lookout) do(ctx context.Context, job func()) bool {
	done := make(chan struct{})
	select {
	case l.jobs <- func() { defer close(done); job() }:
	case <-ctx.Done():
		return false
	case <-l.ctx.Done():
		return false
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// keep is the keeper's goroutine.
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
		case report := <-l.reports:
			l.look(report)
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

// rest returns the time until the next work without reports.
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

// openSource opens the system's source.
func (l *lookout) openSource() {
	s, err := l.open()
	if err != nil {
		if len(l.tree.polled) == 0 { // log it once only
			l.log.Warn("cannot watch files", slog.Any("err", err))
		}
		return // directories are polled
	}
	reports := make(chan fsnotify.Event, maxReports)
	l.source, l.reports = s, reports
	l.taker.Go(func() { l.take(s, reports) }) // ends with the source
}

// closeSource closes the source, and drops its reports and watched directories.
func (l *lookout) closeSource() {
	if l.source == nil {
		return
	}
	l.source.close()
	l.taker.Wait()
	l.source, l.reports = nil, nil
	l.lost.Store(false)
	for _, at := range l.tree.keys {
		at.key = ""
	}
	clear(l.tree.keys)
}

// take is the taker's goroutine.
func (l *lookout) take(s *source, reports chan<- fsnotify.Event) {
	for events, faults := s.events, s.faults; events != nil || faults != nil; {
		var report fsnotify.Event // an empty one only wakes the keeper
		select {
		case ev, ok := <-events:
			if !ok {
				events = nil
			}
			if report = ev; ev.Name == "" || ev.Op == fsnotify.Chmod {
				continue
			}
		case err, ok := <-faults:
			if !ok {
				faults = nil
			} else if errors.Is(err, fsnotify.ErrEventOverflow) {
				l.lost.Store(true)
				break
			} else if !errors.Is(err, syscall.EINVAL) { // fsnotify could not unwatch a renamed directory, because the system has done so already
				l.log.Warn("cannot watch files", slog.Any("err", err))
			}
			continue
		}
		select {
		case reports <- report:
		default:
			l.lost.Store(true)
		}
	}
}

// look processes a report and those that wait behind it.
func (l *lookout) look(report fsnotify.Event) {
	l.handle(report)
	for range len(l.reports) {
		l.handle(<-l.reports)
	}
	if l.lost.Swap(false) {
		l.stale = true
		l.listings.markStale(false)
	}
}

// pathSource makes a source of w that identifies directories by their paths.
// The system follows symbolic links in a path. If the path leads elsewhere
// afterwards, the directory is not watched; but if it led elsewhere for a
// moment only, the wrong directory may be watched.
func pathSource(w *fsnotify.Watcher) *source {
	return &source{
		events: w.Events, faults: w.Errors,
		add: func(dir *os.File, path string) (string, error) {
			if err := w.Add(path); err != nil {
				return "", err
			}
			want, err := dir.Stat()
			if err == nil {
				var got fs.FileInfo
				if got, err = os.Stat(path); err == nil && os.SameFile(want, got) {
					return path, nil
				}
			}
			_ = w.Remove(path) // fails if the watched directory is gone
			return "", fs.ErrNotExist
		},
		remove: func(key string) { _ = w.Remove(key) }, // fails if the system has removed it already
		close:  func() { _ = w.Close() },               // nobody reads the events any more
	}
}

// movedFrom returns the former name of the path in a report of a rename; "" if
// there was no rename, or the former directory is not watched. fsnotify exposes
// the former name only in the text of an event.
func movedFrom(ev fsnotify.Event) string {
	if !ev.Has(fsnotify.Create) {
		return ""
	}
	_, text, _ := strings.Cut(ev.String(), " ")
	text = strings.TrimLeft(text, " ")
	name, err := strconv.QuotedPrefix(text)
	if err != nil {
		return ""
	}
	from, moved := strings.CutPrefix(text[len(name):], " ← ")
	if !moved {
		return ""
	}
	if from, err = strconv.Unquote(from); err != nil {
		return ""
	}
	return from
}
