package hub_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
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

// A deadlocked agent neither ends its run nor closes.
type deadlocked struct {
	echo
	stuck chan struct{} // never closed while the session is there
}

func (a *deadlocked) Run(context.Context, contracts.Work) error { <-a.stuck; return nil }

func (a *deadlocked) Close(context.Context) error { <-a.stuck; return nil }

// An agent that does not keep to its context must not keep the session's files:
// the next opening needs them.
func TestAgentThatHangsDoesNotKeepTheStoreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		store := &balky{Store: journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Agent: &deadlocked{stuck: stuck}, Store: store})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, `{"type":"ws.send","id":"1","message":{"type":"prompt","content":"hi"}}`)
		r.until(alice, `"ws.result"`)
		r.send(alice, `{"type":"shutdown"}`) // as a client does, so that nobody bounds it
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := store.Append([]journal.Entry{{Cursor: r.Cursor() + 1}}); err == nil {
			t.Error("the store is open after a minute, want it closed")
		}
		close(stuck)
	})
}

// A run that ends after the session has nowhere to write to, which is no failure.
func TestRunThatEndsAfterTheSessionWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, stuck := &logged{}, make(chan struct{})
		r := openRoom(t, hub.Options{Agent: &deadlocked{stuck: stuck}, Log: log.logger()})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, `{"type":"prompt","content":"go"}`)
		synctest.Wait()
		if err := r.Close(context.Background()); err == nil || !strings.Contains(err.Error(), "the run") {
			t.Errorf("got %v, want that the run does not end", err)
		}
		close(stuck)
		synctest.Wait()
		if text := log.text(); strings.Contains(text, "session failed") {
			t.Errorf("got %s, want no failure", text)
		}
	})
}

func TestRunThatIgnoresItsStopIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, stuck := &logged{}, make(chan struct{})
		r := openRoom(t, hub.Options{Agent: &deadlocked{stuck: stuck}, Log: log.logger()})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, `{"type":"prompt","content":"go"}`)
		r.send(alice, `{"type":"interrupt"}`)
		time.Sleep(4 * time.Second)
		if text := log.text(); strings.Contains(text, "level=WARN") {
			t.Errorf("got %s, want no warning yet", text)
		}
		time.Sleep(2 * time.Second)
		log.wants(t, `level=WARN msg="the agent does not end a run that was stopped" session=s`)
		close(stuck)
		synctest.Wait()
		r.close()
	})
}
