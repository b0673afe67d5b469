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
		case <-h.kick:
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
const wakeAtOnce = 64

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
	from := max(0, left-wakeAtOnce)
	visible := h.journal.Visible()
	for _, b := range h.roster.boxes[from:left] {
		if b.cursor.Load() < visible || b.adrift.Load() { // a snapshot may have to wait until its cursor is visible
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
			h.update(h.tick)
		case <-h.rearm:
		case <-h.done:
			return
		}
		h.mu.Lock()
		next := h.deadline
		h.mu.Unlock()
		if next.IsZero() {
			timer.Reset(time.Hour) // nothing is due; an update will rearm
			continue
		}
		timer.Reset(time.Until(next))
	}
}

// arm finds the earliest deadline and tells the clock if it moved forward.
func (h *Hub) arm(s *state) {
	next := time.Time{}
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if s.phase != phaseEnded {
		if t, ok := s.lease.Deadline(); ok {
			sooner(t)
		}
		if t, ok := s.table.Next(); ok && !s.frozen {
			sooner(t)
		}
		sooner(s.nextSilent())
		sooner(s.endAt)
		sooner(s.credentials)
		if idle := h.idleSince(s); !idle.IsZero() {
			sooner(idle.Add(h.opts.IdleTTL))
		}
		sooner(s.presence.due)
		if s.run != nil && !s.frozen {
			sooner(s.lastShown.Add(h.opts.WorkingInterval))
		}
		if h.roster.len() > 0 {
			sooner(s.nextBeat)
		}
	}
	moved := !next.IsZero() && (s.deadline.IsZero() || next.Before(s.deadline))
	s.deadline = next
	if moved {
		signal(h.rearm)
	}
}

// tick does everything whose time has come.
func (h *Hub) tick(s *state) {
	h.expireSilent(s) // first: a lease goes with its connection
	h.expireLease(s)
	if !s.frozen { // the next process has them, and tells how they end
		for _, res := range s.table.Expire(s.now) {
			h.resolve(s, res)
		}
	}
	if !s.credentials.IsZero() && !s.credentials.After(s.now) {
		h.expireCredentials(s)
	}
	if idle := h.idleSince(s); !idle.IsZero() && s.now.Sub(idle) >= h.opts.IdleTTL {
		s.asleep, s.phase = true, phaseDraining
		s.then(func() { go h.rest() }) // ends with the session
	}
	if !s.endAt.IsZero() && !s.endAt.After(s.now) {
		s.endAt = time.Time{}
		h.partAll(s, goingAway)
	}
	if !s.presence.due.IsZero() && !s.presence.due.After(s.now) {
		h.showPresence(s)
	}
	if s.run != nil && !s.frozen && s.now.Sub(s.lastShown) >= h.opts.WorkingInterval {
		h.publish(s, &contracts.Status{Message: contracts.StatusWorking}) // a silent run is told from a dead one
	}
	if !s.nextBeat.After(s.now) {
		h.beatAll(s)
	}
}

// beatAll lets every connection beat whose turn has come and closes those that
// have been silent for three intervals. Turns are spread by the time of attach.
func (h *Hub) beatAll(s *state) {
	interval := h.opts.HeartbeatInterval
	s.nextBeat = s.now.Add(interval / 15)
	h.roster.mu.RLock()
	defer h.roster.mu.RUnlock()
	for _, b := range h.roster.boxes {
		if b.bare || s.now.Sub(b.lastBeat) < interval-interval/15 {
			continue
		}
		b.lastBeat = s.now
		if seen := b.conn.LastSeen(); !seen.IsZero() && s.now.Sub(seen) > 3*interval {
			h.metrics.Silent.Add(1)
			b.conn.Close(&contracts.Error{Code: contracts.CodeTimeout, Message: "nothing was heard from the client"})
			continue
		}
		b.beat.Store(true)
		h.wake(b)
	}
}
