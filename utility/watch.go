package utility

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

const noSuchRoot = "Utility file watch root directory does not exist: "

const (
	defaultDebounce = 100    // milliseconds
	maxDebounce     = 60_000 // likewise

	// Bounds of the include and of the exclude patterns; the second one for
	// their length on the wire.
	maxPatterns     = 256
	maxPatternBytes = 128 << 10

	// maxNoted bounds the changes that the keeper has passed to a watch and that
	// the watch has not taken. Beyond it the keeper waits.
	maxNoted = 256
)

// A watch reports the changes below a directory:
//
//	utility_file_watch_started
//	utility_file_watch_event...
//	utility_file_watch_stopped
type watch struct {
	ownedID
	host     *Host
	cmd      *contracts.UtilityFileWatchStart
	root     string // absolute path of the directory as clients see it
	debounce time.Duration

	ctx    context.Context // ends when the watch is to stop
	cancel context.CancelFunc

	changes chan noted       // from the keeper, which waits for room; never closed
	notices chan limitNotice // has room for one of each kind; never closed

	mu     sync.Mutex
	reason string

	// Owned by the keeper of the lookout.
	audience *audience // shared with equal watches once the watch has joined
	live     bool      // the tree is complete, so changes count

	// Owned by the watch's goroutine.
	pending pending
}

// A noted is a change that a watch reports once its path has been quiet.
type noted struct {
	rel   string // slash-separated, relative to the watch's root
	kind  contracts.FileChange
	isDir bool // whether it is a directory now; false for a deleted path
}

// A limitNotice is a limit that makes a watch see less, or see it later.
// Clients are told once.
type limitNotice int

const (
	tooManyDirs  limitNotice = iota // some directories are left out
	tooManyNames                    // the names in some directories are not known
	pathTooLong                     // a directory is left out
	systemLimit                     // some directories are polled
	numNotices
)

func (m limitNotice) text(root string) string {
	return "Utility file watch " + [numNotices]string{
		tooManyDirs:  "has too many directories: ",
		tooManyNames: "has too many files: ",
		pathTooLong:  "has paths that are too long: ",
		systemLimit:  "is at the system's limit and polls some directories: ",
	}[m] + root
}

// startWatch serves utility_file_watch_start.
func (h *Host) startWatch(c *call, cmd *contracts.UtilityFileWatchStart) error {
	w, err := h.newWatch(c.owner, cmd)
	if err != nil {
		return err
	}
	if err := register(h, c, &h.watches, w); err != nil {
		w.cancel()
		return w.late(c.ctx, err)
	}
	if err := w.start(c.ctx); err != nil {
		silent := c.ctx.Err() == nil && w.ctx.Err() != nil // it was stopped, and nobody else heard of it (R100)
		h.mu.Lock()
		w.leaving = true
		h.mu.Unlock()
		go w.leave(nil) // ends with the keeper's next job; Host.work counts it
		if silent {
			return nil
		}
		return w.late(c.ctx, err)
	}
	go w.run() // ends with the watch, which Disown, Stop and Close end; Host.work counts it
	return nil
}

// late returns a timeout refusal if the watch did not start within its call,
// else err.
func (w *watch) late(call context.Context, err error) error {
	if _, refused := errors.AsType[*contracts.Error](err); refused || !errors.Is(context.Cause(call), context.DeadlineExceeded) {
		return err
	}
	return refuse(contracts.CodeTimeout, w.id, "Utility file watch could not be started in time: "+w.root)
}

func (h *Host) newWatch(owner string, cmd *contracts.UtilityFileWatchStart) (*watch, error) {
	root := given(cmd.RootDir, ".")
	rel, info, err := h.locate(root)
	real := rel
	if err == nil {
		real, err = h.ws.Real(rel)
	}
	switch {
	case errors.Is(err, workspace.ErrOutside):
		return nil, outside(cmd.WatchID, h.ws.Abs(root))
	case err != nil || !info.IsDir():
		return nil, refuse(contracts.CodeNotFound, cmd.WatchID, noSuchRoot+h.ws.Abs(root))
	case h.isExcluded(real):
		return nil, refuse(contracts.CodeAccessDenied, cmd.WatchID, "Utility file watch root directory holds journals: "+h.ws.Abs(root))
	case excessive(cmd.IncludePatterns) || excessive(cmd.ExcludePatterns):
		return nil, refuse(contracts.CodeBadRequest, cmd.WatchID, "Utility file watch has too many patterns")
	}
	debounce := min(max(0, given(cmd.DebounceMS, defaultDebounce)), maxDebounce)
	w := &watch{
		ownedID: ownedID{id: cmd.WatchID, owner: owner, gone: make(chan struct{})},
		host:    h, cmd: cmd, root: h.ws.At(rel), debounce: time.Duration(debounce) * time.Millisecond,
		audience: newAudience(h.lister, real, cmd.IncludePatterns, cmd.ExcludePatterns),
		changes:  make(chan noted, maxNoted), notices: make(chan limitNotice, numNotices),
	}
	w.pending = newPending(w.debounce)
	w.ctx, w.cancel = context.WithCancel(h.ctx)
	return w, nil
}

func excessive(patterns []string) bool {
	size := 0
	for _, p := range patterns {
		size += wireBytes(p)
	}
	return len(patterns) > maxPatterns || size > maxPatternBytes
}

// stopWatch serves utility_file_watch_stop. It waits for the last event.
func (h *Host) stopWatch(ctx context.Context, owner string, cmd *contracts.UtilityFileWatchStop) error {
	w, err := owned(h, &h.watches, owner, cmd.WatchID, "file watch")
	if err != nil || w == nil {
		return err
	}
	w.end("Stopped by controller")
	select {
	case <-w.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// halt implements [entry]. A watch has no processes to wait for.
func (w *watch) halt(reason string, _ time.Duration) {
	w.end(reason + " while file watch was still running")
}

// end asks the watch to stop. The first reason counts.
func (w *watch) end(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() == nil {
		w.reason = reason
		w.cancel()
	}
}

// run is the watch's goroutine.
func (w *watch) run() {
	w.follow()
	w.mu.Lock()
	last := &contracts.UtilityFileWatchStopped{WatchID: w.id, Reason: w.reason}
	w.mu.Unlock()
	w.leave(last)
}

func (w *watch) leave(last contracts.Event) {
	w.cancel() // the keeper does not wait for the watch any more
	w.host.lookout.do(context.Background(), func() { w.host.lookout.leave(w) })
	unregister(w.host, &w.host.watches, w, last)
}

// start watches the tree and publishes the started event, as long as the call
// goes on.
func (w *watch) start(call context.Context) error {
	found, noRoom := false, false
	calling := context.AfterFunc(call, w.cancel)
	w.host.lookout.do(w.ctx, func() {
		found = w.host.lookout.join(w)
		noRoom, w.live = w.audience.said[tooManyDirs], true
	})
	switch {
	case !calling():
		return context.Cause(call)
	case w.ctx.Err() != nil:
		return w.ctx.Err()
	case !found && noRoom:
		return refuse(contracts.CodeOverloaded, w.id, tooManyDirs.text(w.root))
	case !found:
		return refuse(contracts.CodeNotFound, w.id, noSuchRoot+w.root)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	defer context.AfterFunc(call, cancel)()
	return w.host.publish(ctx, &contracts.UtilityFileWatchStarted{
		WatchID: w.id, RootDir: w.root, DebounceMS: w.debounce.Milliseconds(),
		IncludePatterns: w.cmd.IncludePatterns, ExcludePatterns: w.cmd.ExcludePatterns, OwnerConnectionID: w.owner,
	})
}

// take accepts a change from the keeper.
func (w *watch) take(n noted) {
	if !w.live {
		return
	}
	select {
	case w.changes <- n:
	case <-w.ctx.Done():
	}
}

// follow reports changes until the watch is to stop.
func (w *watch) follow() {
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for set := false; ; {
		select {
		case <-w.ctx.Done():
			return
		case c := <-w.changes:
			w.add(c)
		case what := <-w.notices:
			w.publish(refuse(contracts.CodeOverloaded, w.id, what.text(w.root)).Event())
		case <-timer.C:
			set = false
			w.report(w.pending.due(time.Now()))
		}
		if !set && len(w.pending.paths) > 0 {
			set = true
			timer.Reset(w.pending.next(time.Now()))
		}
	}
}

// add adds a change, to be reported when its path has been quiet.
func (w *watch) add(c noted) {
	now := time.Now()
	if w.pending.full() {
		w.report(w.pending.due(now))
	}
	w.pending.add(c, now)
}

// report publishes changes that are due, as the keeper reported them. It does
// not look at the files: a path that appears and disappears before the keeper
// looks would otherwise be reported once and stay wrong for clients.
func (w *watch) report(due []pendingChange) {
	var events []contracts.Event
	for _, p := range due {
		if p.kind == contracts.FileModified && p.isDir {
			continue // changes in it are reported themselves
		}
		below := filepath.FromSlash(p.rel)
		events = append(events, &contracts.UtilityFileWatchEvent{
			WatchID: w.id, ChangeType: p.kind,
			Path: filepath.Join(w.root, below), RelativePath: p.rel,
			Timestamp: time.Now().UnixMilli(), IsDirectory: p.isDir,
		})
	}
	if len(events) > 0 && w.ctx.Err() == nil {
		w.publish(events...)
	}
}

func (w *watch) publish(events ...contracts.Event) {
	if err := w.host.publish(w.ctx, events...); err != nil {
		w.end("") // the watch was asked to stop, or the session takes no events any more
	}
}
