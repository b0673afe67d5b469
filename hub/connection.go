package hub

import (
	"crypto/sha256"
	"crypto/subtle"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
	"github.com/seed-028515a8/maestro/journal"
)

// A connection is a client's identity in the session. It is not a socket: it
// outlives one by Options.SubscriptionTTL, so that the client can come back to
// the same id and lease. It has exactly one subscription.
type connection struct {
	// Static after creation.
	id        string
	sub       string
	token     [sha256.Size]byte // hash of the secret that resumes it
	principal contracts.Principal
	bare      bool

	// Guarded by Hub.mu.
	role    contracts.Role
	greeted bool // said hello, so the role is settled
	terms   handshake.Terms
	box     *mailbox  // nil while detached
	seen    time.Time // last sign of life before it was detached
	expires time.Time // when a detached one is destroyed
	asks    *ask      // waiting for the lease
	sends   sends
	denials []time.Time // recent refusals for want of rights; see denied
}

// An ask is a wish for the lease that the holder has not answered.
type ask struct {
	reason string
	since  time.Time
}

// localID is the connection of the client on standard input and output.
const localID = "local"

func (c *connection) lastSeen() time.Time {
	if c.box != nil {
		return c.box.conn.LastSeen()
	}
	return c.seen
}

func (c *connection) owns(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return !c.bare && subtle.ConstantTimeCompare(sum[:], c.token[:]) == 1
}

// apply sets what the client negotiated, for the stream it already has too.
func (c *connection) apply(t handshake.Terms) {
	c.terms, c.role = t, t.Role
	if c.box != nil {
		c.box.skip.Store(uint32(c.skips()))
		c.box.quiet.Store(t.OptedOut(contracts.NotifyHeartbeat))
	}
}

// skips is what the client does not want to see, or may not.
func (c *connection) skips() journal.Class {
	var skip journal.Class
	if c.terms.OptedOut(contracts.NotifyStatus) {
		skip |= classStatus
	}
	if c.terms.OptedOut(contracts.NotifyConnectionInfo) {
		skip |= classConnectionInfo
	}
	if c.terms.OptedOut(contracts.NotifyCompaction) {
		skip |= classCompaction
	}
	if !c.terms.RawEvents() {
		skip |= classRaw
	}
	return skip
}

// denied notes one refusal for want of rights and reports whether it was one
// too many: ten in a minute.
func (c *connection) denied(now time.Time) bool {
	const most, span = 10, time.Minute
	c.denials = append(c.denials, now)
	if len(c.denials) > most {
		c.denials = slices.Delete(c.denials, 0, len(c.denials)-most)
	}
	return len(c.denials) == most && now.Sub(c.denials[0]) < span
}

// sends remembers the answers to recent ws.send frames, so that a client that
// lost an answer can repeat the frame without doing the thing twice (A72).
type sends struct {
	order   []string // oldest first; at most maxSends
	answers map[string]sent
}

type sent struct {
	cursor uint64
	err    *contracts.Error
}

const maxSends = 256

func (m *sends) get(id string) (sent, bool) {
	a, ok := m.answers[id]
	return a, ok
}

func (m *sends) put(id string, a sent) {
	if m.answers == nil {
		m.answers = map[string]sent{}
	}
	if _, known := m.answers[id]; !known {
		m.order = append(m.order, id)
	}
	m.answers[id] = a
	if len(m.order) > maxSends {
		delete(m.answers, m.order[0])
		m.order = slices.Delete(m.order, 0, 1)
	}
}

// accepted lists the answers that were not refusals, oldest first: a refusal
// changed nothing, so its frame may be tried anew after a restart.
func (m *sends) accepted() (list []savedSend) {
	for _, id := range m.order {
		if a := m.answers[id]; a.err == nil {
			list = append(list, savedSend{ID: id, Cursor: a.cursor})
		}
	}
	return list
}

// attachBox gives the connection a mailbox for conn that starts at cursor.
func (h *Hub) attachBox(s *state, c *connection, conn Conn, cursor uint64) *mailbox {
	b := &mailbox{
		conn: conn, form: conn.Form(), view: h.journal.Follow(conn.Form()),
		bare: c.bare, idle: make(chan struct{}, 1), parted: make(chan struct{}), lastBeat: s.now,
	}
	b.cursor.Store(cursor)
	c.box = b
	c.expires = time.Time{}
	s.detached = slices.DeleteFunc(s.detached, func(d *connection) bool { return d == c })
	c.apply(c.terms)
	if c.bare {
		h.backlog.join()
	}
	if s.nextBeat.IsZero() {
		s.nextBeat = s.now.Add(h.opts.HeartbeatInterval / 15)
	}
	return b
}

// detach takes a mailbox off its connection when its socket has ended. The
// connection waits to be resumed, unless it said that it will not be.
func (h *Hub) detach(c *connection, b *mailbox, keep bool) {
	b.settle()
	h.roster.remove(b)
	b.view.Close()
	if b.bare {
		h.backlog.leave()
	}
	h.update(func(s *state) {
		signal(h.left)
		if c.box != b || s.conns[c.id] != c {
			return // a newer socket took over, or the connection was destroyed
		}
		c.seen, c.box = s.now, nil // leaving is a sign of life
		if s.phase == phaseEnded {
			return // what the next process finds is settled: the connection, and its lease
		}
		if !keep {
			h.destroy(s, c, contracts.LeaseReleased)
			return
		}
		c.expires = s.now.Add(h.opts.SubscriptionTTL)
		s.detached = append(s.detached, c)
		h.presence(s, c.id)
	})
}

// destroy ends a connection for good.
func (h *Hub) destroy(s *state, c *connection, why contracts.LeaseReason) {
	delete(s.conns, c.id)
	s.detached = slices.DeleteFunc(s.detached, func(d *connection) bool { return d == c })
	if c.role == contracts.RoleController && !c.bare {
		h.note(s, note{Gone: c.id})
	}
	if s.lease.Release(c.id) {
		h.leaseMoved(s, c, nil, why)
	}
	h.presence(s, c.id)
}

// controllers counts the connections that may drive.
func (s *state) controllers() (n int) {
	for _, c := range s.conns {
		if c.role == contracts.RoleController {
			n++
		}
	}
	return n
}

// holder returns the connection that holds the lease, or nil.
func (s *state) holder() *connection {
	id, ok := s.lease.Holder()
	if !ok {
		return nil
	}
	return s.conns[id]
}
