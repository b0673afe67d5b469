package connlimit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A conn leaves when it is closed, unless it is stuck; then only when it is cut,
// and then unless it is dead.
type conn struct {
	slot        *Slot
	stuck, dead bool
	why         *contracts.Error // of the first Close
	closed, cut int
	left        sync.Once
}

func (c *conn) leave() { c.left.Do(func() { go c.slot.Leave() }) } // the limiter holds its lock

func (c *conn) Close(why *contracts.Error) {
	if c.closed++; c.closed == 1 {
		c.why = why
	}
	if !c.stuck {
		c.leave()
	}
}

func (c *conn) Cut() {
	c.cut++
	if !c.dead {
		c.leave()
	}
}

// enter lets one more connection in.
func enter(t *testing.T, d *Limiter, c *conn) *conn {
	t.Helper()
	c.slot = admit(t, d, owner)
	c.slot.Enter(c)
	return c
}

// Principals of each kind.
var (
	owner = contracts.Principal{ID: "owner"}
	ada   = contracts.Principal{ID: "user_ada", Scope: "user_ada"}
	guest = contracts.Principal{ID: "share_1", SessionID: "main", Role: contracts.RoleViewer}
	other = contracts.Principal{ID: "share_2", SessionID: "main"}
)

// admit reserves a slot.
func admit(t *testing.T, d *Limiter, p contracts.Principal) *Slot {
	t.Helper()
	slot, err := d.Admit(p)
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

func TestPlacesAreBounded(t *testing.T) {
	d := New(Options{Connections: 2})
	first := enter(t, d, &conn{})
	second := admit(t, d, owner) // on its way
	overloaded := &contracts.Error{Code: contracts.CodeOverloaded}
	for range 3 { // what is refused does not count
		if _, err := d.Admit(owner); !errors.Is(err, overloaded) {
			t.Errorf("third: got %v, want overloaded", err)
		}
	}
	if d.Counts().Slots != 2 || d.Counts().Conns != 1 {
		t.Errorf("got %d slots and %d connections, want 2 and 1", d.Counts().Slots, d.Counts().Conns)
	}
	second.Leave() // it did not become one
	admit(t, d, owner).Leave()
	first.slot.Leave()
	if d.Counts().Slots != 0 || d.Counts().Conns != 0 {
		t.Errorf("got %d slots and %d connections, want none", d.Counts().Slots, d.Counts().Conns)
	}
}

func TestZeroMeansManyPlaces(t *testing.T) {
	d := New(Options{})
	for i := range 16384 {
		if _, err := d.Admit(owner); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if _, err := d.Admit(owner); !errors.Is(err, &contracts.Error{Code: contracts.CodeOverloaded}) {
		t.Errorf("got %v, want overloaded", err)
	}
}

func TestCloseEndsAllAndWaits(t *testing.T) {
	d := New(Options{})
	conns := []*conn{enter(t, d, &conn{}), enter(t, d, &conn{}), enter(t, d, &conn{})}
	if err := d.ctx.Err(); err != nil {
		t.Errorf("before: got %v, want a context that goes on", err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, c := range conns {
		if c.why != GoingAway || c.closed != 1 || c.cut != 0 {
			t.Errorf("connection %d: closed %d times with %v, cut %d times, want closed once with %v", i, c.closed, c.why, c.cut, GoingAway)
		}
	}
	if d.Counts().Conns != 0 || d.Counts().Slots != 0 || d.ctx.Err() == nil {
		t.Errorf("got %d connections, %d slots, %v, want none and an ended context", d.Counts().Conns, d.Counts().Slots, d.ctx.Err())
	}
	if _, err := d.Admit(owner); err != GoingAway {
		t.Errorf("afterwards: got %v, want %v", err, GoingAway)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestWhoEntersAClosedDoorIsSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		slot := admit(t, d, owner)
		closed := make(chan error, 1)
		go func() { closed <- d.Close(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Fatalf("got %v while somebody is on the way in, want it to wait", err)
		default:
		}
		late := &conn{slot: slot}
		slot.Enter(late)
		if late.why != GoingAway {
			t.Errorf("got %v, want %v", late.why, GoingAway)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

func TestPlaceGivenBackWhileClosingCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		time.AfterFunc(time.Second, admit(t, d, owner).Leave)
		start := time.Now()
		if err := d.Close(t.Context()); err != nil || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want none after a second", err, time.Since(start))
		}
	})
}

func TestStuckConnectionsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		good, stuck, dead := enter(t, d, &conn{}), enter(t, d, &conn{stuck: true}), enter(t, d, &conn{stuck: true, dead: true})
		slot := admit(t, d, owner)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if err := d.Close(ctx); err != context.DeadlineExceeded || time.Since(start) != 3*time.Second {
			t.Errorf("got %v after %v, want %v after 3s", err, time.Since(start), context.DeadlineExceeded)
		}
		synctest.Wait()
		if good.cut != 0 || stuck.cut != 1 || dead.cut != 1 {
			t.Errorf("got %d, %d and %d cuts, want those alone that were stuck", good.cut, stuck.cut, dead.cut)
		}
		if got := d.Counts().Conns; got != 1 {
			t.Errorf("got %d connections, want the dead one", got)
		}
		late := &conn{slot: slot, stuck: true} // let in before, and here only now
		slot.Enter(late)
		if late.why != GoingAway {
			t.Errorf("got %v, want %v", late.why, GoingAway)
		}
		late.slot.Leave()
		dead.slot.Leave()
	})
}

func TestCallersDoNotDisturbEachOther(t *testing.T) {
	d := New(Options{Connections: 4})
	var in, most atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				slot, err := d.Admit(owner)
				switch {
				case err == GoingAway:
					return
				case err != nil:
					continue
				}
				if n := in.Add(1); n > most.Load() {
					most.Store(n)
				}
				c := &conn{slot: slot}
				slot.Enter(c)
				in.Add(-1)
				c.leave()
			}
		})
	}
	for range 1000 {
		if d.Counts().Slots > 4 || d.Counts().Conns > 4 {
			t.Errorf("got %d slots and %d connections, want at most 4", d.Counts().Slots, d.Counts().Conns)
		}
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if got := most.Load(); got > 4 || d.Counts().Slots != 0 {
		t.Errorf("got %d at a time and %d slots taken at the end, want at most 4 and none", got, d.Counts().Slots)
	}
}
