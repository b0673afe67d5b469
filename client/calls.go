package client

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// calls is the table of frames that are not written or answered yet, oldest first.
// At most MaxUnanswered are open at a time; further callers wait.
type calls struct {
	// Static.
	slots chan struct{} // one token per open call; the capacity is the limit
	wake  chan struct{} // 1-buffered; a token tells the writer to look again; never closed

	mu     sync.Mutex // guards the following
	open   []*call
	linked bool  // there is a connection
	end    error // why no further call can be made; nil before
}

// A call is one frame from the client. Its fields are guarded by calls.mu.
type call struct {
	id      string // empty if the server does not answer it
	frame   []byte
	repeat  bool                   // the frame may be sent again on the same connection
	written bool                   // on the current link
	lost    bool                   // written on an earlier link
	done    chan answer            // 1-buffered; receives exactly one answer
	page    *contracts.HistoryPage // of the answer; set before done receives it
}

// An answer is the result of a call.
type answer struct {
	result contracts.Result
	page   *contracts.HistoryPage // instead of result
	err    error
}

func newCalls() *calls {
	return &calls{slots: make(chan struct{}, contracts.MaxUnanswered), wake: make(chan struct{}, 1)}
}

// do sends a frame and waits for its answer, or until ctx ends.
func (t *calls) do(ctx context.Context, c *call) (contracts.Result, error) {
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		return contracts.Result{}, context.Cause(ctx)
	}
	defer func() { <-t.slots }()

	c.done = make(chan answer, 1)
	if err := t.add(c); err != nil {
		return contracts.Result{}, err
	}
	signal(t.wake)
	select {
	case a := <-c.done:
		return a.result, a.err
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		t.remove(c)
		return contracts.Result{}, context.Cause(ctx)
	}
}

// add opens a call. A frame that must not be repeated needs a connection.
func (t *calls) add(c *call) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.end != nil:
		return t.end
	case !t.linked && !c.repeat:
		return ErrNotConnected
	}
	t.open = append(t.open, c)
	return nil
}

// next returns the oldest frame that was not written on this link, or nil, and
// marks it as written: from its first byte on, the server may have executed it.
func (t *calls) next() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.open {
		if !c.written {
			c.written = true
			if c.id == "" { // it has no answer
				t.finish(c, answer{})
			}
			return c.frame
		}
	}
	return nil
}

// answer finishes the call with id. It ignores an unknown id: the caller has
// stopped waiting.
func (t *calls) answer(id *string, a answer) {
	if id == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.open, func(c *call) bool { return c.id == *id })
	if i >= 0 {
		t.finish(t.open[i], a)
	}
}

// finish answers a call and removes it. The caller holds mu.
func (t *calls) finish(c *call, a answer) {
	c.page = a.page
	c.done <- a
	t.remove(c)
}

// remove takes a call out of a copy of the list. The caller holds mu, and may iterate
// over the list.
func (t *calls) remove(c *call) {
	t.open = slices.DeleteFunc(slices.Clone(t.open), func(o *call) bool { return o == c })
}

// link starts a new connection. If the server continues the same connection, it
// knows which ids it has executed, so all unanswered frames are written again.
// Otherwise only frames that were never written are; the others fail.
func (t *calls) link(same bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.linked = true
	for _, c := range t.open {
		if c.lost && !same {
			t.finish(c, answer{err: ErrAnswerLost})
			continue
		}
		c.written = false
	}
	signal(t.wake)
}

// unlink ends a connection. Frames that must not be repeated fail.
func (t *calls) unlink() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.linked = false
	for _, c := range t.open {
		c.lost = c.lost || c.written
		if !c.repeat {
			t.finish(c, answer{err: ErrAnswerLost})
		}
	}
}

// close fails all open and later calls.
func (t *calls) close(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.linked, t.end = false, why
	for _, c := range t.open {
		if c.lost || c.written {
			t.finish(c, answer{err: errors.Join(ErrAnswerLost, why)})
			continue
		}
		t.finish(c, answer{err: why})
	}
}
