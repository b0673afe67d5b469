package hub

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// An Observer is told what happens in a session, for metrics and traces. Its
// methods must return at once and must not call the hub. They are called with the
// session's lock held, in the order of events. Refused and Reset are exceptions:
// they may be called at any time and from several goroutines.
type Observer interface {
	// Attached and Detached are called when a socket or stream begins and ends.
	// transport is stdio, ws or sse. Both get the same role.
	Attached(role contracts.Role, transport string)
	Detached(role contracts.Role, transport string)

	// Refused is called for every refusal, handshakes included.
	Refused(code contracts.Code)

	// Reset is called for every client that is reset.
	Reset(why contracts.ResetReason)

	// LeaseMoved is called for every change of the lease holder.
	LeaseMoved(why contracts.LeaseReason)

	// Appended is called for every batch of entries that was written to the store.
	// took is the duration of the write.
	Appended(entries, bytes int, took time.Duration)

	// Accepted is called for every admitted command. trace is its W3C traceparent,
	// or empty.
	Accepted(cmd contracts.Command, trace string, at time.Time)

	// Published is called for every event that is added to the journal.
	Published(ev contracts.Event, at time.Time)

	// RunEnded is called when a run has ended.
	RunEnded(at time.Time)
}

// unobserved is the observer of a hub without Options.Observer.
type unobserved struct{}

func (unobserved) Attached(contracts.Role, string)               {}
func (unobserved) Detached(contracts.Role, string)               {}
func (unobserved) Refused(contracts.Code)                        {}
func (unobserved) Reset(contracts.ResetReason)                   {}
func (unobserved) LeaseMoved(contracts.LeaseReason)              {}
func (unobserved) Appended(int, int, time.Duration)              {}
func (unobserved) Accepted(contracts.Command, string, time.Time) {}
func (unobserved) Published(contracts.Event, time.Time)          {}
func (unobserved) RunEnded(time.Time)                            {}

// Metrics holds counters since the hub was made. Every limit of the hub has a
// counter of how often it was reached. An [Observer] counts refusals and resets.
type Metrics struct {
	SlowConsumers atomic.Int64 // connections closed because the client did not read
	Silent        atomic.Int64 // connections closed because the client was silent for three heartbeat intervals
	AgentWaits    atomic.Int64 // publishes that waited for a local client
	CommandWaits  atomic.Int64 // times a command waited for its owner to read
	UnknownKeys   atomic.Int64 // keys ignored in requests (D13)
}

// Metrics returns the hub's counters.
func (h *Hub) Metrics() *Metrics { return &h.metrics }

// Merged returns how many entries reached a follower in the frame of a later entry
// (D5), since the hub was made.
func (h *Hub) Merged() uint64 { return h.journal.Merged() }

// A Lag says how far the hub's followers are behind. Entries, Bytes and Age
// describe the follower that is furthest behind.
type Lag struct {
	Followers int           // attached
	Behind    int           // followers with something to read
	Entries   uint64        // unread entries, hidden ones included
	Bytes     int64         // size of their bodies, estimated from the first lagSample entries
	Age       time.Duration // age of the oldest unread event or snapshot
}

// lagSample is how many entries Lag reads to estimate Bytes.
const lagSample = 64

// Lag looks at every follower once, without the session's lock. If one is behind,
// it reads up to lagSample entries from the store. A follower that waits for a
// snapshot does not count as behind. Bytes and Age are zero if the store cannot be
// read, as after the end.
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

// behind returns the cursor of the follower that is furthest behind visible.
func (r *roster) behind(visible uint64) (oldest uint64, lag Lag) {
	oldest = math.MaxUint64
	r.mu.RLock()
	defer r.mu.RUnlock()
	lag.Followers = len(r.boxes)
	for _, b := range r.boxes {
		if b.needsSnapshot.Load() { // before cursor: writing a snapshot moves the cursor and then clears needsSnapshot
			continue
		}
		if cursor := b.cursor.Load(); cursor < visible {
			lag.Behind++
			oldest = min(oldest, cursor)
		}
	}
	return oldest, lag
}

// estimate sets Bytes and Age from the first entries between two cursors.
func (l *Lag) estimate(store journal.Store, after, visible uint64, now time.Time) {
	var looked, size int64
	err := store.Read(after, func(e journal.Entry) bool {
		if e.Cursor > visible {
			return false
		}
		looked++
		if _, seen := e.Seen(0); seen {
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
