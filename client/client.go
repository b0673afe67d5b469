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
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/session"
)

// closeGrace is how long Close waits for the server to take a goodbye.
const closeGrace = 2 * time.Second

// A Client is attached to one session until Close is called or the server ends
// it for good. It owns one goroutine, which reads and reconnects, and a second
// one, which writes, while it is connected. Its methods may be called from any
// goroutine, but Next from one at a time.
//
// The caller must keep reading updates: when [WithBuffer] bytes of them wait,
// the connection is not read any further, and the answers that Send and its
// like wait for are behind what is not read.
type Client struct {
	// Static after Dial.
	config
	address  *url.URL
	greeting []byte // the encoded hello
	queue    *queue
	calls    *calls
	ids      idSource
	stop     context.CancelCauseFunc
	finished chan struct{} // closed when both goroutines have ended
	jitter   func() float64
	skipped  uint64 // entries before those that WithTail asked for
	base     uint64 // the cursor of the state that was there at first

	// Owned by the goroutine that reads.
	place place

	closing sync.Once

	mu       sync.Mutex         // guards the following
	attached contracts.Attached // of the latest connection, with its lease kept current
	state    *session.State     // as of the last update that Next returned
}

// Dial attaches to the server at base, which is the URL of the server (http://
// or ws://), of a WebSocket endpoint below it, or the one with a single-use
// ticket that a server prints. ctx bounds the first connection only, which is
// tried once; its failure is a [*CloseError] if the server or the network was
// to blame. Close must be called in the end.
func Dial(ctx context.Context, base string, opts ...Option) (*Client, error) {
	address, ticket, err := endpoint(base)
	if err != nil {
		return nil, err
	}
	c := &Client{
		config:   newConfig(opts),
		address:  address,
		calls:    newCalls(),
		ids:      idSource{prefix: rand.Text()[:12]},
		finished: make(chan struct{}),
		jitter:   mathrand.Float64,
		state:    session.New(),
	}
	c.queue = newQueue(c.buffer)
	if c.cursor != nil {
		c.place = place{epoch: c.epoch, cursor: *c.cursor, known: true}
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
	life, stop := context.WithCancelCause(context.Background())
	c.stop = stop
	go c.live(life, l) // ends when the server ends it for good, or with life
	return c, nil
}

// rewind takes the state that a new connection begins with, and continues the
// connection tail entries before that.
func (c *Client) rewind(ctx context.Context, l *link) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, contracts.DefaultHandshakeTimeout)
	defer cancel()
	defer l.pipe.close()
	defer context.AfterFunc(ctx, l.pipe.close)()
	c.enter(l.attached)
	var at *contracts.Snapshot
	for at == nil {
		frame, _, err := l.next()
		if first, ok := frame.(*contracts.SnapshotEnvelope); ok {
			var d contracts.Decoder
			at, err = d.Snapshot(first.Snapshot)
		}
		if err != nil && !errors.Is(err, contracts.ErrUnknownType) {
			return nil, l.ended(cmp.Or(context.Cause(ctx), err))
		}
	}
	c.state.Restore(at)
	c.base = at.Cursor
	if c.base > c.tail {
		c.skipped = c.base - c.tail
	}
	c.place.advance(c.skipped)
	l.pipe.close()
	again, err := c.attach(ctx, c.returning(), "")
	if err == nil && again.attached.Resume != "replay" {
		c.skipped = c.base // the server has not kept as much
	}
	return again, err
}

// Skipped returns how many entries of the session [WithTail] left out.
func (c *Client) Skipped() uint64 { return c.skipped }

// Next returns the next update, waiting for it no longer than ctx. After the
// last one it returns [ErrClosed] if Close was called, else a [*CloseError].
func (c *Client) Next(ctx context.Context) (Update, error) {
	u, err := c.queue.pop(ctx)
	if err != nil {
		return Update{}, err
	}
	c.fold(u)
	return u, nil
}

// Updates iterates over Next. The error that ends the sequence comes last, with
// an empty update; there is none after Close.
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

// fold applies an update to the state.
func (c *Client) fold(u Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch u.Kind {
	case KindEvent:
		if u.Cursor > c.base { // else the state has it already
			c.state.Apply(u.Event)
		}
	case KindSnapshot, KindReset:
		c.state.Restore(u.Snapshot)
		c.base = 0
	}
}

// State returns the state of the session as of the last update that Next
// returned. It shares memory with later ones and must not be changed.
func (c *Client) State() contracts.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Snapshot(0).State
}

// Attached returns what the server said at the latest handshake, with the
// lease as the latest ws.lease frame left it.
func (c *Client) Attached() contracts.Attached {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attached
}

// Close leaves the session and waits until everything the client started has
// ended. With keep the server holds the connection and its lease for a while,
// for someone who comes back; otherwise both end now. Updates that were not
// read are dropped. Only the first call counts.
func (c *Client) Close(keep bool) error {
	c.closing.Do(func() {
		c.queue.close(ErrClosed, true) // also frees the reader, if it waits for the caller
		grace, cancel := context.WithTimeout(context.Background(), closeGrace)
		defer cancel()
		if c.cast(grace, &contracts.Bye{Keep: keep}) == nil {
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

// live follows the session through all its connections.
func (c *Client) live(ctx context.Context, l *link) {
	defer close(c.finished)
	err := c.follow(ctx, l)
	c.calls.close(err)
	c.queue.close(err, false)
	c.stop(err)
}

// follow serves one connection after the other and returns why it gave up.
func (c *Client) follow(ctx context.Context, l *link) error {
	tries := attempts{policy: c.reconnect, jitter: c.jitter}
	for {
		began := time.Now()
		why := c.serve(ctx, l)
		if time.Since(began) >= c.reconnect.Max {
			tries.failed = 0 // it was a good one
		}
		var err error
		if l, err = c.again(ctx, why, &tries); err != nil {
			return err
		}
	}
}

// serve runs one connection to its end. Its writer has ended when it returns.
func (c *Client) serve(ctx context.Context, l *link) *CloseError {
	ctx, stop := context.WithCancelCause(ctx)
	var writer sync.WaitGroup
	defer writer.Wait()
	defer c.calls.unlink()
	defer stop(nil)
	defer l.pipe.close()
	defer context.AfterFunc(ctx, l.pipe.close)()

	c.calls.link(c.enter(l.attached))
	writer.Go(func() { stop(c.write(ctx, l.pipe)) }) // ends with ctx or the connection
	l.silence = time.AfterFunc(l.patient, func() { stop(errSilent) })
	l.silence.Stop() // until the first read
	defer l.silence.Stop()

	err := c.read(ctx, l)
	if websocket.CloseStatus(err) < 0 && ctx.Err() != nil {
		err = context.Cause(ctx) // we closed it: the writer, the silence or Close
	}
	return l.ended(err)
}

// enter takes over what the server said at the handshake, and reports whether
// it continues the same connection.
func (c *Client) enter(a *contracts.Attached) (same bool) {
	same = a.ConnectionID == c.place.connection
	c.place.attached(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached = *a
	return same
}

// read takes frames until the connection ends.
func (c *Client) read(ctx context.Context, l *link) error {
	u := Update{Kind: KindConnected, Epoch: c.place.epoch, Attached: l.attached}
	if err := c.tell(ctx, u, noticeSize); err != nil {
		return err
	}
	for {
		l.alive()
		frame, size, err := l.next()
		l.silence.Stop()
		if errors.Is(err, contracts.ErrUnknownType) {
			c.log.Debug("unknown frame skipped", "error", err)
			continue
		}
		if err != nil {
			return err
		}
		if err := c.take(ctx, frame, size); err != nil {
			return err
		}
	}
}

// write sends what waits until ctx ends or the connection does.
func (c *Client) write(ctx context.Context, conn pipe) error {
	for {
		for frame := c.calls.next(); frame != nil; frame = c.calls.next() {
			if err := conn.write(frame); err != nil {
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
