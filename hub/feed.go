package hub

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// A Follower reads the history of a session for another part of the program. It is no
// client: it is not listed, counted or announced, and cannot hold the lease. The hub does
// not wait for it. One goroutine may use it.
type Follower struct {
	hub    *Hub
	epoch  string
	cursor uint64
	wake   chan struct{} // 1-buffered; a token means visible entries
}

// followers wakes the followers of a session.
type followers struct {
	mu    sync.Mutex
	wakes []chan struct{}
}

func (f *followers) wakeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, wake := range f.wakes {
		signal(wake)
	}
}

// Follow returns a follower that begins after a cursor of an epoch. An empty epoch means
// the oldest event that is stored. Close the follower after use.
func (h *Hub) Follow(epoch string, cursor uint64) *Follower {
	f := &Follower{hub: h, epoch: epoch, cursor: cursor, wake: make(chan struct{}, 1)}
	if epoch == "" {
		f.epoch, f.cursor = h.Epoch(), h.journal.First()-1
	}
	h.followers.mu.Lock()
	defer h.followers.mu.Unlock()
	h.followers.wakes = append(h.followers.wakes, f.wake)
	return f
}

// Close ends the follower.
func (f *Follower) Close() {
	f.hub.followers.mu.Lock()
	defer f.hub.followers.mu.Unlock()
	f.hub.followers.wakes = slices.DeleteFunc(f.hub.followers.wakes, func(wake chan struct{}) bool { return wake == f.wake })
}

// Next waits for events and returns about maxFed bytes of them at most. It returns
// io.EOF when the session has ended and all its events were read, and the cause of ctx
// if ctx ends first.
func (f *Follower) Next(ctx context.Context) (contracts.Feed, error) {
	for {
		ended := f.hub.hasEnded()
		feed, err := f.read()
		if err != nil || feed.Reset != nil || feed.Cursor > f.cursor {
			f.epoch, f.cursor = feed.Epoch, feed.Cursor
			return feed, err
		}
		if ended {
			return feed, io.EOF
		}
		select {
		case <-f.wake:
		case <-f.hub.done:
		case <-ctx.Done():
			return feed, context.Cause(ctx)
		}
	}
}

// maxFed is how many bytes of entries one call of Next reads.
const maxFed = 256 << 10

func (f *Follower) read() (contracts.Feed, error) {
	feed := contracts.Feed{Epoch: f.epoch, Cursor: f.cursor}
	visible := f.hub.journal.Visible()
	if f.epoch != f.hub.Epoch() {
		return f.reset(), nil
	}
	if f.cursor == visible {
		return feed, nil
	}
	size := 0
	err := f.hub.opts.Store.Read(f.cursor, func(e journal.Entry) bool {
		if e.Cursor > visible || size >= maxFed {
			return false
		}
		size += len(e.Body)
		feed.Cursor = e.Cursor
		e, seen := e.Seen(0)
		if !seen || e.Kind != journal.Message {
			return true
		}
		ev, err := (&contracts.Decoder{}).Event(e.Body)
		if err != nil {
			f.hub.logger.Error("an event of the history cannot be decoded", "cursor", e.Cursor, "err", err)
		}
		feed.Events = append(feed.Events, contracts.FedEvent{Cursor: e.Cursor, Time: time.UnixMilli(e.Time), Event: ev})
		return true
	})
	missing := errors.Is(err, journal.ErrGap) || errors.Is(err, journal.ErrCorrupt)
	switch {
	case missing && feed.Cursor == f.cursor:
		return f.reset(), nil
	case missing: // the next call returns the reset
		return feed, nil
	}
	return feed, err
}

// reset returns the state in place of events that cannot be read.
func (f *Follower) reset() contracts.Feed {
	snap := f.hub.Snapshot()
	return contracts.Feed{Epoch: f.hub.Epoch(), Cursor: snap.Cursor, Reset: snap}
}

func (h *Hub) hasEnded() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// Decide answers a pending approval for a principal that has no connection, whoever
// holds the lease. The first answer decides: Decide refuses with request_not_found if
// the approval is not pending any more. cursor is where the answer is in the history.
//
// digest is that of the request, or empty. ended reports whether the approval ended: it
// stays pending if it needs more votes.
func (h *Hub) Decide(requestID string, approved bool, note, digest string, by contracts.Principal) (cursor uint64, ended bool, err error) {
	return h.Answer(&contracts.ServerRequestResponse{
		RequestID: requestID, RequestType: contracts.RequestApproval, Approved: &approved, Reason: note, Digest: digest,
	}, contracts.Caller{Principal: by})
}

// Stop interrupts the run that was active at the cursor seen, whoever holds the lease.
// Without a run it cancels the questions that are still open. It reports whether it did:
// the run may have ended, and another one begun.
func (h *Hub) Stop(seen uint64) (stopped bool, err error) {
	h.update(func(tx *tx) {
		if err = tx.life.refuse(opMessage); err != nil {
			return
		}
		r := tx.work.run
		if r == nil && tx.work.table.Len() > 0 || r != nil && r.stop == nil && r.after < seen {
			tx.interrupt(&contracts.Interrupt{}, note{})
			stopped = true
		}
	})
	return stopped, err
}
