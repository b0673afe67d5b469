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
	KindUnknown      Kind = "unknown"      // Body: an entry of a type that this client does not know
	KindSnapshot     Kind = "snapshot"     // Snapshot, Body: the state at Cursor
	KindReset        Kind = "reset"        // Reason, Snapshot, Body: replace the state by Snapshot
	KindHeartbeat    Kind = "heartbeat"    // no field: the server is alive
	KindControl      Kind = "control"      // Control: *contracts.LeaseChange, *contracts.ControlRequest, ...
	KindConnected    Kind = "connected"    // Attached: a connection was made, the first one or a later one
	KindDisconnected Kind = "disconnected" // Err, Retry: the connection was lost; the client will reconnect
)

// An Update is one item from [Client.Next]. The caller owns the values it points
// to; the client does not change them.
type Update struct {
	Kind   Kind
	Cursor uint64 // position in the journal, this update included
	Epoch  string // epoch of Cursor

	// Replayed marks an entry from before this connection was made.
	Replayed bool

	Event    contracts.Event
	Snapshot *contracts.Snapshot
	Reason   contracts.ResetReason
	Control  contracts.Frame
	Attached *contracts.Attached
	Err      error         // a *CloseError
	Retry    time.Duration // delay until the next attempt

	// Body is the received JSON of the event or snapshot.
	Body json.RawMessage
}
