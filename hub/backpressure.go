package hub

import (
	"context"
	"math"
	"slices"
)

// Backpressure for utility commands. A command pauses while its owner has more
// than Options.MaxBacklog bytes of unread output, so that output cannot fall out
// of retention before the owner sees it. Output counts as unread also while the
// owner is detached, until its subscription expires. Commands do not pause for an
// owner that was never attached. They never wait for other clients, which may be
// reset (D5).

// unreadOutput is the command output that the owning connection has not read yet.
// Hub.mu guards it. It stays close to MaxBacklog, because commands pause.
type unreadOutput struct {
	events []outputEvent // in the order of their cursors
	bytes  int
	read   chan struct{} // closed when some may have been read; nil if no command waits
}

type outputEvent struct {
	cursor uint64
	bytes  int
}

// addUnread counts output that was just published, if its owner has ever been
// attached.
func (tx *tx) addUnread(commandID string, cursor uint64, bytes int) {
	c := tx.clients.conns[tx.log.events.CommandOwner(commandID)]
	if c == nil || !slices.ContainsFunc(c.subs, (*subscription).followed) {
		return
	}
	c.unread.events = append(c.unread.events, outputEvent{cursor, bytes})
	c.unread.bytes += bytes
}

// followed reports whether the subscription is read, or was and can be continued.
func (sub *subscription) followed() bool {
	return sub.state == subAttached || sub.state == subDetached
}

// dropRead removes the output that has been read and returns how many bytes
// remain.
func (c *connection) dropRead() int {
	read, n := c.read(), 0
	for ; n < len(c.unread.events) && c.unread.events[n].cursor <= read; n++ {
		c.unread.bytes -= c.unread.events[n].bytes
	}
	if c.unread.events = c.unread.events[n:]; len(c.unread.events) == 0 {
		c.unread.events = nil
	}
	return c.unread.bytes
}

// read returns the cursor up to which all attached subscriptions of the connection
// have been written. If none is attached, the detached ones count. They do not
// count beside attached ones, because a reloaded page leaves a detached one that
// never attaches again.
func (c *connection) read() uint64 {
	attached, detached := uint64(math.MaxUint64), uint64(math.MaxUint64)
	any := false
	for _, sub := range c.subs {
		switch sub.state {
		case subAttached:
			any, attached = true, min(attached, sub.box.cursor.Load())
		case subDetached:
			detached = min(detached, sub.from)
		}
	}
	if any {
		return attached
	}
	return detached
}

// wakeWriters makes the commands that wait for the connection check again. The
// caller holds Hub.mu.
func (c *connection) wakeWriters() {
	c.commandWaits.Store(false)
	if c.unread.read != nil {
		close(c.unread.read)
		c.unread.read = nil
	}
}

// awaitOwner waits until the owner of a command has read enough, or is gone.
func (h *Hub) awaitOwner(ctx context.Context, owner string) error {
	for first := true; ; first = false {
		h.mu.Lock()
		c := h.state.clients.conns[owner]
		if c == nil {
			h.mu.Unlock()
			return nil
		}
		c.commandWaits.Store(true) // before dropRead, so that a flush that moves the cursor afterwards sees it
		if c.dropRead() <= h.opts.MaxBacklog {
			h.mu.Unlock()
			return nil
		}
		if c.unread.read == nil {
			c.unread.read = make(chan struct{})
		}
		read := c.unread.read
		h.mu.Unlock()
		if first {
			h.metrics.CommandWaits.Add(1)
		}
		select {
		case <-read:
		case <-h.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ownerRead wakes the commands that wait for b's connection, because b's cursor
// moved.
func (h *Hub) ownerRead(b *mailbox) {
	c := b.sub.conn
	if !c.commandWaits.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.wakeWriters()
}
