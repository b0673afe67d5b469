package hub

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// touch counts a frame as a sign of life.
func (cl *clients) touch(c *connection) { cl.lease.Touch(c.id, c.lastSeen()) }

// expireLease frees the lease of a holder that has been silent for too long.
// The transport knows when it last spoke, so that is asked only now.
func (tx *tx) expireLease() {
	c := tx.clients.holder()
	if c == nil {
		return
	}
	tx.clients.touch(c)
	if _, expired := tx.clients.lease.Expire(tx.now); expired {
		tx.leaseMoved(c, nil, contracts.LeaseExpired)
	}
}

// mayDrive refuses to act for anybody while another holds the lease.
func (tx *tx) mayDrive(c *connection) error {
	tx.expireLease()
	if holder, held := tx.clients.lease.Holder(); held && holder != c.id {
		return tx.leaseHeld("Controller lease is currently held by another connection", holder)
	}
	return nil
}

// claim gives a free lease to a controller whose action was accepted (A30). One
// that is refused changes nothing, so it does not claim either.
func (tx *tx) claim(c *connection) {
	if _, held := tx.clients.lease.Holder(); !held {
		tx.grant(c, contracts.LeaseGranted)
	}
}

// claimOnAttach gives an attaching controller the lease if it is free or the
// client forces it. The returned function, if any, tells those concerned; it is
// called once the client can be told.
func (tx *tx) claimOnAttach(c *connection, how contracts.Takeover) (tell func()) {
	holder, held := tx.clients.lease.Holder()
	if c.role != contracts.RoleController || held && holder == c.id || held && how != contracts.TakeoverForce {
		return nil
	}
	loser := tx.clients.conns[holder]
	tx.setHolder(c)
	if loser == nil {
		tx.opts.Observer.LeaseMoved(contracts.LeaseGranted)
	}
	return func() {
		if loser != nil {
			tx.leaseMoved(loser, c, contracts.LeaseTakenOver)
		}
	}
}

// departed returns the name of the holder if it is a client of p whose WebSocket
// has ended without a goodbye, and "" otherwise. A new client of the same
// principal and name replaces it: most often a terminal was closed and opened
// again. A client over HTTP may be there without a stream, so it is not departed.
func (cl *clients) departed(p contracts.Principal) string {
	c := cl.holder()
	if c == nil || !c.socket || c.attached() || c.principal.ID != p.ID {
		return ""
	}
	return c.terms.Name()
}

// grant moves the lease to c and tells everybody.
func (tx *tx) grant(c *connection, why contracts.LeaseReason) {
	loser := tx.clients.holder()
	tx.setHolder(c)
	tx.leaseMoved(loser, c, why)
}

// setHolder moves the lease under a new generation, which the journal keeps.
func (tx *tx) setHolder(c *connection) {
	tx.clients.lease.TakeOver(c.id, tx.now)
	tx.clients.lease.Touch(c.id, c.lastSeen())
	if c.bare {
		tx.clients.lease.Pin(c.id) // an open pipe is a sign of life
	}
	c.asks = nil
	tx.noteLease()
	tx.metrics.LeaseChanges.Add(1)
}

// leaseMoved shows a hand-over to all (D7): the graph, and the state. Those who
// took part are told directly as well. Either may be nil.
func (tx *tx) leaseMoved(loser, winner *connection, why contracts.LeaseReason) {
	if winner == nil {
		tx.noteLease()
	}
	tx.opts.Observer.LeaseMoved(why)
	tx.tellLease(loser, false, why)
	tx.tellLease(winner, true, why)
	about := loser
	if winner != nil {
		about = winner
	}
	tx.clients.presence.about = about.id
	tx.showPresence()
	if loser != nil {
		tx.publishSnapshot()
	}
	asking := tx.clients.asking()
	switch {
	case winner != nil:
		for _, c := range asking {
			tx.tellAsk(winner, c) // they asked the one before
		}
	case len(asking) > 0: // whoever has asked longest gets what nobody holds
		tx.grant(asking[0], contracts.LeaseGranted)
	}
}

// asking lists the attached connections that wait for the lease, longest first.
func (cl *clients) asking() (list []*connection) {
	for _, c := range cl.conns {
		if c.asks != nil && c.attached() {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *connection) int { return a.asks.since.Compare(b.asks.since) })
	return list
}

// tellAsk tells the holder who wants the lease.
func (tx *tx) tellAsk(holder, c *connection) {
	if !holder.bare {
		tx.tell(holder, &contracts.ControlRequest{ConnectionID: c.id, ClientInfo: c.terms.ClientInfo, Reason: c.asks.reason})
	}
}

func (tx *tx) tellLease(c *connection, granted bool, why contracts.LeaseReason) {
	if c == nil || c.bare || tx.clients.conns[c.id] != c {
		return
	}
	tx.tell(c, &contracts.LeaseChange{
		Granted: granted, ControllerConnectionID: tx.clients.controllerID().Value,
		Generation: tx.clients.lease.Generation(), Reason: why,
	})
}

// control handles a frame about the lease.
func (r *reader) control(id *string, frame contracts.Frame) {
	h, c := r.hub, r.conn
	h.update(func(tx *tx) {
		if r.superseded(tx) {
			return
		}
		tx.clients.touch(c)
		tx.expireLease()
		err := tx.steer(c, frame)
		if c.bare && err == nil { // the local client is answered only here: it knows the frames it used
			tx.pushFrame(r.box, &contracts.Result{ID: id, Seq: r.seq, Cursor: tx.head()})
			return
		}
		r.answer(tx, id, h.refusal(err))
	})
}

func (tx *tx) steer(c *connection, frame contracts.Frame) error {
	if err := tx.maySteer(c); err != nil {
		return err
	}
	switch f := frame.(type) {
	case *contracts.TakeControl:
		switch holder, held := tx.clients.lease.Holder(); {
		case !held:
			tx.grant(c, contracts.LeaseGranted)
		case holder != c.id:
			tx.grant(c, contracts.LeaseTakenOver)
		}
	case *contracts.ReleaseControl:
		if _, held := tx.clients.lease.Holder(); !held {
			return nil // what the client wants is so already
		}
		if !tx.clients.lease.Release(c.id) {
			return tx.notHolder()
		}
		tx.leaseMoved(c, nil, contracts.LeaseReleased)
	case *contracts.AskControl:
		tx.askControl(c, f)
	case *contracts.GrantControl:
		return tx.settleAsk(c, f.ConnectionID, func(asker *connection) { tx.grant(asker, contracts.LeaseGranted) })
	case *contracts.DenyControl:
		return tx.settleAsk(c, f.ConnectionID, func(asker *connection) { tx.deny(c, asker, f.Reason) })
	}
	return nil
}

// steering reports whether a frame is about the lease, and its id.
func steering(frame contracts.Frame) (id *string, ok bool) {
	switch f := frame.(type) {
	case *contracts.TakeControl:
		return optional(f.ID), true
	case *contracts.ReleaseControl:
		return optional(f.ID), true
	case *contracts.AskControl:
		return optional(f.ID), true
	case *contracts.GrantControl:
		return optional(f.ID), true
	case *contracts.DenyControl:
		return optional(f.ID), true
	}
	return nil, false
}

func (tx *tx) maySteer(c *connection) error {
	switch {
	case tx.life.phase != phaseOpen || tx.clients.conns[c.id] != c:
		return errGone
	case c.role != contracts.RoleController:
		return &contracts.Error{Code: contracts.CodeAccessDenied, Message: "Headless connection does not have controller access"}
	}
	return nil
}

func (tx *tx) notHolder() error {
	holder, _ := tx.clients.lease.Holder()
	return tx.leaseHeld("Controller lease is currently held by another connection", holder)
}

// askControl asks the holder for the lease; a free one is granted at once.
func (tx *tx) askControl(c *connection, f *contracts.AskControl) {
	holder := tx.clients.holder()
	switch {
	case holder == c:
	case holder == nil:
		tx.grant(c, contracts.LeaseGranted)
	default:
		c.asks = &ask{reason: abridge.Bytes(f.Reason, 500), since: tx.now}
		tx.publish(&contracts.Status{Message: c.displayName() + " asks for control"})
		tx.tellAsk(holder, c)
	}
}

// settleAsk lets the holder answer one that asked.
func (tx *tx) settleAsk(c *connection, id string, answer func(asker *connection)) error {
	holder, held := tx.clients.lease.Holder()
	if held && holder != c.id {
		return tx.notHolder()
	}
	asker := tx.clients.conns[id]
	if !held || asker == nil || asker.asks == nil || !asker.attached() {
		return &contracts.Error{Code: contracts.CodeRequestNotFound, Message: "no connection of that id asks for control"}
	}
	answer(asker)
	return nil
}

func (tx *tx) deny(c, asker *connection, reason string) {
	asker.asks = nil
	tx.publish(&contracts.Status{Message: c.displayName() + " keeps control"})
	tx.tell(asker, &contracts.LeaseChange{
		ControllerConnectionID: tx.clients.controllerID().Value, Generation: tx.clients.lease.Generation(),
		Reason: contracts.LeaseDenied, Message: abridge.Bytes(reason, 500),
	})
}
