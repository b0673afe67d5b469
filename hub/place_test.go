package hub_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A process that ends does not say where its subscriptions were. One that comes
// back without a cursor gets the whole state: what it missed must not be lost.
func TestSubscriptionOfAnEarlierProcessBeginsWithTheState(t *testing.T) { // A58
	synctest.Test(t, func(t *testing.T) {
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store})
		alice := r.guest("a")
		before := int64(stateIn(t, alice.subscribes(asController).Snapshot).Cursor)
		alice.posts(`{"type":"init","approval_mode":"auto"}`)
		r.suspend()
		r = openRoom(t, hub.Options{Store: store})
		defer r.close()
		alice.room = r
		stream := alice.follows(alice.place(-1))
		snap, _ := r.snapshotIn(r.next(stream))
		if !strings.Contains(string(snap.LastInit), "auto") {
			t.Errorf("got %s, want the state with what was missed", snap.LastInit)
		}
		stream.Close()
		synctest.Wait()
		alice.posts(`{"type":"init"}`) // from then on it has its place again
		lines := r.arrived(alice.follows(alice.place(-1)))
		if _, ok := r.decode(lines[0]).(*contracts.MessageEnvelope); !ok {
			t.Errorf("got %s, want what it missed alone", lines[0])
		}
		if lines = r.arrived(alice.follows(alice.place(before))); !strings.Contains(strings.Join(lines, "\n"), "Initialized: approval_mode") {
			t.Errorf("got %q, want all after cursor %d", lines, before)
		}
	})
}

func TestSubscriptionThatEndedDoesNotComeBackAfterARestart(t *testing.T) {
	for name, end := range map[string]func(r *room, g *guest, id string){
		"unsubscribed": func(r *room, g *guest, id string) {
			if err := r.Unsubscribe(id, g.by); err != nil {
				r.t.Error(err)
			}
		},
		"expired": func(r *room, g *guest, id string) { // while the other is followed
			stream := g.follows(g.place(-1))
			for r.entry(g.by.ConnectionID).SubscriptionCount > 1 {
				r.until(stream, `"heartbeat"`)
			}
			stream.Close()
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := lasting{journal.NewMemory(journal.MemoryOptions{})}
				r := openRoom(t, hub.Options{Store: store})
				alice := r.guest("a")
				gone := alice.subscribes(asController).SubscriptionID
				alice.subscribes(asController)
				end(r, alice, gone)
				r.suspend()
				r = openRoom(t, hub.Options{Store: store})
				defer r.close()
				alice.room = r
				wantEqual(t, "subscriptions", alice.disconnects().Subscriptions, []string{alice.by.SubscriptionID})
			})
		})
	}
}

// Whoever follows through a drain and the next start of the same process ends
// with the state that everybody has.
func TestFollowerOfADrainedSessionSeesItComeBack(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		for _, concluded := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				store := lasting{journal.NewMemory(journal.MemoryOptions{})}
				opts := hub.Options{Store: store, Quiet: quiet}
				r := openRoom(t, opts)
				ledger := &ledger{store: store, base: r.Cursor(), start: r.Snapshot(), transient: map[uint64]string{}}
				alice := r.guest("a")
				alice.connects(asController)
				since := int64(r.Cursor())
				r.quiesces()
				r.Conclude(concluded)
				r.suspend()
				r = openRoom(t, opts)
				defer r.close()
				if err := ledger.refresh(); err != nil {
					t.Fatal(err)
				}
				f := newFollower(r.guest("v").follows(from(since)), ledger)
				f.cursor = uint64(since)
				var err error
				if f.state, err = ledger.fold(f.cursor); err != nil {
					t.Fatal(err)
				}
				time.Sleep(gathering) // that a stream is there is told with other news
				synctest.Wait()
				if err := ledger.refresh(); err != nil {
					t.Fatal(err)
				}
				if err := f.read(); err != nil {
					t.Fatal(err)
				}
				if err := f.caughtUp(r.Snapshot()); err != nil {
					t.Errorf("quiet %t, drained %t: %v", quiet, concluded, err)
				}
			})
		}
	}
}

// A stream that could not be given the state has no place. The next one of its
// subscription begins with the state again, whether or not the first has ended.
func TestStateThatWasNotTakenIsGivenAgain(t *testing.T) {
	for _, superseded := range []bool{false, true} {
		inRoom(t, hub.Options{Store: journal.NewMemory(journal.MemoryOptions{RetainBytes: 100 << 10}), WindowBytes: 1 << 10}, func(t *testing.T, r *room) {
			alice := r.guest("a")
			alice.subscribes(asController)
			for range 100 {
				alice.posts(`{"type":"prompt","content":"` + strings.Repeat("x", 4<<10) + `"}`)
				synctest.Wait()
			}
			conn, slow := memconn.New(memconn.Options{Stream: true})
			slow.Freeze()
			ended := make(chan error, 1)
			go func() { ended <- r.Stream(t.Context(), conn, alice.place(-1), alice.by) }() // ends with the write timeout
			synctest.Wait()
			if !superseded {
				<-ended
				synctest.Wait()
			}
			stream := alice.follows(alice.place(-1))
			r.snapshotIn(r.next(stream)) // fails if it is anything else
			if superseded {
				<-ended
			}
		})
	}
}
