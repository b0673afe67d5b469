package lease

import "time"

// A Lease is the right to control a session. Its zero value is free, has generation
// 0 and never expires. It is not safe for concurrent use. A copy is an independent
// lease.
//
// The holder loses the lease after TTL without activity. Grant checks this
// first; in between the caller must call Expire at Deadline.
type Lease struct {
	ttl        time.Duration
	holder     string    // empty when free
	generation uint64    // number of grants
	lastSeen   time.Time // last activity of the holder
	pinned     bool      // the holder does not expire; unused when free
}

// New returns a free lease whose holder may be inactive for ttl; zero or less means
// without limit. It continues after generation, the last one granted before a
// restart, or zero.
func New(ttl time.Duration, generation uint64) *Lease {
	return &Lease{ttl: ttl, generation: generation}
}

// Holder returns the id that holds the lease, even if it is overdue.
func (l *Lease) Holder() (id string, ok bool) { return l.holder, l.holder != "" }

// Generation returns how many times the lease was granted to a new holder. It does
// not change when the lease becomes free.
func (l *Lease) Generation() uint64 { return l.generation }

// Deadline returns when Expire would free the lease if its holder stays inactive.
// It returns false if the lease is free, pinned or has no TTL.
func (l *Lease) Deadline() (time.Time, bool) {
	if l.holder == "" || l.pinned || l.ttl <= 0 {
		return time.Time{}, false
	}
	return l.lastSeen.Add(l.ttl), true
}

// Grant gives the lease to id, which must not be empty, even if another id holds it.
// If id holds the lease and is not overdue, Grant only counts as activity.
func (l *Lease) Grant(id string, now time.Time) {
	if id == "" {
		panic("lease: empty id") // "" means free
	}
	l.Expire(now)
	if l.holder == id {
		l.Touch(id, now)
		return
	}
	l.holder, l.lastSeen, l.pinned = id, now, false
	l.generation++
}

// Release frees the lease and reports whether id held it.
func (l *Lease) Release(id string) bool {
	if id == "" || l.holder != id {
		return false
	}
	l.holder = ""
	return true
}

// Touch records activity of the holder. It ignores other ids. Activity may be
// reported late and out of order: it never moves the deadline backward, and
// activity after the deadline counts, because the caller may not have reported
// earlier activity.
func (l *Lease) Touch(id string, at time.Time) {
	if id != "" && l.holder == id && at.After(l.lastSeen) {
		l.lastSeen = at
	}
}

// Pin makes the lease of id last until it is released or taken over, and reports
// whether id holds it. It is for a holder whose end the caller notices otherwise,
// such as a local pipe. The next holder is not pinned.
func (l *Lease) Pin(id string) bool {
	if id == "" || l.holder != id {
		return false
	}
	l.pinned = true
	return true
}

// Expire frees the lease if its holder has been inactive for TTL, and returns the
// holder that lost it.
func (l *Lease) Expire(now time.Time) (previous string, expired bool) {
	if deadline, ok := l.Deadline(); !ok || now.Before(deadline) {
		return "", false
	}
	previous, l.holder = l.holder, ""
	return previous, true
}
