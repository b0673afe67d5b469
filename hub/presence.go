package hub

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Presence is told at once while few are attached. Beyond that it is told at
// intervals: every join would otherwise be sent to everybody, and the cost of a
// thousand joins would be a million messages.
const (
	presenceAtOnce = 8
	presenceEvery  = 250 * time.Millisecond
)

// presence publishes connection_info about a connection, now or soon.
func (h *Hub) presence(s *state, about string) {
	s.presenceAbout = about
	if len(s.conns) <= presenceAtOnce || s.now.Sub(s.presenceShown) >= presenceEvery {
		h.showPresence(s)
		return
	}
	if s.presenceDue.IsZero() {
		s.presenceDue = s.presenceShown.Add(presenceEvery)
	}
}

// presenceSoon publishes it with other news: of those that follow a stream and
// nothing else, nobody needs to know at once.
func (h *Hub) presenceSoon(s *state, about string) {
	s.presenceAbout = about
	if s.presenceDue.IsZero() {
		s.presenceDue = s.now.Add(presenceEvery)
	}
}

func (h *Hub) showPresence(s *state) {
	s.presenceDue, s.presenceShown = time.Time{}, s.now
	h.publish(s, h.connectionInfo(s, s.presenceAbout))
}

// connectionInfo is the connection graph, told on the occasion of one of them.
func (h *Hub) connectionInfo(s *state, about string) *contracts.ConnectionInfo {
	count := int64(len(s.conns))
	info := &contracts.ConnectionInfo{
		ConnectionID:           about,
		ConnectionCount:        &count,
		ControllerConnectionID: h.controllerID(s),
		LeaseExpiresAt:         contracts.Null(),
		Connections:            h.connectionStates(s),
	}
	if c := s.conns[about]; c != nil {
		st := h.connectionState(s, c)
		info.ClientProtocolVersion, info.ClientInfo = st.ClientProtocolVersion, st.ClientInfo
		info.Capabilities, info.OptOutNotifications = st.Capabilities, st.OptOutNotifications
		info.Role, info.LeaseExpiresAt = st.Role, st.LeaseExpiresAt
	}
	return info
}

// connectionStates lists at most MaxListed connections: the holder, then
// controllers, then viewers, by id. The count is always exact.
func (h *Hub) connectionStates(s *state) []contracts.ConnectionState {
	holder, _ := s.lease.Holder()
	rank := func(c *connection) int {
		switch {
		case c.id == holder:
			return 0
		case c.role == contracts.RoleController:
			return 1
		}
		return 2
	}
	conns := make([]*connection, 0, min(len(s.conns), contracts.MaxListed))
	viewers := 0
	for _, c := range s.conns {
		if rank(c) == 2 {
			if viewers == contracts.MaxListed {
				continue // a crowd: any viewers will do
			}
			viewers++
		}
		conns = append(conns, c)
	}
	slices.SortFunc(conns, func(a, b *connection) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.id, b.id))
	})
	conns = conns[:min(len(conns), contracts.MaxListed)]
	list := make([]contracts.ConnectionState, len(conns))
	for i, c := range conns {
		list[i] = h.connectionState(s, c)
	}
	return list
}

func (h *Hub) connectionState(s *state, c *connection) contracts.ConnectionState {
	holder, _ := s.lease.Holder()
	st := contracts.ConnectionState{
		ConnectionID:           c.id,
		Role:                   cmp.Or(c.role, contracts.RoleController),
		ClientProtocolVersion:  c.terms.ProtocolVersion,
		ClientInfo:             c.terms.ClientInfo,
		Capabilities:           c.terms.Echo(),
		OptOutNotifications:    c.terms.OptOuts,
		SubscriptionCount:      int64(len(c.subs)),
		ControllerLeaseGranted: c.id == holder,
		LeaseExpiresAt:         h.expiry(s, c),
	}
	for _, sub := range c.subs {
		if sub.box != nil {
			st.AttachedSubscriptionCount++
		}
	}
	return st
}

// expiry is when the connection's liveness runs out: never on stdio.
func (h *Hub) expiry(s *state, c *connection) contracts.NullString {
	if c.bare {
		return contracts.Null()
	}
	seen := c.lastSeen()
	if c.role == contracts.RoleViewer && c.streams() && s.now.After(seen) {
		seen = s.now // an open stream keeps a viewer, which cannot say anything on it
	}
	return contracts.String(stamp(seen.Add(h.opts.LeaseTTL)))
}

func (h *Hub) controllerID(s *state) contracts.NullString {
	if id, ok := s.lease.Holder(); ok {
		return contracts.String(id)
	}
	return contracts.Null()
}

// snapshot is the state as of the head. What a fold over entries cannot know,
// who is connected now, comes from the connections themselves.
func (h *Hub) snapshot(s *state) *contracts.Snapshot {
	snap := s.events.Snapshot(h.head(s))
	snap.ProtocolVersion, snap.SessionID = contracts.ProtocolVersion, h.opts.SessionID
	st := &snap.State
	st.Connections = h.connectionStates(s)
	st.ConnectionCount = int64(len(s.conns))
	st.SubscriberCount = int64(len(s.subs))
	st.ControllerConnectionID = h.controllerID(s)
	st.ControllerSubscriptionID = contracts.Null()
	st.ClientProtocolVersion, st.ClientInfo, st.Capabilities, st.OptOutNotifications, st.ConnectionRole = "", nil, nil, nil, ""
	if s.standing != nil {
		s.standing.show(st)
	}
	if c := h.preferred(s); c != nil {
		mine := h.connectionState(s, c)
		st.ClientProtocolVersion, st.ClientInfo = mine.ClientProtocolVersion, mine.ClientInfo
		st.Capabilities, st.OptOutNotifications, st.ConnectionRole = mine.Capabilities, mine.OptOutNotifications, mine.Role
		if mine.ControllerLeaseGranted {
			st.ControllerSubscriptionID = c.mainSubscription()
		}
	}
	return snap
}

// preferred is the connection that the single-client fields describe: the
// holder, else the one heard from last.
func (h *Hub) preferred(s *state) *connection {
	if c := s.holder(); c != nil {
		return c
	}
	var last *connection
	var seen time.Time
	for _, c := range s.conns {
		at := c.lastSeen()
		if last == nil || at.After(seen) || at.Equal(seen) && c.id < last.id { // the same one for all who look
			last, seen = c, at
		}
	}
	return last
}

// mainSubscription is the one that stands for the connection: the first that is
// attached, else the first (maestro-attach 4.2).
func (c *connection) mainSubscription() contracts.NullString {
	for _, sub := range c.subs {
		if sub.box != nil {
			return contracts.String(sub.id)
		}
	}
	if len(c.subs) > 0 {
		return contracts.String(c.subs[0].id)
	}
	return contracts.Null()
}
