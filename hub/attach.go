package hub

import (
	"cmp"
	"context"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// How a stream starts; the values of ws.attached "resume".
const (
	resumeSnapshot = "snapshot"
	resumeReplay   = "replay"
	resumeReset    = "reset"
)

// Admit refuses an attachment that would be refused after hello in any case, so
// that a transport can refuse before the upgrade. It changes nothing.
func (h *Hub) Admit(att contracts.Attach) error {
	return h.request(opAttach, func(tx *tx) error {
		err := tx.checkRoom(tx.clients.conns[att.ConnectionID] != nil)
		if err == nil && att.Role == contracts.RoleController {
			err = tx.checkTakeover(att, att.ConnectionID, tx.clients.departedHolderName(att.Principal)) // assume the name that hello may bring
		}
		return err
	})
}

// checkRoom refuses a new connection above Options.MaxConnections, unless a
// detached connection can be ended for it. known says that the connection exists
// already.
func (tx *tx) checkRoom(known bool) error {
	if !known && len(tx.clients.conns) >= tx.opts.MaxConnections && tx.clients.oldestDetached("") == nil {
		return &contracts.Error{Code: contracts.CodeOverloaded, Message: "too many connections"}
	}
	return nil
}

// makeRoom ends the oldest detached connections if a new one would exceed
// Options.MaxConnections or Options.MaxControllers. checkRoom and checkAttach have
// made sure that there is one.
func (tx *tx) makeRoom(role contracts.Role) {
	if len(tx.clients.conns) >= tx.opts.MaxConnections {
		tx.destroy(tx.clients.oldestDetached(""), contracts.LeaseExpired)
	}
	if role == contracts.RoleController && tx.clients.controllers() >= tx.opts.MaxControllers {
		tx.destroy(tx.clients.oldestDetached(role), contracts.LeaseExpired)
	}
}

// oldestDetached returns the connection that has been detached longest, has the
// role (any if empty) and does not hold the lease; nil if there is none.
func (cl *clients) oldestDetached(role contracts.Role) *connection {
	holder := cl.holder()
	for e := cl.detached.Front(); e != nil; e = e.Next() {
		if c := e.Value.(expiry[*subscription]).owner.conn; c != holder && !c.attached() && (role == "" || c.role == role) {
			return c
		}
	}
	for e := cl.idle.Front(); e != nil; e = e.Next() {
		if c := e.Value.(expiry[*connection]).owner; c != holder && (role == "" || c.role == role) {
			return c
		}
	}
	return nil
}

// checkTakeover refuses a controller with TakeoverRefuse if another connection
// holds the lease. known is the id of the connection that the client continues, or
// empty; name is the client's name.
func (tx *tx) checkTakeover(att contracts.Attach, known, name string) error {
	tx.expireLease()
	if known == "" && name != "" && name == tx.clients.departedHolderName(att.Principal) {
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
		// A client that presents the wrong secret gets a new connection, without a hint
		// about the old one.
		c = tx.clients.conns[att.ConnectionID]
		if c != nil && (c.bare || token == "" || !c.token.matches(token) || c.principal.ID != att.Principal.ID) {
			c = nil
		}
		offer := handshake.Offer{Fixed: att.Role, Default: cmp.Or(att.Principal.Role, contracts.RoleViewer)}
		if c != nil {
			offer.Established, secret = c.role, token
		}
		var terms handshake.Terms
		if terms, err = handshake.Negotiate(hello, offer); err != nil {
			return
		}
		if err = tx.checkAttach(att, c, terms); err != nil {
			return
		}
		if c == nil {
			tx.makeRoom(terms.Role)
			c = tx.newConnection(att.Principal, secret, terms.Role)
			if name := terms.Name(); name != "" && name == tx.clients.departedHolderName(att.Principal) {
				att.Takeover = contracts.TakeoverForce
			}
		}
		c.extendCredential(att.Principal)
		c.apply(terms, false)
		c.hadSocket = true
		if len(c.subs) == 0 {
			tx.newSubscription(c)
		}
		b = tx.attachSocket(c.subs[0], conn, att, secret)
	})
	return c, b, err
}

// checkAttach checks everything before anything changes: a refused client leaves no
// trace (A24).
func (tx *tx) checkAttach(att contracts.Attach, c *connection, t handshake.Terms) error {
	if !tx.credentialValid(att.Principal) {
		return ErrExpired
	}
	if err := att.Principal.CheckRole(t.Role); err != nil {
		return err
	}
	if err := tx.checkRoom(c != nil); err != nil {
		return err
	}
	if t.Role != contracts.RoleController {
		return nil
	}
	known, most := "", tx.opts.MaxControllers
	if att.Principal.Confined() {
		most -= most / 4 // the holders of a share must not lock out its maker
	}
	if c != nil {
		known = c.id
	} else if tx.clients.controllers() >= most && tx.clients.oldestDetached(contracts.RoleController) == nil {
		return &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many controller connections"}
	}
	return tx.checkTakeover(att, known, t.Name())
}

func (tx *tx) newConnection(p contracts.Principal, secret string, role contracts.Role) *connection {
	c := &connection{
		id: newID("conn_"), token: hashToken(secret), principal: p, role: role,
		since: tx.now, seen: tx.now, neverSubscribed: true,
	}
	tx.clients.addConnection(c)
	tx.clients.lastUsed = tx.now
	tx.clients.scheduleCredentialEnd(p.Expires)
	return c
}

// attachSocket attaches a mailbox to the subscription. The client gets ws.attached,
// then the state if it needs it, then hello_ok, then live entries.
func (tx *tx) attachSocket(sub *subscription, conn Conn, att contracts.Attach, secret string) *mailbox {
	c := sub.conn
	how, reason, from := tx.startingPoint(att)
	b := tx.attachBox(sub, conn, transportWS, from)
	sub.heldEvents = nil // hello_ok is sent again below
	loser := tx.claimOnAttach(c, att.Takeover)
	attached := &contracts.Attached{
		SessionID: tx.opts.SessionID, ConnectionID: c.id, ConnectionToken: secret, SubscriptionID: sub.id,
		Role: c.role, ControllerLeaseGranted: tx.clients.holder() == c,
		ControllerConnectionID: tx.clients.controllerID().Value, LeaseExpiresAt: tx.expiry(c).Value,
		HeartbeatIntervalMS: tx.opts.HeartbeatInterval.Milliseconds(), Epoch: tx.Epoch(), Resume: how,
		Limits: contracts.AttachLimits{MaxFrameBytes: int64(tx.opts.MaxFrameBytes), Mailbox: int64(tx.opts.MaxPrivateBytes)},
	}
	if text, err := contracts.EncodeFrame(attached); err == nil {
		tx.push(b, parcel{frame: b.form.AppendControl(nil, text)})
	}
	tx.queueStartingState(b, how, reason, att.Turns)
	tx.sendHelloOK(c)
	tx.showChange(c)
	tx.reportMismatch(c)
	tx.announceTakeover(loser, c)
	tx.roster.add(b)
	return b
}

// queueStartingState queues a snapshot or reset, then a page with the history of so
// many turns, and returns their cursor. A replay needs neither; it returns 0.
func (tx *tx) queueStartingState(b *mailbox, how string, reason contracts.ResetReason, turns int) (at uint64) {
	if how == resumeReplay {
		return 0
	}
	snap := tx.latestSnapshot()
	tx.push(b, parcel{at: snap.at, snapshot: snap, reset: reason})
	if turns > 0 {
		tx.push(b, parcel{at: snap.at, turns: turns})
	}
	return snap.at
}

// startingPoint decides how a stream starts: with a snapshot, a replay from a
// cursor, or a reset and its reason. A session restored from elsewhere resets all
// clients of its earlier runner (5.8). A cursor without an epoch counts in the
// current epoch unless it lies before the epoch's start. Cursor 0 has seen nothing
// and is valid in every epoch.
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

// sendHelloOK answers hello. hello_ok has a cursor of its own, which a note takes;
// other clients do not see it (A60).
func (tx *tx) sendHelloOK(c *connection) {
	n := note{}
	if c.role == contracts.RoleController && !c.bare {
		n.Attach = saveConnection(c)
	}
	cursor := tx.note(n)
	tx.sendPrivateEvent(c, cursor, tx.helloOK(c))
}

// mismatchBurst is how many clients of other protocol versions are reported at
// once; later ones are reported at 1 per second.
const mismatchBurst = 64

// reportMismatch publishes a status about an attached client of another protocol
// version (R24). All clients see it as last_status.
func (tx *tx) reportMismatch(c *connection) {
	if c.terms.Mismatch && tx.clients.mismatchLimiter.AllowN(tx.now, 1) {
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
			UtilityOperations: append([]contracts.UtilityOperation{}, tx.opts.Utilities.Operations()...), // never null
			RawAgentEvents:    true,
			ConnectionRoles:   []contracts.Role{contracts.RoleController, contracts.RoleViewer},
			People:            c.terms.People(),
		}
		if c.terms.People() || c.role == contracts.RoleApprover { // others may not know the role
			ok.ServerCapabilities.ConnectionRoles = append(ok.ServerCapabilities.ConnectionRoles, contracts.RoleApprover)
		}
		if ok.ServerCapabilities.ServerRequests == nil {
			ok.ServerCapabilities.ServerRequests = []contracts.RequestType{}
		}
	}
	return ok
}

// attachLocal attaches the client on standard input and output. It is a controller
// without capabilities unless a hello says otherwise.
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
		c = &connection{id: localID, bare: true, principal: att.Principal, since: tx.now, seen: tx.now}
		c.terms.Role, c.role = contracts.RoleController, contracts.RoleController // until a hello says otherwise
		tx.clients.addConnection(c)
		sub := &subscription{id: localID, conn: c}
		tx.clients.addSubscription(c, sub)
		b = tx.attachBox(sub, conn, transportStdio, h.startCursor)
		h.local.Store(true)
		if att.Turns > 0 {
			tx.push(b, parcel{at: tx.head(), turns: att.Turns})
		}
		for _, row := range tx.work.table.Pending() {
			if row.Opened.Before(h.openedAt) { // asked before the restart; the bare wire has no snapshot that would list it
				tx.pushEvent(b, tx.head(), row.Request)
			}
		}
		tx.claimOnAttach(c, contracts.TakeoverLater)
		h.roster.add(b)
		h.wake(b)
	})
	return c, b, err
}

// Transport names in metrics and logs.
const (
	transportStdio = "stdio"
	transportWS    = "ws"
	transportSSE   = "sse"
)

// Stream writes the session's events to conn until conn fails, ctx ends or the hub
// closes conn. The client cannot send on conn. An error before anything was written
// is a refusal; conn is then still open.
//
// A stream that names a subscription continues it and ends an older stream of the
// same subscription (A61). Any other stream gets a viewer connection of its own,
// which ends with it and never gets the lease (A36).
func (h *Hub) Stream(ctx context.Context, conn Conn, req contracts.StreamRequest, by contracts.Caller) (err error) {
	defer h.contain(conn, &err)
	unhook := context.AfterFunc(ctx, func() { conn.Close(errGoingAway) })
	defer unhook()
	var b *mailbox
	err = h.aside(conn, func() (err error) {
		b, err = h.attachStream(conn, req, by)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { h.detach(b, true) }()
	r := &reader{hub: h, conn: b.sub.conn, box: b}
	return r.read(func([]byte) {}) // a stream sends no frames
}

func (h *Hub) attachStream(conn Conn, req contracts.StreamRequest, by contracts.Caller) (b *mailbox, err error) {
	err = h.request(opRequest, func(tx *tx) error {
		sub, err := tx.streamSubscription(req, by)
		if err != nil {
			return err
		}
		how, why, from := tx.startingPoint(contracts.Attach{Cursor: req.Cursor, Epoch: req.Epoch})
		if req.Cursor == nil && req.SubscriptionID != "" && !sub.needsSnapshot() {
			how, from = resumeReplay, sub.from
			if sub.box != nil { // continue at the position of the older stream
				from = sub.box.cursor.Load()
			}
			if from+1 < tx.journal.First() {
				how, why = resumeReset, contracts.ResetGap
			}
		}
		b = tx.attachBox(sub, conn, transportSSE, from)
		if opening := b.form.AppendOpening(nil); len(opening) > 0 {
			tx.push(b, parcel{frame: opening}) // before everything else
		}
		tx.deliverHeld(sub, max(from, tx.queueStartingState(b, how, why, req.Turns)))
		sub.conn.extendCredential(by.Principal)
		tx.noteActivity(sub.conn)
		tx.showChange(sub.conn)
		tx.roster.add(b)
		tx.wake(b)
		return nil
	})
	return b, err
}

// streamSubscription returns the subscription that the stream names, or makes one.
func (tx *tx) streamSubscription(req contracts.StreamRequest, by contracts.Caller) (*subscription, error) {
	if err := tx.checkStream(req, by); err != nil {
		return nil, err
	}
	if req.SubscriptionID != "" {
		return tx.clients.subs[req.SubscriptionID], nil
	}
	tx.makeRoom(contracts.RoleViewer)
	c := tx.newConnection(by.Principal, newToken(), contracts.RoleViewer)
	c.greeted = true
	c.terms.Role, c.terms.OptOuts = contracts.RoleViewer, req.OptOuts
	sub := tx.newSubscription(c)
	sub.implicit = true
	return sub, nil
}

// MayStream returns the refusal that [Hub.Stream] would return now. It changes
// nothing.
func (h *Hub) MayStream(req contracts.StreamRequest, by contracts.Caller) error {
	return h.request(opRequest, func(tx *tx) error { return tx.checkStream(req, by) })
}

func (tx *tx) checkStream(req contracts.StreamRequest, by contracts.Caller) error {
	switch {
	case !tx.credentialValid(by.Principal):
		return ErrExpired
	case req.SubscriptionID == "":
		return tx.checkRoom(false)
	}
	_, err := tx.ownedSubscription(req.SubscriptionID, by)
	return err
}
