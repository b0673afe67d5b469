package client

import (
	"context"
	"errors"

	"github.com/seed-028515a8/maestro/contracts"
)

// noticeSize is what an update that came in no frame counts in the queue.
const noticeSize = 256

// take handles one frame: an entry of the session goes to the caller if it is
// news, an answer to whoever waits for it.
func (c *Client) take(ctx context.Context, frame contracts.Frame, size int) error {
	switch f := frame.(type) {
	case *contracts.MessageEnvelope:
		return c.takeMessage(ctx, f, size)
	case *contracts.SnapshotEnvelope:
		return c.takeSnapshot(ctx, Update{Kind: KindSnapshot, Body: f.Snapshot}, size)
	case *contracts.ResetEnvelope:
		return c.takeSnapshot(ctx, Update{Kind: KindReset, Reason: f.Reason, Body: f.Snapshot}, size)
	case *contracts.HeartbeatEnvelope:
		if !c.place.heartbeat(f.Cursor) {
			return nil
		}
		return c.tell(ctx, Update{Kind: KindHeartbeat, Cursor: f.Cursor}, size)
	case *contracts.Result:
		c.calls.answer(f.ID, answer{frame: f})
	case *contracts.Pong:
		c.calls.answer(f.ID, answer{frame: f})
	case *contracts.Refusal:
		c.calls.answer(f.ID, answer{err: refusal(f)})
	case *contracts.Goodbye: // the close that follows tells of it
	case *contracts.LeaseChange:
		c.setLease(f)
		return c.tell(ctx, Update{Kind: KindControl, Cursor: c.place.cursor, Control: f}, size)
	default:
		return c.tell(ctx, Update{Kind: KindControl, Cursor: c.place.cursor, Control: f}, size)
	}
	return nil
}

// takeMessage hands an event to the caller. hello_ok marks the end of what was
// missed; it is told like the others.
func (c *Client) takeMessage(ctx context.Context, f *contracts.MessageEnvelope, size int) error {
	u := Update{Kind: KindEvent, Cursor: f.Cursor, Body: f.Message, Replayed: c.place.replaying}
	var d contracts.Decoder
	event, err := d.Event(f.Message)
	if errors.Is(err, contracts.ErrUnknownType) {
		u.Kind, err = KindUnknown, nil
	}
	if err != nil {
		return &fault{err}
	}
	u.Event = event
	if _, ok := event.(*contracts.HelloOK); ok {
		c.place.replaying, u.Replayed = false, false
	}
	if !c.place.message(f.Cursor) {
		return nil
	}
	return c.tell(ctx, u, size)
}

// takeSnapshot hands the state to the caller: a reset always, a snapshot if it
// is news.
func (c *Client) takeSnapshot(ctx context.Context, u Update, size int) error {
	var d contracts.Decoder
	snapshot, err := d.Snapshot(u.Body)
	if err != nil {
		return &fault{err}
	}
	u.Snapshot, u.Cursor, u.Replayed = snapshot, snapshot.Cursor, c.place.replaying
	if u.Kind == KindReset {
		c.place.advance(snapshot.Cursor)
	} else if !c.place.message(snapshot.Cursor) {
		return nil
	}
	return c.tell(ctx, u, size)
}

// tell hands an update to the caller, waiting until there is room for it.
func (c *Client) tell(ctx context.Context, u Update, size int) error {
	u.Epoch = c.place.epoch
	return c.queue.push(ctx, u, size)
}

// setLease keeps what Attached returns current.
func (c *Client) setLease(f *contracts.LeaseChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached.ControllerLeaseGranted = f.Granted
	c.attached.ControllerConnectionID = f.ControllerConnectionID
}

// refusal returns the error that a ws.error frame stands for.
func refusal(f *contracts.Refusal) *contracts.Error {
	e := &contracts.Error{Code: f.Code, Message: f.Message}
	for _, d := range f.Details {
		if d.Reason == string(f.Code) {
			e.Metadata = d.Metadata
		}
	}
	return e
}
