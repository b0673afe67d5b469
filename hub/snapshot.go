package hub

import (
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A sharedSnapshot is the state at one cursor for everybody who attaches there.
// It is encoded once, by the first writer that needs it, outside the lock.
type sharedSnapshot struct {
	state *contracts.Snapshot
	once  sync.Once
	text  []byte
	err   error
}

func (p *sharedSnapshot) body() ([]byte, error) {
	p.once.Do(func() {
		p.text, p.err = contracts.EncodeSnapshot(p.state)
		p.state = nil
	})
	return p.text, p.err
}

// In a crowd a snapshot serves all who attach within a short while: whoever
// starts from an older one reads the entries since, and arrives at the same
// state. Otherwise a thousand joins would encode a thousand states.
const (
	shareFor    = presenceEvery
	shareBehind = 1024 // entries
)

// share returns a snapshot to attach at, and its cursor.
func (h *Hub) share(s *state) (*sharedSnapshot, uint64) {
	fresh := s.shared != nil && s.sharedAt == h.head(s)
	recent := s.shared != nil && len(s.conns) > presenceAtOnce &&
		s.now.Sub(s.sharedOn) < shareFor && h.head(s)-s.sharedAt < shareBehind &&
		h.journal.First() <= s.sharedAt+1 // else retention has overtaken it too
	if !fresh && !recent {
		s.shared, s.sharedAt, s.sharedOn = &sharedSnapshot{state: h.snapshot(s)}, h.head(s), s.now
	}
	return s.shared, s.sharedAt
}

// A Summary is what a listing says of a session.
type Summary struct {
	Cursor      uint64
	Updated     time.Time // something was last published
	Responding  bool
	Connections int
	Pending     int // requests that wait for an answer
}

// Summary describes the session as of now.
func (h *Hub) Summary() Summary {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Summary{
		Cursor: h.journal.Visible(), Updated: h.lastShown, Responding: h.run != nil,
		Connections: len(h.conns), Pending: h.table.Len(),
	}
}
