package hub

import (
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// An Observer is told what happens in a session, for metrics and traces. Its
// methods must return at once and must not call the hub. They are called with the
// session's lock held, in the order of events. Refused and Reset are exceptions:
// they may be called at any time and from several goroutines.
type Observer interface {
	// Attached and Detached are called when a socket or stream begins and ends.
	// transport is stdio, ws or sse.
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
