package hub_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/journal"
)

// Whoever has said goodbye has left, however soon the process ends: the next one
// keeps no lease for him.
func TestGoodbyeCountsHoweverSoonTheProcessEnds(t *testing.T) {
	for range 50 { // who of the two is faster is for the scheduler to say
		synctest.Test(t, func(t *testing.T) {
			store := lasting{journal.NewMemory(journal.MemoryOptions{})}
			r := openRoom(t, hub.Options{Store: store})
			alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
			r.send(alice, `{"type":"ws.bye"}`)
			r.rest(alice)
			r.suspend()
			r = openRoom(t, hub.Options{Store: store})
			defer r.close()
			if st := r.Snapshot().State; st.ConnectionCount != 0 || r.controller() != "" {
				t.Errorf("got %+v, want nobody", st.Connections)
			}
		})
	}
}

// A client over HTTP finds its connection, its subscription and its lease again
// after a restart, and reads on where it was.
func TestGuestsComeBackAfterARestart(t *testing.T) {
	for _, checkpoint := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			store := lasting{journal.NewMemory(journal.MemoryOptions{})}
			r := openRoom(t, hub.Options{Store: store, CheckpointBytes: checkpoint})
			alice := r.guest("a")
			alice.subscribes(asController)
			stream := alice.follows(alice.place(-1))
			alice.posts(`{"type":"prompt","content":"before"}`)
			seen := r.cursors(r.arrived(stream))
			last := seen[len(seen)-1]
			r.suspend()
			r.wantEnd(stream, contracts.CodeGoingAway)
			r = openRoom(t, hub.Options{Store: store, CheckpointBytes: checkpoint})
			defer r.close()
			alice.room = r
			r.wantHolder(alice.by.ConnectionID)
			if got := alice.beats(); !got.ControllerLeaseGranted {
				t.Errorf("got %+v, want the lease", got)
			}
			lines := r.arrived(alice.follows(alice.place(int64(last))))
			if cs := r.cursors(lines); cs[0] <= last {
				t.Errorf("got cursor %d first, want more than %d", cs[0], last)
			}
			if _, ok := r.decode(lines[0]).(*contracts.MessageEnvelope); !ok {
				t.Errorf("got %s, want a replay", lines[0])
			}
			alice.posts(`{"type":"prompt","content":"after"}`)
		})
	}
}

// A hung agent does not end, whatever it is told.
type hung struct {
	*player
	end chan struct{} // closed when it ends after all
}

func (h hung) Close(context.Context) error {
	<-h.end
	return nil
}

// An agent that does not end keeps nobody from opening the session again.
func TestAgentThatDoesNotEndKeepsNoStoreOpen(t *testing.T) {
	end := func(agent hub.Agent, prompt string, want string) {
		t.Helper()
		store := &balky{Store: journal.NewMemory(journal.MemoryOptions{})}
		log := &logged{}
		r := openRoom(t, hub.Options{Agent: agent, Store: store, Log: log.logger()})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, prompt)
		synctest.Wait()
		if err := r.Close(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want that the %s did not end", err, want)
		}
		if !store.closed {
			t.Errorf("got the store open after the %s did not end, want it closed", want)
		}
		t.Cleanup(func() {
			if text := log.text(); strings.Contains(text, "session failed") {
				t.Errorf("got %s, want what ends later to write nothing", text)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		agent := hung{newPlayer(nil), make(chan struct{})}
		end(agent, `{"type":"ws.ping"}`, "agent")
		close(agent.end)

		over := make(chan struct{})
		end(newPlayer(func(context.Context, contracts.Host, contracts.Work) error { <-over; return nil }), `{"type":"prompt","content":"go"}`, "run")
		close(over)
	})
}
