package hecate

import (
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

	wire "github.com/seed-028515a8/maestro/dialect/hecate"
	"github.com/seed-028515a8/maestro/journal"
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

	mu         sync.Mutex
	index      *index
	oldest     uint64        // first entry at the last pruning
	unmarked   []*run        // that have lost events since their last marker
	unchecked  int           // bytes since the last checkpoint
	checkpoint int           // bytes of the last checkpoint
	checkedAt  time.Time     // when it was made, or the log opened
	moved      chan struct{} // closed and replaced when readers should look again
	failed     error         // why nothing more is appended
}

const (
	// readersRest is the time between two rounds in which readers look for new events, so
	// that the cost of an append does not depend on their number.
	readersRest = 10 * time.Millisecond

	windowBytes = 4 << 20 // of the newest entries in memory
)

// logDir is the folder of a scope's log, beside the folders of its sessions.
const logDir = "hecate"

// openLog opens the log of a scope. It makes the log if it does not exist and make is set,
// and otherwise returns nil.
func openLog(opts *Options, scope string, make bool) (*scopeLog, error) {
	store := journal.Store(journal.NewMemory(journal.MemoryOptions{RetainBytes: int(opts.RetainBytes)}))
	damage := ""
	if opts.Dir != nil {
		dir := filepath.Join(opts.Dir(scope), logDir)
		if _, err := os.Stat(dir); !make && errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		file, err := journal.Open(dir, journal.FileOptions{RetainBytes: opts.RetainBytes, RetainAge: opts.RetainAge, Durable: true})
		if err != nil {
			return nil, fmt.Errorf("open the log: %w", err)
		}
		store, damage = file, file.Changed()
	} else if !make {
		return nil, nil
	}
	l, err := newLog(opts, store)
	if err == nil && damage != "" {
		l.opts.Log.Warn("events of the log may be missing", "scope", scope, "why", damage)
		err = l.disconnectAll()
	}
	if err == nil {
		return l, nil
	}
	err = fmt.Errorf("open the log: %w", err)
	if l != nil {
		return nil, errors.Join(err, l.close(context.Background()))
	}
	return nil, errors.Join(err, store.Close())
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
			h, lines, state, err := decodeEntry(e.Body)
			if failed = err; err == nil {
				failed = l.index.apply(e.Cursor, h, lines, state)
			}
		}
		return failed == nil
	})
	return cmp.Or(err, failed)
}

// openRuns returns the sessions with a run that has not ended.
func (l *scopeLog) openRuns() (sessions []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.index.Sessions {
		if n := len(s.Runs); n > 0 && l.index.Runs[s.Runs[n-1]].Terminal == "" {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	h := header{Session: s.ID, Epoch: epoch, Cursor: cursor, First: l.index.Next}
	lines := l.number(s, &h, drafts)
	body, err := encodeEntry(h, lines, state)
	if err != nil {
		return err
	}
	now := time.Now()
	batch := []journal.Entry{{Kind: journal.Message, Time: now.UnixMilli(), Body: body}}
	due := l.checkpointDue(now)
	if due {
		text, err := json.Marshal(l.index)
		if err != nil {
			return err
		}
		batch = append([]journal.Entry{{Kind: journal.Checkpoint, Time: batch[0].Time, Body: text}}, batch...)
	}
	at, err := l.journal.Append(batch...)
	if err != nil {
		if errors.Is(err, journal.ErrBroken) {
			l.failed = err
			l.signal() // reveal tells those who wait
		}
		return err
	}
	if due {
		l.unchecked, l.checkpoint, l.checkedAt = 0, len(batch[0].Body), now
	}
	l.unchecked += len(body)
	l.signal()
	return l.index.apply(at, h, lines, state)
}

// checkpointDue reports whether the next batch includes a checkpoint, so that retention can
// remove older entries.
func (l *scopeLog) checkpointDue(now time.Time) bool {
	return l.unchecked >= max(int(l.opts.RetainBytes/8), 2*l.checkpoint) ||
		l.opts.RetainAge > 0 && now.Sub(l.checkedAt) >= l.opts.RetainAge/4
}

// number makes the events of drafts and notes their runs in the header.
func (l *scopeLog) number(s *session, h *header, drafts []wire.Draft) (lines [][]byte) {
	next, at := map[string]uint64{}, map[string]time.Time{}
	for _, d := range drafts {
		seq, seen := next[d.RunID]
		if r := l.index.Runs[d.RunID]; !seen && r != nil {
			seq, at[d.RunID] = r.Next, r.At
		}
		if d.At.Before(at[d.RunID]) { // ids must not go back: the log adds events of its own, with the time of now
			d.At = at[d.RunID]
		}
		next[d.RunID], at[d.RunID] = seq+1, d.At
		lines = append(lines, s.live.Envelope(d, seq).Append(nil))
		if n := len(h.Parts); n > 0 && h.Parts[n-1].Run == d.RunID {
			h.Parts[n-1].N++
			continue
		}
		h.Parts = append(h.Parts, part{Run: d.RunID, Task: s.live.TaskID, Seq: seq, N: 1})
	}
	return lines
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
		rest(l.ctx, readersRest)
	}
}

// tell wakes the readers.
func (l *scopeLog) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.moved)
	l.moved = make(chan struct{})
}

// rest waits for a time, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// markPruned appends gap.events_pruned to each run whose oldest events retention has
// removed.
func (l *scopeLog) markPruned() error {
	l.mu.Lock()
	l.prune()
	lost := l.unmarked
	l.unmarked = nil
	l.mu.Unlock()
	for _, r := range lost {
		l.mu.Lock()
		s := l.index.session(r.Session)
		l.mu.Unlock()
		if err := l.markRun(s, r); err != nil {
			return err
		}
	}
	return nil
}

// prune removes from the index what retention has removed from the store. It reports
// whether there was anything. The caller holds l.mu.
func (l *scopeLog) prune() (moved bool) {
	first := l.journal.First()
	if first == l.oldest {
		return false
	}
	l.oldest = first
	l.unmarked = l.index.prune(first) // those of before are among them
	return true
}

// markRun appends the marker of one run. Its session must know that the run has one more
// event.
func (l *scopeLog) markRun(s *session, r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.revive(l.opts); err != nil {
		return err
	}
	l.mu.Lock()
	lost, from, upTo, epoch := r.lost(), r.Unpruned, r.first()-1, s.Epoch
	l.mu.Unlock()
	if lost == 0 { // it has its marker
		return nil
	}
	now := time.Now().UTC()
	data := fmt.Sprintf(`{"first_pruned_sequence":%d,"last_pruned_sequence":%d,"pruned_at":%q,"reason":"retention_window"}`, from, upTo, now.Format(time.RFC3339Nano))
	s.live.Inserted(r.ID)
	return s.keep(l, epoch, s.seen.Load(), []wire.Draft{{RunID: r.ID, Type: "gap.events_pruned", At: now, Data: json.RawMessage(data)}})
}

// disconnectAll says in every session that its log may have a hole.
func (l *scopeLog) disconnectAll() error {
	for _, s := range l.index.Sessions {
		s.mu.Lock()
		err := s.revive(l.opts)
		if err == nil {
			err = s.keep(l, s.Epoch, s.Cursor, s.live.Disconnected(time.Now(), "log_damaged"))
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits until done returns true. done is called with the log locked.
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
