package hub

import (
	"container/list"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

// A connection is a client's identity in the session. It outlives its sockets, so
// that a client can reconnect with the same id and lease. A WebSocket or stdio
// connection has exactly one subscription. An HTTP connection has up to
// maxSubscriptions.
type connection struct {
	// Static after creation.
	id        string
	token     tokenHash           // of the connection's secret
	principal contracts.Principal // fixed, except for Expires; see extendCredential
	bare      bool

	awaited atomic.Bool // somebody waits until this connection has read more

	// Guarded by Hub.mu.
	role            contracts.Role
	greeted         bool // a hello has fixed the role
	terms           handshake.Terms
	subs            []*subscription // in order of creation
	seen            time.Time       // last activity other than on its sockets
	expires         time.Time       // when a connection without subscriptions is destroyed
	idleElem        *list.Element   // its element of clients.idle; nil if it has subscriptions
	neverSubscribed bool            // it never had a subscription, so Subscribe may adopt it
	hadSocket       bool            // it had a WebSocket
	controlAsk      *controlAsk     // its open request for control; nil if none
	unread          unreadBytes
	sends           sends
	denials         []time.Time   // times of recent refusals; see countDenial
	changes         *rate.Limiter // limits changes of its terms, which are published to all clients; nil before the first
}

// A controlAsk is a request for control that the holder has not answered.
type controlAsk struct {
	reason string
	since  time.Time
}

// localID is the id of the connection on standard input and output.
const localID = "local"

// lastSeen returns when the client was last active, on its sockets or by requests.
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

// attached reports whether a subscription of the connection is attached.
func (c *connection) attached() bool {
	return slices.ContainsFunc(c.subs, func(sub *subscription) bool { return sub.box != nil })
}

// onStreamOnly reports whether the client reads a stream, on which it cannot send.
func (c *connection) onStreamOnly() bool {
	return slices.ContainsFunc(c.subs, func(sub *subscription) bool {
		return sub.box != nil && sub.box.conn.LastSeen().IsZero()
	})
}

// A tokenHash is the SHA-256 hash of a secret, in hex.
type tokenHash string

func hashToken(token string) tokenHash {
	sum := sha256.Sum256([]byte(token))
	return tokenHash(hex.EncodeToString(sum[:]))
}

// UnmarshalText implements [encoding.TextUnmarshaler]. It refuses what is not a hash.
func (h *tokenHash) UnmarshalText(text []byte) error {
	if _, err := hex.DecodeString(string(text)); err != nil {
		return fmt.Errorf("hash of a connection's secret: %w", err)
	}
	*h = tokenHash(text)
	return nil
}

func (h tokenHash) matches(token string) bool {
	return subtle.ConstantTimeCompare([]byte(h), []byte(hashToken(token))) == 1
}

// apply sets the negotiated terms, also for the streams that the client has. They
// replace the opt-outs of single subscriptions.
func (c *connection) apply(t handshake.Terms) {
	c.terms, c.role = t, t.Role
	for _, sub := range c.subs {
		sub.optOuts = t.OptOuts
		sub.applyOptOuts(c)
	}
}

// countDenial counts a refusal for missing rights. It reports whether there were 10
// within one minute.
func (c *connection) countDenial(now time.Time) bool {
	const most, span = 10, time.Minute
	c.denials = append(c.denials, now)
	if len(c.denials) > most {
		c.denials = slices.Delete(c.denials, 0, len(c.denials)-most)
	}
	return len(c.denials) == most && now.Sub(c.denials[0]) < span
}

// countChange counts a change of the connection's terms. It returns false above the
// rate at which a viewer's hellos are read on a WebSocket. The local client has no
// limit.
func (c *connection) countChange(now time.Time) bool {
	if c.changes == nil {
		c.changes = rate.NewLimiter(contracts.MaxViewerFrames/contracts.HelloFrames, contracts.ViewerFrameBurst/contracts.HelloFrames)
	}
	return c.bare || c.changes.AllowN(now, 1)
}

var errChangesOften = &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many changes of one connection"}

// destroy ends a connection.
func (tx *tx) destroy(c *connection, why contracts.LeaseReason) {
	tx.clients.removeConnection(c)
	c.wakeWriters()
	if c.bare {
		tx.local.Store(false)
	}
	tx.clients.lastUsed = tx.now
	tx.clients.stopIdleTimer(c)
	for _, sub := range c.subs {
		tx.clients.stopTimer(sub)
		delete(tx.clients.subs, sub.id)
		tx.closeMailbox(sub.box, errSuperseded)
	}
	tx.rememberFormer(c)
	if c.role == contracts.RoleController && !c.bare {
		tx.note(note{Gone: c.id})
	}
	if u := tx.opts.Utilities; u != nil {
		tx.then(func() { u.Disown(c.id) })
	}
	if tx.clients.lease.Release(c.id) {
		tx.leaseMoved(c, nil, why)
	}
	if c.madeByStream() {
		tx.showChangeSoon(c.id)
	} else {
		tx.showChange(c.id)
	}
}

// madeByStream reports whether a stream made the connection.
func (c *connection) madeByStream() bool { return len(c.subs) > 0 && c.subs[0].implicit }

// controllers counts the connections with the role controller.
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

// A former connection was destroyed recently. Its client may disconnect it again
// without an error (A16).
type former struct {
	id        string
	token     tokenHash
	principal string
	at        time.Time
}

// Limits of clients.former.
const (
	formerTTL = 10 * time.Minute
	maxFormer = 1024
)

// rememberFormer adds a destroyed connection to clients.former.
func (tx *tx) rememberFormer(c *connection) {
	if c.bare {
		return
	}
	old := 0
	for old < len(tx.clients.former) && (len(tx.clients.former)-old >= maxFormer || tx.now.Sub(tx.clients.former[old].at) > formerTTL) {
		old++
	}
	tx.clients.former = append(slices.Delete(tx.clients.former, 0, old), former{c.id, c.token, c.principal.ID, tx.now})
}
