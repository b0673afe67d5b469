package hub

import (
	"runtime"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Above this many deliveries a second the waker waits a little between rounds,
// so that one write carries several entries: below it the wait would only add
// latency (D3).
const (
	busyDeliveries = 50_000
	busyWindow     = 5 * time.Millisecond
	rateSpan       = 100 * time.Millisecond
)

// wakeFollowers is the one waker of the session. It turns any number of
// publishes into one round over the followers, so that publishing costs the
// same however many there are.
func (h *Hub) wakeFollowers() {
	var window time.Duration
	from, since := h.journal.Visible(), time.Now()
	for {
		select {
		case <-h.newEntries:
		case <-h.done:
			return
		}
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
			pause := time.NewTimer(window)
			select {
			case <-pause.C:
			case <-h.done:
				pause.Stop()
				return
			}
		}
	}
}

// wakeAtOnce is how many followers are woken before they get to run. A crowd
// woken in one go would need a stack for each at the same time.
const wakeBatch = 64

// wakeBehind wakes every follower that has something to write and returns how
// many followers there are.
func (h *Hub) wakeBehind() int {
	followers := h.roster.len()
	for left := followers; left > 0; {
		left = h.wakeSome(left)
		runtime.Gosched()
	}
	return followers
}

// wakeSome looks at the last wakeAtOnce of the first left followers and returns
// how many remain. Going from the end it misses nobody who stays: a follower
// that leaves is replaced by the last one, which has had its turn.
func (h *Hub) wakeSome(left int) int {
	h.roster.mu.RLock()
	defer h.roster.mu.RUnlock()
	left = min(left, len(h.roster.boxes))
	from := max(0, left-wakeBatch)
	visible := h.journal.Visible()
	for _, b := range h.roster.boxes[from:left] {
		if b.cursor.Load() < visible || b.needsSnapshot.Load() { // a snapshot may have to wait until its cursor is visible
			h.wake(b)
		}
	}
	return from
}

// watchClock fires what the passing of time decides. It sleeps until the
// earliest deadline, which updates move.
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
			timer.Reset(time.Hour) // nothing is due; an update will rearm
			continue
		}
		timer.Reset(time.Until(next))
	}
}

// arm finds the earliest deadline and tells the clock if it moved forward.
func (tx *tx) arm() {
	next := time.Time{}
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if tx.life.phase != phaseEnded {
		if t, ok := tx.clients.lease.Deadline(); ok {
			sooner(t)
		}
		if t, ok := tx.work.table.Next(); ok && !tx.life.frozen {
			sooner(t)
		}
		sooner(tx.clients.nextSilent())
		sooner(tx.life.endAt)
		sooner(tx.clients.nextCredentialEnd)
		if idle := tx.idleSince(); !idle.IsZero() {
			sooner(idle.Add(tx.opts.IdleTTL))
		}
		sooner(tx.clients.presence.due)
		if tx.work.run != nil && !tx.life.frozen {
			sooner(tx.log.lastPublished.Add(tx.opts.WorkingInterval))
		}
		if tx.roster.len() > 0 {
			sooner(tx.clients.nextHeartbeat)
		}
	}
	moved := !next.IsZero() && (tx.life.deadline.IsZero() || next.Before(tx.life.deadline))
	tx.life.deadline = next
	if moved {
		signal(tx.rearm)
	}
}

// tick does everything whose time has come.
func (tx *tx) tick() {
	h := tx.Hub
	tx.expireSilent() // first: a lease goes with its connection
	tx.expireLease()
	if !tx.life.frozen { // the next process has them, and tells how they end
		for _, res := range tx.work.table.Expire(tx.now) {
			tx.resolve(res)
		}
	}
	if !tx.clients.nextCredentialEnd.IsZero() && !tx.clients.nextCredentialEnd.After(tx.now) {
		tx.expireCredentials()
	}
	if idle := tx.idleSince(); !idle.IsZero() && tx.now.Sub(idle) >= tx.opts.IdleTTL {
		tx.life.suspended, tx.life.phase = true, phaseDraining
		tx.then(func() { go h.suspendIdle() }) // ends with the session
	}
	if !tx.life.endAt.IsZero() && !tx.life.endAt.After(tx.now) {
		tx.life.endAt = time.Time{}
		tx.closeMailboxes(errGoingAway)
	}
	if !tx.clients.presence.due.IsZero() && !tx.clients.presence.due.After(tx.now) {
		tx.showPresence()
	}
	if tx.work.run != nil && !tx.life.frozen && tx.now.Sub(tx.log.lastPublished) >= tx.opts.WorkingInterval {
		tx.publish(&contracts.Status{Message: contracts.StatusWorking}) // a silent run is told from a dead one
	}
	if !tx.clients.nextHeartbeat.After(tx.now) {
		tx.heartbeatAll()
	}
}

// beatAll lets every connection beat whose turn has come and closes those that
// have been silent for three intervals. Turns are spread by the time of attach.
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
		if seen := b.conn.LastSeen(); !seen.IsZero() && tx.now.Sub(seen) > 3*interval {
			tx.metrics.Silent.Add(1)
			b.conn.Close(&contracts.Error{Code: contracts.CodeTimeout, Message: "nothing was heard from the client"})
			continue
		}
		b.heartbeatDue.Store(true)
		tx.wake(b)
	}
}
