package hub_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/memconn"
	"github.com/seed-028515a8/maestro/journal"
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
