package hub_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A crowd is woken in several goes; nobody may fall between two of them.
func TestEverybodyInACrowdIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t, journal.NewMemory(journal.MemoryOptions{}))
		alice := r.join(contracts.RoleController, "", nil)
		r.until(alice, `"hello_ok"`)
		crowd := make([]*memconn.Peer, 300)
		for i := range crowd {
			crowd[i] = r.join(contracts.RoleViewer, "", nil)
			r.until(crowd[i], `"hello_ok"`)
		}
		time.Sleep(500 * time.Millisecond) // of the bubble's time: the news of the crowd is out, nothing else wakes it
		asked := time.Now()
		r.send(alice, `{"type":"prompt","content":"hi"}`)
		for _, viewer := range crowd {
			r.until(viewer, `"response_end"`)
		}
		// Who was passed over would be woken by the next heartbeat, seconds later.
		if late := time.Since(asked); late >= 500*time.Millisecond { // of the bubble's time
			t.Errorf("the last of the crowd had the answer after %v, want it at once", late)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestCrowdIsToldToComeBackInTurn ends the process's part in a session with more
// clients than the next process lets in at once.
func TestCrowdIsToldToComeBackInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const viewers = 1100
		r := newRoom(t, journal.NewMemory(journal.MemoryOptions{}))
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		crowd := make([]*memconn.Peer, viewers)
		for i := range crowd {
			crowd[i], _ = r.attach(contracts.Attach{Role: contracts.RoleViewer})
		}
		ended := make(chan struct{})
		go func() { r.suspend(); close(ended) }() // ends with the session
		told := func(p *memconn.Peer) int64 {
			bye, ok := r.last(r.rest(p)).(*contracts.Goodbye)
			if !ok || !bye.Resume {
				t.Fatalf("got %+v, want a goodbye", bye)
			}
			return bye.RetryAfterMS
		}
		if got := told(alice); got != 1000 {
			t.Errorf("who is in control: got %d ms, want 1000", got)
		}
		at := map[int64]int{}
		for _, p := range crowd {
			at[told(p)]++
		}
		<-ended
		if at[1000] != 999 {
			t.Errorf("got %d told to come back first, want 999", at[1000])
		}
		for i := range int64(viewers - 999) {
			if at[1000+2*(i+1)] != 1 {
				t.Fatalf("got %v, want the others one after another, two milliseconds apart", at)
			}
		}
	})
}
