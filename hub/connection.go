package hub

import (
	"cmp"
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/journal"
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
	since     time.Time
	bare      bool

	awaited atomic.Bool // somebody waits until this connection has read more

	// Guarded by Hub.mu.
	role            contracts.Role
	greeted         bool // a hello has fixed the role
	terms           handshake.Terms
	subs            []*subscription // in order of creation
	seen            time.Time       // last activity other than on its sockets
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

func (c *connection) attached() bool {
	return slices.ContainsFunc(c.subs, func(sub *subscription) bool { return sub.box != nil })
}

// onStreamOnly reports whether the client reads a stream, on which it cannot send.
func (c *connection) onStreamOnly() bool {
	return slices.ContainsFunc(c.subs, func(sub *subscription) bool {
		return sub.box != nil && sub.box.conn.LastSeen().IsZero()
	})
}

// displayName returns the name of a connection in status lines.
func (c *connection) displayName() string {
	return cmp.Or(abridge.Bytes(c.terms.Name(), 64), c.id)
}

// newToken returns a secret of 256 bits.
func newToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
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

// apply sets the negotiated terms, also for the streams that the client has. With
// keepOptOuts, subscriptions keep opt-outs of their own.
func (c *connection) apply(t handshake.Terms, keepOptOuts bool) {
	c.terms, c.role = t, t.Role
	for _, sub := range c.subs {
		if !keepOptOuts {
			sub.optOuts = t.OptOuts
		}
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

func (tx *tx) destroy(c *connection, why contracts.LeaseReason) {
	tx.clients.removeConnection(c)
	c.wakeWriters()
	if c.bare {
		tx.local.Store(false)
	}
	tx.clients.lastUsed = tx.now
	stop(&tx.clients.idle, &c.idleElem)
	for _, sub := range c.subs {
		stop(&tx.clients.detached, &sub.detachedElem)
		delete(tx.clients.subs, sub.id)
		tx.closeMailbox(sub.box, errSuperseded)
	}
	tx.rememberFormer(c)
	if c.role == contracts.RoleController && !c.bare {
		tx.note(note{Gone: c.id})
	}
	tx.then(func(h *Hub) { h.opts.Utilities.Disown(c.id) })
	if tx.clients.lease.Release(c.id) {
		tx.leaseMoved(c, nil, why)
	}
	tx.showChange(c)
}

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

// Evict ends every connection of a principal whose credential is no longer valid.
func (h *Hub) Evict(principalID string) {
	h.update(func(tx *tx) {
		if tx.life.phase == phaseEnded {
			return
		}
		for _, c := range tx.clients.conns {
			if c.principal.ID == principalID && !c.bare {
				tx.revoke(c)
			}
		}
	})
}

// ErrExpired ends the connections of an expired or revoked credential.
var ErrExpired = &contracts.Error{Code: contracts.CodeUnauthenticated, Message: "the credential has expired or was revoked"}

// revoke destroys a connection with ErrExpired.
func (tx *tx) revoke(c *connection) {
	for _, sub := range c.subs {
		tx.closeMailbox(sub.box, ErrExpired)
	}
	tx.destroy(c, contracts.LeaseExpired)
}

// expireCredentials ends the connections whose credential has expired, and
// schedules the next expiry.
func (tx *tx) expireCredentials() {
	tx.clients.nextCredentialEnd = time.Time{}
	for _, c := range tx.clients.conns {
		switch at := c.principal.Expires; {
		case at.IsZero():
		case !at.After(tx.now):
			tx.revoke(c)
		default:
			tx.clients.scheduleCredentialEnd(at)
		}
	}
}

// extendCredential takes over the expiry of the credential that the owner presented
// now, if it is later: the client may have renewed its credential.
func (c *connection) extendCredential(p contracts.Principal) {
	if at := c.principal.Expires; !at.IsZero() && (p.Expires.IsZero() || p.Expires.After(at)) {
		c.principal.Expires = p.Expires
	}
}

// scheduleCredentialEnd schedules expireCredentials for the expiry of a credential.
func (cl *clients) scheduleCredentialEnd(at time.Time) {
	if !at.IsZero() && (cl.nextCredentialEnd.IsZero() || at.Before(cl.nextCredentialEnd)) {
		cl.nextCredentialEnd = at
	}
}

// credentialValid reports whether a credential is still valid. Call it in the
// transaction that makes the connection: Evict finds the connection if the
// credential is revoked later.
func (tx *tx) credentialValid(p contracts.Principal) bool {
	return !p.Expired(tx.now) && (tx.opts.Alive == nil || tx.opts.Alive(p))
}

// maxSubscriptions bounds the subscriptions of one connection (D10).
const maxSubscriptions = 8

// maxHeldEvents bounds the private events kept for a detached subscription.
const maxHeldEvents = 16

// A subscription is a connection's position in the stream of events. It is attached
// while a socket or an HTTP stream reads it. It ends Options.SubscriptionTTL after
// it was detached. docs/states.md has a diagram of the states.
type subscription struct {
	// Static after creation.
	id       string
	conn     *connection
	implicit bool // a stream made it; it ends with the stream

	// Guarded by Hub.mu.
	optOuts      []contracts.Notification
	state        subscriptionState
	box          *mailbox      // set if state is subAttached
	from         uint64        // cursor of the next stream that names none; valid if state is subNew or subDetached
	heldEvents   []heldEvent   // oldest first; at most maxHeldEvents
	detachedElem *list.Element // its element of clients.detached; nil while attached
}

// A subscriptionState says whether a subscription is attached, and where its next
// stream starts.
type subscriptionState int

const (
	subNew      subscriptionState = iota // never attached; starts at from
	subAttached                          // box reads it
	subDetached                          // starts at from, up to which the last stream was written
	subLost                              // has no valid cursor, as after a restart; starts with a snapshot
)

// A heldEvent is a private event for a subscription that was not attached.
type heldEvent struct {
	cursor uint64
	body   []byte
}

// needsSnapshot reports whether the subscription has no valid cursor and must be
// sent a snapshot first.
func (sub *subscription) needsSnapshot() bool {
	return sub.state == subLost || sub.state == subAttached && sub.box.needsSnapshot.Load()
}

// applyOptOuts sets which entries and heartbeats the mailbox leaves out.
func (sub *subscription) applyOptOuts(c *connection) {
	if sub.box == nil {
		return
	}
	sub.box.skip.Store(uint32(sub.skips(c)))
	sub.box.noHeartbeats.Store(slices.Contains(sub.optOuts, contracts.NotifyHeartbeat))
}

func (sub *subscription) skips(c *connection) journal.Class {
	var skip journal.Class
	for _, n := range sub.optOuts {
		skip |= classNamed(string(n))
	}
	if !c.terms.RawEvents() {
		skip |= classRaw
	}
	if !c.terms.People() {
		skip |= classPeople
	}
	return skip
}

// newSubscription adds a subscription to c that starts at the head.
func (tx *tx) newSubscription(c *connection) *subscription {
	sub := &subscription{id: newID("sub_"), conn: c, optOuts: c.terms.OptOuts, from: tx.head()}
	tx.clients.addSubscription(c, sub)
	return sub
}

func (cl *clients) addSubscription(c *connection, sub *subscription) {
	c.subs = append(c.subs, sub)
	c.neverSubscribed = false
	stop(&cl.idle, &c.idleElem)
	cl.subs[sub.id] = sub
}

// dropSubscription ends a subscription. Its connection may have none afterwards.
func (tx *tx) dropSubscription(sub *subscription, why *contracts.Error) {
	stop(&tx.clients.detached, &sub.detachedElem)
	tx.closeMailbox(sub.box, why)
	c := sub.conn
	c.subs = slices.DeleteFunc(c.subs, func(other *subscription) bool { return other == sub })
	delete(tx.clients.subs, sub.id)
	c.wakeWriters()
}

// attachBox gives the subscription a mailbox for conn that starts at cursor. If the
// subscription has a mailbox, the older stream ends.
func (tx *tx) attachBox(sub *subscription, conn Conn, transport string, cursor uint64) *mailbox {
	c := sub.conn
	tx.closeMailbox(sub.box, errSuperseded) // its reader removes it from the roster
	b := &mailbox{
		conn: conn, form: conn.Form(), view: tx.journal.Follow(conn.Form()), sub: sub, transport: transport, counted: c.role,
		bare: c.bare, missedTransients: cursor < tx.startCursor,
		stopped: make(chan struct{}), lastHeartbeat: tx.now,
	}
	b.cursor.Store(cursor)
	stop(&tx.clients.detached, &sub.detachedElem)
	sub.state, sub.box = subAttached, b
	sub.applyOptOuts(c)
	c.wakeWriters()
	if tx.clients.nextHeartbeat.IsZero() {
		tx.clients.nextHeartbeat = tx.now.Add(tx.opts.HeartbeatInterval / 15)
	}
	tx.opts.Observer.Attached(c.role, transport)
	id, role, by := c.id, c.role, c.principal
	tx.then(func(h *Hub) {
		h.logger.Info("client attached", "connection", id, "role", role, "transport", transport, "principal", by.ID, "name", by.Name)
	})
	return b
}

// deliverHeld queues the held events for the new stream, which starts after cursor
// start. Cursors of one stream must grow (A48), so a held event at or below start
// gets a new cursor, and so do all held events after it.
func (tx *tx) deliverHeld(sub *subscription, start uint64) {
	renumber := false
	for _, e := range sub.heldEvents {
		if renumber = renumber || e.cursor <= start; renumber {
			if tx.life.frozen {
				continue // there are no new cursors
			}
			e.cursor = tx.note(note{})
		}
		tx.push(sub.box, parcel{at: e.cursor, frame: sub.box.form.AppendMessage(nil, e.cursor, e.body)})
	}
	sub.heldEvents = nil
}

// detach removes a mailbox from its subscription after its socket has ended. With
// keep, the subscription can be continued until it expires. Without keep, or if a
// stream made the connection, the connection is destroyed.
func (h *Hub) detach(b *mailbox, keep bool) {
	b.stop()
	b.view.Close()
	h.update(func(tx *tx) {
		h.roster.remove(b) // inside the transaction, so that Hub.leave waits for its effects
		signal(h.clientLeft)
		for _, p := range b.private { // these will not be written
			p.drop()
		}
		b.private = nil
		sub, c := b.sub, b.sub.conn
		h.opts.Observer.Detached(b.counted, b.transport)
		id := c.id
		tx.then(func(h *Hub) { h.logger.Info("client detached", "connection", id, "transport", b.transport) })
		if sub.box != b || tx.clients.subs[sub.id] != sub {
			return // a newer socket took over, or the subscription ended, perhaps with its connection
		}
		sub.state, sub.box, sub.from = subDetached, nil, b.cursor.Load()
		if b.needsSnapshot.Load() {
			sub.state = subLost
		}
		c.wakeWriters()
		c.seen = tx.now // the end of a socket counts as activity
		if tx.life.phase == phaseEnded {
			return // keep the connection and the lease for the next process
		}
		if !keep || sub.implicit {
			tx.destroy(c, contracts.LeaseReleased)
			return
		}
		tx.startTimer(sub)
		if c.role == contracts.RoleController || len(tx.clients.conns) <= presenceAtOnce {
			tx.showChange(c) // with many clients, a detached viewer is not published
		}
	})
}

// An expiry is when a detached subscription, or a connection without subscriptions,
// ends. It is in a list ordered by time.
type expiry[T any] struct {
	owner T
	at    time.Time
}

// restart puts owner at the end of a list. elem is its element, or nil.
func restart[T any](in *list.List, elem **list.Element, owner T, at time.Time) {
	stop(in, elem)
	*elem = in.PushBack(expiry[T]{owner, at})
}

func stop(in *list.List, elem **list.Element) {
	if *elem != nil {
		in.Remove(*elem)
		*elem = nil
	}
}

// first returns the first of a list that has expired, or the zero value.
func first[T any](in *list.List, now time.Time) (owner T) {
	if e := in.Front(); e != nil && !e.Value.(expiry[T]).at.After(now) {
		owner = e.Value.(expiry[T]).owner
	}
	return owner
}

// startTimer starts the expiry of a detached subscription.
func (tx *tx) startTimer(sub *subscription) {
	restart(&tx.clients.detached, &sub.detachedElem, sub, tx.now.Add(tx.opts.SubscriptionTTL))
}

// startIdleTimer starts the expiry of a connection that has no subscriptions.
func (tx *tx) startIdleTimer(c *connection) {
	restart(&tx.clients.idle, &c.idleElem, c, tx.now.Add(tx.opts.LeaseTTL))
}

// noteActivity counts a request as activity of the connection and all its
// subscriptions, and restarts their expiry.
func (tx *tx) noteActivity(c *connection) {
	c.seen = tx.now
	if c.idleElem != nil {
		tx.startIdleTimer(c)
	}
	for _, sub := range c.subs {
		if sub.detachedElem != nil {
			tx.startTimer(sub)
		}
	}
}

// expireSilent ends the subscriptions and connections that have expired. A
// connection ends with its last subscription.
func (tx *tx) expireSilent() {
	cl := &tx.clients
	for sub := first[*subscription](&cl.detached, tx.now); sub != nil; sub = first[*subscription](&cl.detached, tx.now) {
		tx.dropSubscription(sub, nil)
		if len(sub.conn.subs) == 0 {
			tx.endConnection(sub.conn, contracts.LeaseExpired)
		} else {
			tx.noteConnection(sub.conn)
			tx.showChange(sub.conn)
		}
	}
	for c := first[*connection](&cl.idle, tx.now); c != nil; c = first[*connection](&cl.idle, tx.now) {
		tx.endConnection(c, contracts.LeaseExpired)
	}
}

// nextSilent returns when expireSilent is due next; zero means never.
func (cl *clients) nextSilent() (at time.Time) {
	if e := cl.detached.Front(); e != nil {
		at = e.Value.(expiry[*subscription]).at
	}
	if e := cl.idle.Front(); e != nil && (at.IsZero() || e.Value.(expiry[*connection]).at.Before(at)) {
		at = e.Value.(expiry[*connection]).at
	}
	return at
}
