package client

import (
	"context"
	"sync"
)

// A queue holds updates between the goroutine that reads the connection and
// the caller. It is bounded in bytes; at the bound the reader waits, and with
// it, through TCP, the server.
type queue struct {
	// Static.
	bound   int           // bytes
	filled  chan struct{} // 1-buffered; a token means "look again, pop"; never closed
	emptied chan struct{} // 1-buffered; a token means "look again, push"; never closed

	mu    sync.Mutex // guards the following
	items []item     // items[:head] are gone
	head  int
	bytes int
	end   error // why nothing more will come; nil while open
}

// An item is an update and the size of the frame it came in.
type item struct {
	update Update
	size   int
}

func newQueue(bound int) *queue {
	return &queue{bound: bound, filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1)}
}

// push adds an update. It waits while the queue is full, but not longer than
// ctx. Only one goroutine pushes.
func (q *queue) push(ctx context.Context, u Update, size int) error {
	for !q.offer(item{u, size}) {
		select {
		case <-q.emptied:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	signal(q.filled)
	return nil
}

// offer adds it if there is room. A closed queue swallows it.
func (q *queue) offer(it item) bool {
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

// pop removes the oldest update. It waits for one, but not longer than ctx.
// Once the queue is closed and empty it returns the reason.
func (q *queue) pop(ctx context.Context) (Update, error) {
	for {
		it, ok, end := q.take()
		switch {
		case ok:
			signal(q.emptied)
			return it.update, nil
		case end != nil:
			signal(q.filled) // for another caller that waits here
			return Update{}, end
		}
		select {
		case <-q.filled:
		case <-ctx.Done():
			return Update{}, context.Cause(ctx)
		}
	}
}

// take removes the oldest item. If there was one, ok is set; otherwise end
// says why none will come.
func (q *queue) take() (it item, ok bool, end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == len(q.items) {
		return item{}, false, q.end
	}
	it = q.items[q.head]
	q.items[q.head] = item{}
	q.head++
	q.bytes -= it.size
	if q.head*2 >= len(q.items) { // keeps the slice at most twice what waits
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	if len(q.items) > 0 {
		signal(q.filled)
	}
	return it, true, nil
}

// close lets no more in. What waits can still be taken, unless discard is set.
// Only the first reason counts.
func (q *queue) close(why error, discard bool) {
	q.mu.Lock()
	if q.end == nil {
		q.end = why
	}
	if discard {
		q.items, q.head, q.bytes = nil, 0, 0
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

// signal leaves a token in a 1-buffered channel.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
