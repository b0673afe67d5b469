package hub

import (
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// An Observer is told what happens in a session, for metrics and traces. Its
// methods are called with the session's lock held, in the order of events, but
// for Refused and Reset, which may come at any time and from several goroutines:
// they must return at once and must not call the hub.
type Observer interface {
	// Attached and Detached frame the time of a socket or stream. transport is
	// stdio, ws or sse.
	Attached(role contracts.Role, transport string)
	Detached(role contracts.Role, transport string)

	// Refused is told of every refusal, handshakes included.
	Refused(code contracts.Code)

	// Reset is told of every client that had to start over.
	Reset(why contracts.ResetReason)

	// LeaseMoved is told of every change of the holder.
	LeaseMoved(why contracts.LeaseReason)

	// Appended is told of every batch of entries that went to the store, and
	// how long the store took.
	Appended(entries, bytes int, took time.Duration)

	// Accepted is told of every command that was admitted; trace is the W3C
	// traceparent it came with, or empty.
	Accepted(cmd contracts.Command, trace string, at time.Time)

	// Published is told of every event as it goes into the journal.
	Published(ev contracts.Event, at time.Time)

	// RunEnded is told when a prompt has been served.
	RunEnded(at time.Time)
}

// unobserved is the observer of a hub that has none.
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
