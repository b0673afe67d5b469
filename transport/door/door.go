// Package door counts the connections of all transports of a process, and shuts
// them all.
package door

import (
	"cmp"
	"context"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Conn is a connection as its door sees it.
type Conn interface {
	// Close begins to end the connection and says why. It does not wait.
	Close(why *contracts.Error)
	// Cut breaks it off.
	Cut()
}

// GoingAway is why connections end when their door is shut.
var GoingAway = &contracts.Error{Code: contracts.CodeGoingAway, Message: "the server is going away"}

var errOverloaded = &contracts.Error{Code: contracts.CodeOverloaded, Message: "too many connections"}

// A Door lets connections in, up to a number. It is safe for concurrent use.
type Door struct {
	// Static after New.
	max  int
	ctx  context.Context // ends in Close
	stop context.CancelFunc
	wg   sync.WaitGroup // one for each place

	mu     sync.Mutex
	closed bool
	taken  int               // places: connections, and requests on their way to be one
	conns  map[Conn]struct{} // at most taken
}

// New returns a door for max connections at a time; zero means 16,384.
func New(max int) *Door {
	ctx, stop := context.WithCancel(context.Background())
	return &Door{max: cmp.Or(max, 16384), ctx: ctx, stop: stop, conns: map[Conn]struct{}{}}
}

// Context ends when the door is shut.
func (d *Door) Context() context.Context { return d.ctx }

// Admit reserves a place, which Leave gives back. It refuses with overloaded,
// or going_away once the door is shut.
func (d *Door) Admit() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return GoingAway
	case d.taken >= d.max:
		return errOverloaded
	}
	d.taken++
	d.wg.Add(1)
	return nil
}

// Enter puts c in a place that was reserved. A door that has been shut meanwhile
// ends the connection at once.
func (d *Door) Enter(c Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c] = struct{}{}
	if d.closed {
		c.Close(GoingAway)
	}
}

// Leave gives a place back; c is nil if no connection took it.
func (d *Door) Leave(c Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c != nil {
		delete(d.conns, c)
	}
	d.taken--
	d.wg.Done()
}

// Taken returns how many places are taken.
func (d *Door) Taken() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken
}

// Len returns how many connections there are, those being closed included.
func (d *Door) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}

// Close refuses new connections, ends all others and waits until they have
// ended. If ctx ends first, it cuts them off and returns ctx's error without
// waiting any longer.
func (d *Door) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	for c := range d.conns {
		c.Close(GoingAway)
	}
	d.mu.Unlock()
	d.stop()

	ended := make(chan struct{})
	go func() { // ends when the last connection has
		d.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.Cut()
	}
	return ctx.Err()
}
