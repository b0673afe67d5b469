package hub

import (
	"context"
	"math"
	"sync/atomic"
)

// Backpressure. A utility command pauses while its owner has more than
// Options.MaxBacklog bytes of unread output, so that output cannot fall out of
// retention before the owner sees it. Output counts as unread also while the owner is
// detached, until its subscription expires. Commands do not pause for an owner that
// was never attached.
//
// The agent and file watches pause while the local client has more than that of unread
// entries, because it cannot be reset. Nothing else waits for clients: they may be
// reset (D5).

// unreadBytes counts what a connection has not read yet: entries if it is the local
// client, otherwise output of its commands. Hub.mu guards it. It stays close to
// MaxBacklog, because those who publish pause.
type unreadBytes struct {
	parts []unreadPart // in the order of their cursors
	bytes int
	read  chan struct{} // closed when some may have been read; nil if nobody waits
}

// An unreadPart is a number of bytes in the entries up to cursor.
type unreadPart struct {
	cursor uint64
	bytes  int
}

// add counts bytes that were just published. It counts together up to part bytes.
func (u *unreadBytes) add(cursor uint64, bytes, part int) {
	u.bytes += bytes
	if last := len(u.parts) - 1; last >= 0 && u.parts[last].bytes+bytes <= part {
		u.parts[last] = unreadPart{cursor, u.parts[last].bytes + bytes}
		return
	}
	u.parts = append(u.parts, unreadPart{cursor, bytes})
}

// dropRead removes what has been read and returns how many bytes remain.
func (c *connection) dropRead() int {
	read, n := c.read(), 0
	for ; n < len(c.unread.parts) && c.unread.parts[n].cursor <= read; n++ {
		c.unread.bytes -= c.unread.parts[n].bytes
	}
	if c.unread.parts = c.unread.parts[n:]; len(c.unread.parts) == 0 {
		c.unread.parts = nil
	}
	return c.unread.bytes
}

// read returns the cursor up to which all attached subscriptions of the connection
// have been written. If none is attached, the detached ones count. They do not
// count beside attached ones, because a reloaded page leaves a detached one that
// never attaches again.
func (c *connection) read() uint64 {
	attached, detached := uint64(math.MaxUint64), uint64(math.MaxUint64)
	for _, sub := range c.subs {
		switch sub.state {
		case subAttached:
			attached = min(attached, sub.box.cursor.Load())
		case subDetached:
			detached = min(detached, sub.from)
		}
	}
	if attached == math.MaxUint64 { // there is none
		return detached
	}
	return attached
}

// wakeWriters makes those who publish and wait for the connection check again. The
// caller holds Hub.mu.
func (c *connection) wakeWriters() {
	c.awaited.Store(false)
	if c.unread.read != nil {
		close(c.unread.read)
		c.unread.read = nil
	}
}

// awaitReader waits until a connection has read enough, or is gone. waits counts the
// waits.
func (h *Hub) awaitReader(ctx context.Context, id string, waits *atomic.Int64) error {
	for first := true; ; first = false {
		h.mu.Lock()
		c := h.state.clients.conns[id]
		if c == nil {
			h.mu.Unlock()
			return nil
		}
		c.awaited.Store(true) // before dropRead, so that a flush that moves the cursor afterwards sees it
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
			waits.Add(1)
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

// readerMoved wakes those who wait for b's connection, because b's cursor moved.
func (h *Hub) readerMoved(b *mailbox) {
	c := b.sub.conn
	if !c.awaited.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.wakeWriters()
}
