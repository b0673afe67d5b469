package hub

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/session"
)

// Up to presenceAtOnce connections, a change of presence is published at once, with
// the list of connections. Above it, changes are published every presenceEvery and
// without the list. Otherwise every join would send the whole list to every client:
// a thousand joins would cost a million lists.
const (
	presenceAtOnce = 8
	presenceEvery  = 250 * time.Millisecond

	// Limits of the bytes that all changes of presence send to each client, so that a
	// few clients that reconnect often cannot flood the others.
	presenceRate  = 64 << 10 // bytes a second
	presenceBurst = 256 << 10

	// departureEvery is how often the departure of a viewer publishes a snapshot.
	departureEvery = time.Second
)

// A presence records which connections clients have been shown, and which changes
// they have not been shown yet.
type presence struct {
	listed []*connection // connections named in lists, in no order; at most contracts.MaxListed

	shown          time.Time // when connection_info was last published
	due            time.Time // when it is published next; zero: nothing to publish
	departureShown time.Time // when the departure of a viewer last published a snapshot
	budget         *rate.Limiter
	about          string   // id of the connection that changed last
	changed        []string // ids of listed connections that changed; at most presenceAtOnce
	relist         bool     // more changed than fit into changed: publish the list
	generation     uint64   // of the last published lease
	holder         string   // of the last published lease
}

// addConnection adds a connection. If the list is full, a controller replaces a
// listed viewer.
func (cl *clients) addConnection(c *connection) {
	cl.conns[c.id] = c
	if len(cl.presence.listed) < contracts.MaxListed {
		cl.presence.listed = append(cl.presence.listed, c)
		return
	}
	if c.role != contracts.RoleController {
		return
	}
	viewer := slices.IndexFunc(cl.presence.listed, func(c *connection) bool { return c.role != contracts.RoleController })
	if viewer >= 0 {
		cl.presence.listed[viewer] = c
		cl.presence.relist = true
	}
}

// removeConnection removes a connection. An unlisted connection, if there is one,
// takes its place in the list.
func (cl *clients) removeConnection(c *connection) {
	delete(cl.conns, c.id)
	i := slices.Index(cl.presence.listed, c)
	if i < 0 {
		return
	}
	cl.presence.listed = slices.Delete(cl.presence.listed, i, i+1)
	cl.presence.addChange(c.id)
	if len(cl.conns) <= len(cl.presence.listed) {
		return
	}
	for _, other := range cl.conns {
		if !slices.Contains(cl.presence.listed, other) {
			cl.presence.listed = append(cl.presence.listed, other)
			cl.presence.relist = true
			return
		}
	}
}

func (p *presence) addChange(id string) {
	switch {
	case slices.Contains(p.changed, id):
	case len(p.changed) < presenceAtOnce:
		p.changed = append(p.changed, id)
	default:
		p.relist = true
	}
}

// budgetWait returns how long the next connection_info must wait for the budget.
func (p *presence) budgetWait(now time.Time) time.Duration {
	missing := -p.budget.TokensAt(now)
	return time.Duration(max(0, missing) * float64(time.Second) / presenceRate)
}

// showChange publishes connection_info about a connection: at once if there are few
// connections or the lease has moved, otherwise later. It is never urgent for a
// connection made by a stream.
func (tx *tx) showChange(c *connection) {
	p := &tx.clients.presence
	p.about = c.id
	if slices.Contains(p.listed, c) {
		p.addChange(c.id)
	}
	if p.due.IsZero() {
		p.due = tx.now.Add(max(presenceEvery, p.budgetWait(tx.now)))
	}
	calm := len(tx.clients.conns) <= presenceAtOnce || tx.now.Sub(p.shown) >= presenceEvery
	byStream := len(c.subs) > 0 && c.subs[0].implicit
	if !byStream && (calm && p.budgetWait(tx.now) == 0 || tx.clients.leaseUnshown()) {
		tx.showPresence()
	}
}

// leaseUnshown reports whether the lease has moved since connection_info was last
// published.
func (cl *clients) leaseUnshown() bool {
	holder, _ := cl.lease.Holder()
	return cl.lease.Generation() != cl.presence.generation || holder != cl.presence.holder
}

// showPresence publishes connection_info. It is transient unless the lease has
// moved: presence is not part of the session's history.
func (tx *tx) showPresence() {
	p := &tx.clients.presence
	infos := []*contracts.ConnectionInfo{}
	list := len(tx.clients.conns) <= presenceAtOnce || p.relist
	if !list {
		for _, id := range p.changed {
			infos = append(infos, tx.connectionInfo(id, false))
		}
	}
	if len(infos) == 0 {
		infos = append(infos, tx.connectionInfo(p.about, list))
	}
	transient := !tx.clients.leaseUnshown()
	p.due, p.shown, p.changed, p.relist = time.Time{}, tx.now, nil, false
	p.generation = tx.clients.lease.Generation()
	p.holder, _ = tx.clients.lease.Holder()
	for _, info := range infos {
		e := encode(nil, info)
		e.transient = transient
		p.budget.ReserveN(tx.now, min(len(e.Body), presenceBurst))
		tx.publishEncoded(e)
	}
}

// connectionInfo returns connection_info about a connection, with the list of
// connections if list is set. The connection has no role if it is gone, and without the
// list no details if it is not listed.
func (tx *tx) connectionInfo(about string, list bool) *contracts.ConnectionInfo {
	cl := &tx.clients
	info := &contracts.ConnectionInfo{ConnectionID: about, ConnectionCount: new(int64(len(cl.conns))), ControllerConnectionID: cl.controllerID()}
	c := cl.conns[about]
	if list {
		info.Connections, info.LeaseExpiresAt = tx.connectionStates(), contracts.Null()
	}
	if c == nil {
		return info
	}
	info.Role, info.MayAnswer = c.role.Shown(), c.role == contracts.RoleApprover
	if list {
		info.Role, info.LeaseExpiresAt = cmp.Or(info.Role, contracts.RoleController), tx.expiry(c)
	}
	if list || slices.Contains(cl.presence.listed, c) {
		info.ClientProtocolVersion, info.ClientInfo = c.terms.ProtocolVersion, c.terms.ClientInfo
		info.Capabilities, info.OptOutNotifications = c.terms.Shown(), c.terms.OptOuts
	}
	return info
}

func (tx *tx) connectionStates() []contracts.ConnectionState {
	list := []contracts.ConnectionState{}
	for _, c := range tx.clients.presence.listed {
		list = append(list, tx.connectionState(c))
	}
	session.SortConnections(list)
	return list
}

// sendConnectionList sends a client the list of connections after it has caught up
// from the store, which keeps no presence: it may have missed changes.
func (h *Hub) sendConnectionList(b *mailbox) {
	h.update(func(tx *tx) {
		if c := b.sub.conn; tx.clients.conns[c.id] == c && !tx.life.frozen && journal.Class(b.skip.Load())&classConnectionInfo == 0 {
			b.listedAt = tx.note(note{})
			tx.pushEvent(b, b.listedAt, tx.connectionInfo(c.id, true))
		}
	})
}

func (tx *tx) connectionState(c *connection) contracts.ConnectionState {
	holder, _ := tx.clients.lease.Holder()
	st := contracts.ConnectionState{
		ConnectionID:           c.id,
		Role:                   cmp.Or(c.role.Shown(), contracts.RoleController),
		MayAnswer:              c.role == contracts.RoleApprover,
		ClientProtocolVersion:  c.terms.ProtocolVersion,
		ClientInfo:             c.terms.ClientInfo,
		Capabilities:           c.terms.Shown(),
		OptOutNotifications:    c.terms.OptOuts,
		SubscriptionCount:      int64(len(c.subs)),
		ControllerLeaseGranted: c.id == holder,
		LeaseExpiresAt:         tx.expiry(c),
	}
	for _, sub := range c.subs {
		if sub.box != nil {
			st.AttachedSubscriptionCount++
		}
	}
	return st
}

// Connections says who is connected.
func (h *Hub) Connections(by contracts.Caller) (list *contracts.ConnectionList, err error) {
	err = h.request(opRequest, func(tx *tx) error {
		if !tx.credentialValid(by.Principal) {
			return ErrExpired
		}
		tx.expireLease()
		cl := &tx.clients
		listed := slices.SortedFunc(slices.Values(cl.presence.listed), func(a, b *connection) int {
			return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.id, b.id))
		})
		list = &contracts.ConnectionList{Connections: []contracts.ConnectionEntry{}, Count: int64(len(cl.conns))}
		for _, c := range listed {
			list.Connections = append(list.Connections, contracts.ConnectionEntry{
				Author: *c.author(), Role: cmp.Or(c.role, contracts.RoleController), Since: timestamp(c.since),
				Attached: c.attached(), Controller: cl.holder() == c,
			})
		}
		return nil
	})
	return list, err
}

// Offer returns the commands and the mode of the agent. The offer is empty if the agent
// offers nothing.
func (h *Hub) Offer(by contracts.Caller) (*contracts.AgentOffer, error) {
	err := h.request(opRequest, func(tx *tx) error {
		if !tx.credentialValid(by.Principal) {
			return ErrExpired
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	offer := contracts.AgentOffer{Commands: []contracts.AgentCommand{}}
	if agent, ok := h.opts.Agent.(contracts.Offering); ok { // outside of the transaction: the agent has locks of its own
		offer = agent.Offer()
	}
	return &offer, nil
}

// expiry returns when the connection expires if its client stays silent; null for
// the local client, which never does.
func (tx *tx) expiry(c *connection) contracts.NullString {
	if c.bare {
		return contracts.Null()
	}
	seen := c.lastSeen()
	if c.role != contracts.RoleController && c.onStreamOnly() && tx.now.After(seen) {
		seen = tx.now // nobody can send on a stream, so the open stream of a client without the lease counts as activity
	}
	return contracts.String(timestamp(seen.Add(tx.opts.LeaseTTL)))
}

func (cl *clients) controllerID() contracts.NullString {
	if id, ok := cl.lease.Holder(); ok {
		return contracts.String(id)
	}
	return contracts.Null()
}
