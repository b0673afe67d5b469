package double

import (
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// What a client learns when somebody else drives: when attaching, and later.
const (
	textHeld    = "Controller lease is already held by another connection"
	textHeldNow = "Controller lease is currently held by another connection"
)

// held refuses because somebody else drives.
func (r *room) held(text string) *contracts.Error {
	e := refuse(contracts.CodeControllerLeaseHeld, contracts.ErrorProtocol, text)
	if r.s.has(WrongLeaseCode) {
		e.Code = contracts.CodeRuntimeOwnedElsewhere
	}
	e.Metadata = map[string]string{"session_id": r.id}
	if r.holder != nil {
		e.Metadata["controller_connection_id"] = r.holder.id
	}
	return e
}

// expire removes who has been gone for too long.
func (r *room) expire() {
	r.sweep()
	if h := r.holder; h != nil && !h.web && h.out == nil && time.Since(h.seen) > r.s.opts.LeaseTTL {
		r.leave(h)
	}
}

// leave removes a client for good.
func (r *room) leave(c *client) {
	r.clients = slices.DeleteFunc(r.clients, func(o *client) bool { return o == c })
	if r.holder == c {
		r.holder = nil
	}
	c.out = nil
	r.endUtilities("Owning connection closed", func(owner *client) bool { return owner == c })
	if !c.web {
		r.announce(c)
		return
	}
	for _, s := range slices.Clone(c.subs) {
		r.drop(s)
	}
	r.forget(c.id, c.id)
	r.publishSnapshot()
}

// claim lets a controller act: it holds the lease, or gets the free one.
func (r *room) claim(c *client) *contracts.Error {
	r.expire()
	switch r.holder {
	case c:
		return nil
	case nil:
		if !r.bare {
			r.grant(c, contracts.LeaseGranted)
		}
		return nil
	}
	return r.held(textHeldNow)
}

// grant moves the lease and tells those concerned.
func (r *room) grant(c *client, why contracts.LeaseReason) {
	old := r.holder
	r.holder = c
	c.asked = false
	if r.generation == 0 || !r.s.has(SameGeneration) {
		r.generation++
	}
	if old != nil && old != c && r.s.has(TakeOverCancels) {
		r.cancelQuestions("The controller has changed")
	}
	if old != nil && old != c && !r.s.has(SilentTakeover) {
		old.control(&contracts.LeaseChange{ControllerConnectionID: &c.id, Generation: r.generation, Reason: why})
	}
	c.control(&contracts.LeaseChange{Granted: true, ControllerConnectionID: &c.id, Generation: r.generation, Reason: why})
	r.announce(c)
}

// lease carries out a ws.* frame about the lease.
func (c *client) lease(f contracts.Frame) *contracts.Error {
	r := c.room
	r.expire()
	if c.role == contracts.RoleViewer {
		return refuse(contracts.CodeAccessDenied, contracts.ErrorProtocol, "viewers do not drive")
	}
	switch f := f.(type) {
	case *contracts.TakeControl:
		r.grant(c, contracts.LeaseTakenOver)
	case *contracts.AskControl:
		c.ask(f)
	case *contracts.ReleaseControl:
		if r.holder != c {
			return r.held(textHeld)
		}
		r.holder = nil
		c.control(&contracts.LeaseChange{Generation: r.generation, Reason: contracts.LeaseReleased})
		r.announce(c)
	case *contracts.GrantControl:
		to, e := c.asker(f.ConnectionID)
		if e != nil {
			return e
		}
		r.grant(to, contracts.LeaseGranted)
	case *contracts.DenyControl:
		to, e := c.asker(f.ConnectionID)
		if e != nil {
			return e
		}
		to.asked = false
		to.control(&contracts.LeaseChange{ControllerConnectionID: r.holderID(), Generation: r.generation, Reason: contracts.LeaseDenied, Message: f.Reason})
	}
	return nil
}

func (c *client) ask(f *contracts.AskControl) {
	r := c.room
	if r.holder == nil {
		r.grant(c, contracts.LeaseGranted)
		return
	}
	c.asked = true
	r.holder.control(&contracts.ControlRequest{ConnectionID: c.id, ClientInfo: c.hello.ClientInfo, Reason: f.Reason})
}

// asker finds the client that the holder may grant or deny the lease.
func (c *client) asker(id string) (*client, *contracts.Error) {
	if c.room.holder != c {
		return nil, c.room.held(textHeld)
	}
	for _, o := range c.room.clients {
		if o.id == id && o.asked {
			return o, nil
		}
	}
	return nil, refuse(contracts.CodeNotFound, contracts.ErrorProtocol, "that connection did not ask")
}
