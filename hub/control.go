package hub

import (
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
)

// touch counts a frame as a sign of life.
func (h *Hub) touch(s *state, c *connection) { s.lease.Touch(c.id, c.lastSeen()) }

// expireLease frees the lease of a holder that has been silent for too long.
// The transport knows when it last spoke, so that is asked only now.
func (h *Hub) expireLease(s *state) {
	c := s.holder()
	if c == nil {
		return
	}
	h.touch(s, c)
	if _, expired := s.lease.Expire(s.now); expired {
		h.leaseMoved(s, c, nil, contracts.LeaseExpired)
	}
}

// mayDrive refuses to act for anybody while another holds the lease.
func (h *Hub) mayDrive(s *state, c *connection) error {
	h.expireLease(s)
	if holder, held := s.lease.Holder(); held && holder != c.id {
		return h.leaseHeld("Controller lease is currently held by another connection", holder)
	}
	return nil
}

// claim gives a free lease to a controller whose action was accepted (A30). One
// that is refused changes nothing, so it does not claim either.
func (h *Hub) claim(s *state, c *connection) {
	if _, held := s.lease.Holder(); !held {
		h.grant(s, c, contracts.LeaseGranted)
	}
}

// claimOnAttach gives an attaching controller the lease if it is free or the
// client forces it. The returned function, if any, tells those concerned; it is
// called once the client can be told.
func (h *Hub) claimOnAttach(s *state, c *connection, how contracts.Takeover) (tell func()) {
	holder, held := s.lease.Holder()
	if c.role != contracts.RoleController || held && holder == c.id || held && how != contracts.TakeoverForce {
		return nil
	}
	loser := s.conns[holder]
	h.setHolder(s, c)
	if loser == nil {
		h.opts.Observer.LeaseMoved(contracts.LeaseGranted)
	}
	return func() {
		if loser != nil {
			h.leaseMoved(s, loser, c, contracts.LeaseTakenOver)
		}
	}
}

// departed returns the name of the holder if it is a client of p whose WebSocket
// has ended without a goodbye, and "" otherwise. A new client of the same
// principal and name replaces it: most often a terminal was closed and opened
// again. A client over HTTP may be there without a stream, so it is not departed.
func (s *state) departed(p contracts.Principal) string {
	c := s.holder()
	if c == nil || !c.socket || c.attached() || c.principal.ID != p.ID {
		return ""
	}
	return c.terms.Name()
}

// grant moves the lease to c and tells everybody.
func (h *Hub) grant(s *state, c *connection, why contracts.LeaseReason) {
	loser := s.holder()
	h.setHolder(s, c)
	h.leaseMoved(s, loser, c, why)
}

// setHolder moves the lease under a new generation, which the journal keeps.
func (h *Hub) setHolder(s *state, c *connection) {
	s.lease.TakeOver(c.id, s.now)
	s.lease.Touch(c.id, c.lastSeen())
	if c.bare {
		s.lease.Pin(c.id) // an open pipe is a sign of life
	}
	c.asks = nil
	h.noteLease(s)
	h.metrics.LeaseChanges.Add(1)
}

// leaseMoved shows a hand-over to all (D7): the graph, and the state. Those who
// took part are told directly as well. Either may be nil.
func (h *Hub) leaseMoved(s *state, loser, winner *connection, why contracts.LeaseReason) {
	if winner == nil {
		h.noteLease(s)
	}
	h.opts.Observer.LeaseMoved(why)
	h.tellLease(s, loser, false, why)
	h.tellLease(s, winner, true, why)
	about := loser
	if winner != nil {
		about = winner
	}
	s.presence.about = about.id
	h.showPresence(s)
	if loser != nil {
		h.publishSnapshot(s)
	}
	asking := s.asking()
	switch {
	case winner != nil:
		for _, c := range asking {
			h.tellAsk(s, winner, c) // they asked the one before
		}
	case len(asking) > 0: // whoever has asked longest gets what nobody holds
		h.grant(s, asking[0], contracts.LeaseGranted)
	}
}

// asking lists the attached connections that wait for the lease, longest first.
func (s *state) asking() (list []*connection) {
	for _, c := range s.conns {
		if c.asks != nil && c.attached() {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *connection) int { return a.asks.since.Compare(b.asks.since) })
	return list
}

// tellAsk tells the holder who wants the lease.
func (h *Hub) tellAsk(s *state, holder, c *connection) {
	if !holder.bare {
		h.tell(s, holder, &contracts.ControlRequest{ConnectionID: c.id, ClientInfo: c.terms.ClientInfo, Reason: c.asks.reason})
	}
}

func (h *Hub) tellLease(s *state, c *connection, granted bool, why contracts.LeaseReason) {
	if c == nil || c.bare || s.conns[c.id] != c {
		return
	}
	h.tell(s, c, &contracts.LeaseChange{
		Granted: granted, ControllerConnectionID: h.controllerID(s).Value,
		Generation: s.lease.Generation(), Reason: why,
	})
}

// control handles a frame about the lease.
func (r *reader) control(id *string, frame contracts.Frame) {
	h, c := r.hub, r.conn
	h.update(func(s *state) {
		if r.superseded(s) {
			return
		}
		h.touch(s, c)
		h.expireLease(s)
		err := h.steer(s, c, frame)
		if c.bare && err == nil { // the local client is answered only here: it knows the frames it used
			h.pushFrame(s, r.box, &contracts.Result{ID: id, Seq: r.seq, Cursor: h.head(s)})
			return
		}
		r.answer(s, id, h.refusal(err))
	})
}

func (h *Hub) steer(s *state, c *connection, frame contracts.Frame) error {
	if err := h.maySteer(s, c); err != nil {
		return err
	}
	switch f := frame.(type) {
	case *contracts.TakeControl:
		switch holder, held := s.lease.Holder(); {
		case !held:
			h.grant(s, c, contracts.LeaseGranted)
		case holder != c.id:
			h.grant(s, c, contracts.LeaseTakenOver)
		}
	case *contracts.ReleaseControl:
		if _, held := s.lease.Holder(); !held {
			return nil // what the client wants is so already
		}
		if !s.lease.Release(c.id) {
			return h.notHolder(s)
		}
		h.leaseMoved(s, c, nil, contracts.LeaseReleased)
	case *contracts.AskControl:
		h.askControl(s, c, f)
	case *contracts.GrantControl:
		return h.settleAsk(s, c, f.ConnectionID, func(asker *connection) { h.grant(s, asker, contracts.LeaseGranted) })
	case *contracts.DenyControl:
		return h.settleAsk(s, c, f.ConnectionID, func(asker *connection) { h.deny(s, c, asker, f.Reason) })
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

func (h *Hub) maySteer(s *state, c *connection) error {
	switch {
	case s.phase != phaseOpen || s.conns[c.id] != c:
		return &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "Headless runtime is no longer available"}
	case c.role != contracts.RoleController:
		return &contracts.Error{Code: contracts.CodeAccessDenied, Message: "Headless connection does not have controller access"}
	}
	return nil
}

func (h *Hub) notHolder(s *state) error {
	holder, _ := s.lease.Holder()
	return h.leaseHeld("Controller lease is currently held by another connection", holder)
}

// askControl asks the holder for the lease; a free one is granted at once.
func (h *Hub) askControl(s *state, c *connection, f *contracts.AskControl) {
	holder := s.holder()
	switch {
	case holder == c:
	case holder == nil:
		h.grant(s, c, contracts.LeaseGranted)
	default:
		c.asks = &ask{reason: cutText(f.Reason, 500), since: s.now}
		h.publish(s, &contracts.Status{Message: c.displayName() + " asks for control"})
		h.tellAsk(s, holder, c)
	}
}

// settleAsk lets the holder answer one that asked.
func (h *Hub) settleAsk(s *state, c *connection, id string, answer func(asker *connection)) error {
	holder, held := s.lease.Holder()
	if held && holder != c.id {
		return h.notHolder(s)
	}
	asker := s.conns[id]
	if !held || asker == nil || asker.asks == nil || !asker.attached() {
		return &contracts.Error{Code: contracts.CodeRequestNotFound, Message: "no connection of that id asks for control"}
	}
	answer(asker)
	return nil
}

func (h *Hub) deny(s *state, c, asker *connection, reason string) {
	asker.asks = nil
	h.publish(s, &contracts.Status{Message: c.displayName() + " keeps control"})
	h.tell(s, asker, &contracts.LeaseChange{
		ControllerConnectionID: h.controllerID(s).Value, Generation: s.lease.Generation(),
		Reason: contracts.LeaseDenied, Message: cutText(reason, 500),
	})
}
