package hub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/memconn"
)

// A visitor is a client over HTTP in a world: what it knows of its connection,
// and the streams that it reads.
type visitor struct {
	by      contracts.Caller
	places  map[string]*place    // by subscription
	streams map[string]*follower // that are open, by subscription; of its own, by connection
	keys    int                  // idempotency keys used
}

// A place is where a subscription goes on that names no cursor.
type place struct {
	cursor  uint64
	state   *contracts.Snapshot
	greeted int  // answers to hello that came on its streams
	lost    bool // with an earlier process
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

// read takes everything that has arrived.
func (g *visitor) read() error {
	for id, f := range g.streams {
		if err := f.read(); err != nil {
			return fmt.Errorf("stream of %s: %w", id, err)
		}
	}
	return nil
}

// cutOff ends every stream with its process. crash says that nothing more of
// what it sent counts.
func (g *visitor) cutOff(crash bool) error {
	for id, f := range g.streams {
		f.peer.Close()
		if !crash {
			if err := f.read(); err != nil {
				return err
			}
		}
		g.settle(id)
	}
	for _, p := range g.places {
		p.lost = true
	}
	return nil
}

// settle takes down where a stream ended.
func (g *visitor) settle(id string) {
	f := g.streams[id]
	if p := g.places[id]; p != nil {
		p.cursor, p.state, p.greeted, p.lost = f.cursor, f.state.Snapshot(f.cursor), p.greeted+f.greeted, false
	}
	delete(g.streams, id)
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
	var (
		got, sub, token string
		granted         bool
		snapshot        []byte
		err             error
	)
	if subscribing {
		var a *contracts.SubscriptionAnswer
		if a, token, err = w.Subscribe(req, g.by); err == nil {
			got, sub, granted, snapshot = a.ConnectionID, a.SubscriptionID, a.ControllerLeaseGranted, a.Snapshot
		}
	} else {
		var a *contracts.ConnectionAnswer
		if a, token, err = w.Connect(req, g.by); err == nil {
			got, granted, snapshot = a.ConnectionID, a.ControllerLeaseGranted, a.Snapshot
		}
	}
	if err := w.ends(err, want, nil); err != nil || want != "" {
		if want == contracts.CodeStaleConnection {
			g.forget()
		}
		return err
	}
	if id != "" && got != id || id == "" && w.conns[got] != nil {
		return fmt.Errorf("got connection %s, want %q, or a new one if that is empty", got, id)
	}
	w.arrive(got, req, g)
	if granted != (w.holder == got) {
		return fmt.Errorf("lease granted: got %t, want %t", granted, w.holder == got)
	}
	g.by.ConnectionID = got
	if token != "" {
		g.by.Token = token
	}
	if !subscribing {
		return nil
	}
	snap, err := (&contracts.Decoder{}).Snapshot(snapshot)
	if err != nil {
		return err
	}
	c := w.conns[got]
	c.subs, c.unused = append(c.subs, &modelSub{id: sub, since: w.now}), false
	g.places[sub] = &place{cursor: snap.Cursor, state: snap}
	return nil
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

// doStream opens a stream: on a subscription where that is, at the cursor of the
// last one or from the beginning, or one of its own.
func (w *world) doStream(d deed, g *visitor) error {
	if d.How == 0 {
		return w.doOwnStream(d, g)
	}
	id := w.pick(d, g)
	req := contracts.StreamRequest{SubscriptionID: id}
	p := g.places[id]
	f := newFollower(nil, w.ledger)
	if p != nil && !p.lost {
		f.cursor, f.resumes = p.cursor, true
		f.state.Restore(p.state)
	}
	zero := int64(0)
	old := g.streams[id]
	switch {
	case p == nil:
	case old != nil && d.How > 2 && !p.lost: // it goes on where the older stream is
		f.cursor = old.cursor
		f.state.Restore(old.state.Snapshot(old.cursor))
	case d.How == 1:
		at := int64(p.cursor)
		req.Cursor, req.Epoch = &at, w.Epoch()
		f.cursor, f.resumes = p.cursor, w.origin == nil || p.cursor > w.origin.Cursor
		f.state.Restore(p.state)
	case d.How == 2:
		req.Cursor = &zero
		f = newFollower(nil, w.ledger)
	}
	want := w.known(g, id, contracts.CodeStaleSubscription)
	ended, err := w.opens(f, req, g)
	if err != nil {
		return err
	}
	if want != "" {
		delete(g.places, id)
		return w.ends(<-ended, want, nil)
	}
	if old != nil { // it was superseded
		if err := old.read(); err != nil {
			return err
		}
		if !old.ended {
			return errors.New("the older stream of the subscription goes on, want it ended")
		}
		p.greeted += old.greeted
	}
	w.heard(g.by.ConnectionID)
	w.conns[g.by.ConnectionID].sub(id).attached = true
	g.streams[id] = f
	return nil
}

// doOwnStream opens a stream without a subscription.
func (w *world) doOwnStream(d deed, g *visitor) error {
	req := contracts.StreamRequest{}
	zero := int64(0)
	if d.Whom%2 == 0 {
		req.Cursor = &zero
	}
	f := newFollower(nil, w.ledger)
	if _, err := w.opens(f, req, g); err != nil {
		return err
	}
	for _, c := range w.Snapshot().State.Connections {
		if w.conns[c.ConnectionID] == nil {
			w.conns[c.ConnectionID] = &modelConn{
				role: contracts.RoleViewer, guest: g.by.Principal.ID, seen: w.now, subs: []*modelSub{{id: c.ConnectionID, attached: true}},
			}
			g.streams[c.ConnectionID] = f
			return nil
		}
	}
	return errors.New("got no connection for the stream")
}

// opens opens a stream for a follower.
func (w *world) opens(f *follower, req contracts.StreamRequest, g *visitor) (ended chan error, err error) {
	conn, peer := memconn.New(memconn.Options{Stream: true})
	f.peer = peer
	ended = make(chan error, 1)
	h := w.Hub
	go func() { ended <- h.Stream(context.Background(), conn, req, g.by) }() // ends when the hub or the peer closes the stream
	synctest.Wait()
	if err := w.ledger.refresh(); err != nil {
		return nil, err
	}
	return ended, f.read()
}

// doHangUp ends one of the visitor's streams.
func (w *world) doHangUp(d deed, g *visitor) {
	ids := slices.Sorted(maps.Keys(g.streams))
	if len(ids) == 0 {
		return
	}
	w.hangUp(g, ids[d.Whom%len(ids)])
}

func (w *world) hangUp(g *visitor, id string) {
	if g.streams[id] == nil {
		return
	}
	g.streams[id].peer.Close()
	synctest.Wait()
	if g.places[id] == nil {
		w.destroy(id)
	} else {
		w.detach(g.by.ConnectionID, id)
	}
	g.settle(id)
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

// checkGuest holds a visitor's streams against the model.
func (w *world) checkGuest(g *visitor, live *contracts.Snapshot) error {
	for id, f := range g.streams {
		c := w.conns[g.by.ConnectionID]
		if g.places[id] == nil {
			c = w.conns[id]
		}
		var sub *modelSub
		if c != nil {
			sub = c.sub(id)
		}
		if attached := sub != nil && sub.attached; attached == f.ended {
			return fmt.Errorf("stream of %s: got ended %t, want attached %t", id, f.ended, attached)
		} else if !attached {
			g.settle(id)
			continue
		}
		if err := f.caughtUp(live); err != nil {
			return err
		}
		if p := g.places[id]; p != nil && p.greeted+f.greeted != sub.greeted {
			return fmt.Errorf("subscription %s: got %d answers to hello, want %d", id, p.greeted+f.greeted, sub.greeted)
		}
	}
	return w.checkEntries(live)
}

// checkEntries holds what the state says of the connections of guests against
// the model.
func (w *world) checkEntries(live *contracts.Snapshot) error {
	for _, got := range live.State.Connections {
		c := w.conns[got.ConnectionID]
		if c == nil || c.guest == "" {
			continue
		}
		attached := 0
		for _, sub := range c.subs {
			if sub.attached {
				attached++
			}
		}
		seen := c.seen
		if c.role == contracts.RoleViewer && attached > 0 {
			seen = time.Now()
		}
		if int(got.SubscriptionCount) != len(c.subs) || int(got.AttachedSubscriptionCount) != attached || got.Role != c.role ||
			got.LeaseExpiresAt.Get() != wireTime(seen.Add(contracts.DefaultLeaseTTL)) {
			return fmt.Errorf("connection: got %+v until %s, want %d subscriptions, %d attached, until %s",
				got, got.LeaseExpiresAt.Get(), len(c.subs), attached, wireTime(seen.Add(contracts.DefaultLeaseTTL)))
		}
	}
	return nil
}
