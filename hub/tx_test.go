package hub_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// What the journal does not have has not happened: the agent neither acts on an
// answer that could not be written, nor starts with a prompt, nor is configured.
func TestNothingFollowsFromWhatCannotBeWritten(t *testing.T) {
	for _, command := range []string{
		`{"type":"server_request_response","request_id":"q1","request_type":"approval","approved":true}`,
		`{"type":"prompt","content":"go"}`,
		`{"type":"init","approval_mode":"fail"}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			agent := newPuppet()
			store := &balky{Store: journal.NewMemory(journal.MemoryOptions{})}
			r := openRoom(t, hub.Options{Store: store, Agent: agent})
			alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController}, `{"type":"hello"}`)
			asked := strings.Contains(command, "q1")
			if asked {
				r.send(alice, `{"type":"prompt","content":"go"}`)
				agent.orders <- agent.ask(question(contracts.RequestApproval, "q1"), contracts.AskOptions{})
				r.until(alice, `"type":"server_request"`)
			}
			synctest.Wait()
			store.appending = errors.New("disk on fire")
			r.send(alice, command)
			<-r.Done()
			synctest.Wait()
			if learned := agent.learned(); len(learned) != 0 || agent.active() != 0 || len(agent.inits) != 0 {
				t.Errorf("%s: got outcomes %v, %d runs and %d inits, want none", command, learned, agent.active(), len(agent.inits))
			}
			began := time.Now()
			_ = r.Close(t.Context()) // the store cannot keep the end
			if took := time.Since(began); took != 0 {
				t.Errorf("%s: got %v until the session was closed, want at once", command, took)
			}
		})
	}
}

// A clumsy observer panics when a command is accepted.
type clumsy struct{ witness }

func (*clumsy) Accepted(contracts.Command, string, time.Time) { panic("slipped") }

// A panic in a transaction ends the session, because its state may be half changed.
// The next hub goes on from the journal, which has nothing of the transaction.
func TestPanicInATransactionEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, log := newPuppet(), &logged{}
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store, Agent: agent, Observer: &clumsy{}, Log: log.logger()})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController}, `{"type":"hello"}`)
		r.until(alice, `"hello_ok"`)
		synctest.Wait()
		cursor := r.Cursor()
		r.send(alice, `{"type":"prompt","content":"go"}`)
		<-r.Done()
		synctest.Wait()
		if agent.active() != 0 || r.Cursor() != cursor {
			t.Errorf("got %d runs and cursor %d, want none and %d", agent.active(), r.Cursor(), cursor)
		}
		if why, closed := alice.Closed(); !closed || why == nil || why.Code != contracts.CodeRuntimeFailed {
			t.Errorf("got %v, %t, want closed with runtime_failed", why, closed)
		}
		log.wants(t, "slipped")
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}

		r = openRoom(t, hub.Options{Store: store, Agent: agent})
		defer r.close()
		bob, _ := r.attach(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverForce}, `{"type":"hello"}`)
		r.until(bob, `"hello_ok"`)
		r.send(bob, `{"type":"prompt","content":"go"}`)
		synctest.Wait()
		if agent.active() != 1 {
			t.Errorf("got %d runs, want the session to go on", agent.active())
		}
	})
}
