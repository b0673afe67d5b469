package hub_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// startC1WS is startC1 over a socket.
const startC1WS = `{"type":"ws.send","id":"1","message":` + startC1 + `}`

// An owner has started command c1 over a socket, of which writes are its output.
type owner struct {
	*room
	tools *toolbox
	peer  *memconn.Peer
	told  contracts.Attached
}

// withOwner runs a test in a room that keeps 64 KiB and lets a command be 8 KiB
// ahead of its owner.
func withOwner(t *testing.T, test func(t *testing.T, o *owner)) {
	b := &toolbox{}
	opts := hub.Options{
		Utilities: b, MaxBacklog: 8 << 10, WindowBytes: 16 << 10, HeartbeatInterval: time.Hour,
		Store: journal.NewMemory(journal.MemoryOptions{RetainBytes: 64 << 10}),
	}
	inRoom(t, opts, func(t *testing.T, r *room) {
		peer, told := r.attach(contracts.Attach{Role: contracts.RoleController},
			`{"type":"hello","capabilities":{"utility_operations":["command_exec"]},"opt_out_notifications":["heartbeat","status","connection_info"]}`)
		r.send(peer, startC1WS)
		r.until(peer, `"ws.result","id":"1"`)
		test(t, &owner{r, b, peer, told})
	})
}

// writes has the command write numbers, each a line of 100 bytes, waiting for its
// owner as utilities do. The channel gets the error of the first that failed, or
// nil.
func (o *owner) writes(ctx context.Context, from, n int) <-chan error {
	done := make(chan error, 1)
	go func() { // ends with the numbers or with ctx
		for i := from; i < from+n; i++ {
			line := numbered(i, 1)
			line += strings.Repeat(".", 100-len(line))
			err := o.tools.await(ctx, o.told.ConnectionID)
			if err == nil {
				err = o.tools.publish(ctx, &contracts.UtilityCommandOutput{CommandID: "c1", Stream: contracts.StreamStdout, Content: line})
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return done
}

// waits checks that the command has not come to its end, however long it waits.
func (o *owner) waits(done <-chan error, before uint64) {
	o.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	select {
	case err := <-done:
		o.t.Fatalf("got an end (%v), want the command to wait", err)
	default:
	}
	if ahead := o.Cursor() - before; ahead > 8<<10/100+20 {
		o.t.Errorf("got %d entries ahead of the owner, want about 8 KiB of them", ahead)
	}
}

// read returns the output in what a client read.
func (o *owner) read(texts string) string {
	o.t.Helper()
	var all strings.Builder
	for line := range strings.Lines(texts) {
		m, ok := o.decode(line).(*contracts.MessageEnvelope)
		if !ok {
			continue
		}
		ev, err := (&contracts.Decoder{}).Event(m.Message)
		if err != nil {
			o.t.Fatal(err)
		}
		if out, ok := ev.(*contracts.UtilityCommandOutput); ok {
			all.WriteString(unpadded(out.Content))
		}
	}
	return all.String()
}

func TestCommandWaitsForItsOwnerToRead(t *testing.T) {
	withOwner(t, func(t *testing.T, o *owner) {
		o.peer.Freeze()
		done := o.writes(t.Context(), 0, 5000) // several times what is kept
		o.waits(done, o.Cursor())
		if o.Metrics().CommandWaits.Load() == 0 {
			t.Error("got no wait counted, want one")
		}
		o.peer.Thaw()
		if got := o.read(o.until(o.peer, "4999;")); got != numbered(0, 5000) {
			t.Errorf("got %d bytes, want all in order", len(got))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestCommandWaitsForItsOwnerToComeBack(t *testing.T) {
	withOwner(t, func(t *testing.T, o *owner) {
		before := int64(o.Cursor())
		o.peer.Close()
		synctest.Wait()
		done := o.writes(t.Context(), 0, 5000)
		o.waits(done, uint64(before))
		att, _ := comeBack(o.told)
		att.Cursor = &before
		again, back := o.attach(att, `{"type":"ws.resume","connection_token":"`+o.told.ConnectionToken+`"}`, silent)
		if back.Resume != "replay" {
			t.Errorf("got %+v, want a replay", back)
		}
		if got := o.read(o.until(again, "4999;")); got != numbered(0, 5000) {
			t.Errorf("got %d bytes, want all in order", len(got))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestCommandDoesNotWaitForWhoIsGone(t *testing.T) {
	withOwner(t, func(t *testing.T, o *owner) {
		o.peer.Close()
		synctest.Wait()
		done := o.writes(t.Context(), 0, 5000)
		o.waits(done, o.Cursor())
		time.Sleep(2 * time.Hour) // longer than anything of it is kept
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestCommandThatIsToEndDoesNotWait(t *testing.T) {
	withOwner(t, func(t *testing.T, o *owner) {
		o.peer.Freeze()
		ctx, hurry := context.WithCancelCause(t.Context())
		done := o.writes(ctx, 0, 5000)
		o.waits(done, o.Cursor())
		enough := errors.New("enough")
		hurry(enough)
		if err := <-done; !errors.Is(err, enough) {
			t.Errorf("got %v, want %v", err, enough)
		}
		o.peer.Thaw()
	})
}

// Over HTTP one may start a command and never follow.
func TestCommandDoesNotWaitForWhoNeverReads(t *testing.T) {
	withTools(t, hub.Options{MaxBacklog: 1 << 10}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		alice.posts(startC1)
		o := &owner{room: r, tools: b, told: contracts.Attached{ConnectionID: alice.by.ConnectionID}}
		if err := <-o.writes(t.Context(), 0, 1000); err != nil {
			t.Error(err)
		}
	})
}

// A page that is reloaded leaves a subscription behind, which its heartbeats keep.
func TestCommandDoesNotWaitForAnOldSubscription(t *testing.T) {
	withTools(t, hub.Options{MaxBacklog: 8 << 10}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		alice.subscribes(contracts.AttachRequest{Role: contracts.RoleController})
		old := alice.follows(contracts.StreamRequest{SubscriptionID: alice.by.SubscriptionID})
		r.arrived(old)
		old.Close()
		alice.subscribes(contracts.AttachRequest{Role: contracts.RoleController})
		page := alice.follows(contracts.StreamRequest{SubscriptionID: alice.by.SubscriptionID})
		defer page.Close()
		alice.posts(startC1)
		o := &owner{room: r, tools: b, told: contracts.Attached{ConnectionID: alice.by.ConnectionID}}
		done := o.writes(t.Context(), 0, 1000)
		for range 10 {
			alice.beats()
			time.Sleep(time.Second)
			r.arrived(page)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("got a command that waits, want its end: its owner has read everything")
		}
	})
}

// Whoever reads on standard output and has stopped does not hold up the commands
// of others.
func TestCommandDoesNotWaitForOthers(t *testing.T) {
	withOwner(t, func(t *testing.T, o *owner) {
		conn, local := memconn.New(memconn.Options{Bare: true, Buffer: 1 << 10})
		served := make(chan error, 1)
		go func() { served <- o.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{}) }() // ends with its input
		o.until(local, `"session_info"`)
		local.Freeze()
		done := o.writes(t.Context(), 0, 500) // 50 KB, of 8 that it may lag
		if got := o.read(o.until(o.peer, "499;")); got != numbered(0, 500) {
			t.Errorf("got %d bytes, want all in order", len(got))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		local.Thaw()
		local.Close()
		<-served
	})
}
