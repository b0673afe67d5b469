package hecate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A scopeLog is the log of the sessions of one scope. It owns one goroutine, which makes
// appended entries visible, and one for each session that it follows.
type scopeLog struct {
	// Static after open.
	opts     *Options
	store    journal.Store
	journal  *journal.Journal
	view     *journal.View
	appended chan struct{} // 1-buffered; a token means new entries, or a session that has moved on
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup
	chunks   chunks

	// Guarded by writing, which is held while the log is written to. Take it after
	// session.mu and before mu.
	writing    sync.Mutex
	unchecked  int       // bytes since the last checkpoint
	checkpoint int       // bytes of the last checkpoint
	checkedAt  time.Time // when it was made, or the log opened
	oldest     uint64    // first entry at the last pruning
	unmarked   []*run    // that have lost events since their last marker

	mu     sync.Mutex
	index  *index        // changes only under writing and mu, so that either is enough to read it
	moved  chan struct{} // closed and replaced when readers should look again
	failed error         // why nothing more is appended
}

const (
	// readersRest is the time between two rounds in which readers look for new events, so
	// that the cost of an append does not depend on their number.
	readersRest = 10 * time.Millisecond

	windowBytes = 4 << 20 // of the newest entries in memory

	// maxCheckpoint bounds a checkpoint, in bytes. Beyond it, the oldest runs and sessions
	// leave the index.
	maxCheckpoint = journal.MaxBody / 2
)

// logDir is the folder of a scope's log, beside the folders of its sessions.
const logDir = "hecate"

// openLog opens the log of a scope. If the log does not exist, openLog creates it, or
// returns nil unless create is set.
func openLog(opts *Options, scope string, create bool) (*scopeLog, error) {
	if opts.Dir == nil {
		if !create {
			return nil, nil
		}
		return newLog(opts, journal.NewMemory(journal.MemoryOptions{RetainBytes: int(opts.RetainBytes)}))
	}
	dir := filepath.Join(opts.Dir(scope), logDir)
	if _, err := os.Stat(dir); !create && errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	limits := journal.FileOptions{RetainBytes: opts.RetainBytes, RetainAge: opts.RetainAge, Durable: true}
	store, err := journal.Open(dir, limits)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	l, err := newLog(opts, store)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log: %w", err), store.Close())
	}
	if damage := store.Changed(); damage != "" {
		l.opts.Log.Warn("events of the log may be missing", "scope", scope, "why", damage)
		if err := l.disconnectAll(); err != nil {
			return nil, errors.Join(fmt.Errorf("open the log: %w", err), l.close(context.Background()))
		}
	}
	return l, nil
}

func newLog(opts *Options, store journal.Store) (*scopeLog, error) {
	l := &scopeLog{opts: opts, store: store, index: newIndex(), appended: make(chan struct{}, 1), moved: make(chan struct{}), checkedAt: time.Now()}
	if err := l.restore(); err != nil {
		return nil, err
	}
	var err error
	if l.journal, err = journal.New(store, journal.Options{WindowBytes: windowBytes, Deferred: true}); err != nil {
		return nil, err
	}
	l.view = l.journal.Follow(frames{})
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.signal()
	l.wg.Go(l.reveal) // ends with ctx
	return l, nil
}

// restore reads the newest checkpoint and the entries after it.
func (l *scopeLog) restore() error {
	first, last := l.store.Bounds()
	if last == 0 {
		return nil
	}
	var failed error
	from := max(first, l.store.LastCheckpoint())
	err := l.store.Read(from-1, func(e journal.Entry) bool {
		switch e.Kind {
		case journal.Checkpoint:
			failed = l.index.restore(e.Body)
		case journal.Message:
			l.unchecked += len(e.Body)
			failed = l.replay(e)
		}
		return failed == nil
	})
	return cmp.Or(err, failed)
}

// replay adds a stored entry to the index.
func (l *scopeLog) replay(e journal.Entry) error {
	h, lines, state, err := decodeEntry(e.Body)
	if err != nil {
		return err
	}
	events := make([]wire.Event, len(lines))
	for i, line := range lines {
		if events[i], err = wire.Parse(line); err != nil {
			return err
		}
	}
	return l.index.apply(e.Cursor, h, events, bytes.Clone(state))
}

// openRuns returns the sessions with a run that has not ended.
func (l *scopeLog) openRuns() (sessions []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.index.Sessions {
		if l.index.hasOpenRun(s) {
			sessions = append(sessions, s.ID)
		}
	}
	slices.Sort(sessions)
	return sessions
}

// close stops following and closes the log.
func (l *scopeLog) close(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { // ends with the goroutines of the log
		l.wg.Wait()
		close(ended)
	}()
	l.stop()
	select {
	case <-ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = errClosed
	l.view.Close()
	l.journal.Close()
	return l.store.Close()
}

var errClosed = errors.New("the log is closed")

// append stores a batch of events of a session, and gives each its sequence, its number
// and its id. The caller holds s.mu. An error means that nothing was stored.
func (l *scopeLog) append(s *session, epoch string, cursor uint64, drafts []wire.Draft) error {
	state, err := json.Marshal(s.live)
	if err != nil {
		return err
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.failure(); err != nil {
		return err
	}
	if err := l.writeCheckpoint(time.Now()); err != nil {
		return err
	}
	h := header{Session: s.ID, Epoch: epoch, Cursor: cursor, First: l.index.Next}
	events := l.number(s, &h, drafts)
	body, err := encodeEntry(h, events, state)
	if err != nil {
		return err
	}
	at, err := l.write(journal.Message, body)
	if err != nil {
		return err
	}
	l.unchecked += len(body)
	l.mu.Lock()
	err = l.index.apply(at, h, events, state)
	l.mu.Unlock()
	l.signal()
	return err
}

// write appends an entry. The caller holds writing.
func (l *scopeLog) write(kind journal.Kind, body []byte) (cursor uint64, err error) {
	cursor, err = l.journal.Append(journal.Entry{Kind: kind, Time: time.Now().UnixMilli(), Body: body})
	if errors.Is(err, journal.ErrBroken) {
		l.mu.Lock()
		l.failed = err
		l.mu.Unlock()
		l.signal() // reveal tells those who wait
	}
	return cursor, err
}

// writeCheckpoint writes the index if that is due, so that retention can remove older
// entries. The caller holds writing.
func (l *scopeLog) writeCheckpoint(now time.Time) error {
	due := l.unchecked >= max(int(l.opts.RetainBytes/8), 2*l.checkpoint) ||
		l.opts.RetainAge > 0 && now.Sub(l.checkedAt) >= l.opts.RetainAge/4
	if !due {
		return nil
	}
	text, err := json.Marshal(l.index)
	for err == nil && len(text) > maxCheckpoint && l.halve() {
		text, err = json.Marshal(l.index)
	}
	switch {
	case err != nil:
		return err
	case len(text) > journal.MaxBody: // open sessions alone take that much
		l.opts.Log.Error("old events cannot be removed from a log: its index is too long", "bytes", len(text))
	default:
		if _, err := l.write(journal.Checkpoint, text); err != nil {
			return err
		}
	}
	l.unchecked, l.checkpoint, l.checkedAt = 0, len(text), now
	return nil
}

// halve removes the older half of the runs and sessions that can leave the index. It
// reports whether there were any.
func (l *scopeLog) halve() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs := l.index.evictRuns((len(l.index.Ended) + 1) / 2)
	sessions := l.index.evictSessions(len(l.index.Sessions) / 2)
	return runs+sessions > 0
}

// number makes the events of drafts and notes their runs in the header. It leaves out what
// belongs to runs that have left the index: nobody can read them, and their sequences are
// not known any more.
func (l *scopeLog) number(s *session, h *header, drafts []wire.Draft) (events []wire.Event) {
	next, at := map[string]uint64{}, map[string]time.Time{}
	for _, d := range drafts {
		seq, seen := next[d.RunID]
		r := l.index.Runs[d.RunID]
		switch {
		case seen:
		case r != nil:
			seq, at[d.RunID] = r.Next, r.At
		case d.Type != "run.queued" && d.Type != "run.resumed_from_event":
			continue
		}
		if d.At.Before(at[d.RunID]) { // ids must not go back: the log adds events of its own, with the time of now
			d.At = at[d.RunID]
		}
		next[d.RunID], at[d.RunID] = seq+1, d.At
		ev := s.live.Envelope(d, seq)
		ev.Raw = ev.Append(nil)
		events = append(events, ev)
		if n := len(h.Parts); n > 0 && h.Parts[n-1].Run == d.RunID {
			h.Parts[n-1].N++
			continue
		}
		h.Parts = append(h.Parts, part{Run: d.RunID, Task: s.live.TaskID, Seq: seq, N: 1})
	}
	return events
}

func (l *scopeLog) signal() {
	select {
	case l.appended <- struct{}{}:
	default:
	}
}

// reveal syncs what was appended, makes it visible, and wakes the readers. Many batches
// share one sync.
func (l *scopeLog) reveal() {
	for {
		select {
		case <-l.appended:
		case <-l.ctx.Done():
			return
		}
		upTo := l.journal.Head()
		if err := l.store.Sync(); err != nil {
			l.opts.Log.Error("sync the log", "err", err)
			l.mu.Lock()
			l.failed = err
			l.mu.Unlock()
			l.tell() // nobody waits for what never comes
			return
		}
		l.journal.Reveal(upTo)
		l.tell()
		if err := l.markPruned(); err != nil {
			l.opts.Log.Error("mark pruned events", "err", err)
		}
		_ = sleep.For(l.ctx, readersRest) // the loop sees the end of ctx
	}
}

// tell wakes the readers.
func (l *scopeLog) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.moved)
	l.moved = make(chan struct{})
}

// failure returns why nothing more is appended, or nil.
func (l *scopeLog) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// change returns a channel that is closed when readers should look again.
func (l *scopeLog) change() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moved
}

// await waits until done returns true. done is called with the log locked.
func (l *scopeLog) await(ctx context.Context, done func() bool) error {
	for {
		l.mu.Lock()
		ok, moved, failed := done(), l.moved, l.failed
		l.mu.Unlock()
		if ok {
			return nil
		}
		if failed != nil {
			return failed
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.ctx.Done():
			return errClosed
		}
	}
}
