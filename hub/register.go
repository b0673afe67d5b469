package hub

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"reflect"
	"slices"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/handshake"
)

// What clients do request by request: connections and subscriptions that no
// socket stands for (maestro-attach 1.6 to 1.13). The transports for HTTP are
// thin layers over these methods.

var (
	errNoConnection   = &contracts.Error{Code: contracts.CodeStaleConnection, Message: "Headless connection not found"}
	errNoSubscription = &contracts.Error{Code: contracts.CodeStaleSubscription, Message: "Headless subscriber not found"}
)

// Connect makes a connection without a subscription, or renews the one that req
// names. token is the secret of a new connection, else empty. A refusal leaves
// nothing behind (A24).
func (h *Hub) Connect(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.ConnectionAnswer, token string, err error) {
	var shot pendingSnapshot
	h.update(func(tx *tx) {
		var e enrolled
		if e, err = tx.enroll(req, by, false); err != nil {
			return
		}
		c := e.connection
		token = e.token
		if len(c.subs) == 0 {
			tx.startIdleTimer(c)
		}
		if e.changed {
			tx.announceConnection(e)
		}
		shot = tx.pendingSnapshot()
		holder, _ := tx.clients.lease.Holder()
		answer = &contracts.ConnectionAnswer{
			SessionID: h.opts.SessionID, ConnectionID: c.id, Role: c.role,
			ControllerLeaseGranted: holder == c.id, ControllerConnectionID: tx.clients.controllerID().Value,
			LeaseExpiresAt:      tx.expiry(c).Value,
			HeartbeatIntervalMS: h.opts.HeartbeatInterval.Milliseconds(), OptOutNotifications: c.terms.OptOuts,
		}
	})
	if err == nil {
		answer.Snapshot, err = h.encodeSnapshot(shot)
	}
	return answer, token, h.refusedOr(err)
}

// Subscribe makes a subscription, on the connection that req names, on an
// unused one that holds the lease, or on a new one.
func (h *Hub) Subscribe(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.SubscriptionAnswer, token string, err error) {
	var shot pendingSnapshot
	h.update(func(tx *tx) {
		var e enrolled
		if e, err = tx.enroll(req, by, true); err != nil {
			return
		}
		c := e.connection
		token = e.token
		sub := tx.newSubscription(c)
		if req.OptOutNotifications != nil {
			sub.optOuts = req.OptOutNotifications
		}
		tx.startTimer(sub)
		tx.announceConnection(e)
		shot = tx.pendingSnapshot()
		sub.from = tx.head() // what the answer shows is not told again
		holder, _ := tx.clients.lease.Holder()
		answer = &contracts.SubscriptionAnswer{
			ConnectionID: c.id, SubscriptionID: sub.id, OptOutNotifications: sub.optOuts, Role: c.role,
			ControllerLeaseGranted: holder == c.id, ControllerConnectionID: tx.clients.controllerID().Value,
			LeaseExpiresAt:      tx.expiry(c).Value,
			HeartbeatIntervalMS: h.opts.HeartbeatInterval.Milliseconds(),
		}
		if holding := tx.clients.holder(); holding != nil {
			answer.ControllerSubscriptionID = holding.mainSubscription().Value
		}
	})
	if err == nil {
		answer.Snapshot, err = h.encodeSnapshot(shot)
	}
	return answer, token, h.refusedOr(err)
}

// enrolled is the connection of an attaching client.
type enrolled struct {
	connection       *connection
	token            string // the secret of a new connection, else empty
	announceTakeover func() // tells those concerned that the lease was taken over; may be nil
	changed          bool   // the connection is new, has new terms or got the lease
}

// enroll finds or makes the connection of an attaching client, with the lease if
// it is to have it.
func (tx *tx) enroll(req *contracts.AttachRequest, by contracts.Caller, subscribing bool) (e enrolled, err error) {
	if err := tx.life.refuse(opAttach); err != nil {
		return e, err
	}
	c, err := tx.namedConnection(req, by)
	if err != nil {
		return e, err
	}
	if c == nil && subscribing {
		c = tx.adoptable(req, by)
	}
	terms, err := negotiate(c, req, by)
	if err == nil {
		err = checkClientTools(req, terms)
	}
	if err == nil && subscribing && c != nil && len(c.subs) >= maxSubscriptions {
		err = &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many subscriptions of one connection"}
	}
	if err != nil {
		return e, err
	}
	takeover := contracts.TakeoverRefuse
	if req.TakeControl {
		takeover = contracts.TakeoverForce
	}
	if err := tx.checkAttach(contracts.Attach{Takeover: takeover, Principal: by.Principal}, c, terms); err != nil {
		return e, err
	}
	if c == nil {
		tx.makeRoom(terms.Role)
		e.token = newToken()
		c = tx.newConnection(by.Principal, e.token, terms.Role)
	}
	if subscribing && len(c.subs) > 0 { // the opt-outs of a further subscription are its own
		terms.OptOuts = c.terms.OptOuts
	}
	e.connection, e.changed = c, !reflect.DeepEqual(terms, c.terms)
	if c.greeted && e.changed && !c.countChange(tx.now) {
		return e, errChangesOften
	}
	generation := tx.clients.lease.Generation()
	c.greeted = true
	c.renew(terms)
	tx.noteActivity(c)
	e.announceTakeover = tx.claimOnAttach(c, takeover)
	e.changed = e.changed || tx.clients.lease.Generation() != generation
	return e, nil
}

// renew sets what a request negotiated. Subscriptions keep opt-outs of their own
// unless the connection's change.
func (c *connection) renew(t handshake.Terms) {
	if !slices.Equal(t.OptOuts, c.terms.OptOuts) {
		c.apply(t)
		return
	}
	c.terms, c.role = t, t.Role
	for _, sub := range c.subs {
		sub.applyOptOuts(c)
	}
}

// introduce tells everybody of a connection that a request made or renewed.
func (tx *tx) announceConnection(e enrolled) {
	tx.noteConnection(e.connection)
	tx.showChange(e.connection.id)
	tx.reportMismatch(e.connection)
	if e.announceTakeover != nil {
		e.announceTakeover()
	}
}

// named returns the connection that the request names, nil if it names none.
func (tx *tx) namedConnection(req *contracts.AttachRequest, by contracts.Caller) (*connection, error) {
	id := req.ConnectionID
	if id == "" {
		id = by.ConnectionID
	}
	if id == "" {
		return nil, nil
	}
	return tx.ownedConnection(id, by)
}

// owned returns the caller's connection of that id. One of another principal, or
// whose secret the caller does not know, is not told from one that never was
// (A6).
func (tx *tx) ownedConnection(id string, by contracts.Caller) (*connection, error) {
	c := tx.clients.conns[id]
	switch {
	case c == nil || c.bare || c.principal.ID != by.Principal.ID:
		return nil, errNoConnection
	case !tx.tokenMatches(c.token, by.Token):
		return nil, tx.tokenRefusal(by, errNoConnection)
	}
	c.extendCredential(by.Principal)
	return c, nil
}

// unproven returns the refusal of a caller who has not proven to own the
// connection. A caller of the same principal who presents no secret may not know
// that there are any, and is told.
func (tx *tx) tokenRefusal(by contracts.Caller, refusal *contracts.Error) error {
	h := tx.Hub
	if by.Token != "" {
		return refusal
	}
	if !tx.clients.warnedTokens {
		tx.clients.warnedTokens = true
		tx.then(func() {
			h.logger.Warn("a client names its connection without the header "+contracts.HeaderConnectionToken+" and is refused; "+
				"a client that cannot present it needs --connection-tokens optional", "principal", by.Principal.ID)
		})
	}
	told := *refusal
	told.Metadata = map[string]string{"missing": contracts.HeaderConnectionToken}
	return &told
}

// ownedSubscription returns the caller's subscription of that id, as owned does a
// connection.
func (tx *tx) ownedSubscription(id string, by contracts.Caller) (*subscription, error) {
	sub := tx.clients.subs[id]
	switch {
	case sub == nil || sub.conn.principal.ID != by.Principal.ID:
		return nil, errNoSubscription
	case !tx.tokenMatches(sub.conn.token, by.Token):
		return nil, tx.tokenRefusal(by, errNoSubscription)
	}
	return sub, nil
}

// proven holds a presented secret against the hash of the right one. None is
// good enough unless Options.RequireTokens.
func (h *Hub) tokenMatches(want [sha256.Size]byte, token string) bool {
	if token == "" {
		return !h.opts.RequireTokens
	}
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// adoptable returns the lease holder if it was made by the same principal and
// nothing was ever done with it: the creation of a session leaves such a one for
// the subscription that follows (maestro-attach 1.7).
func (tx *tx) adoptable(req *contracts.AttachRequest, by contracts.Caller) *connection {
	c := tx.clients.holder()
	viewer := req.Role == contracts.RoleViewer || req.Role == "" && by.Role == contracts.RoleViewer
	if c == nil || viewer || !c.neverSubscribed || c.bare || c.principal.ID != by.Principal.ID || !tx.tokenMatches(c.token, by.Token) {
		return nil
	}
	return c
}

// negotiate makes the terms of a client that speaks HTTP. What a later request
// leaves out stays as it was.
func negotiate(c *connection, req *contracts.AttachRequest, by contracts.Caller) (handshake.Terms, error) {
	hello := req.Hello()
	if hello.Role == "" {
		hello.Role = by.Role
	}
	offer := handshake.Offer{Networked: true, Requests: true, Default: contracts.RoleController}
	if by.Principal.Role == contracts.RoleViewer {
		offer.Default = contracts.RoleViewer
	}
	if c != nil {
		offer.Established = c.role
		fillFromTerms(hello, c.terms)
	}
	terms, err := handshake.Negotiate(hello, offer)
	if errors.Is(err, &contracts.Error{Code: contracts.CodeRoleConflict}) {
		err = &contracts.Error{Code: contracts.CodeRoleConflict, Message: "Headless connection role does not match subscription role"}
	}
	return terms, err
}

// complete fills in what hello leaves out.
func fillFromTerms(hello *contracts.Hello, t handshake.Terms) {
	if hello.ProtocolVersion == "" {
		hello.ProtocolVersion = t.ProtocolVersion
	}
	if hello.ClientInfo == nil {
		hello.ClientInfo = t.ClientInfo
	}
	if hello.Capabilities == nil {
		hello.Capabilities = t.Echo()
	}
	if hello.OptOutNotifications == nil {
		hello.OptOutNotifications = t.OptOuts
	}
	if hello.ClientTools == nil && hello.Capabilities != nil && slices.Contains(hello.Capabilities.ServerRequests, contracts.RequestClientTool) {
		hello.ClientTools = t.ClientTools
	}
}

func checkClientTools(req *contracts.AttachRequest, t handshake.Terms) error {
	switch {
	case !req.EnableClientTools:
	case t.Role == contracts.RoleViewer:
		return &contracts.Error{Code: contracts.CodeBadRequest, Message: "viewer headless connections cannot enable client-side tools"}
	case !slices.Contains(t.Capabilities.ServerRequests, contracts.RequestClientTool):
		return &contracts.Error{Code: contracts.CodeBadRequest, Message: "client_tool capability is required when enableClientTools is true"}
	}
	return nil
}

// keepConnection writes a controller connection into the journal, so that its
// client finds it after a restart.
func (tx *tx) noteConnection(c *connection) {
	if c.role == contracts.RoleController {
		tx.note(note{Attach: saveConnection(c)})
	}
}

// Unsubscribe ends a subscription of the caller's. The last one takes its
// connection with it (A10).
func (h *Hub) Unsubscribe(id string, by contracts.Caller) error {
	var err error
	h.update(func(tx *tx) {
		if err = tx.life.refuse(opRequest); err != nil {
			return
		}
		var sub *subscription
		if sub, err = tx.ownedSubscription(id, by); err != nil {
			return
		}
		c := sub.conn
		tx.noteActivity(c)
		if len(c.subs) == 1 {
			tx.endConnection(c, contracts.LeaseReleased)
			return
		}
		tx.dropSubscription(sub, nil)
		tx.noteConnection(c)
		tx.showChange(c.id)
	})
	return h.refusedOr(err)
}

// endConnection destroys a connection and shows the state that leaves, once. In a
// crowd, or soon after another, the departure of one that only watched is told as
// a change (see presence).
func (tx *tx) endConnection(c *connection, why contracts.LeaseReason) {
	holder, _ := tx.clients.lease.Holder()
	few := len(tx.clients.conns) <= presenceAtOnce
	tx.destroy(c, why)
	p := &tx.clients.presence
	switch {
	case holder == c.id:
		return // the end of a lease has shown it already
	case c.role == contracts.RoleController:
	case few && tx.now.Sub(p.departureShown) >= departureEvery:
		p.departureShown = tx.now
	default:
		return
	}
	tx.publishSnapshot()
}

// Heartbeat is a sign of life of the caller's connection. It publishes nothing.
func (h *Hub) Heartbeat(by contracts.Caller) (answer *contracts.HeartbeatAnswer, err error) {
	h.update(func(tx *tx) {
		if err = tx.life.refuse(opRequest); err != nil {
			return
		}
		tx.expireLease()
		var c *connection
		if c, _, err = tx.identify(by); err != nil {
			return
		}
		tx.noteActivity(c)
		holder, _ := tx.clients.lease.Holder()
		answer = &contracts.HeartbeatAnswer{
			ConnectionID: c.id, ControllerLeaseGranted: holder == c.id,
			ControllerConnectionID: tx.clients.controllerID().Value, LeaseExpiresAt: tx.expiry(c).Value,
			HeartbeatIntervalMS: h.opts.HeartbeatInterval.Milliseconds(),
		}
	})
	return answer, h.refusedOr(err)
}

// identify finds the connection that a request speaks for: by its subscription,
// else by its own id. If both are there they must agree.
func (tx *tx) identify(by contracts.Caller) (*connection, *subscription, error) {
	sub := tx.clients.subs[by.SubscriptionID]
	if sub != nil && sub.conn.principal.ID != by.Principal.ID {
		sub = nil
	}
	named := tx.clients.conns[by.ConnectionID]
	if named != nil && named.principal.ID != by.Principal.ID {
		named = nil // of somebody else, which must look as if it were not there (A6)
	}
	if sub != nil && named == nil {
		if !tx.tokenMatches(sub.conn.token, by.Token) {
			return nil, nil, tx.tokenRefusal(by, errNoConnection)
		}
		sub.conn.extendCredential(by.Principal)
		return sub.conn, sub, nil
	}
	c, err := tx.ownedConnection(by.ConnectionID, by)
	switch {
	case err != nil:
		return nil, nil, err
	case sub != nil && sub.conn != c:
		return nil, nil, &contracts.Error{Code: contracts.CodeAccessDenied, Message: "Headless subscription does not belong to the message connection"}
	}
	return c, sub, nil
}

// Disconnect destroys the caller's connection. One that is gone already can be
// disconnected again for a while (A16).
func (h *Hub) Disconnect(by contracts.Caller) (answer *contracts.DisconnectAnswer, err error) {
	h.update(func(tx *tx) {
		if err = tx.life.refuse(opRequest); err != nil {
			return
		}
		answer = &contracts.DisconnectAnswer{Success: true, Subscriptions: []string{}}
		var c *connection
		if c, _, err = tx.identify(by); err != nil {
			if !tx.wasDisconnected(by) {
				return
			}
			err, answer.ConnectionID = nil, by.ConnectionID
		} else {
			answer.ConnectionID = c.id
			for _, sub := range c.subs {
				answer.Subscriptions = append(answer.Subscriptions, sub.id)
			}
			tx.endConnection(c, contracts.LeaseReleased)
		}
		answer.ControllerConnectionID = tx.clients.controllerID().Value
	})
	if err = h.refusedOr(err); err != nil {
		return nil, err
	}
	return answer, nil
}

// wasHere reports whether the caller's connection is a former one.
func (tx *tx) wasDisconnected(by contracts.Caller) bool {
	h := tx.Hub
	return slices.ContainsFunc(tx.clients.former, func(f former) bool {
		return f.id == by.ConnectionID && f.principal == by.Principal.ID && tx.now.Sub(f.at) <= formerTTL && h.tokenMatches(f.token, by.Token)
	})
}

// refusedOr counts a refusal and returns it, as one that a client can be shown.
func (h *Hub) refusedOr(err error) error {
	if err == nil {
		return nil
	}
	refusal := h.refusal(err)
	h.refused(refusal.Code)
	return refusal
}

// A shot is a snapshot that still has to be encoded, which is done without the
// lock.
type pendingSnapshot struct {
	snapshot *sharedSnapshot
	at       uint64 // the head
}

// shot takes the state as of the head.
func (tx *tx) pendingSnapshot() pendingSnapshot {
	if tx.log.latestSnapshot == nil || tx.log.latestSnapshot.at != tx.head() || len(tx.clients.conns) <= presenceAtOnce {
		return pendingSnapshot{&sharedSnapshot{last: &tx.snapshotSize, at: tx.head(), state: tx.snapshot()}, tx.head()}
	}
	return pendingSnapshot{tx.log.latestSnapshot, tx.log.latestSnapshot.at}
}

// develop encodes a shot once it may be shown. What a request did is not told
// before it is safe (D4).
func (h *Hub) encodeSnapshot(p pendingSnapshot) ([]byte, error) {
	if err := h.awaitVisible(p.at); err != nil {
		return nil, err
	}
	return p.snapshot.body()
}

// SnapshotBytes returns how long the snapshot was that was encoded last, or zero.
func (h *Hub) SnapshotBytes() int { return int(h.snapshotSize.Load()) }

// State returns the encoded snapshot as of now.
func (h *Hub) State() ([]byte, error) {
	var (
		shot pendingSnapshot
		err  error
	)
	h.update(func(tx *tx) {
		if err = tx.life.refuse(opRequest); err == nil {
			shot = tx.pendingSnapshot()
		}
	})
	if err != nil {
		return nil, h.refusedOr(err)
	}
	text, err := h.encodeSnapshot(shot)
	return text, h.refusedOr(err)
}

// Vet refuses a request that no session could accept, whatever its state, so that
// none need be made for it.
func Vet(req *contracts.AttachRequest, p contracts.Principal, role contracts.Role) error {
	terms, err := negotiate(nil, req, contracts.Caller{Principal: p, Role: role})
	if err == nil {
		err = checkClientTools(req, terms)
	}
	if err == nil && p.Role == contracts.RoleViewer && terms.Role == contracts.RoleController {
		err = errOnlyViews
	}
	return err
}
