package hub

import (
	"cmp"
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

// request runs f as the transaction of an HTTP request and returns its refusal.
func (h *Hub) request(op operation, f func(*tx) error) error {
	err := error(errFailed) // if f panics
	h.update(func(tx *tx) {
		if refusal := tx.life.refuse(op); refusal != nil {
			err = refusal
		} else {
			err = f(tx)
		}
	})
	return h.refusedOr(err)
}

// requestState is request. If f succeeds, it returns the encoded state as of its end,
// with people if f returns true.
func (h *Hub) requestState(op operation, f func(*tx) (people bool, err error)) ([]byte, error) {
	var snap *sharedSnapshot
	people := false
	err := h.request(op, func(tx *tx) (err error) {
		if people, err = f(tx); err == nil {
			snap = tx.pendingSnapshot()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	text, err := h.encodeSnapshot(snap, people)
	return text, h.refusedOr(err)
}

// Connect makes a connection without a subscription, or renews the connection that
// req names. token is the secret of a new connection, otherwise empty. A refusal
// changes nothing (A24).
func (h *Hub) Connect(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.ConnectionAnswer, token string, err error) {
	a, token, err := h.enter(req, by, false)
	return &contracts.ConnectionAnswer{
		SessionID: h.opts.SessionID, ConnectionID: a.ConnectionID, Role: a.Role, OptOutNotifications: a.OptOutNotifications,
		ControllerLeaseGranted: a.ControllerLeaseGranted, ControllerConnectionID: a.ControllerConnectionID,
		LeaseExpiresAt: a.LeaseExpiresAt, HeartbeatIntervalMS: a.HeartbeatIntervalMS, Snapshot: a.Snapshot,
	}, token, err
}

// Subscribe makes a subscription: on the connection that req names, else on the
// lease holder if [tx.adoptable] allows it, else on a new connection.
func (h *Hub) Subscribe(req *contracts.AttachRequest, by contracts.Caller) (answer *contracts.SubscriptionAnswer, token string, err error) {
	return h.enter(req, by, true)
}

// enter is Subscribe, or Connect, whose answer has no subscription.
func (h *Hub) enter(req *contracts.AttachRequest, by contracts.Caller, subscribing bool) (*contracts.SubscriptionAnswer, string, error) {
	var e enrolled
	answer := &contracts.SubscriptionAnswer{}
	state, err := h.requestState(opAttach, func(tx *tx) (people bool, err error) {
		if e, err = tx.enroll(req, by, subscribing); err != nil {
			return false, err
		}
		c := e.connection
		answer.OptOutNotifications = c.terms.OptOuts
		if subscribing {
			sub := tx.newSubscription(c)
			if req.OptOutNotifications != nil {
				sub.optOuts = req.OptOutNotifications
			}
			tx.startTimer(sub)
			tx.announceConnection(e)
			sub.from = tx.head() // the stream starts after the answer's snapshot
			answer.SubscriptionID, answer.OptOutNotifications = sub.id, sub.optOuts
		} else {
			if len(c.subs) == 0 {
				tx.startIdleTimer(c)
			}
			if e.changed {
				tx.announceConnection(e)
			}
		}
		answer.ConnectionID, answer.Role = c.id, c.role
		answer.ControllerLeaseGranted, answer.ControllerConnectionID = tx.clients.holder() == c, tx.clients.controllerID().Value
		answer.LeaseExpiresAt, answer.HeartbeatIntervalMS = tx.expiry(c).Value, tx.opts.HeartbeatInterval.Milliseconds()
		if holder := tx.clients.holder(); holder != nil {
			answer.ControllerSubscriptionID = holder.mainSubscription().Value
		}
		return c.terms.People(), nil
	})
	answer.Snapshot = state
	return answer, e.token, err
}

// enrolled is the result of enroll.
type enrolled struct {
	connection *connection
	token      string      // secret of a new connection, otherwise empty
	loser      *connection // it lost the lease to the connection; may be nil
	changed    bool        // the connection is new, has new terms or got the lease
}

// enroll finds or makes the connection of a client that attaches over HTTP. It
// gives it the lease if the lease is free or the request takes control.
func (tx *tx) enroll(req *contracts.AttachRequest, by contracts.Caller, subscribing bool) (e enrolled, err error) {
	var c *connection
	if id := cmp.Or(req.ConnectionID, by.ConnectionID); id != "" {
		c = tx.clients.conns[id]
		if err := tx.checkOwner(c, by, errNoConnection); err != nil {
			return e, err
		}
	} else if subscribing {
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
	c.apply(terms, slices.Equal(terms.OptOuts, c.terms.OptOuts))
	tx.noteActivity(c)
	e.loser = tx.claimOnAttach(c, takeover)
	e.changed = e.changed || tx.clients.lease.Generation() != generation
	return e, nil
}

// announceConnection publishes a connection that a request made or renewed.
func (tx *tx) announceConnection(e enrolled) {
	tx.noteConnection(e.connection)
	tx.showChange(e.connection)
	tx.reportMismatch(e.connection)
	tx.announceTakeover(e.loser, e.connection)
}

// checkOwner refuses a caller that may not use c: an unknown connection, one of
// another principal, and one whose secret the caller does not present give the same
// error (A6).
func (tx *tx) checkOwner(c *connection, by contracts.Caller, unknown *contracts.Error) error {
	switch {
	case c == nil || c.bare || c.principal.ID != by.Principal.ID:
		return unknown
	case !tx.tokenMatches(c.token, by.Token):
		return tx.tokenRefusal(by, unknown)
	}
	c.extendCredential(by.Principal)
	return nil
}

// tokenRefusal returns the refusal of a caller that did not present the right
// secret. If a caller of the same principal presented none, the refusal names the
// missing header, because an older client may not know it.
func (tx *tx) tokenRefusal(by contracts.Caller, refusal *contracts.Error) error {
	if by.Token != "" {
		return refusal
	}
	if !tx.clients.warnedTokens {
		tx.clients.warnedTokens = true
		tx.then(func(h *Hub) {
			h.logger.Warn("a client names its connection without the header "+contracts.HeaderConnectionToken+" and is refused; "+
				"a client that cannot present it needs --connection-tokens optional", "principal", by.Principal.ID)
		})
	}
	withHint := *refusal
	withHint.Metadata = map[string]string{"missing": contracts.HeaderConnectionToken}
	return &withHint
}

func (tx *tx) ownedSubscription(id string, by contracts.Caller) (*subscription, error) {
	sub := tx.clients.subs[id]
	if sub == nil {
		return nil, errNoSubscription
	}
	return sub, tx.checkOwner(sub.conn, by, errNoSubscription)
}

// tokenMatches compares a presented secret with the hash of the right one. An empty
// secret matches unless Options.RequireTokens is set.
func (h *Hub) tokenMatches(want tokenHash, token string) bool {
	if token == "" {
		return !h.opts.RequireTokens
	}
	return want.matches(token)
}

// adoptable returns the lease holder if the same principal made it and it never had
// a subscription, otherwise nil. Creating a session leaves such a connection for
// the subscription that follows.
func (tx *tx) adoptable(req *contracts.AttachRequest, by contracts.Caller) *connection {
	c := tx.clients.holder()
	role := cmp.Or(req.Role, by.Role, contracts.RoleController)
	if c == nil || role != contracts.RoleController || !c.neverSubscribed || c.bare || c.principal.ID != by.Principal.ID || !tx.tokenMatches(c.token, by.Token) {
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
	offer := handshake.Offer{Requests: true, Default: cmp.Or(by.Principal.Role, contracts.RoleController)}
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
	if hello.DisplayName == "" {
		hello.DisplayName = t.DisplayName
	}
	if hello.ClientTools == nil && hello.Capabilities != nil && slices.Contains(hello.Capabilities.ServerRequests, contracts.RequestClientTool) {
		hello.ClientTools = t.ClientTools
	}
}

func checkClientTools(req *contracts.AttachRequest, t handshake.Terms) error {
	switch {
	case !req.EnableClientTools:
	case t.Role != contracts.RoleController:
		return &contracts.Error{Code: contracts.CodeBadRequest, Message: string(t.Role) + " headless connections cannot enable client-side tools"}
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
	return h.request(opRequest, func(tx *tx) error {
		sub, err := tx.ownedSubscription(id, by)
		if err != nil {
			return err
		}
		c := sub.conn
		tx.noteActivity(c)
		if len(c.subs) == 1 {
			tx.endConnection(c, contracts.LeaseReleased)
			return nil
		}
		tx.dropSubscription(sub, nil)
		tx.noteConnection(c)
		tx.showChange(c)
		return nil
	})
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
	err = h.request(opRequest, func(tx *tx) error {
		tx.expireLease()
		c, err := tx.identify(by)
		if err != nil {
			return err
		}
		tx.noteActivity(c)
		answer = &contracts.HeartbeatAnswer{
			ConnectionID: c.id, ControllerLeaseGranted: tx.clients.holder() == c,
			ControllerConnectionID: tx.clients.controllerID().Value, LeaseExpiresAt: tx.expiry(c).Value,
			HeartbeatIntervalMS: tx.opts.HeartbeatInterval.Milliseconds(),
		}
		return nil
	})
	return answer, err
}

// identify finds the connection of a request: by its connection id, else by its
// subscription. If the request names both, they must belong together. It treats those
// of another principal as unknown (A6).
func (tx *tx) identify(by contracts.Caller) (*connection, error) {
	c, sub := tx.clients.conns[by.ConnectionID], tx.clients.subs[by.SubscriptionID]
	if sub != nil && sub.conn.principal.ID != by.Principal.ID {
		sub = nil
	}
	if sub != nil && (c == nil || c.principal.ID != by.Principal.ID) {
		c = sub.conn
	}
	if err := tx.checkOwner(c, by, errNoConnection); err != nil {
		return nil, err
	}
	if sub != nil && sub.conn != c {
		return nil, &contracts.Error{Code: contracts.CodeAccessDenied, Message: "Headless subscription does not belong to the message connection"}
	}
	return c, nil
}

// Disconnect destroys the caller's connection. Disconnecting again succeeds for
// formerTTL (A16).
func (h *Hub) Disconnect(by contracts.Caller) (*contracts.DisconnectAnswer, error) {
	answer := &contracts.DisconnectAnswer{Success: true, Subscriptions: []string{}}
	err := h.request(opRequest, func(tx *tx) error {
		c, err := tx.identify(by)
		switch {
		case err == nil:
			answer.ConnectionID = c.id
			for _, sub := range c.subs {
				answer.Subscriptions = append(answer.Subscriptions, sub.id)
			}
			tx.endConnection(c, contracts.LeaseReleased)
		case tx.wasDisconnected(by):
			answer.ConnectionID = by.ConnectionID
		default:
			return err
		}
		answer.ControllerConnectionID = tx.clients.controllerID().Value
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (tx *tx) wasDisconnected(by contracts.Caller) bool {
	return slices.ContainsFunc(tx.clients.former, func(f former) bool {
		return f.id == by.ConnectionID && f.principal == by.Principal.ID && tx.now.Sub(f.at) <= formerTTL && tx.tokenMatches(f.token, by.Token)
	})
}

// Vet refuses a request that every session would refuse, so that no session is made
// for it.
func Vet(req *contracts.AttachRequest, p contracts.Principal, role contracts.Role) error {
	terms, err := negotiate(nil, req, contracts.Caller{Principal: p, Role: role})
	if err == nil {
		err = checkClientTools(req, terms)
	}
	if err == nil {
		err = p.CheckRole(terms.Role)
	}
	return err
}
