package hub

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/journal"
)

// Metrics counts what happened since the hub was made. Every bound of the hub
// has a counter of the times it was met.
type Metrics struct {
	Attached      atomic.Int64 // handshakes completed
	SlowConsumers atomic.Int64 // connections closed because they did not take what was written
	Silent        atomic.Int64 // connections closed because nothing was heard from them
	AgentWaits    atomic.Int64 // times the agent waited for a local client
	CommandWaits  atomic.Int64 // times a command waited for its owner
	LeaseChanges  atomic.Int64
	Asked         atomic.Int64 // server requests opened
	Acks          atomic.Int64 // ws.ack frames
	UnknownKeys   atomic.Int64 // keys ignored in requests (D13)

	mu       sync.Mutex
	refusals map[contracts.Code]int64
	resets   map[contracts.ResetReason]int64
}

// refused counts a refusal.
func (h *Hub) refused(code contracts.Code) {
	h.metrics.refused(code)
	h.opts.Observer.Refused(code)
}

func (m *Metrics) refused(code contracts.Code) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refusals == nil {
		m.refusals = map[contracts.Code]int64{}
	}
	m.refusals[code]++
}

func (m *Metrics) reset(why contracts.ResetReason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resets == nil {
		m.resets = map[contracts.ResetReason]int64{}
	}
	m.resets[why]++
}

// Refusals returns how many frames were refused with code.
func (m *Metrics) Refusals(code contracts.Code) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refusals[code]
}

// Resets returns how many clients had to start over for the reason.
func (m *Metrics) Resets(why contracts.ResetReason) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resets[why]
}

// Metrics returns the hub's counters.
func (h *Hub) Metrics() *Metrics { return &h.metrics }

// Followers returns how many connections are attached.
func (h *Hub) Followers() int { return h.roster.len() }

// Merged returns how many entries reached a follower in the frame of a later one
// (D5), since the hub was made.
func (h *Hub) Merged() uint64 { return h.journal.Merged() }

// A Lag says how far the hub's followers are behind. The last three are those of
// the worst one.
type Lag struct {
	Followers int           // attached
	Behind    int           // with something to read
	Entries   uint64        // not yet read, those that no client sees included
	Bytes     int64         // of their bodies; estimated from the first of them
	Age       time.Duration // of the oldest that clients see
}

// weighed is how many entries a Lag looks at to say how long they are.
const lagSample = 64

// Lag looks at every follower once, without the session's lock, and reads a few
// entries from the store if one of them is behind. A follower that waits for a
// snapshot has nothing to catch up with. Bytes and Age are zero if the store
// cannot say, as after the end.
func (h *Hub) Lag() Lag {
	visible := h.journal.Visible()
	oldest, lag := h.roster.behind(visible)
	if lag.Behind == 0 {
		return lag
	}
	lag.Entries = visible - oldest
	select {
	case <-h.done:
	default:
		lag.estimate(h.opts.Store, max(oldest, h.journal.First()-1), visible, time.Now())
	}
	return lag
}

// behind returns the cursor of the follower that has furthest to go to visible.
func (r *roster) behind(visible uint64) (oldest uint64, lag Lag) {
	oldest = math.MaxUint64
	r.mu.RLock()
	defer r.mu.RUnlock()
	lag.Followers = len(r.boxes)
	for _, b := range r.boxes {
		if b.needsSnapshot.Load() { // read first: a snapshot moves the cursor before it clears this
			continue
		}
		if cursor := b.cursor.Load(); cursor < visible {
			lag.Behind++
			oldest = min(oldest, cursor)
		}
	}
	return oldest, lag
}

// weigh sets Bytes and Age from the first entries between two cursors.
func (l *Lag) estimate(store journal.Store, after, visible uint64, now time.Time) {
	var looked, size int64
	err := store.Read(after, func(e journal.Entry) bool {
		if e.Cursor > visible {
			return false
		}
		looked++
		if e.Kind == journal.Message || e.Kind == journal.Snapshot {
			if size == 0 {
				l.Age = max(0, now.Sub(time.UnixMilli(e.Time)))
			}
			size += int64(len(e.Body))
		}
		return looked < lagSample
	})
	if err == nil && looked > 0 {
		l.Bytes = int64(float64(size) / float64(looked) * float64(l.Entries))
	}
}
