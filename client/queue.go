package client

import (
	"context"
	"sync"
)

// A queue holds updates between the goroutine that reads the connection and the
// caller. At its limit in bytes the reader waits, and through TCP the server.
type queue struct {
	// Static.
	bound   int           // bytes
	filled  chan struct{} // 1-buffered; a token tells pop to look again; never closed
	emptied chan struct{} // 1-buffered; a token tells push to look again; never closed

	mu    sync.Mutex // guards the following
	items []item
	bytes int
	end   error // why no more updates come; nil while open
}

// An item is an update with the size of its frame.
type item struct {
	update Update
	size   int
}

func newQueue(bound int) *queue {
	return &queue{bound: bound, filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1)}
}

// push adds an update. It waits while the queue is full, until ctx ends. Only one
// goroutine pushes.
func (q *queue) push(ctx context.Context, u Update, size int) error {
	for !q.tryPush(item{u, size}) {
		select {
		case <-q.emptied:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	signal(q.filled)
	return nil
}

// tryPush adds an item if there is room, and reports whether it did. A closed queue
// discards it.
func (q *queue) tryPush(it item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.end != nil:
		return true
	case q.bytes > 0 && q.bytes+it.size > q.bound:
		return false
	}
	q.items = append(q.items, it)
	q.bytes += it.size
	return true
}

// pop removes and returns the oldest update. It waits for one until ctx ends. It
// returns the reason of the close once the queue is closed and empty. One goroutine
// at a time pops.
func (q *queue) pop(ctx context.Context) (Update, error) {
	for {
		it, ok, end := q.popItem()
		switch {
		case ok:
			signal(q.emptied)
			return it.update, nil
		case end != nil:
			return Update{}, end
		}
		select {
		case <-q.filled:
		case <-ctx.Done():
			return Update{}, context.Cause(ctx)
		}
	}
}

// popItem removes the oldest item. If there is none, end says why no more will
// come.
func (q *queue) popItem() (it item, ok bool, end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return item{}, false, q.end
	}
	it = q.items[0]
	q.items[0] = item{} // until push replaces the array, it keeps the places of taken items
	q.items = q.items[1:]
	q.bytes -= it.size
	return it, true, nil
}

// close refuses further updates. Queued updates can still be taken unless discard
// is set. Only the first reason is kept.
func (q *queue) close(why error, discard bool) {
	q.mu.Lock()
	if q.end == nil {
		q.end = why
	}
	if discard {
		q.items, q.bytes = nil, 0
	}
	q.mu.Unlock()
	signal(q.filled)
	signal(q.emptied)
}

// closed reports whether close was called.
func (q *queue) closed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.end != nil
}

// signal puts a token into a 1-buffered channel unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
