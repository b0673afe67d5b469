package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

// session is the id of every session that is moved.
const session = "moved"

// A viewer follows a session from one runner to the next, and writes down what
// it is shown.
type viewer struct {
	name   string
	socket bool // a WebSocket, else an event stream

	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever something was shown
	epoch   string
	start   uint64                // the cursor of the first state it was shown
	cursor  uint64                // of the last
	text    string                // of the response that was open, from its beginning
	steps   []step                // everything else, in order
	last    *contracts.Snapshot   // the last state it was shown, and
	reset   contracts.ResetReason // why, if that replaced everything
	ended   error                 // why the stream ended; nil while it lasts
	backed  bool                  // a cursor that was no greater than the one before
	counted int
}

// A step is one message that was shown.
type step struct {
	cursor uint64
	kind   string
	sum    [sha256.Size]byte
}

func newViewer(name string, socket bool) *viewer {
	return &viewer{name: name, socket: socket, changed: make(chan struct{})}
}

// follow follows until the stream ends. It begins where the viewer was.
func (v *viewer) follow(ctx context.Context, base string) {
	var err error
	if v.socket {
		err = v.followSocket(ctx, base)
	} else {
		err = v.followEvents(ctx, base)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = err
	v.signal()
}

// query says where the viewer was.
func (v *viewer) query() url.Values {
	v.mu.Lock()
	defer v.mu.Unlock()
	q := url.Values{}
	if v.epoch != "" {
		q.Set("epoch", v.epoch)
		q.Set("cursor", fmt.Sprint(v.cursor))
	}
	v.ended, v.last, v.reset = nil, nil, ""
	return q
}

func (v *viewer) followEvents(ctx context.Context, base string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/headless/sessions/"+session+"/events?"+v.query().Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or nobody wants the rest
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("events: %s", resp.Status)
	}
	v.enter(resp.Header.Get("X-Maestro-Headless-Epoch"))
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := v.show([]byte(data)); err != nil {
				return err
			}
		}
	}
}

func (v *viewer) followSocket(ctx context.Context, base string) error {
	q := v.query()
	q.Set("sessionId", session)
	q.Set("role", "viewer")
	conn, _, err := websocket.Dial(ctx, base+"/api/headless/ws?"+q.Encode(), &websocket.DialOptions{Subprotocols: []string{contracts.Subprotocol}})
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }() // it has ended either way
	conn.SetReadLimit(16 << 20)
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"hello","role":"viewer"}`)); err != nil {
		return err
	}
	for {
		_, text, err := conn.Read(ctx)
		if websocket.CloseStatus(err) == websocket.StatusGoingAway {
			return io.EOF
		}
		if err != nil {
			return err
		}
		if err := v.show(text); err != nil {
			return err
		}
	}
}

func (v *viewer) enter(epoch string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.epoch = epoch
}

// show writes one item down.
func (v *viewer) show(text []byte) error {
	frame, err := new(contracts.Decoder).ServerFrame(text)
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	defer v.signal()
	switch f := frame.(type) {
	case *contracts.Attached:
		v.epoch = f.Epoch
	case *contracts.SnapshotEnvelope:
		return v.state(f.Snapshot, "")
	case *contracts.ResetEnvelope:
		return v.state(f.Snapshot, f.Reason)
	case *contracts.MessageEnvelope:
		return v.message(f)
	}
	return nil
}

func (v *viewer) state(text []byte, reset contracts.ResetReason) error {
	s, err := new(contracts.Decoder).Snapshot(text)
	if err != nil {
		return err
	}
	if reset == "" && s.Cursor <= v.cursor && v.start != 0 {
		v.backed = true
	}
	if v.start == 0 {
		v.start = s.Cursor
		if r := s.State.CurrentResponse; r != nil {
			v.text = r.Text
		}
	}
	v.cursor, v.last, v.reset = s.Cursor, s, reset
	v.counted++
	return nil
}

func (v *viewer) message(f *contracts.MessageEnvelope) error {
	if f.Cursor <= v.cursor {
		v.backed = true
	}
	v.cursor = f.Cursor
	v.counted++
	event, err := new(contracts.Decoder).Event(f.Message)
	switch e := event.(type) {
	case *contracts.ResponseChunk:
		v.text += e.Content
	case *contracts.HelloOK, *contracts.ConnectionInfo, nil: // private, and told to a crowd now and then
	default:
		v.steps = append(v.steps, step{f.Cursor, e.EventType(), sha256.Sum256(f.Message)})
	}
	return err
}

// signal tells whoever waits. The caller holds the lock.
func (v *viewer) signal() {
	close(v.changed)
	v.changed = make(chan struct{})
}

// await waits until what was shown satisfies done.
func (v *viewer) await(ctx context.Context, what string, done func(*viewer) bool) error {
	for {
		v.mu.Lock()
		ok, ended, changed := done(v), v.ended, v.changed
		v.mu.Unlock()
		switch {
		case ok:
			return nil
		case ended != nil:
			return fmt.Errorf("%s waits for %s, and its stream has ended: %w", v.name, what, ended)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s waits for %s at cursor %d", v.name, what, v.position()), context.Cause(ctx))
		}
	}
}

// seen returns the steps between two cursors.
func (v *viewer) seen(after, until uint64) []step {
	return slices.DeleteFunc(slices.Clone(v.steps), func(s step) bool { return s.cursor <= after || s.cursor > until })
}
