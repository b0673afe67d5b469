package hecate

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A Source is an open session.
type Source interface {
	SessionID() string

	// Follow returns a reader of the session's history that begins after a cursor. An
	// empty epoch means the oldest event.
	Follow(epoch string, cursor uint64) Follower

	// Decide answers an approval, and returns where the answer is in the history. It
	// refuses with request_not_found if the approval is not pending. digest is that of
	// the request, or empty. ended is false if the approval needs more votes.
	Decide(requestID string, approved bool, note, digest string, by contracts.Principal) (cursor uint64, ended bool, err error)

	// Stop interrupts the run that was active at the cursor seen, and reports whether
	// there was one.
	Stop(seen uint64) (stopped bool, err error)

	// Done is closed when the session has ended.
	Done() <-chan struct{}
}

// A Follower reads the history of a session. Next returns io.EOF at the end of the
// session, and the cause of ctx if ctx ends first.
type Follower interface {
	Next(ctx context.Context) (contracts.Feed, error)
	Close()
}

// A session is the translation of one session, and what the log has of it.
type session struct {
	ID string

	// Guarded by scopeLog.mu.
	Task, Chat string
	Epoch      string
	Cursor     uint64 // up to which the log has the session
	State      json.RawMessage
	Moved      uint64   // entry of the log in which State was stored
	Runs       []string // in order of their begin
	Approvals  []*approval

	mu     sync.Mutex    // taken before scopeLog.mu; guards live and kept, and writing the fields above
	live   *wire.Session // nil until it is needed
	seen   atomic.Uint64 // cursor up to which live is
	kept   uint64        // seen at the last entry
	source Source        // the open session; guarded by scopeLog.mu, as is ended
	ended  chan struct{} // closed when source is not followed any more
}

// rests between two batches of a session: consecutive texts become one event.
const (
	batchRest = 50 * time.Millisecond
	flushRest = 100 * time.Millisecond
	retryRest = time.Second

	// fullBatch is how many native events do not rest, so that a long history is read fast.
	fullBatch = 256

	// keepEvery is after how many native events without an event of the log the position
	// is stored, so that a restart need not read them again.
	keepEvery = 4096
)

// follow translates an open session until it ends, unless it is followed already. done is
// called at the end, or at once.
func (l *scopeLog) follow(src Source, done func()) {
	var before chan struct{}
	start, ended := false, make(chan struct{})
	s := l.session(src.SessionID(), func(s *session) {
		if start = s.source != src && l.failed == nil; start {
			before, s.source, s.ended = s.ended, src, ended
		}
	})
	if !start {
		done()
		return
	}
	l.wg.Go(func() { // ends with the session, or with the log
		defer done()
		defer close(ended)
		if before != nil {
			<-before
		}
		for l.ctx.Err() == nil {
			err := l.followOnce(s, src)
			if err == nil || l.failure() != nil {
				break
			}
			l.opts.Log.Error("follow a session", "session", s.ID, "err", err)
			if hasEnded(src) { // the rest is read when it is opened again
				break
			}
			_ = sleep.For(l.ctx, retryRest) // the loop sees the end of ctx
		}
		l.unfollow(s, src)
	})
}

// unfollow releases the memory of a session that has ended.
func (l *scopeLog) unfollow(s *session, src Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.source == src {
		s.source = nil
	}
}

func hasEnded(src Source) bool {
	select {
	case <-src.Done():
		return true
	default:
		return false
	}
}

// followOnce follows a session from where the log has it. It returns nil at the end of the
// session or of the log.
func (l *scopeLog) followOnce(s *session, src Source) error {
	s.mu.Lock()
	err := s.revive(l)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	l.mu.Lock()
	epoch, cursor := s.Epoch, s.Cursor
	l.mu.Unlock()
	f := src.Follow(epoch, cursor)
	defer f.Close()
	for {
		feed, err := l.next(s, f)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			err = l.update(s, func() []wire.Draft { return s.live.Flush(time.Now()) }, nil)
		case errors.Is(err, io.EOF), l.ctx.Err() != nil:
			return nil
		case err == nil:
			err = l.update(s, func() []wire.Draft { return s.translate(feed) }, &feed)
		}
		if err != nil {
			return err
		}
		if len(feed.Events) < fullBatch { // else there is more
			_ = sleep.For(l.ctx, batchRest) // next sees the end of ctx
		}
	}
}

// next waits for events. If output is held, it waits at most flushRest.
func (l *scopeLog) next(s *session, f Follower) (contracts.Feed, error) {
	s.mu.Lock()
	held := s.live != nil && s.live.Held()
	s.mu.Unlock()
	ctx := l.ctx
	if held {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, flushRest)
		defer stop()
	}
	return f.Next(ctx)
}

// revived calls do while the translation of a session is in memory.
func (l *scopeLog) revived(s *session, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.revive(l); err != nil {
		return err
	}
	err := do()
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.source == nil { // no follower needs it
		s.live = nil
	}
	return err
}

// revive decodes the translation as it was stored, or makes that of a session that the log
// does not know. The caller holds s.mu.
func (s *session) revive(l *scopeLog) error {
	if s.live != nil {
		return nil
	}
	o := l.opts.Translate
	o.SessionID = s.ID
	if len(s.State) == 0 {
		var seed [10]byte
		rand.Read(seed[:]) // never fails
		s.live = wire.NewSession(o, time.Now(), seed)
		s.live.At = time.Time{} // the history may have older events
		return s.keep(l, "", 0, nil)
	}
	live := new(wire.Session)
	if err := json.Unmarshal(s.State, live); err != nil {
		return err
	}
	live.Options = o
	s.live, s.kept = live, s.Cursor
	s.seen.Store(s.Cursor)
	return nil
}

// keep appends events and the translation after them. If that fails, the translation is
// decoded again before it is used. The caller holds s.mu.
func (s *session) keep(l *scopeLog, epoch string, cursor uint64, drafts []wire.Draft) error {
	err := l.append(s, epoch, cursor, drafts)
	if err != nil {
		s.live = nil
		return err
	}
	s.kept = cursor
	return nil
}

// update changes the translation of a session and stores what comes of it. feed is nil if
// there are no native events.
func (l *scopeLog) update(s *session, change func() []wire.Draft, feed *contracts.Feed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil { // an append failed elsewhere: follow again from what is stored
		return errors.New("the translation begins again")
	}
	l.mu.Lock()
	epoch, cursor := s.Epoch, s.seen.Load()
	l.mu.Unlock()
	drafts := change()
	moved := false
	if feed != nil {
		moved = feed.Epoch != epoch
		epoch, cursor = feed.Epoch, feed.Cursor
	}
	var err error
	if len(drafts) > 0 || moved || cursor-s.kept >= keepEvery {
		err = s.keep(l, epoch, cursor, drafts)
	}
	if err == nil {
		s.seen.Store(cursor)
		l.signal()
	}
	return err
}

// translate returns the events of the log that come of native events.
func (s *session) translate(feed contracts.Feed) (drafts []wire.Draft) {
	if feed.Reset != nil {
		return s.live.Reset(time.Now(), feed.Reset)
	}
	for _, ev := range joined(feed.Events) {
		if ev.Event == nil {
			drafts = append(drafts, s.live.Disconnected(ev.Time, "event_unreadable")...)
			continue
		}
		drafts = append(drafts, s.live.Event(ev.Time, ev.Cursor, ev.Event)...)
	}
	return drafts
}

// joined joins consecutive texts of one response or one call.
func joined(events []contracts.FedEvent) (out []contracts.FedEvent) {
	for _, ev := range events {
		if n := len(out); n > 0 {
			if both := join(out[n-1].Event, ev.Event); both != nil {
				out[n-1] = contracts.FedEvent{Cursor: ev.Cursor, Time: ev.Time, Event: both}
				continue
			}
		}
		out = append(out, ev)
	}
	return out
}

// join returns one event for two, or nil.
func join(a, b contracts.Event) contracts.Event {
	switch a := a.(type) {
	case *contracts.ResponseChunk:
		b, ok := b.(*contracts.ResponseChunk)
		if ok && a.ResponseID == b.ResponseID && a.IsThinking == b.IsThinking && len(a.Content)+len(b.Content) <= contracts.MaxTextBytes {
			both := *b
			both.Content = a.Content + b.Content
			return &both
		}
	case *contracts.ToolOutput:
		b, ok := b.(*contracts.ToolOutput)
		if ok && a.CallID == b.CallID && len(a.Content)+len(b.Content) <= contracts.MaxTextBytes {
			both := *b
			both.Content = a.Content + b.Content
			return &both
		}
	}
	return nil
}
