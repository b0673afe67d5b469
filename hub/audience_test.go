package hub_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A place is where a subscription goes on that names no cursor.
type place struct {
	cursor  uint64
	state   *contracts.Snapshot
	greeted int  // answers to hello that came on its streams
	lost    bool // with an earlier process
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

// doStream opens a stream: on a subscription where that is, at the cursor of the
// last one or from the beginning, or one of its own.
func (w *world) doStream(d deed, g *visitor) error {
	if d.How == 0 {
		return w.doOwnStream(d, g)
	}
	id := w.pick(d, g)
	p, old := g.places[id], g.streams[id]
	f, req := w.beginning(d, g, id)
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
	p.lost = false // where the new stream is, a newer one goes on
	w.heard(g.by.ConnectionID)
	w.conns[g.by.ConnectionID].sub(id).attached = true
	g.streams[id] = f
	return nil
}

// beginning returns a request for a stream, and a follower that has what the
// client has who asks for it.
func (w *world) beginning(d deed, g *visitor, id string) (*follower, contracts.StreamRequest) {
	f, req := newFollower(nil, w.ledger), contracts.StreamRequest{SubscriptionID: id}
	p, old := g.places[id], g.streams[id]
	zero := int64(0)
	switch {
	case p == nil:
	case d.How == 1: // where it was the last time
		at := int64(p.cursor)
		req.Cursor, req.Epoch = &at, w.Epoch()
		f.cursor, f.resumes = p.cursor, w.origin == nil || p.cursor > w.origin.Cursor
		f.state.Restore(p.state)
	case d.How == 2:
		req.Cursor = &zero
	case p.lost: // it begins with the state
	case old != nil: // it goes on where the older stream is
		f.cursor, f.resumes = old.cursor, true
		f.state.Restore(old.state.Snapshot(old.cursor))
	default:
		f.cursor, f.resumes = p.cursor, true
		f.state.Restore(p.state)
	}
	return f, req
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
