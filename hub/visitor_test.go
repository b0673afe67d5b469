package hub_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/contracts"
)

// A visitor is a client over HTTP in a world: what it knows of its connection,
// and the streams that it reads.
type visitor struct {
	by      contracts.Caller
	places  map[string]*place    // by subscription
	streams map[string]*follower // that are open, by subscription; of its own, by connection
	keys    int                  // idempotency keys used
}

func newVisitor(principal string) *visitor {
	g := &visitor{by: contracts.Caller{Principal: contracts.Principal{ID: principal}}, streams: map[string]*follower{}}
	g.forget()
	return g
}

// forget makes the visitor a stranger. Streams of its own go on.
func (g *visitor) forget() {
	g.by.ConnectionID, g.by.Token = "", ""
	g.places = map[string]*place{}
}

// visit does a deed of a guest and holds how it ended against the model.
func (w *world) visit(d deed, g *visitor) error {
	gone := w.conns[g.by.ConnectionID] == nil
	if d.Whom > 0 && (gone && d.Do != "connect" || d.Do == "stream" && len(g.places) == 0) {
		d.Do = "subscribe" // most of what there is to see happens on subscriptions
		if gone {
			g.forget()
		}
	}
	switch d.Do {
	case "connect":
		return w.doConnect(d, g, false)
	case "subscribe":
		return w.doConnect(d, g, true)
	case "stream":
		err := w.doStream(d, g)
		w.pass(gathering) // that a stream is there is told with other news
		return err
	case "hang up":
		w.doHangUp(d, g)
		w.pass(gathering)
		return nil
	case "unsubscribe":
		id := w.pick(d, g)
		return w.ends(w.Unsubscribe(id, g.by), w.known(g, id, contracts.CodeStaleSubscription), func() {
			w.heard(g.by.ConnectionID)
			w.drop(g.by.ConnectionID, w.conns[g.by.ConnectionID].sub(id))
		})
	case "disconnect":
		return w.doDisconnect(g)
	case "beat":
		return w.doBeat(g)
	}
	return w.doPost(d, g)
}

// ends returns an error unless err is a refusal with code, none if that is
// empty; then it tells the model.
func (w *world) ends(err error, code contracts.Code, effect func()) error {
	refusal, _ := errors.AsType[*contracts.Error](err)
	if (err != nil) != (code != "") || err != nil && (refusal == nil || refusal.Code != code) {
		return fmt.Errorf("got %v, want the code %q", err, code)
	}
	if err == nil && effect != nil {
		effect()
	}
	synctest.Wait()
	return nil
}

// pick returns one of the visitor's subscriptions, or one that never was.
func (w *world) pick(d deed, g *visitor) string {
	ids := slices.Sorted(maps.Keys(g.places))
	if len(ids) == 0 {
		return "sub_none"
	}
	return ids[d.Whom%len(ids)]
}

// known returns code unless the visitor's connection has the subscription.
func (w *world) known(g *visitor, sub string, code contracts.Code) contracts.Code {
	if c := w.conns[g.by.ConnectionID]; c != nil && c.sub(sub) != nil {
		return ""
	}
	return code
}

// doConnect makes or renews a connection, perhaps with a subscription.
func (w *world) doConnect(d deed, g *visitor, subscribing bool) error {
	if d.How == 5 { // the connection it had lives on without it
		for id := range g.places {
			w.hangUp(g, id)
		}
		g.forget()
	}
	req := &contracts.AttachRequest{TakeControl: d.Whom%3 == 1}
	if d.How < 2 && g.by.ConnectionID == "" {
		req.Role = contracts.RoleViewer
	}
	want, id := w.plansToAttach(req, g, subscribing)
	got, err := w.attachment(req, g, subscribing)
	if err := w.ends(err, want, nil); err != nil || want != "" {
		if want == contracts.CodeStaleConnection {
			g.forget()
		}
		return err
	}
	if id != "" && got.conn != id || id == "" && w.conns[got.conn] != nil {
		return fmt.Errorf("got connection %s, want %q, or a new one if that is empty", got.conn, id)
	}
	w.arrive(got.conn, req, g)
	if got.granted != (w.holder == got.conn) {
		return fmt.Errorf("lease granted: got %t, want %t", got.granted, w.holder == got.conn)
	}
	g.by.ConnectionID, g.by.Token = got.conn, cmp.Or(got.token, g.by.Token)
	if !subscribing {
		return nil
	}
	snap, err := (&contracts.Decoder{}).Snapshot(got.snapshot)
	if err != nil {
		return err
	}
	c := w.conns[got.conn]
	c.subs, c.unused = append(c.subs, &modelSub{id: got.sub, since: w.now}), false
	g.places[got.sub] = &place{cursor: snap.Cursor, state: snap}
	return nil
}

// An attachment is what the answers to connect and subscribe have in common.
type attachment struct {
	conn, sub, token string
	granted          bool
	snapshot         []byte
}

func (w *world) attachment(req *contracts.AttachRequest, g *visitor, subscribing bool) (attachment, error) {
	if subscribing {
		a, token, err := w.Subscribe(req, g.by)
		if err != nil {
			return attachment{}, err
		}
		return attachment{a.ConnectionID, a.SubscriptionID, token, a.ControllerLeaseGranted, a.Snapshot}, nil
	}
	a, token, err := w.Connect(req, g.by)
	if err != nil {
		return attachment{}, err
	}
	return attachment{a.ConnectionID, "", token, a.ControllerLeaseGranted, a.Snapshot}, nil
}

// plansToAttach returns how an attachment should end, and the connection that it
// continues.
func (w *world) plansToAttach(req *contracts.AttachRequest, g *visitor, subscribing bool) (want contracts.Code, id string) {
	id = g.by.ConnectionID
	c := w.conns[id]
	holding := w.conns[w.holder]
	switch {
	case id != "" && c == nil:
		return contracts.CodeStaleConnection, ""
	case id == "" && subscribing && req.Role == "" && holding != nil && holding.unused && holding.guest == g.by.Principal.ID:
		id, c = w.holder, holding // adopted
	}
	viewer := req.Role == contracts.RoleViewer || c != nil && c.role == contracts.RoleViewer
	switch {
	case c != nil && subscribing && len(c.subs) == 8:
		return contracts.CodeRateLimited, ""
	case !viewer && w.holder != "" && w.holder != id && !req.TakeControl:
		return contracts.CodeControllerLeaseHeld, ""
	}
	return "", id
}

// arrive tells the model of a connection that was made or renewed.
func (w *world) arrive(id string, req *contracts.AttachRequest, g *visitor) {
	c := w.conns[id]
	if c == nil {
		c = &modelConn{role: contracts.RoleController, guest: g.by.Principal.ID, unused: true}
		if req.Role != "" {
			c.role = req.Role
		}
		w.conns[id] = c
	}
	w.heard(id)
	w.claim(id, req.TakeControl)
}

func (w *world) doDisconnect(g *visitor) error {
	id := g.by.ConnectionID
	want, subs := contracts.Code(""), []string{}
	if c := w.conns[id]; c != nil {
		for _, sub := range c.subs {
			subs = append(subs, sub.id)
		}
	} else if !w.wasHere(id) {
		want = contracts.CodeStaleConnection
	}
	answer, err := w.Disconnect(g.by)
	if err := w.ends(err, want, func() {
		if w.conns[id] != nil {
			w.destroy(id)
		}
	}); err != nil || want != "" {
		return err
	}
	holder := ""
	if answer.ControllerConnectionID != nil {
		holder = *answer.ControllerConnectionID
	}
	if answer.ConnectionID != id || !slices.Equal(answer.Subscriptions, subs) || holder != w.holder {
		return fmt.Errorf("disconnect: got %+v, want %s, %q and holder %q", answer, id, subs, w.holder)
	}
	return nil
}

func (w *world) doBeat(g *visitor) error {
	id := g.by.ConnectionID
	want := contracts.Code("")
	if w.conns[id] == nil {
		want = contracts.CodeStaleConnection
	}
	answer, err := w.Heartbeat(g.by)
	if err := w.ends(err, want, func() { w.heard(id) }); err != nil || want != "" {
		return err
	}
	if at := wireTime(w.now.Add(contracts.DefaultLeaseTTL)); answer.ControllerLeaseGranted != (w.holder == id) || *answer.LeaseExpiresAt != at {
		return fmt.Errorf("heartbeat: got %+v until %s, want holder %q until %s", answer, *answer.LeaseExpiresAt, w.holder, at)
	}
	return nil
}

// doPost sends a command over HTTP, perhaps twice with one key.
func (w *world) doPost(d deed, g *visitor) error {
	id := g.by.ConnectionID
	c := w.conns[id]
	text, want, effect := `{"type":"interrupt"}`, contracts.CodeStaleConnection, func() {}
	switch {
	case c == nil:
	case d.Do == "hello":
		text, want, effect = w.plansHello(d, id)
	default:
		d.Do = []string{"prompt", "interrupt", "answer", "answer", "init", "again"}[d.How]
		if text, want, effect = w.plan(d, id); want == "" {
			done := effect
			effect = func() {
				if w.holder == "" {
					w.grant(id)
				}
				done()
			}
		}
		if c.role == contracts.RoleController { // a viewer is not heard
			w.heard(id)
		}
	}
	key := ""
	if d.Whom%2 == 0 {
		g.keys++
		key = fmt.Sprint("key-", g.keys)
	}
	first, err := w.Send([]byte(text), key, g.by)
	if err := w.ends(err, want, effect); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if key == "" {
		return nil
	}
	cursor := w.Cursor()
	again, err2 := w.Send([]byte(text), key, g.by)
	if !bytes.Equal(first, again) || fmt.Sprint(err) != fmt.Sprint(err2) || w.Cursor() != cursor {
		return fmt.Errorf("%s repeated: got %s, %v, want %s, %v and nothing done", text, again, err2, first, err)
	}
	return nil
}

// plansHello returns a hello and what it does.
func (w *world) plansHello(d deed, id string) (text string, want contracts.Code, effect func()) {
	c := w.conns[id]
	if c.role == contracts.RoleViewer {
		return `{"type":"hello"}`, contracts.CodeAccessDenied, nil
	}
	able := d.How%2 == 0
	text = `{"type":"hello"}`
	if able {
		text = `{"type":"hello","capabilities":{"server_requests":["client_tool","mcp_elicitation","user_input","tool_retry"]}}`
	}
	return text, "", func() {
		w.heard(id)
		c.able = able
		for _, sub := range c.subs {
			sub.greeted++
		}
	}
}
