package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	mathrand "math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/session"
)

// closeTimeout is how long Close waits for the server to read the goodbye.
const closeTimeout = 2 * time.Second

// A Client is attached to one session until Close is called or the server ends the
// connection for good. Its methods may be called from any goroutine, but Next from one
// at a time.
//
// The caller must keep reading updates. When 4 MiB of them are unread, but for one (see
// [WithBuffer]),
// the client stops reading the connection, and the answers that Send and similar
// methods wait for are not read either.
type Client struct {
	// Static after Dial.
	config
	address  *url.URL
	greeting []byte // the encoded hello
	queue    *queue
	calls    *calls
	idPrefix string
	lastID   atomic.Uint64
	stop     context.CancelCauseFunc
	finished chan struct{} // closed when both goroutines have ended
	skipped  uint64        // entries before those of WithTail
	base     uint64        // cursor of the state read first with WithTail; else 0

	// Owned by the goroutine that reads.
	position position

	closing sync.Once

	mu       sync.Mutex         // guards the following
	attached contracts.Attached // of the latest connection, updated with its lease
	state    *session.State     // as of the last update that Next returned
}

// Dial attaches to the server at base: the URL of the server (http:// or ws://),
// the URL of a WebSocket endpoint below it, or the URL with a single-use ticket
// that a server prints. Dial follows redirects only to the same host, and not from
// https to http. ctx bounds the first connection, which is tried once. If the server
// or the network fails, the error is a [*CloseError]. The caller must call Close.
func Dial(ctx context.Context, base string, opts ...Option) (*Client, error) {
	address, ticket, err := endpoint(base)
	if err != nil {
		return nil, err
	}
	c := &Client{
		config:   newConfig(opts),
		address:  address,
		calls:    newCalls(),
		idPrefix: rand.Text()[:12],
		finished: make(chan struct{}),
		state:    session.New(),
	}
	c.queue = newQueue(c.buffer)
	if c.cursor != nil {
		c.position = position{epoch: c.epoch, cursor: *c.cursor, known: true}
	}
	if c.greeting, err = contracts.EncodeCommand(&c.hello); err != nil {
		return nil, fmt.Errorf("encode hello: %w", err)
	}
	l, err := c.attach(ctx, c.takeover, ticket)
	if err == nil && c.tail > 0 && ticket == "" {
		l, err = c.rewind(ctx, l)
	}
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", address.Host, err)
	}
	c.calls.link(c.noteAttached(l.attached))
	life, stop := context.WithCancelCause(context.Background())
	c.stop = stop
	go c.run(life, l) // ends with life, or when the server ends the connection for good
	return c, nil
}

// rewind reads the state at the start of a new connection, and then continues the
// connection tail entries earlier.
func (c *Client) rewind(ctx context.Context, l *link) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, contracts.DefaultHandshakeTimeout)
	defer cancel()
	defer l.close()
	defer context.AfterFunc(ctx, l.close)()
	c.noteAttached(l.attached)
	var at *contracts.Snapshot
	for at == nil {
		frame, _, err := l.next()
		if first, ok := frame.(*contracts.SnapshotEnvelope); ok {
			at, err = l.decoder.Snapshot(first.Snapshot)
		}
		if err != nil && !errors.Is(err, contracts.ErrUnknownType) {
			return nil, l.closeError(cmp.Or(context.Cause(ctx), err))
		}
	}
	c.state.Restore(at)
	c.base = at.Cursor
	c.skipped = c.base - min(c.base, c.tail)
	c.position.advance(c.skipped)
	l.close()
	again, err := c.attach(ctx, c.reconnectTakeover(), "")
	if err == nil && again.attached.Resume != "replay" {
		c.skipped = c.base // the server no longer has that many entries
	}
	return again, err
}

// Skipped returns how many entries [WithTail] left out.
func (c *Client) Skipped() uint64 { return c.skipped }

// Next returns the next update. It waits for one at most until ctx ends. After the
// last update it returns [ErrClosed] if Close was called, otherwise a
// [*CloseError].
func (c *Client) Next(ctx context.Context) (Update, error) {
	u, err := c.queue.pop(ctx)
	if err != nil {
		return Update{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch u.Kind {
	case KindEvent:
		if u.Cursor > c.base { // else the state includes it
			c.state.Apply(u.Event)
		}
	case KindSnapshot, KindReset:
		c.state.Restore(u.Snapshot)
		c.base = 0
	}
	return u, nil
}

// Updates iterates over Next. An error ends the sequence, as its last element with
// an empty update. Close ends the sequence without an error.
func (c *Client) Updates(ctx context.Context) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		for {
			u, err := c.Next(ctx)
			if errors.Is(err, ErrClosed) || !yield(u, err) || err != nil {
				return
			}
		}
	}
}

// State returns the state of the session as of the last update that Next returned.
// It shares memory with later states; do not change it.
func (c *Client) State() contracts.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Snapshot(0).State
}

// Attached returns the server's latest ws.attached, updated by the latest ws.lease.
func (c *Client) Attached() contracts.Attached {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attached
}

// Close leaves the session and waits until every goroutine of the client has ended.
// With keep, the server holds the connection and its lease for the usual time, for
// a later client; otherwise both end now. Unread updates are dropped. Only the
// first call has an effect.
func (c *Client) Close(keep bool) error {
	c.closing.Do(func() {
		c.queue.close(ErrClosed, true) // also unblocks the reader, if it waits for the caller
		grace, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if _, err := c.send(grace, &contracts.Bye{Keep: keep}, &call{}); err == nil {
			select {
			case <-c.finished: // the server closed
			case <-grace.Done():
			}
		}
		c.stop(ErrClosed)
	})
	<-c.finished
	return nil
}

// run follows the session until the client ends.
func (c *Client) run(ctx context.Context, l *link) {
	defer close(c.finished)
	err := c.follow(ctx, l)
	c.calls.close(err)
	c.queue.close(err, false)
	c.stop(err)
}

// follow serves one connection after another and returns why it gave up.
func (c *Client) follow(ctx context.Context, l *link) error {
	tries := attempts{policy: c.reconnect, jitter: mathrand.Float64}
	for {
		began := time.Now()
		why := c.serve(ctx, l)
		tries.ended(began)
		var err error
		if l, err = c.nextLink(ctx, why, &tries); err != nil {
			return err
		}
		c.calls.link(c.noteAttached(l.attached))
	}
}

// serve reads one connection, which the calls are linked to, to its end. Its writer has
// ended when serve returns.
func (c *Client) serve(ctx context.Context, l *link) *CloseError {
	ctx, stop := context.WithCancelCause(ctx)
	var writer sync.WaitGroup
	defer writer.Wait()
	defer c.calls.unlink()
	defer stop(nil)
	defer l.close()
	defer context.AfterFunc(ctx, l.close)()

	writer.Go(func() { stop(c.write(ctx, l)) }) // ends with ctx or the connection
	l.silence = time.AfterFunc(l.silenceLimit, func() { stop(errSilent) })
	l.silence.Stop() // until the first read
	defer l.silence.Stop()

	err := c.read(ctx, l)
	if websocket.CloseStatus(err) < 0 && ctx.Err() != nil {
		err = context.Cause(ctx) // this side closed it: the writer, the silence timer or Close
	}
	return l.closeError(err)
}

// noteAttached records the server's ws.attached. Unless the server replays, the next
// snapshot sets the cursor, even if it is smaller. noteAttached reports whether the
// server continues the same connection.
func (c *Client) noteAttached(a *contracts.Attached) (same bool) {
	old, replaying := c.position, a.Resume == "replay"
	c.position = position{
		session: a.SessionID, connection: a.ConnectionID, token: a.ConnectionToken,
		epoch: a.Epoch, cursor: old.cursor, known: old.known && replaying, replaying: replaying,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached = *a
	return a.ConnectionID == old.connection
}

// read handles frames until the connection ends.
func (c *Client) read(ctx context.Context, l *link) error {
	u := Update{Kind: KindConnected, Epoch: c.position.epoch, Attached: l.attached}
	if err := c.deliver(ctx, u, noFrameSize); err != nil {
		return err
	}
	for {
		l.noteActivity()
		frame, size, err := l.next()
		l.silence.Stop()
		if errors.Is(err, contracts.ErrUnknownType) {
			c.log.Debug("unknown frame skipped", "error", err)
			continue
		}
		if err != nil {
			return err
		}
		if err := c.handleFrame(ctx, frame, size); err != nil {
			return err
		}
	}
}

// write sends queued frames until ctx or the connection ends.
func (c *Client) write(ctx context.Context, l *link) error {
	for {
		for frame := c.calls.next(); frame != nil; frame = c.calls.next() {
			if err := l.write(frame); err != nil {
				return err
			}
		}
		select {
		case <-c.calls.wake:
		case <-ctx.Done():
			return nil
		}
	}
}
