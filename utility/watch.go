package utility

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/workspace"
)

const (
	defaultDebounce = 100 * time.Millisecond
	maxDebounce     = time.Minute

	// Bounds on the patterns of each kind, the second as they are on the wire.
	maxPatterns     = 256
	maxPatternBytes = 128 << 10
)

// A watch reports the changes below a directory.
//
//	utility_file_watch_started
//	utility_file_watch_event...
//	utility_file_watch_stopped
type watch struct {
	tenure
	host     *Host
	notifier *notifier
	cmd      *contracts.UtilityFileWatchStart
	rel      string // the directory, relative to the workspace's root
	root     string // the same, absolute
	info     fs.FileInfo
	filter   filter
	debounce time.Duration

	ctx    context.Context // ends when the watch is to stop
	cancel context.CancelFunc

	announced chan error    // 1-buffered; how starting went
	more      chan struct{} // 1-buffered; a token means that queue or lost have something; never closed

	mu     sync.Mutex
	reason string
	queue  []change // at most maxChanges
	lost   bool

	// Owned by the watch's goroutine.
	pending pending
	known   time.Time // what happened before was reported or is pending
	full    bool      // clients were told that not all directories are watched
}

// startWatch serves utility_file_watch_start.
func (h *Host) startWatch(c *call, cmd *contracts.UtilityFileWatchStart) error {
	w, err := h.newWatch(c.owner, cmd)
	if err != nil {
		return err
	}
	if err := take(h, c, &h.watches, w); err != nil {
		w.cancel()
		return err
	}
	go w.run() // ends with the watch, which Disown, Stop and Close bring about; Host.work counts it
	select {
	case err := <-w.announced:
		return err
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

func (h *Host) newWatch(owner string, cmd *contracts.UtilityFileWatchStart) (*watch, error) {
	root := "."
	if cmd.RootDir != nil {
		root = *cmd.RootDir
	}
	rel, info, err := h.locate(root)
	switch {
	case errors.Is(err, workspace.ErrOutside):
		return nil, outside(cmd.WatchID, h.ws.Abs(root))
	case err != nil || !info.IsDir():
		return nil, refuse(contracts.CodeNotFound, cmd.WatchID, "Utility file watch root directory does not exist: "+h.ws.Abs(root))
	case tooMany(cmd.IncludePatterns) || tooMany(cmd.ExcludePatterns):
		return nil, refuse(contracts.CodeBadRequest, cmd.WatchID, "Utility file watch has too many patterns")
	}
	w := &watch{
		tenure: tenure{id: cmd.WatchID, owner: owner, gone: make(chan struct{})},
		host:   h, cmd: cmd, rel: rel, root: h.ws.At(rel), info: info,
		filter: newFilter(cmd.IncludePatterns, cmd.ExcludePatterns), debounce: defaultDebounce,
		announced: make(chan error, 1), more: make(chan struct{}, 1),
	}
	if cmd.DebounceMS != nil {
		w.debounce = time.Duration(min(max(0, *cmd.DebounceMS), int64(maxDebounce/time.Millisecond))) * time.Millisecond
	}
	w.pending = newPending(w.debounce)
	w.ctx, w.cancel = context.WithCancel(h.ctx)
	return w, nil
}

func tooMany(patterns []string) bool {
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

// halt implements [entry]. There are no processes to wait for.
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

// changed implements [listener].
func (w *watch) changed(c change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) < maxChanges {
		w.queue = append(w.queue, c)
	} else {
		w.lost = true
	}
	w.wake()
}

// overflowed implements [listener].
func (w *watch) overflowed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = true
	w.wake()
}

func (w *watch) wake() {
	select {
	case w.more <- struct{}{}:
	default: // it looks again anyhow
	}
}

// run is the watch's goroutine.
func (w *watch) run() {
	defer w.cancel()
	err := w.start()
	if err == nil {
		w.announced <- nil
		w.follow()
		w.leave(&contracts.UtilityFileWatchStopped{WatchID: w.id, Reason: w.stopReason()})
		return
	}
	if w.ctx.Err() != nil {
		err = nil // whoever stopped it knows, and nobody else heard of it (R100)
	}
	w.leave(nil)
	w.announced <- err
}

func (w *watch) leave(last contracts.Event) {
	if w.notifier != nil {
		w.notifier.dropAll(w)
	}
	depart(w.host, &w.host.watches, w, last)
}

func (w *watch) stopReason() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason
}

// start watches the tree and announces that.
func (w *watch) start() error {
	var err error
	if w.notifier, err = w.host.sharedNotifier(); err != nil {
		return refuse(contracts.CodeOverloaded, w.id, "File watching is not available: "+err.Error())
	}
	w.known = time.Now()
	if err := w.cover(".", nil); err != nil {
		return refuse(contracts.CodeOverloaded, w.id, "Utility file watch has too many directories: "+w.root)
	}
	return w.host.publish(w.ctx, &contracts.UtilityFileWatchStarted{
		WatchID: w.id, RootDir: w.root, DebounceMS: w.debounce.Milliseconds(),
		IncludePatterns: w.cmd.IncludePatterns, ExcludePatterns: w.cmd.ExcludePatterns, OwnerConnectionID: w.owner,
	})
}

// sharedNotifier returns the notifier of all watches.
func (h *Host) sharedNotifier() (*notifier, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.notifier == nil {
		n, err := newNotifier(h.opts.MaxWatchedDirs, h.opts.Log)
		if err != nil {
			return nil, err
		}
		h.notifier = n
	}
	return h.notifier, nil
}

// follow reports changes until the watch is to stop.
func (w *watch) follow() {
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.more:
			w.look()
		case <-timer.C:
		}
		now := time.Now()
		w.report(w.pending.due(now))
		timer.Reset(w.pending.next(now))
	}
}

// look takes in what the notifier told.
func (w *watch) look() {
	now := time.Now()
	w.mu.Lock()
	changes, lost := w.queue, w.lost
	w.queue, w.lost = nil, false
	w.mu.Unlock()
	for _, c := range changes {
		if w.ctx.Err() != nil {
			return
		}
		w.note(c)
	}
	if lost {
		w.search(w.known)
	}
	w.known = now
}

// note takes in one change.
func (w *watch) note(c change) {
	gone := c.op.Has(fsnotify.Remove) || c.op.Has(fsnotify.Rename)
	if c.path == w.root {
		if gone && w.rootGone() {
			w.end("Watch root removed")
		}
		return
	}
	rel, err := filepath.Rel(w.root, c.path)
	if err != nil || w.filter.prunes(filepath.ToSlash(rel)) {
		return
	}
	switch {
	case c.op.Has(fsnotify.Create):
		kind := contracts.FileCreated
		if c.moved {
			kind = contracts.FileRenamed
		}
		w.add(rel, kind)
		w.noteTree(rel, kind)
	case c.op.Has(fsnotify.Write):
		w.add(rel, contracts.FileModified)
	case gone:
		w.add(rel, contracts.FileDeleted)
	}
}

// add has a change reported once it has been quiet for a while.
func (w *watch) add(rel string, kind contracts.FileChange) {
	rel = filepath.ToSlash(rel)
	if !w.filter.admits(rel) {
		return
	}
	now := time.Now()
	if w.pending.full() {
		w.report(w.pending.due(now))
	}
	w.pending.add(rel, kind, now)
}

// rootGone reports whether the directory is not there any more.
func (w *watch) rootGone() bool {
	info, err := os.Stat(w.root)
	return err != nil || !os.SameFile(info, w.info)
}

// report publishes changes that are due, as they look by now.
func (w *watch) report(due []pendingChange) {
	var events []contracts.Event
	for _, p := range due {
		if ev := w.event(p); ev != nil {
			events = append(events, ev)
		}
	}
	if len(events) == 0 || w.ctx.Err() != nil {
		return
	}
	if err := w.host.publish(w.ctx, events...); err != nil {
		w.end("") // it was told to stop, or the session takes nothing any more
	}
}

// event returns what is to be said about a change, or nil.
func (w *watch) event(p pendingChange) contracts.Event {
	info, err := w.host.ws.Lstat(filepath.Join(w.rel, filepath.FromSlash(p.rel)))
	ev := &contracts.UtilityFileWatchEvent{
		WatchID: w.id, ChangeType: p.kind,
		Path: filepath.Join(w.root, filepath.FromSlash(p.rel)), RelativePath: p.rel,
		Timestamp: time.Now().UnixMilli(), IsDirectory: err == nil && info.IsDir(),
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		ev.ChangeType = contracts.FileDeleted
	case err != nil:
		return nil // behind a link out of the workspace, or not ours to see
	case p.kind == contracts.FileDeleted:
		ev.ChangeType = contracts.FileModified // it is back, and no report said so
	case p.kind == contracts.FileModified && info.IsDir():
		return nil // what happened in it is reported by itself
	}
	return ev
}
