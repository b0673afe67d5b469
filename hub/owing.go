package hub

import (
	"context"
	"math"
	"slices"
)

// What a command writes is first of all for the connection that started it, and
// must not leave the journal before that has read it. So the command waits while
// much of it is on the way to its owner, as it would for a terminal: as long as
// the owner reads slowly, and while it is away and may come back. Others who
// cannot keep up are reset (D5). An owner that has never followed the session
// holds nothing up.

// A debt is one output that the owner of a command has not read yet.
type debt struct {
	cursor uint64
	bytes  int
}

// debts are those of one connection. Hub.mu guards them. There are not many more
// than MaxBacklog has room for, because commands wait.
type debts struct {
	list  []debt // by cursor
	bytes int
	paid  chan struct{} // closed when some may have been paid; nil unless somebody waits
}

// owe notes output that was just published.
func (tx *tx) owe(commandID string, cursor uint64, bytes int) {
	c := tx.clients.conns[tx.log.events.CommandOwner(commandID)]
	if c == nil || !slices.ContainsFunc(c.subs, func(sub *subscription) bool { return sub.followed }) {
		return
	}
	c.owes.list = append(c.owes.list, debt{cursor, bytes})
	c.owes.bytes += bytes
}

// settle forgets the debts that are paid. It reports whether those left are
// within the limit.
func (c *connection) settle(limit int) bool {
	read, n := c.read(), 0
	for ; n < len(c.owes.list) && c.owes.list[n].cursor <= read; n++ {
		c.owes.bytes -= c.owes.list[n].bytes
	}
	if c.owes.list = c.owes.list[n:]; len(c.owes.list) == 0 {
		c.owes.list = nil
	}
	return c.owes.bytes <= limit
}

// read returns the cursor up to which all of the connection's subscriptions that
// are followed have got what there was. While none is, those count that were and
// may be again: a page that was reloaded leaves one behind that never will be.
func (c *connection) read() uint64 {
	followed, left := uint64(math.MaxUint64), uint64(math.MaxUint64)
	attached := false
	for _, sub := range c.subs {
		switch {
		case sub.box != nil:
			attached, followed = true, min(followed, sub.box.cursor.Load())
		case sub.followed && !sub.lost:
			left = min(left, sub.from)
		}
	}
	if attached {
		return followed
	}
	return left
}

// repay lets those look again who wait for a connection to read. The caller
// holds Hub.mu.
func (c *connection) repay() {
	c.hurried.Store(false)
	if c.owes.paid != nil {
		close(c.owes.paid)
		c.owes.paid = nil
	}
}

// awaitOwner waits until the owner of a command has read enough for the command
// to go on, or is gone.
func (h *Hub) awaitOwner(ctx context.Context, owner string) error {
	for first := true; ; first = false {
		h.mu.Lock()
		c := h.state.clients.conns[owner]
		if c == nil {
			h.mu.Unlock()
			return nil
		}
		c.hurried.Store(true) // before it is looked at, so that whoever reads on sees it
		if c.settle(h.opts.MaxBacklog) {
			h.mu.Unlock()
			return nil
		}
		if c.owes.paid == nil {
			c.owes.paid = make(chan struct{})
		}
		paid := c.owes.paid
		h.mu.Unlock()
		if first {
			h.metrics.CommandWaits.Add(1)
		}
		select {
		case <-paid:
		case <-h.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// passed says that a client has got what there was up to its mailbox's cursor.
func (h *Hub) passed(b *mailbox) {
	c := b.sub.conn
	if !c.hurried.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.repay()
}
