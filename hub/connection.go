package hub

import (
	"container/list"
	"crypto/sha256"
	"crypto/subtle"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

// A connection is a client's identity in the session. It is not a socket: its
// subscriptions outlive theirs, so that the client can come back to the same id
// and lease. On WebSocket and standard streams it has exactly one subscription,
// over HTTP any number up to maxSubscriptions.
type connection struct {
	// Static after creation.
	id        string
	token     [sha256.Size]byte   // hash of the secret that resumes it
	principal contracts.Principal // but for its end; see vouch
	bare      bool

	awaited atomic.Bool // a command waits for it to read

	// Guarded by Hub.mu.
	role    contracts.Role
	greeted bool // said hello, so the role is settled
	terms   handshake.Terms
	subs    []*subscription // in the order they were made
	seen    time.Time       // last sign of life outside its sockets
	expires time.Time       // when one without subscriptions is destroyed, and
	spot    *list.Element   // its place in state.idle; nil if it has subscriptions
	unused  bool            // never had a subscription, so that one may adopt it
	socket  bool            // it had a WebSocket
	asks    *ask            // waiting for the lease
	unread  unreadOutput
	sends   sends
	denials []time.Time   // recent refusals for want of rights; see denied
	changes *rate.Limiter // of its terms, which everybody hears of; nil if they never changed
}

// An ask is a request for control that the holder has not answered.
type ask struct {
	reason string
	since  time.Time
}

// localID is the connection of the client on standard input and output.
const localID = "local"

// lastSeen is the client's last sign of life, on any of its sockets or besides
// them.
func (c *connection) lastSeen() time.Time {
	seen := c.seen
	for _, sub := range c.subs {
		if sub.box == nil {
			continue
		}
		if at := sub.box.conn.LastSeen(); at.After(seen) {
			seen = at
		}
	}
	return seen
}

// attached reports whether one of the connection's subscriptions is.
func (c *connection) attached() bool {
	return slices.ContainsFunc(c.subs, func(sub *subscription) bool { return sub.box != nil })
}

// streams reports whether the client follows on a wire that it cannot speak on.
func (c *connection) streams() bool {
	return slices.ContainsFunc(c.subs, func(sub *subscription) bool {
		return sub.box != nil && sub.box.conn.LastSeen().IsZero()
	})
}

func (c *connection) owns(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return !c.bare && subtle.ConstantTimeCompare(sum[:], c.token[:]) == 1
}

// apply sets what the client negotiated, for the streams it already has too:
// opt-outs of a subscription's own count no more.
func (c *connection) apply(t handshake.Terms) {
	c.terms, c.role = t, t.Role
	for _, sub := range c.subs {
		sub.optOuts = t.OptOuts
		sub.filter(c)
	}
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

// mayChange counts a change of the connection's terms. It reports false if they
// change too often: as often as a viewer's hellos are read on a WebSocket.
func (c *connection) mayChange(now time.Time) bool {
	if c.changes == nil {
		c.changes = rate.NewLimiter(contracts.MaxViewerFrames/contracts.HelloFrames, contracts.ViewerFrameBurst/contracts.HelloFrames)
	}
	return c.bare || c.changes.AllowN(now, 1)
}

var errChangesOften = &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many changes of one connection"}

// sends remembers the answers to recent ws.send frames, so that a client that
// lost an answer can repeat the frame without doing the thing twice (A72).
type sends struct {
	order   []string // oldest first; at most maxSends
	answers map[string]sent
	bytes   int // of bodies; at most keptBodies

	doing map[string]chan struct{} // what has no answer yet; each closed when it has
}

type sent struct {
	cursor uint64
	err    *contracts.Error
	body   []byte // the whole answer, of requests over HTTP; nil if it is not kept
}

const maxSends = 1024

// begin says that a frame or request is under way, until end.
func (m *sends) begin(id string) {
	if m.doing == nil {
		m.doing = map[string]chan struct{}{}
	}
	m.doing[id] = make(chan struct{})
}

func (m *sends) end(id string) {
	close(m.doing[id])
	delete(m.doing, id)
}

func (m *sends) get(id string) (sent, bool) {
	a, ok := m.answers[id]
	return a, ok
}

func (m *sends) put(id string, a sent) {
	if m.answers == nil {
		m.answers = map[string]sent{}
	}
	if old, known := m.answers[id]; known {
		m.bytes -= len(old.body)
	} else {
		m.order = append(m.order, id)
	}
	m.answers[id] = a
	if len(m.order) > maxSends {
		m.bytes -= len(m.answers[m.order[0]].body)
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

// destroy ends a connection for good.
func (tx *tx) destroy(c *connection, why contracts.LeaseReason) {
	tx.clients.removeConnection(c)
	c.wakeWriters()
	tx.clients.lastUsed = tx.now
	tx.clients.stopIdleTimer(c)
	for _, sub := range c.subs {
		tx.clients.stopTimer(sub)
		delete(tx.clients.subs, sub.id)
		tx.part(sub.box, superseded)
	}
	tx.depart(c)
	if c.role == contracts.RoleController && !c.bare {
		tx.note(note{Gone: c.id})
	}
	if u := tx.opts.Utilities; u != nil {
		tx.then(func() { u.Disown(c.id) })
	}
	if tx.clients.lease.Release(c.id) {
		tx.leaseMoved(c, nil, why)
	}
	if c.onlyStreams() {
		tx.showChangeSoon(c.id)
	} else {
		tx.showChange(c.id)
	}
}

// onlyStreams reports whether the connection was made by a stream.
func (c *connection) onlyStreams() bool { return len(c.subs) > 0 && c.subs[0].implicit }

// controllers counts the connections that may drive.
func (cl *clients) controllers() (n int) {
	for _, c := range cl.conns {
		if c.role == contracts.RoleController {
			n++
		}
	}
	return n
}

// holder returns the connection that holds the lease, or nil.
func (cl *clients) holder() *connection {
	id, ok := cl.lease.Holder()
	if !ok {
		return nil
	}
	return cl.conns[id]
}

// A former connection can be ended once more without complaint (A16).
type former struct {
	id        string
	token     [sha256.Size]byte
	principal string
	at        time.Time
}

// Former connections are remembered for this long, and this many at most.
const (
	formerFor  = 10 * time.Minute
	formerMost = 1024
)

// depart remembers a connection that was destroyed.
func (tx *tx) depart(c *connection) {
	if c.bare {
		return
	}
	old := 0
	for old < len(tx.clients.former) && (len(tx.clients.former)-old >= formerMost || tx.now.Sub(tx.clients.former[old].at) > formerFor) {
		old++
	}
	tx.clients.former = append(slices.Delete(tx.clients.former, 0, old), former{c.id, c.token, c.principal.ID, tx.now})
}
