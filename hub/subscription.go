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

// maxHeld bounds the private events that wait for a detached subscription.
const maxHeld = 16

// A subscription is a connection's place in the stream of events. It is attached
// while a socket or an HTTP stream reads it, and outlives that by
// Options.SubscriptionTTL. docs/states.md has a diagram of the states.
type subscription struct {
	// Static after creation.
	id       string
	conn     *connection
	implicit bool // made by a stream, and gone with it

	// Guarded by Hub.mu.
	optOuts []contracts.Notification
	state   subscriptionState
	box     *mailbox // if state is subAttached
	from    uint64   // the cursor to continue at, unless the client names one, if state is subNew or subDetached
	held    []held   // oldest first; at most maxHeld
	expires time.Time
	spot    *list.Element // in clients.detached; nil while attached
}

// A subscriptionState says whether a subscription is read, and from where it can
// be continued.
type subscriptionState int

const (
	subNew      subscriptionState = iota // not yet read; continues at from
	subAttached                          // box reads it
	subDetached                          // was read up to from, and continues there
	subLost                              // where it was is unknown, as after a restart; continues with a snapshot
)

// A held event is a private one that no stream took yet.
type held struct {
	cursor uint64
	body   []byte
}

// needsSnapshot reports whether the subscription has no valid cursor and must be
// sent a snapshot first.
func (sub *subscription) needsSnapshot() bool {
	return sub.state == subLost || sub.state == subAttached && sub.box.needsSnapshot.Load()
}

// filter puts what the client does not want to see, or may not, into force.
func (sub *subscription) filter(c *connection) {
	if sub.box == nil {
		return
	}
	sub.box.skip.Store(uint32(sub.skips(c)))
	sub.box.quiet.Store(slices.Contains(sub.optOuts, contracts.NotifyHeartbeat))
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

// newSubscription gives c one more subscription, which starts at the head.
func (tx *tx) newSubscription(c *connection) *subscription {
	sub := &subscription{id: newID("sub_"), conn: c, optOuts: c.terms.OptOuts, from: tx.head()}
	tx.clients.addSubscription(c, sub)
	return sub
}

func (cl *clients) addSubscription(c *connection, sub *subscription) {
	c.subs = append(c.subs, sub)
	c.unused = false
	cl.stopIdleTimer(c)
	cl.subs[sub.id] = sub
}

// dropSubscription takes a subscription off its connection, which may be left
// without any.
func (tx *tx) dropSubscription(sub *subscription, why *contracts.Error) {
	tx.clients.stopTimer(sub)
	tx.part(sub.box, why)
	c := sub.conn
	c.subs = slices.DeleteFunc(c.subs, func(other *subscription) bool { return other == sub })
	delete(tx.clients.subs, sub.id)
	c.wakeWriters()
}

// attachBox gives the subscription a mailbox for conn that starts at cursor. A
// mailbox it still has belongs to an older stream, which ends.
func (tx *tx) attachBox(sub *subscription, conn Conn, transport string, cursor uint64) *mailbox {
	c := sub.conn
	tx.part(sub.box, superseded) // its reader takes it off the roster
	b := &mailbox{
		conn: conn, form: conn.Form(), view: tx.journal.Follow(conn.Form()), sub: sub, transport: transport,
		viewer: !c.bare && c.role == contracts.RoleViewer, bare: c.bare, missed: cursor < tx.first,
		stopped: make(chan struct{}), lastBeat: tx.now,
	}
	b.cursor.Store(cursor)
	tx.clients.stopTimer(sub)
	sub.state, sub.box = subAttached, b
	sub.filter(c)
	c.wakeWriters()
	if c.bare {
		tx.backlog.join()
	}
	if tx.clients.nextBeat.IsZero() {
		tx.clients.nextBeat = tx.now.Add(tx.opts.HeartbeatInterval / 15)
	}
	tx.opts.Observer.Attached(c.role, transport)
	return b
}

// deliver queues what the subscription held for its next stream. An event that
// the stream begins beyond gets a cursor anew: those of one stream grow (A48).
func (tx *tx) deliver(sub *subscription, beyond uint64) {
	anew := false // once one has a new cursor, those after it need newer ones
	for _, e := range sub.held {
		if anew = anew || e.cursor <= beyond; anew {
			if tx.life.frozen {
				continue // there are no more cursors
			}
			e.cursor = tx.note(note{})
		}
		tx.push(sub.box, parcel{at: e.cursor, frame: sub.box.form.AppendMessage(nil, e.cursor, e.body)})
	}
	sub.held = nil
}

// detach takes a mailbox off its subscription when its socket has ended. The
// subscription waits to be continued, unless the client said that it will not
// come back.
func (h *Hub) detach(b *mailbox, keep bool) {
	b.stop()
	b.view.Close()
	if b.bare {
		h.backlog.leave()
	}
	h.update(func(tx *tx) {
		h.roster.remove(b) // here, so that a hub that leaves waits for what follows from it
		signal(h.left)
		for _, p := range b.private { // nobody writes them any more
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
		c.seen = tx.now // leaving is a sign of life
		if tx.life.phase == phaseEnded {
			return // what the next process finds is settled: the connection, and its lease
		}
		if !keep || sub.implicit {
			tx.destroy(c, contracts.LeaseReleased)
			return
		}
		tx.startTimer(sub)
		if c.role == contracts.RoleController || len(tx.clients.conns) <= presenceAtOnce {
			tx.showChange(c.id) // in a crowd nobody looks at which viewers may come back
		}
	})
}

// startTimer starts the expiry of a detached subscription.
func (tx *tx) startTimer(sub *subscription) {
	tx.clients.stopTimer(sub)
	sub.expires = tx.now.Add(tx.opts.SubscriptionTTL)
	sub.spot = tx.clients.detached.PushBack(sub)
}

// stopTimer stops that expiry.
func (cl *clients) stopTimer(sub *subscription) {
	if sub.spot != nil {
		cl.detached.Remove(sub.spot)
		sub.spot, sub.expires = nil, time.Time{}
	}
}

// startIdleTimer starts the expiry of a connection that has no subscriptions.
func (tx *tx) startIdleTimer(c *connection) {
	tx.clients.stopIdleTimer(c)
	c.expires = tx.now.Add(tx.opts.LeaseTTL)
	c.spot = tx.clients.idle.PushBack(c)
}

// stopIdleTimer stops that expiry.
func (cl *clients) stopIdleTimer(c *connection) {
	if c.spot != nil {
		cl.idle.Remove(c.spot)
		c.spot, c.expires = nil, time.Time{}
	}
}

// heard counts a request as a sign of life of the connection and of all its
// subscriptions.
func (tx *tx) heard(c *connection) {
	c.seen = tx.now
	tx.clients.lease.Touch(c.id, tx.now)
	if c.spot != nil {
		tx.startIdleTimer(c)
	}
	for _, sub := range c.subs {
		if sub.spot != nil {
			tx.startTimer(sub)
		}
	}
}

// expireSilent ends the subscriptions and connections whose time is over. A
// connection goes with its last subscription.
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
			tx.keepConnection(sub.conn)
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

// nextSilent returns when expireSilent has to look again; zero is never.
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
