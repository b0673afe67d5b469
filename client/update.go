package client

import (
	"context"
	"encoding/json"
	"errors"
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
	KindHistory      Kind = "history"      // Page: the latest turns, after the first snapshot; see WithTurns
	KindHeartbeat    Kind = "heartbeat"    // no field: the server is alive
	KindControl      Kind = "control"      // Control: *contracts.LeaseChange, *contracts.ControlRequest, ...
	KindConnected    Kind = "connected"    // Attached: a connection was made, the first one or a later one
	KindDisconnected Kind = "disconnected" // Err, Retry: the connection was lost; the client will reconnect
)

// An Update is one item from [Client.Next]. The caller owns the values it points
// to; the client does not change them.
type Update struct {
	Kind   Kind
	Cursor uint64 // position in the journal, this update included; it rises with gaps
	Epoch  string // epoch of Cursor

	// Replayed marks an entry from before this connection was made.
	Replayed bool

	Event    contracts.Event
	Snapshot *contracts.Snapshot
	Page     *contracts.HistoryPage
	Reason   contracts.ResetReason
	Control  contracts.Frame
	Attached *contracts.Attached
	Err      error         // a *CloseError
	Retry    time.Duration // delay until the next attempt

	// Body is the received JSON of the event or snapshot.
	Body json.RawMessage
}

// noFrameSize is the size in the queue of an update without a frame.
const noFrameSize = 256

// handleFrame delivers a new entry of the session to the caller, and an answer to
// its call.
func (c *Client) handleFrame(ctx context.Context, frame contracts.Frame, size int) error {
	switch f := frame.(type) {
	case *contracts.MessageEnvelope:
		return c.handleMessage(ctx, f, size)
	case *contracts.SnapshotEnvelope:
		return c.handleSnapshot(ctx, Update{Kind: KindSnapshot, Body: f.Snapshot}, size)
	case *contracts.ResetEnvelope:
		return c.handleSnapshot(ctx, Update{Kind: KindReset, Reason: f.Reason, Body: f.Snapshot}, size)
	case *contracts.HeartbeatEnvelope:
		if c.position.known && f.Cursor < c.position.cursor {
			return nil // not plausible
		}
		return c.deliver(ctx, Update{Kind: KindHeartbeat, Cursor: f.Cursor}, size)
	case *contracts.HistoryEnvelope:
		if f.ID == "" {
			return c.deliver(ctx, Update{Kind: KindHistory, Cursor: c.position.cursor, Page: &f.Page}, size)
		}
		c.calls.answer(&f.ID, answer{page: &f.Page})
	case *contracts.Result:
		c.calls.answer(f.ID, answer{result: *f})
	case *contracts.Refusal:
		c.calls.answer(f.ID, answer{err: refusal(f)})
	case *contracts.Goodbye, *contracts.Pong: // the close that follows reports a goodbye
	case *contracts.LeaseChange:
		c.mu.Lock()
		c.attached.ControllerLeaseGranted, c.attached.ControllerConnectionID = f.Granted, f.ControllerConnectionID
		c.mu.Unlock()
		return c.deliver(ctx, Update{Kind: KindControl, Cursor: c.position.cursor, Control: f}, size)
	default:
		return c.deliver(ctx, Update{Kind: KindControl, Cursor: c.position.cursor, Control: f}, size)
	}
	return nil
}

// handleMessage delivers an event. hello_ok, which is delivered too, ends the
// replay of missed entries.
func (c *Client) handleMessage(ctx context.Context, f *contracts.MessageEnvelope, size int) error {
	u := Update{Kind: KindEvent, Cursor: f.Cursor, Body: f.Message, Replayed: c.position.replaying}
	event, err := new(contracts.Decoder).Event(f.Message)
	if errors.Is(err, contracts.ErrUnknownType) {
		u.Kind, err = KindUnknown, nil
	}
	if err != nil {
		return &protocolError{err}
	}
	u.Event = event
	if _, ok := event.(*contracts.HelloOK); ok {
		c.position.replaying, u.Replayed = false, false
	}
	if !c.position.accept(f.Cursor) {
		return nil
	}
	return c.deliver(ctx, u, size)
}

// handleSnapshot delivers a reset, or a snapshot if it is new.
func (c *Client) handleSnapshot(ctx context.Context, u Update, size int) error {
	snapshot, err := new(contracts.Decoder).Snapshot(u.Body)
	if err != nil {
		return &protocolError{err}
	}
	u.Snapshot, u.Cursor, u.Replayed = snapshot, snapshot.Cursor, c.position.replaying
	if u.Kind == KindReset {
		c.position.advance(snapshot.Cursor)
	} else if !c.position.accept(snapshot.Cursor) {
		return nil
	}
	return c.deliver(ctx, u, size)
}

// deliver queues an update for the caller. It waits while the queue is full.
func (c *Client) deliver(ctx context.Context, u Update, size int) error {
	u.Epoch = c.position.epoch
	return c.queue.push(ctx, u, size)
}

// refusal returns the error of a ws.error frame.
func refusal(f *contracts.Refusal) *contracts.Error {
	e := &contracts.Error{Code: f.Code, Message: f.Message}
	for _, d := range f.Details {
		if d.Reason == string(f.Code) {
			e.Metadata = d.Metadata
		}
	}
	return e
}
