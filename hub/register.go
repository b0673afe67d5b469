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

// Connections and subscriptions over HTTP. Package httpapi calls these methods.

var (
	errNoConnection   = &contracts.Error{Code: contracts.CodeStaleConnection, Message: "Headless connection not found"}
	errNoSubscription = &contracts.Error{Code: contracts.CodeStaleSubscription, Message: "Headless subscriber not found"}
)

// Connect makes a connection without a subscription, or renews the connection that
// req names. token is the secret of a new connection, otherwise empty. A refusal
// changes nothing (A24).
func (h *Hub) Connect(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.ConnectionAnswer, token string, err error) {
	var snap pendingSnapshot
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
		snap = tx.pendingSnapshot()
		holder, _ := tx.clients.lease.Holder()
		answer = &contracts.ConnectionAnswer{
			SessionID: h.opts.SessionID, ConnectionID: c.id, Role: c.role,
			ControllerLeaseGranted: holder == c.id, ControllerConnectionID: tx.clients.controllerID().Value,
			LeaseExpiresAt:      tx.expiry(c).Value,
			HeartbeatIntervalMS: h.opts.HeartbeatInterval.Milliseconds(), OptOutNotifications: c.terms.OptOuts,
		}
	})
	if err == nil {
		answer.Snapshot, err = h.encodeSnapshot(snap)
	}
	return answer, token, h.refusedOr(err)
}

// Subscribe makes a subscription: on the connection that req names, else on the
// lease holder if [tx.adoptable] allows it, else on a new connection.
func (h *Hub) Subscribe(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.SubscriptionAnswer, token string, err error) {
	var snap pendingSnapshot
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
		snap = tx.pendingSnapshot()
		sub.from = tx.head() // the stream starts after the answer's snapshot
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
		answer.Snapshot, err = h.encodeSnapshot(snap)
	}
	return answer, token, h.refusedOr(err)
}

// enrolled is the result of enroll.
type enrolled struct {
	connection       *connection
	token            string // secret of a new connection, otherwise empty
	announceTakeover func() // publishes that the lease was taken over; may be nil
	changed          bool   // the connection is new, has new terms or got the lease
}

// enroll finds or makes the connection of a client that attaches over HTTP. It
// gives it the lease if the lease is free or the request takes control.
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
	if subscribing && len(c.subs) > 0 { // further subscriptions have opt-outs of their own
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

// renew sets the terms that a request negotiated. Subscriptions keep their own
// opt-outs unless the connection's opt-outs change.
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

// announceConnection publishes a connection that a request made or renewed.
func (tx *tx) announceConnection(e enrolled) {
	tx.noteConnection(e.connection)
	tx.showChange(e.connection.id)
	tx.reportMismatch(e.connection)
	if e.announceTakeover != nil {
		e.announceTakeover()
	}
}

// namedConnection returns the connection that the request names, or nil if it names
// none.
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

// ownedConnection returns the caller's connection with the id. A connection of
// another principal, or one whose secret the caller does not present, gives the
// same error as an unknown id (A6).
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

// tokenRefusal returns the refusal of a caller that did not present the right
// secret. If a caller of the same principal presented none, the refusal names the
// missing header, because an older client may not know it.
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
	withHint := *refusal
	withHint.Metadata = map[string]string{"missing": contracts.HeaderConnectionToken}
	return &withHint
}

// ownedSubscription returns the caller's subscription with the id, under the rules
// of ownedConnection.
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

// tokenMatches compares a presented secret with the hash of the right one. An empty
// secret matches unless Options.RequireTokens is set.
func (h *Hub) tokenMatches(want [sha256.Size]byte, token string) bool {
	if token == "" {
		return !h.opts.RequireTokens
	}
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// adoptable returns the lease holder if the same principal made it and it never had
// a subscription, otherwise nil. Creating a session leaves such a connection for
// the subscription that follows.
func (tx *tx) adoptable(req *contracts.AttachRequest, by contracts.Caller) *connection {
	c := tx.clients.holder()
	viewer := req.Role == contracts.RoleViewer || req.Role == "" && by.Role == contracts.RoleViewer
	if c == nil || viewer || !c.neverSubscribed || c.bare || c.principal.ID != by.Principal.ID || !tx.tokenMatches(c.token, by.Token) {
		return nil
	}
	return c
}

// negotiate returns the terms of a client that speaks HTTP. A later request keeps
// the values that it leaves out.
func negotiate(c *connection, req *contracts.AttachRequest, by contracts.Caller) (handshake.Terms, error) {
	hello := req.Hello()
	if hello.Role == "" {
		hello.Role = by.Role
	}
	offer := handshake.Offer{Requests: true, Default: contracts.RoleController}
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

// fillFromTerms sets the values that hello leaves out.
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

// noteConnection writes a controller connection to the journal, so that its client
// can use it after a restart.
func (tx *tx) noteConnection(c *connection) {
	if c.role == contracts.RoleController {
		tx.note(note{Attach: saveConnection(c)})
	}
}

// Unsubscribe ends a subscription of the caller. The connection ends with its last
// subscription (A10).
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

// endConnection destroys a connection and publishes one snapshot. A viewer's end is
// only published as a change if there are more than presenceAtOnce connections or
// another departure was shown within departureEvery (see presence).
func (tx *tx) endConnection(c *connection, why contracts.LeaseReason) {
	holder, _ := tx.clients.lease.Holder()
	few := len(tx.clients.conns) <= presenceAtOnce
	tx.destroy(c, why)
	p := &tx.clients.presence
	switch {
	case holder == c.id:
		return // leaseMoved has published a snapshot
	case c.role == contracts.RoleController:
	case few && tx.now.Sub(p.departureShown) >= departureEvery:
		p.departureShown = tx.now
	default:
		return
	}
	tx.publishSnapshot()
}

// Heartbeat counts as activity of the caller's connection. It publishes nothing.
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

// identify finds the connection of a request: by its subscription, else by its
// connection id. If the request names both, they must belong together.
func (tx *tx) identify(by contracts.Caller) (*connection, *subscription, error) {
	sub := tx.clients.subs[by.SubscriptionID]
	if sub != nil && sub.conn.principal.ID != by.Principal.ID {
		sub = nil
	}
	named := tx.clients.conns[by.ConnectionID]
	if named != nil && named.principal.ID != by.Principal.ID {
		named = nil // treat another principal's connection as unknown (A6)
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

// Disconnect destroys the caller's connection. Disconnecting again succeeds for
// formerTTL (A16).
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

// wasDisconnected reports whether the caller's connection is a former one.
func (tx *tx) wasDisconnected(by contracts.Caller) bool {
	h := tx.Hub
	return slices.ContainsFunc(tx.clients.former, func(f former) bool {
		return f.id == by.ConnectionID && f.principal == by.Principal.ID && tx.now.Sub(f.at) <= formerTTL && h.tokenMatches(f.token, by.Token)
	})
}

// refusedOr returns nil for nil. It counts a refusal and converts it to an error
// that a client may see.
func (h *Hub) refusedOr(err error) error {
	if err == nil {
		return nil
	}
	refusal := h.refusal(err)
	h.refused(refusal.Code)
	return refusal
}

// A pendingSnapshot is a snapshot to be encoded outside the lock.
type pendingSnapshot struct {
	snapshot *sharedSnapshot
	at       uint64 // the head
}

// pendingSnapshot returns the state as of the head.
func (tx *tx) pendingSnapshot() pendingSnapshot {
	if tx.log.latestSnapshot == nil || tx.log.latestSnapshot.at != tx.head() || len(tx.clients.conns) <= presenceAtOnce {
		return pendingSnapshot{&sharedSnapshot{last: &tx.snapshotSize, at: tx.head(), state: tx.snapshot()}, tx.head()}
	}
	return pendingSnapshot{tx.log.latestSnapshot, tx.log.latestSnapshot.at}
}

// encodeSnapshot encodes a snapshot once its entries are visible: with group
// commit, an answer must not show a change that is not synced yet (D4).
func (h *Hub) encodeSnapshot(p pendingSnapshot) ([]byte, error) {
	if err := h.awaitVisible(p.at); err != nil {
		return nil, err
	}
	return p.snapshot.body()
}

// SnapshotBytes returns the size of the last encoded snapshot in bytes, or zero.
func (h *Hub) SnapshotBytes() int { return int(h.snapshotSize.Load()) }

// State returns the current snapshot, encoded.
func (h *Hub) State() ([]byte, error) {
	var (
		snap pendingSnapshot
		err  error
	)
	h.update(func(tx *tx) {
		if err = tx.life.refuse(opRequest); err == nil {
			snap = tx.pendingSnapshot()
		}
	})
	if err != nil {
		return nil, h.refusedOr(err)
	}
	text, err := h.encodeSnapshot(snap)
	return text, h.refusedOr(err)
}

// Vet refuses a request that every session would refuse, so that no session is made
// for it.
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
