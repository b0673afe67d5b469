package double

import (
	"cmp"
	"encoding/json"

	"github.com/seed-028515a8/maestro/contracts"
)

// message takes one message, as the headers say whose.
func (c *call) message() reply {
	r, e := c.room()
	if e == nil {
		e = r.accepting("hosted runner is draining")
	}
	var k *client
	if e == nil {
		k, e = c.sender(r)
	}
	if e == nil {
		e = c.proven(k)
	}
	if e != nil {
		return c.s.no(e)
	}
	return c.once("messages "+k.id, func() reply { return c.take(r, k) })
}

// sender is the connection that the headers name.
func (c *call) sender(r *room) (*client, *contracts.Error) {
	conn, sub, e := c.ids()
	if e != nil {
		return nil, e
	}
	k := r.find(conn)
	if conn == "" && sub == "" && r.holder != nil && c.s.has(AnonymousMayPost) {
		return r.holder, nil
	}
	if sub == "" {
		if k == nil {
			return nil, staleConnection()
		}
		return k, nil
	}
	s := r.findSub(sub)
	switch {
	case s == nil:
		return nil, staleSubscription()
	case conn != "" && k == nil:
		return nil, staleConnection()
	case k != nil && k != s.client:
		return nil, refuse(contracts.CodeAccessDenied, "", "Headless subscription does not belong to the message connection")
	}
	return s.client, nil
}

// take checks role and lease before it looks at the message.
func (c *call) take(r *room, k *client) reply {
	role, e := c.named("headless-role")
	if e != nil {
		return c.s.no(e)
	}
	viewer := k.role == contracts.RoleViewer || role == "viewer" && !c.s.has(IgnoresRoleHeader)
	if c.s.has(RoleByHeader) {
		viewer = role == "viewer"
	}
	kind := typeOf(c.body)
	if viewer && !(kind == "prompt" && c.s.has(ViewerMayPrompt)) {
		return c.s.no(refuse(contracts.CodeAccessDenied, contracts.ErrorProtocol, "Viewer headless connections cannot send messages"))
	}
	if !viewer && kind != "hello" && r.holder != nil && r.holder != k && !c.s.has(LoserKeepsDriving) {
		return c.s.no(r.held(textHeldNow))
	}
	cmd, e := c.s.decode(c.body)
	if e != nil {
		return c.s.no(e)
	}
	before, stale := r.head, r.snapshot(r.head)
	if c.s.has(RoleByHeader) && k.role == contracts.RoleViewer {
		e = k.do(cmd)
	} else {
		e = k.admit(cmd)
	}
	if e != nil {
		return c.s.no(e)
	}
	k.touch()
	r.sweep()
	if c.s.has(TerseAnswers) {
		return ok(map[string]bool{"success": true})
	}
	body := map[string]any{"ok": true, "success": true, "accepted": true, "cursor": r.head, "execution": "runtime_handled",
		"published_messages": r.head - before, "message": "handled", "snapshot": json.RawMessage(r.snapshot(r.head))}
	if kind == "hello" {
		body["execution"] = "transport_only"
	}
	if c.s.has(StaleAnswers) {
		body["snapshot"] = json.RawMessage(stale)
	}
	return ok(body)
}

// A target is what heartbeat, unsubscribe and disconnect are about.
type target struct {
	ConnectionID   string `json:"connectionId"`
	SubscriptionID string `json:"subscriptionId"`
}

// about reads the body of a call about a connection or a subscription, for
// which headers are the fallback.
func (c *call) about() (conn, sub string, e *contracts.Error) {
	var b target
	if len(c.body) > 0 {
		if e = c.object(&b); e != nil {
			return "", "", e
		}
	}
	if conn, sub, e = c.ids(); e != nil {
		return "", "", e
	}
	if b.ConnectionID != "" || b.SubscriptionID != "" {
		return b.ConnectionID, b.SubscriptionID, nil
	}
	return conn, sub, nil
}

// concerned finds the connection that a call is about: that of the
// subscription, or else the one named. Both must agree if both exist.
func (c *call) concerned(r *room, conn, sub string) (*client, *contracts.Error) {
	k, s := r.find(conn), r.findSub(sub)
	switch {
	case s != nil && k != nil && s.client != k:
		return nil, refuse(contracts.CodeAccessDenied, "", "Headless subscription does not belong to the connection")
	case s != nil:
		k = s.client
	case k == nil:
		return nil, staleConnection()
	}
	return k, c.proven(k)
}

// heartbeat is a sign of life of a connection.
func (c *call) heartbeat() reply {
	r, e := c.room()
	var conn, sub string
	if e == nil {
		conn, sub, e = c.about()
	}
	var k *client
	if e == nil {
		k, e = c.concerned(r, conn, sub)
	}
	if e != nil {
		return c.s.no(e)
	}
	if !c.s.has(DeafToHeartbeats) {
		k.touch()
	}
	r.sweep()
	return ok(k.standing())
}

// unsubscribe removes a subscription, and the connection with its last one.
func (c *call) unsubscribe() reply {
	var b target
	r, e := c.room()
	if e == nil {
		e = c.object(&b)
	}
	if e == nil && b.SubscriptionID == "" {
		e = badBody("/subscriptionId Required property")
	}
	var conn string
	if e == nil {
		conn, _, e = c.ids()
	}
	if e != nil {
		return c.s.no(e)
	}
	s := r.findSub(b.SubscriptionID)
	if s == nil {
		return c.s.no(staleSubscription())
	}
	k := s.client
	if conn := cmp.Or(b.ConnectionID, conn); conn != "" && conn != k.id {
		return c.s.no(refuse(contracts.CodeAccessDenied, "", "Headless subscription does not belong to the connection"))
	}
	if e := c.proven(k); e != nil {
		return c.s.no(e)
	}
	r.drop(s)
	if len(k.subs) == 0 {
		r.leave(k)
	}
	r.sweep()
	return ok(map[string]bool{"success": true})
}

// disconnect removes a connection with everything it has.
func (c *call) disconnect() reply {
	r, e := c.room()
	var conn, sub string
	if e == nil {
		conn, sub, e = c.about()
	}
	var k *client
	if e == nil {
		k, e = c.concerned(r, conn, sub)
	}
	gone := cmp.Or(lookup(r, conn), lookup(r, sub))
	switch {
	case k == nil && gone != "" && !c.s.has(ForgetsGone):
		return r.farewell(gone, []string{})
	case e != nil:
		return c.s.no(e)
	}
	ids := []string{}
	for _, s := range k.subs {
		ids = append(ids, s.id)
	}
	held := r.holder == k
	r.leave(k)
	if held && c.s.has(KeepsLease) {
		r.holder = k
	}
	r.sweep()
	return r.farewell(k.id, ids)
}

// farewell answers a disconnect.
func (r *room) farewell(id string, subs []string) reply {
	body := map[string]any{"success": true, "connection_id": id, "controller_connection_id": r.holderID(), "disconnected_subscription_ids": subs}
	if r.s.has(TalkativeDisconnect) {
		body["disconnected"] = true
	}
	return ok(body)
}

// lookup returns the connection that an id, now gone, belonged to.
func lookup(r *room, id string) string {
	if r == nil {
		return ""
	}
	return r.gone[id]
}
