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

// push adds an update. It waits while the queue is full, until ctx ends. A closed queue
// discards the update. Only one goroutine pushes.
func (q *queue) push(ctx context.Context, u Update, size int) error {
	for {
		q.mu.Lock()
		full := q.end == nil && q.bytes > 0 && q.bytes+size > q.bound
		if q.end == nil && !full {
			q.items = append(q.items, item{u, size})
			q.bytes += size
		}
		q.mu.Unlock()
		if !full {
			signal(q.filled)
			return nil
		}
		select {
		case <-q.emptied:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pop removes and returns the oldest update. It waits for one until ctx ends. It
// returns the reason of the close once the queue is closed and empty. One goroutine
// at a time pops.
func (q *queue) pop(ctx context.Context) (Update, error) {
	for {
		q.mu.Lock()
		end := q.end
		if len(q.items) > 0 {
			it := q.items[0]
			q.items[0] = item{} // until push replaces the array, it keeps the places of taken items
			q.items = q.items[1:]
			q.bytes -= it.size
			q.mu.Unlock()
			signal(q.emptied)
			return it.update, nil
		}
		q.mu.Unlock()
		if end != nil {
			return Update{}, end
		}
		select {
		case <-q.filled:
		case <-ctx.Done():
			return Update{}, context.Cause(ctx)
		}
	}
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
