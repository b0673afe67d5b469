package hub

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// expireLease frees the lease if its holder has been silent for LeaseTTL. It asks
// the transport for the last activity only now.
func (tx *tx) expireLease() {
	c := tx.clients.holder()
	if c == nil {
		return
	}
	tx.clients.lease.Touch(c.id, c.lastSeen())
	if _, expired := tx.clients.lease.Expire(tx.now); expired {
		tx.leaseMoved(c, nil, contracts.LeaseExpired)
	}
}

// checkLease refuses a request while another connection holds the lease.
func (tx *tx) checkLease(c *connection) error {
	tx.expireLease()
	if holder, held := tx.clients.lease.Holder(); held && holder != c.id {
		return tx.leaseHeld("Controller lease is currently held by another connection", holder)
	}
	return nil
}

// claim gives a free lease to a controller whose command was accepted (A30). A
// refused command does not claim it.
func (tx *tx) claim(c *connection) {
	if _, held := tx.clients.lease.Holder(); !held {
		tx.grant(c, contracts.LeaseGranted)
	}
}

// claimOnAttach gives an attaching controller the lease if it is free or how is
// TakeoverForce. It returns the connection that lost the lease, or nil. The caller
// calls announceTakeover when the client can get frames.
func (tx *tx) claimOnAttach(c *connection, how contracts.Takeover) (loser *connection) {
	loser = tx.clients.holder()
	if c.role != contracts.RoleController || loser == c || loser != nil && how != contracts.TakeoverForce {
		return nil
	}
	why := contracts.LeaseGranted
	if loser != nil {
		why = contracts.LeaseTakenOver
	}
	tx.setHolder(c, why)
	if loser == nil {
		tx.opts.Observer.LeaseMoved(why)
	}
	return loser
}

// announceTakeover publishes that c took the lease from loser, if loser is not nil.
func (tx *tx) announceTakeover(loser, c *connection) {
	if loser != nil {
		tx.leaseMoved(loser, c, contracts.LeaseTakenOver)
	}
}

// departedHolderName returns the name of the lease holder if it is a client of p
// whose WebSocket ended without ws.bye, otherwise "". A new client with this
// principal and name takes the lease: most often a terminal was closed and opened
// again. An HTTP client may be active without a stream, so it does not count as
// departed.
func (cl *clients) departedHolderName(p contracts.Principal) string {
	c := cl.holder()
	if c == nil || !c.hadSocket || c.attached() || c.principal.ID != p.ID {
		return ""
	}
	return c.terms.Name()
}

// grant moves the lease to c and publishes the change.
func (tx *tx) grant(c *connection, why contracts.LeaseReason) {
	loser := tx.clients.holder()
	tx.setHolder(c, why)
	tx.leaseMoved(loser, c, why)
}

// setHolder moves the lease to c under a new generation and writes a note of it.
func (tx *tx) setHolder(c *connection, why contracts.LeaseReason) {
	loser := tx.clients.holder()
	tx.clients.lease.Grant(c.id, tx.now)
	if c.bare {
		tx.clients.lease.Pin(c.id) // an open pipe keeps the lease
	}
	c.controlAsk = nil
	tx.noteLease(tx.controlChanged(loser, c, why))
}

// leaseMoved publishes connection_info and, if there was a previous holder, a
// snapshot (D7). The loser and the winner, which may be nil, also get ws.lease. A
// lease that became free goes to the connection that has asked for it longest.
func (tx *tx) leaseMoved(loser, winner *connection, why contracts.LeaseReason) {
	if winner == nil {
		tx.noteLease(tx.controlChanged(loser, nil, why))
	}
	tx.opts.Observer.LeaseMoved(why)
	tx.sendLeaseChange(loser, false, why)
	tx.sendLeaseChange(winner, true, why)
	about := loser
	if winner != nil {
		about = winner
	}
	tx.clients.presence.about = about.id
	tx.showPresence()
	if loser != nil {
		tx.publishSnapshot()
	}
	asking := tx.clients.controlAskers()
	switch {
	case winner != nil:
		for _, c := range asking {
			tx.sendControlRequest(winner, c) // repeat the requests that the previous holder got
		}
	case len(asking) > 0:
		tx.grant(asking[0], contracts.LeaseGranted)
	}
}

// controlAskers returns the attached connections that ask for control, longest
// first.
func (cl *clients) controlAskers() (list []*connection) {
	for _, c := range cl.conns {
		if c.controlAsk != nil && c.attached() {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *connection) int { return a.controlAsk.since.Compare(b.controlAsk.since) })
	return list
}

func (tx *tx) sendControlRequest(holder, c *connection) {
	if holder.bare {
		return
	}
	f := &contracts.ControlRequest{ConnectionID: c.id, ClientInfo: c.terms.ClientInfo, Reason: c.controlAsk.reason}
	if holder.terms.People() {
		f.Author = c.author()
	}
	tx.sendToSockets(holder, f)
}

func (tx *tx) sendLeaseChange(c *connection, granted bool, why contracts.LeaseReason) {
	if c == nil || c.bare || tx.clients.conns[c.id] != c {
		return
	}
	tx.sendToSockets(c, &contracts.LeaseChange{
		Granted: granted, ControllerConnectionID: tx.clients.controllerID().Value,
		Generation: tx.clients.lease.Generation(), Reason: why,
	})
}

// handleLeaseFrame executes a frame about the lease and answers it. It returns false
// for other frames.
func (r *reader) handleLeaseFrame(frame contracts.Frame) bool {
	var id string
	switch f := frame.(type) {
	case *contracts.TakeControl:
		id = f.ID
	case *contracts.ReleaseControl:
		id = f.ID
	case *contracts.AskControl:
		id = f.ID
	case *contracts.GrantControl:
		id = f.ID
	case *contracts.DenyControl:
		id = f.ID
	default:
		return false
	}
	h, c := r.hub, r.conn
	h.update(func(tx *tx) {
		if r.isSuperseded(tx) {
			return
		}
		tx.expireLease()
		err := tx.applyLeaseFrame(c, frame)
		if c.bare && err == nil { // answer sends the local client no results; a client that uses ws.* frames expects one
			tx.pushFrame(r.box, &contracts.Result{ID: optional(id), Seq: r.seq, Cursor: tx.head()})
			return
		}
		r.answer(tx, optional(id), h.refusal(err))
	})
	return true
}

func (tx *tx) applyLeaseFrame(c *connection, frame contracts.Frame) error {
	switch {
	case tx.life.phase != phaseOpen || tx.clients.conns[c.id] != c:
		return errGone
	case c.role != contracts.RoleController:
		return &contracts.Error{Code: contracts.CodeAccessDenied, Message: "Headless connection does not have controller access"}
	}
	switch f := frame.(type) {
	case *contracts.TakeControl:
		switch tx.clients.holder() {
		case nil:
			tx.grant(c, contracts.LeaseGranted)
		case c:
		default:
			tx.grant(c, contracts.LeaseTakenOver)
		}
	case *contracts.ReleaseControl:
		if err := tx.checkLease(c); err != nil {
			return err
		}
		if tx.clients.lease.Release(c.id) { // else it is free already
			tx.leaseMoved(c, nil, contracts.LeaseReleased)
		}
	case *contracts.AskControl:
		tx.askControl(c, f)
	case *contracts.GrantControl:
		return tx.answerAsk(c, f.ConnectionID, func(asker *connection) { tx.grant(asker, contracts.LeaseGranted) })
	case *contracts.DenyControl:
		return tx.answerAsk(c, f.ConnectionID, func(asker *connection) { tx.denyControl(c, asker, f.Reason) })
	}
	return nil
}

// askControl asks the holder for the lease. A free lease is granted at once.
func (tx *tx) askControl(c *connection, f *contracts.AskControl) {
	holder := tx.clients.holder()
	switch {
	case holder == c:
	case holder == nil:
		tx.grant(c, contracts.LeaseGranted)
	default:
		c.controlAsk = &controlAsk{reason: abridge.Bytes(f.Reason, 500), since: tx.now}
		tx.publish(&contracts.Status{Message: c.displayName() + " asks for control"})
		tx.sendControlRequest(holder, c)
	}
}

// answerAsk checks that c is the holder and that connection id asks for control,
// and then calls answer.
func (tx *tx) answerAsk(c *connection, id string, answer func(asker *connection)) error {
	if err := tx.checkLease(c); err != nil {
		return err
	}
	asker := tx.clients.conns[id]
	if tx.clients.holder() == nil || asker == nil || asker.controlAsk == nil || !asker.attached() {
		return &contracts.Error{Code: contracts.CodeRequestNotFound, Message: "no connection of that id asks for control"}
	}
	answer(asker)
	return nil
}

func (tx *tx) denyControl(c, asker *connection, reason string) {
	asker.controlAsk = nil
	tx.publish(&contracts.Status{Message: c.displayName() + " keeps control"})
	tx.sendToSockets(asker, &contracts.LeaseChange{
		ControllerConnectionID: tx.clients.controllerID().Value, Generation: tx.clients.lease.Generation(),
		Reason: contracts.LeaseDenied, Message: abridge.Bytes(reason, 500),
	})
}
