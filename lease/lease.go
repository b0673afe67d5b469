package lease

import (
	"errors"
	"time"
)

// Conditions a caller branches on.
var (
	// ErrHeld means that another id holds the lease.
	ErrHeld = errors.New("lease: held by another")
	// ErrNotHeld means that the id does not hold the lease.
	ErrNotHeld = errors.New("lease: not held")
	// ErrStale means that the lease was granted anew since the action was
	// admitted.
	ErrStale = errors.New("lease: stale generation")
)

// A Lease is the right to drive. Its zero value is free, has generation 0 and
// never expires. It is a plain value: whoever owns it keeps concurrent callers
// apart, and a copy is an independent lease.
//
// A holder is alive while it gives signs of life, and whoever holds the lease
// loses it after TTL without one. The lease cannot notice that by itself, so
// Claim and TakeOver look first and the caller runs Expire at Deadline.
type Lease struct {
	ttl        time.Duration
	holder     string // empty when free
	generation uint64 // grants so far
	seen       time.Time
	pinned     bool // the holder does not expire; means nothing when free
}

// New returns a free lease whose holder may be silent for ttl. Zero or less
// means for ever.
func New(ttl time.Duration) *Lease { return Restore(ttl, 0) }

// Restore returns a free lease that continues after generation, the last one
// granted before a restart: an action admitted then stays stale for good.
func Restore(ttl time.Duration, generation uint64) *Lease {
	return &Lease{ttl: ttl, generation: generation}
}

// Holder returns the id that holds the lease, whether or not it is overdue.
func (l *Lease) Holder() (id string, ok bool) { return l.holder, l.holder != "" }

// Generation returns how many times the lease was granted to a new holder. It
// stays when the lease becomes free.
func (l *Lease) Generation() uint64 { return l.generation }

// Deadline returns when Expire would free the lease, unless its holder gives a
// sign of life first. There is none when the lease is free, pinned or has no
// TTL.
func (l *Lease) Deadline() (time.Time, bool) {
	if l.holder == "" || l.pinned || l.ttl <= 0 {
		return time.Time{}, false
	}
	return l.seen.Add(l.ttl), true
}

// Claim gives a free lease to id, which must not be empty. It is a sign of life
// and nothing else when id holds the lease already, and ErrHeld when another
// does. An overdue holder does not count; a caller that has to announce its
// loss runs Expire first.
func (l *Lease) Claim(id string, now time.Time) error {
	if id == "" {
		panic("lease: empty id") // it stands for nobody
	}
	l.Expire(now)
	switch l.holder {
	case id:
		l.Touch(id, now)
		return nil
	case "":
		l.grant(id, now)
		return nil
	}
	return ErrHeld
}

// TakeOver gives the lease to id, which must not be empty, whoever holds it. It
// returns the holder that lost it, or "" if none did.
func (l *Lease) TakeOver(id string, now time.Time) (previous string) {
	if l.Claim(id, now) == nil {
		return ""
	}
	previous = l.holder
	l.grant(id, now)
	return previous
}

// Release frees the lease and reports whether id held it.
func (l *Lease) Release(id string) bool {
	if id == "" || l.holder != id {
		return false
	}
	l.holder = ""
	return true
}

// Touch records a sign of life of the holder; from anybody else it means
// nothing. Signs may be reported late and out of order, so one never moves the
// deadline backward, and one from after the deadline still counts: the caller
// may have left out those before it.
func (l *Lease) Touch(id string, at time.Time) {
	if id != "" && l.holder == id && at.After(l.seen) {
		l.seen = at
	}
}

// Pin makes the lease of id last until it is released or taken over, and
// reports whether id holds it. It is for a holder whose end is noticed in
// another way, as that of a local pipe is. The next holder is not pinned.
func (l *Lease) Pin(id string) bool {
	if id == "" || l.holder != id {
		return false
	}
	l.pinned = true
	return true
}

// Expire frees the lease if its holder has been silent for TTL, and returns who
// lost it.
func (l *Lease) Expire(now time.Time) (previous string, expired bool) {
	if l.holder == "" || !l.overdue(now) {
		return "", false
	}
	previous, l.holder = l.holder, ""
	return previous, true
}

// Check is the fence: it returns nil if an action that was admitted for id
// under generation may still take effect. It is ErrStale if the lease was
// granted anew since, even to the same id, and ErrNotHeld if id lost it.
func (l *Lease) Check(id string, generation uint64) error {
	switch {
	case generation != l.generation:
		return ErrStale
	case id == "" || l.holder != id:
		return ErrNotHeld
	}
	return nil
}

func (l *Lease) grant(id string, now time.Time) {
	l.holder, l.seen, l.pinned = id, now, false
	l.generation++
}

func (l *Lease) overdue(now time.Time) bool {
	deadline, ok := l.Deadline()
	return ok && !now.Before(deadline)
}
