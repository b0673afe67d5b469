package hub

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// What a client is given to begin with.
const (
	resumeSnapshot = "snapshot"
	resumeReplay   = "replay"
	resumeReset    = "reset"
)

// Admit says whether an attachment would be refused for what is already known
// before the client has said hello, so that a transport can refuse it in its
// own words. It changes nothing.
func (h *Hub) Admit(att contracts.Attach) error {
	var err error
	h.update(func(tx *tx) {
		if err = tx.life.refuse(opAttach); err == nil {
			err = tx.hasRoom(tx.clients.conns[att.ConnectionID] != nil)
		}
		if err == nil && att.Role == contracts.RoleController {
			err = tx.mayControl(att, att.ConnectionID, tx.clients.departed(att.Principal)) // its name comes with hello
		}
		if err != nil {
			h.refused(h.refusal(err).Code)
		}
	})
	return err
}

// hasRoom refuses a new connection when there are too many; one that comes back
// is counted already. Those that are attached come before those that may come
// back.
func (tx *tx) hasRoom(comesBack bool) error {
	if !comesBack && len(tx.clients.conns) >= tx.opts.MaxConnections && tx.clients.waiting("") == nil {
		return &contracts.Error{Code: contracts.CodeOverloaded, Message: "too many connections"}
	}
	return nil
}

// makeRoom ends the oldest detached connection that stands in the way of a new
// one.
func (tx *tx) makeRoom(role contracts.Role) {
	if len(tx.clients.conns) >= tx.opts.MaxConnections {
		tx.destroy(tx.clients.waiting(""), contracts.LeaseExpired)
	}
	if role == contracts.RoleController && tx.clients.controllers() >= tx.opts.MaxControllers {
		tx.destroy(tx.clients.waiting(role), contracts.LeaseExpired)
	}
}

// waiting returns the connection of the role, or of any, that has been detached
// longest and does not hold the lease; nil if there is none.
func (cl *clients) waiting(role contracts.Role) *connection {
	holder := cl.holder()
	for e := cl.detached.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*subscription).conn; c != holder && !c.attached() && (role == "" || c.role == role) {
			return c
		}
	}
	for e := cl.idle.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*connection); c != holder && (role == "" || c.role == role) {
			return c
		}
	}
	return nil
}

// mayControl refuses a controller that would find the lease held and said
// neither to take it nor to wait. known is the connection it continues, if any,
// and name what the client calls itself.
func (tx *tx) mayControl(att contracts.Attach, known, name string) error {
	tx.expireLease()
	if known == "" && name != "" && name == tx.clients.departed(att.Principal) {
		return nil
	}
	holder, held := tx.clients.lease.Holder()
	if held && holder != known && att.Takeover == contracts.TakeoverRefuse {
		return tx.leaseHeld("Controller lease is already held by another connection", holder)
	}
	return nil
}

func (h *Hub) leaseHeld(text, holder string) *contracts.Error {
	return &contracts.Error{
		Code: contracts.CodeControllerLeaseHeld, Message: text, Type: contracts.ErrorProtocol,
		Metadata: map[string]string{"controller_connection_id": holder, "session_id": h.opts.SessionID},
	}
}

// attach makes or continues a connection for a client that said hello.
func (h *Hub) attach(conn Conn, att contracts.Attach, hello *contracts.Hello, token string) (c *connection, b *mailbox, err error) {
	secret := newToken()
	h.update(func(tx *tx) {
		if err = tx.life.refuse(opAttach); err != nil {
			return
		}
		c = tx.clients.earlier(att, token)
		offer := handshake.Offer{Fixed: att.Role, Networked: true, Default: contracts.RoleViewer}
		if c != nil {
			offer.Established, secret = c.role, token
		}
		var terms handshake.Terms
		if terms, err = handshake.Negotiate(hello, offer); err != nil {
			return
		}
		if err = tx.mayAttach(att, c, terms); err != nil {
			return
		}
		if c == nil {
			tx.makeRoom(terms.Role)
			c = tx.newConnection(att.Principal, secret, terms.Role)
			if name := terms.Name(); name != "" && name == tx.clients.departed(att.Principal) {
				att.Takeover = contracts.TakeoverForce
			}
		}
		c.vouch(att.Principal)
		c.apply(terms)
		c.socket = true
		sub := c.subscription("")
		if sub == nil {
			sub = tx.newSubscription(c)
		}
		b = tx.greet(sub, conn, att, secret)
	})
	return c, b, err
}

var errOnlyViews = &contracts.Error{Code: contracts.CodeAccessDenied, Message: "this credential only allows viewing"}

// mayAttach refuses before anything has changed: a refused controller leaves
// no trace (A24).
func (tx *tx) mayAttach(att contracts.Attach, c *connection, t handshake.Terms) error {
	if !tx.counts(att.Principal) {
		return errExpired
	}
	if att.Principal.Role == contracts.RoleViewer && t.Role == contracts.RoleController {
		return errOnlyViews
	}
	if err := tx.hasRoom(c != nil); err != nil {
		return err
	}
	if t.Role != contracts.RoleController {
		return nil
	}
	known := ""
	if c != nil {
		known = c.id
	} else if tx.clients.controllers() >= tx.opts.MaxControllers && tx.clients.waiting(contracts.RoleController) == nil {
		return &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many controller connections"}
	}
	return tx.mayControl(att, known, t.Name())
}

// earlier finds the connection that the client proves to be. Anything wrong
// with the proof means a new connection, never a hint about the old one.
func (cl *clients) earlier(att contracts.Attach, token string) *connection {
	c := cl.conns[att.ConnectionID]
	if c == nil || token == "" || !c.owns(token) || c.principal.ID != att.Principal.ID {
		return nil
	}
	return c
}

func (tx *tx) newConnection(p contracts.Principal, secret string, role contracts.Role) *connection {
	c := &connection{
		id: newID("conn_"), token: sha256.Sum256([]byte(secret)), principal: p, role: role, seen: tx.now, unused: true,
	}
	tx.clients.addConnection(c)
	tx.clients.lastUsed = tx.now
	tx.clients.credentialEnds(p.Expires)
	return c
}

// greet attaches the connection to the stream: ws.attached, then what it needs
// to have the state, then hello_ok, then live entries.
func (tx *tx) greet(sub *subscription, conn Conn, att contracts.Attach, secret string) *mailbox {
	c := sub.conn
	how, reason, from := tx.startingPoint(att)
	b := tx.attachBox(sub, conn, transportWS, from)
	sub.held = nil // hello is answered anew
	moved := tx.claimOnAttach(c, att.Takeover)

	holder, held := tx.clients.lease.Holder()
	attached := &contracts.Attached{
		SessionID: tx.opts.SessionID, ConnectionID: c.id, ConnectionToken: secret, SubscriptionID: sub.id,
		Role: c.role, ControllerLeaseGranted: held && holder == c.id,
		ControllerConnectionID: tx.clients.controllerID().Value, LeaseExpiresAt: tx.expiry(c).Value,
		HeartbeatIntervalMS: tx.opts.HeartbeatInterval.Milliseconds(), Epoch: tx.Epoch(), Resume: how,
		Limits: contracts.AttachLimits{MaxFrameBytes: int64(tx.opts.MaxFrameBytes), Mailbox: int64(tx.opts.MaxPrivateBytes)},
	}
	if text, err := contracts.EncodeFrame(attached); err == nil {
		tx.push(b, parcel{frame: b.form.AppendControl(nil, text)})
	}
	tx.begin(b, how, reason)
	tx.acknowledge(c)
	tx.showChange(c.id)
	tx.reportMismatch(c)
	if moved != nil {
		moved()
	}
	tx.roster.add(b)
	tx.metrics.Attached.Add(1)
	return b
}

// begin queues what a stream begins with: the state, whose cursor it returns,
// unless it is a replay.
func (tx *tx) begin(b *mailbox, how string, reason contracts.ResetReason) (at uint64) {
	if how == resumeReplay {
		return 0
	}
	snap := tx.share()
	tx.push(b, parcel{at: snap.at, snapshot: snap, reset: reason})
	return snap.at
}

// startingPoint says what a client gets that presents a cursor, why if that is a
// reset, and the cursor its stream starts from if it is a replay. A session that
// was restored from elsewhere resets everybody who was there before (5.8). A
// cursor without an epoch counts in the current one unless it lies before its
// start; a client at cursor 0 has seen nothing, in no epoch.
func (tx *tx) startingPoint(att contracts.Attach) (how string, why contracts.ResetReason, from uint64) {
	if att.Cursor == nil {
		return resumeSnapshot, "", 0
	}
	stranger := att.Epoch != "" && att.Epoch != tx.Epoch()
	c := uint64(max(*att.Cursor, 0))
	switch {
	case tx.life.origin != nil && (stranger || *att.Cursor <= int64(*tx.life.origin)):
		return resumeReset, contracts.ResetRestored, 0
	case stranger, *att.Cursor < 0, c > tx.head(), c > 0 && c < tx.journal.EpochStart(), c+1 < tx.journal.First():
		return resumeReset, contracts.ResetGap, 0
	}
	return resumeReplay, "", c
}

// acknowledge answers hello. hello_ok has a cursor of its own, kept by a note,
// which nobody else sees (A60).
func (tx *tx) acknowledge(c *connection) {
	n := note{}
	if c.role == contracts.RoleController && !c.bare {
		n.Attach = savedConnection(c)
	}
	cursor := tx.note(n)
	tx.confide(c, cursor, tx.helloOK(c))
}

// mismatchBurst is how many clients of other versions are told of at once; later
// ones are told of once a second.
const mismatchBurst = 64

// reportMismatch tells a client of another version that it was let in (R24). It
// is public: everybody's last_status shows it.
func (tx *tx) reportMismatch(c *connection) {
	if c.terms.Mismatch && tx.clients.mismatches.AllowN(tx.now, 1) {
		tx.publish(&contracts.Status{
			Message: "Client protocol " + abridge.Bytes(c.terms.ProtocolVersion, 64) + " attached to server " + contracts.ProtocolVersion,
		})
	}
}

func (tx *tx) helloOK(c *connection) *contracts.HelloOK {
	ok := &contracts.HelloOK{
		ProtocolVersion:        contracts.ProtocolVersion,
		ConnectionID:           c.id,
		ClientProtocolVersion:  c.terms.ProtocolVersion,
		ClientInfo:             c.terms.ClientInfo,
		Capabilities:           c.terms.Echo(),
		OptOutNotifications:    c.terms.OptOuts,
		Role:                   c.role,
		ControllerConnectionID: tx.clients.controllerID(),
		LeaseExpiresAt:         tx.expiry(c),
	}
	if tx.opts.Profile == contracts.ProfileSeed {
		ok.ServerCapabilities = &contracts.ServerCapabilities{
			ServerRequests:    tx.info.Requests,
			UtilityOperations: tx.operations(),
			RawAgentEvents:    true,
			ConnectionRoles:   []contracts.Role{contracts.RoleController, contracts.RoleViewer},
		}
		if ok.ServerCapabilities.ServerRequests == nil {
			ok.ServerCapabilities.ServerRequests = []contracts.RequestType{}
		}
	}
	return ok
}

// attachLocal attaches the client on standard input and output. It needs no
// hello: until one says otherwise it is a controller without capabilities.
func (h *Hub) attachLocal(conn Conn, att contracts.Attach) (c *connection, b *mailbox, err error) {
	h.update(func(tx *tx) {
		if tx.clients.conns[localID] != nil {
			err = &contracts.Error{Code: contracts.CodeRoleConflict, Message: "a local client is already attached"}
			return
		}
		if tx.life.phase == phaseEnded {
			err = errEnded
			return
		}
		c = &connection{id: localID, bare: true, principal: att.Principal, seen: tx.now}
		c.terms.Role, c.role = contracts.RoleController, contracts.RoleController // until a hello says otherwise
		tx.clients.addConnection(c)
		sub := &subscription{id: localID, conn: c}
		tx.clients.addSubscription(c, sub)
		b = tx.attachBox(sub, conn, transportStdio, h.first)
		for _, row := range tx.work.table.Pending() {
			if row.Opened.Before(h.begun) { // asked before the restart; a bare wire has no snapshot to show it
				tx.pushEvent(b, tx.head(), row.Request)
			}
		}
		if moved := tx.claimOnAttach(c, contracts.TakeoverLater); moved != nil && h.opts.Shared {
			moved()
		}
		h.roster.add(b)
		h.wake(b)
	})
	return c, b, err
}

// newToken returns a secret of 256 bits.
func newToken() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// The transports by name, as operators see them.
const (
	transportStdio = "stdio"
	transportWS    = "ws"
	transportSSE   = "sse"
)

// subscription returns the connection's subscription of that id; without an id
// the first, if there is one.
func (c *connection) subscription(id string) *subscription {
	for _, sub := range c.subs {
		if id == "" || sub.id == id {
			return sub
		}
	}
	return nil
}
