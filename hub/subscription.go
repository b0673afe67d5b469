package hub

import (
	"container/list"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/journal"
)

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
	box          *mailbox    // set if state is subAttached
	from         uint64      // cursor of the next stream that names none; valid if state is subNew or subDetached
	heldEvents   []heldEvent // oldest first; at most maxHeldEvents
	expires      time.Time
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
		switch n {
		case contracts.NotifyStatus:
			skip |= classStatus
		case contracts.NotifyConnectionInfo:
			skip |= classConnectionInfo
		case contracts.NotifyCompaction:
			skip |= classCompaction
		}
	}
	if !c.terms.RawEvents() {
		skip |= classRaw
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
	cl.stopIdleTimer(c)
	cl.subs[sub.id] = sub
}

// dropSubscription ends a subscription. Its connection may have none afterwards.
func (tx *tx) dropSubscription(sub *subscription, why *contracts.Error) {
	tx.clients.stopTimer(sub)
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
		conn: conn, form: conn.Form(), view: tx.journal.Follow(conn.Form()), sub: sub, transport: transport,
		viewer: !c.bare && c.role == contracts.RoleViewer, bare: c.bare, missedTransients: cursor < tx.startCursor,
		stopped: make(chan struct{}), lastHeartbeat: tx.now,
	}
	b.cursor.Store(cursor)
	tx.clients.stopTimer(sub)
	sub.state, sub.box = subAttached, b
	sub.applyOptOuts(c)
	c.wakeWriters()
	if tx.clients.nextHeartbeat.IsZero() {
		tx.clients.nextHeartbeat = tx.now.Add(tx.opts.HeartbeatInterval / 15)
	}
	tx.opts.Observer.Attached(c.role, transport)
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
		h.opts.Observer.Detached(c.role, b.transport)
		if sub.box != b || tx.clients.conns[c.id] != c {
			return // a newer socket took over, or the connection was destroyed
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
			tx.showChange(c.id) // with many clients, a detached viewer is not published
		}
	})
}

// startTimer starts the expiry of a detached subscription.
func (tx *tx) startTimer(sub *subscription) {
	tx.clients.stopTimer(sub)
	sub.expires = tx.now.Add(tx.opts.SubscriptionTTL)
	sub.detachedElem = tx.clients.detached.PushBack(sub)
}

// stopTimer stops the expiry of a subscription.
func (cl *clients) stopTimer(sub *subscription) {
	if sub.detachedElem != nil {
		cl.detached.Remove(sub.detachedElem)
		sub.detachedElem, sub.expires = nil, time.Time{}
	}
}

// startIdleTimer starts the expiry of a connection that has no subscriptions.
func (tx *tx) startIdleTimer(c *connection) {
	tx.clients.stopIdleTimer(c)
	c.expires = tx.now.Add(tx.opts.LeaseTTL)
	c.idleElem = tx.clients.idle.PushBack(c)
}

// stopIdleTimer stops the expiry of a connection that has no subscriptions.
func (cl *clients) stopIdleTimer(c *connection) {
	if c.idleElem != nil {
		cl.idle.Remove(c.idleElem)
		c.idleElem, c.expires = nil, time.Time{}
	}
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
	for e := tx.clients.detached.Front(); e != nil; e = tx.clients.detached.Front() {
		sub := e.Value.(*subscription)
		if sub.expires.After(tx.now) {
			break
		}
		tx.dropSubscription(sub, nil)
		if len(sub.conn.subs) == 0 {
			tx.endConnection(sub.conn, contracts.LeaseExpired)
		} else {
			tx.noteConnection(sub.conn)
			tx.showChange(sub.conn.id)
		}
	}
	for e := tx.clients.idle.Front(); e != nil; e = tx.clients.idle.Front() {
		c := e.Value.(*connection)
		if c.expires.After(tx.now) {
			break
		}
		tx.endConnection(c, contracts.LeaseExpired)
	}
}

// nextSilent returns when expireSilent is due next; zero means never.
func (cl *clients) nextSilent() (at time.Time) {
	if e := cl.detached.Front(); e != nil {
		at = e.Value.(*subscription).expires
	}
	if e := cl.idle.Front(); e != nil {
		if t := e.Value.(*connection).expires; at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}
