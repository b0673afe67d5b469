package hub

import (
	"runtime"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Above busyDeliveries per second the waker pauses for busyWindow after each round, so
// that one write carries several entries. Below it, a pause would only add latency
// (D3). The rate is measured over rateSpan.
const (
	busyDeliveries = 50_000
	busyWindow     = 5 * time.Millisecond
	rateSpan       = 100 * time.Millisecond
)

// wakeFollowers is the waker's goroutine. It handles any number of publishes in one
// round over the mailboxes. So the cost of publishing does not depend on the number
// of clients.
func (h *Hub) wakeFollowers() {
	var window time.Duration
	from, since := h.journal.Visible(), time.Now()
	for {
		select {
		case <-h.newEntries:
		case <-h.done:
			return
		}
		h.followers.wakeAll()
		followers := h.wakeBehind()
		if now := time.Now(); now.Sub(since) >= rateSpan {
			visible := h.journal.Visible()
			rate := float64(visible-from) * float64(followers) / now.Sub(since).Seconds()
			window = 0
			if rate > busyDeliveries {
				window = busyWindow
			}
			from, since = visible, now
		}
		if window > 0 {
			wait(window, h.done, nil)
		}
	}
}

// wakeBatch is how many mailboxes are woken before the waker yields. Waking all at
// once would need a stack for each at the same time.
const wakeBatch = 64

// wakeBehind wakes every mailbox that has something to write and returns the number
// of mailboxes.
func (h *Hub) wakeBehind() int {
	followers := h.roster.len()
	for remaining := followers; remaining > 0; {
		remaining = h.wakeSome(remaining)
		runtime.Gosched()
	}
	return followers
}

// wakeSome wakes up to wakeBatch mailboxes, from the end of the first remaining
// ones, and returns how many remain. It misses no mailbox: if one is removed, the
// last one takes its place, and the last one was visited before.
func (h *Hub) wakeSome(remaining int) int {
	h.roster.mu.RLock()
	defer h.roster.mu.RUnlock()
	remaining = min(remaining, len(h.roster.boxes))
	from := max(0, remaining-wakeBatch)
	visible := h.journal.Visible()
	for _, b := range h.roster.boxes[from:remaining] {
		if b.cursor.Load() < visible || b.needsSnapshot.Load() { // its snapshot may be visible now
			h.wake(b)
		}
	}
	return from
}

// watchClock is the clock's goroutine. It calls tick at the earliest deadline.
// Transactions wake it when they set an earlier one.
func (h *Hub) watchClock() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			h.update((*tx).tick)
		case <-h.rearm:
		case <-h.done:
			return
		}
		h.mu.Lock()
		next := h.state.life.deadline
		h.mu.Unlock()
		if next.IsZero() {
			timer.Reset(time.Hour) // no deadline; a transaction will set one
			continue
		}
		timer.Reset(time.Until(next))
	}
}

// A deadline is when the clock does something next.
type deadline struct {
	at  func(*tx) time.Time // zero: never
	act func(*tx)
}

// deadlines returns what the clock does, in order: a lease ends with its connection.
func deadlines() [9]deadline {
	return [9]deadline{
		{func(tx *tx) time.Time { return tx.clients.nextSilent() }, (*tx).expireSilent},
		{func(tx *tx) time.Time { at, _ := tx.clients.lease.Deadline(); return at }, (*tx).expireLease},
		{func(tx *tx) time.Time { at, _ := tx.work.table.Next(); return tx.unlessFrozen(at) }, (*tx).expireQuestions},
		{func(tx *tx) time.Time { return tx.clients.nextCredentialEnd }, (*tx).expireCredentials},
		{(*tx).idleEnd, (*tx).suspend},
		{func(tx *tx) time.Time { return tx.life.endAt }, (*tx).endStreams},
		{func(tx *tx) time.Time { return tx.clients.presence.due }, (*tx).showPresence},
		{(*tx).nextWorking, func(tx *tx) { tx.publish(&contracts.Status{Message: contracts.StatusWorking}) }},
		{(*tx).nextHeartbeat, (*tx).heartbeatAll},
	}
}

// arm computes the earliest deadline and wakes the clock if it is earlier than
// before.
func (tx *tx) arm() {
	next := time.Time{}
	if tx.life.phase != phaseEnded {
		for _, d := range deadlines() {
			if at := d.at(tx); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	moved := !next.IsZero() && (tx.life.deadline.IsZero() || next.Before(tx.life.deadline))
	tx.life.deadline = next
	if moved {
		signal(tx.rearm)
	}
}

// tick handles every deadline that has passed.
func (tx *tx) tick() {
	for _, d := range deadlines() {
		if at := d.at(tx); !at.IsZero() && !at.After(tx.now) {
			d.act(tx)
		}
	}
}

// unlessFrozen returns at, or zero if the session is frozen: the next process acts
// then.
func (tx *tx) unlessFrozen(at time.Time) time.Time {
	if tx.life.frozen {
		return time.Time{}
	}
	return at
}

func (tx *tx) expireQuestions() { tx.resolve(tx.work.table.Expire(tx.now)...) }

// nextWorking returns when a silent run publishes a status, so that clients can tell
// it from a dead server.
func (tx *tx) nextWorking() time.Time {
	if tx.work.run == nil {
		return time.Time{}
	}
	return tx.unlessFrozen(tx.log.lastPublished.Add(tx.opts.WorkingInterval))
}

func (tx *tx) nextHeartbeat() time.Time {
	if tx.roster.len() == 0 {
		return time.Time{}
	}
	return tx.clients.nextHeartbeat
}

// heartbeatAll marks a heartbeat as due for every mailbox that had none for one
// interval, and closes connections that have been silent for three intervals although
// they have had the time to read all. Heartbeats are spread by the time of
// attachment.
func (tx *tx) heartbeatAll() {
	interval := tx.opts.HeartbeatInterval
	tx.clients.nextHeartbeat = tx.now.Add(interval / 15)
	tx.roster.mu.RLock()
	defer tx.roster.mu.RUnlock()
	for _, b := range tx.roster.boxes {
		if b.bare || tx.now.Sub(b.lastHeartbeat) < interval-interval/15 {
			continue
		}
		b.lastHeartbeat = tx.now
		seen := b.conn.LastSeen()
		if !seen.IsZero() && tx.now.Sub(seen) > contracts.SilentHeartbeats*interval && tx.now.UnixNano() > b.readBy.Load() {
			tx.metrics.Silent.Add(1)
			b.conn.Close(&contracts.Error{Code: contracts.CodeTimeout, Message: "nothing was heard from the client"})
			continue
		}
		b.heartbeatDue.Store(true)
		tx.wake(b)
	}
}
