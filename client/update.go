package client

import (
	"encoding/json"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Kind says which fields of an [Update] are set.
type Kind string

const (
	KindEvent        Kind = "event"        // Event, Body: one entry of the session
	KindUnknown      Kind = "unknown"      // Body: an entry of a type newer than this client
	KindSnapshot     Kind = "snapshot"     // Snapshot, Body: the state at Cursor
	KindReset        Kind = "reset"        // Reason, Snapshot, Body: discard everything, start from here
	KindHeartbeat    Kind = "heartbeat"    // nothing else: the server is there
	KindControl      Kind = "control"      // Control: *contracts.LeaseChange, *contracts.ControlRequest, ...
	KindConnected    Kind = "connected"    // Attached: a connection was made, again or for the first time
	KindDisconnected Kind = "disconnected" // Err, Retry: the connection was lost and will be made again
)

// An Update is one thing that a client learns. What it points to belongs to
// the caller and is not changed afterwards.
type Update struct {
	Kind   Kind
	Cursor uint64 // the place in the journal, this update included
	Epoch  string // the journal that Cursor counts in

	// Replayed marks an entry that happened before this connection was made.
	Replayed bool

	Event    contracts.Event
	Snapshot *contracts.Snapshot
	Reason   contracts.ResetReason
	Control  contracts.Frame
	Attached *contracts.Attached
	Err      error         // a *CloseError
	Retry    time.Duration // until the next attempt

	// Body is the event or snapshot as it was received.
	Body json.RawMessage
}
