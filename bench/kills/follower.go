package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/client"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// comeBack is how followers return: soon, for a kill is over in a moment.
var comeBack = client.Reconnect{First: 10 * time.Millisecond, Max: 100 * time.Millisecond}

func hello(name string, role contracts.Role) contracts.Hello {
	return contracts.Hello{
		ProtocolVersion: contracts.ProtocolVersion, Role: role,
		ClientInfo:   &contracts.ClientInfo{Name: name},
		Capabilities: &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestApproval}},
	}
}

// follow records what c is shown until it is closed.
func follow(ctx context.Context, c *client.Client, r *record) {
	for u, err := range c.Updates(ctx) {
		switch {
		case err != nil:
			r.fail(err)
		case u.Kind == client.KindEvent, u.Kind == client.KindUnknown, u.Kind == client.KindSnapshot:
			r.event(u.Cursor, u.Event, u.Body)
		case u.Kind == client.KindReset:
			r.fail(fmt.Errorf("reset at cursor %d: %s", u.Cursor, u.Reason))
			return
		case u.Kind == client.KindDisconnected:
			r.fail(u.Err)
		case u.Kind == client.KindConnected:
			r.fail(nil)
		}
	}
}

// A loner follows with nothing but the wire and the place it has reached, which
// it presents whenever it attaches. Unlike the Go client it passes nothing over
// that the server sends.
type loner struct {
	*record
	base  string
	epoch string
}

// maxFrame bounds a frame that a loner reads, in bytes.
const maxFrame = 64 << 20

// errReset ends a loner: the server did not go on from where it was.
var errReset = errors.New("the server did not resume")

// follow attaches again and again until ctx ends.
func (l *loner) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.attach(ctx)
		l.fail(err)
		if errors.Is(err, errReset) {
			return
		}
		_ = sleep.For(ctx, comeBack.First) // the loop looks at ctx
	}
}

// attach serves one connection to its end.
func (l *loner) attach(ctx context.Context) error {
	query := url.Values{"role": {string(contracts.RoleViewer)}, "cursor": {strconv.FormatUint(l.place(), 10)}}
	if l.epoch != "" {
		query.Set("epoch", l.epoch)
	}
	conn, _, err := websocket.Dial(ctx, l.base+"/api/headless/ws?"+query.Encode(), &websocket.DialOptions{Subprotocols: []string{contracts.Subprotocol}})
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }() // an error says that it is closed already
	conn.SetReadLimit(maxFrame)
	greeting := hello(l.name, contracts.RoleViewer)
	text, err := contracts.EncodeCommand(&greeting)
	if err != nil {
		return err
	}
	if err := conn.Write(ctx, websocket.MessageText, text); err != nil {
		return err
	}
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if err := l.frame(text); err != nil {
			return err
		}
	}
}

func (l *loner) place() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cursor
}

// frame takes one frame of the server.
func (l *loner) frame(text []byte) error {
	var d contracts.Decoder
	frame, err := d.ServerFrame(text)
	if err != nil {
		return fmt.Errorf("%w: %.80s", err, text)
	}
	switch f := frame.(type) {
	case *contracts.Attached:
		if f.Resume != "replay" {
			return fmt.Errorf("%w: it answered with a %s", errReset, f.Resume)
		}
		l.epoch = f.Epoch
		l.fail(nil)
	case *contracts.SnapshotEnvelope:
		s, err := d.Snapshot(f.Snapshot)
		if err != nil {
			return err
		}
		l.event(s.Cursor, nil, f.Snapshot)
	case *contracts.ResetEnvelope:
		return fmt.Errorf("%w: %s", errReset, f.Reason)
	case *contracts.MessageEnvelope:
		event, err := d.Event(f.Message)
		if err != nil && !errors.Is(err, contracts.ErrUnknownType) {
			return err
		}
		l.event(f.Cursor, event, f.Message)
	}
	return nil
}

// replay attaches a newcomer that reads the journal from its beginning up to
// and including the entry at cursor.
func replay(ctx context.Context, base string, cursor uint64) ([]delivery, error) {
	c, err := client.Dial(ctx, base, client.WithHistory(), client.WithHello(hello("newcomer", contracts.RoleViewer)), client.WithoutReconnect())
	if err != nil {
		return nil, err
	}
	defer c.Close(false)
	r := newRecord("newcomer")
	for u, err := range c.Updates(ctx) {
		switch {
		case err != nil:
			return nil, fmt.Errorf("read the journal: %w", err)
		case u.Kind == client.KindReset:
			return nil, fmt.Errorf("read the journal: reset: %s", u.Reason)
		case u.Kind == client.KindEvent, u.Kind == client.KindUnknown, u.Kind == client.KindSnapshot:
			r.event(u.Cursor, u.Event, u.Body)
		}
		if r.cursor >= cursor {
			break
		}
	}
	if !r.duplicates.clean() {
		return nil, fmt.Errorf("read the journal: %s", r.duplicates.examples[0])
	}
	return r.cut(cursor), nil
}

// pending returns the questions in the snapshot that a newcomer gets.
func pending(ctx context.Context, base string) ([]string, error) {
	c, err := client.Dial(ctx, base, client.WithHello(hello("newcomer", contracts.RoleViewer)), client.WithoutReconnect())
	if err != nil {
		return nil, err
	}
	defer c.Close(false)
	for u, err := range c.Updates(ctx) {
		if err != nil {
			return nil, fmt.Errorf("read a snapshot: %w", err)
		}
		if u.Kind != client.KindSnapshot {
			continue
		}
		var ids []string
		for _, p := range u.Snapshot.State.PendingRequests {
			ids = append(ids, p.ID)
		}
		return ids, nil
	}
	return nil, errors.New("read a snapshot: the connection ended")
}
