package memconn

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Options configures a connection. The zero value is ready to use.
type Options struct {
	// Bare makes the connection that of a local client: it has the [Bare] form,
	// and a write waits for the peer without a timeout.
	Bare bool
	// Stream makes a connection on which the peer cannot send: it has the
	// [Events] form, Send fails, and the server gets no sign of life.
	Stream bool
	// Buffer is how many bytes each direction buffers; 0 means 1 MiB. At the
	// limit the sender waits.
	Buffer int
	// WriteTimeout is how long Write waits for room; 0 means
	// [contracts.DefaultWriteTimeout].
	WriteTimeout time.Duration
}

// A Conn is the server's end. One goroutine may call ReadFrame, and one at a
// time Write. The other methods may be called from any goroutine.
type Conn struct{ p *pipe }

// A Peer is the client's end. One goroutine may call Next. The other methods
// may be called from any goroutine.
type Peer struct {
	p    *pipe
	rest []byte // received but not yet returned; owned by Next
}

// A pipe is the state that both ends share.
type pipe struct {
	opts Options

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change, to wake all waiters
	in      []inbound     // to the server
	inBytes int           // bytes of in; at most opts.Buffer unless in has only one text
	out     []byte        // to the peer; at most opts.Buffer
	frozen  bool          // the peer has stopped reading
	silent  bool          // the peer does not answer pings
	seen    time.Time     // when the peer last sent something
	broken  bool          // a write timed out; neither end can go on
	closed  bool          // by the server
	why     *contracts.Error
	gone    bool // closed by the peer
}

// ended reports whether the server can neither read nor write. The caller holds
// the lock.
func (p *pipe) ended() bool { return p.closed || p.broken }

// An inbound is a text, or the error that ReadFrame returns for an unreadable
// frame.
type inbound struct {
	text string
	err  *contracts.Error
}

// New returns the two ends of a new connection.
func New(opts Options) (*Conn, *Peer) {
	if opts.Buffer <= 0 {
		opts.Buffer = 1 << 20
	}
	if opts.WriteTimeout <= 0 {
		opts.WriteTimeout = contracts.DefaultWriteTimeout
	}
	p := &pipe{opts: opts, changed: make(chan struct{}), seen: time.Now()}
	return &Conn{p}, &Peer{p: p}
}

// await calls try under the lock until it returns true: first before looking at
// ctx, then after each change. It returns ctx's error if ctx ends first.
func (p *pipe) await(ctx context.Context, try func() bool) error {
	for {
		p.mu.Lock()
		done, changed := try(), p.changed
		p.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// attempt calls try once under the lock.
func (p *pipe) attempt(try func() bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return try()
}

// change wakes all waiters. The caller holds the lock.
func (p *pipe) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// update calls f under the lock and wakes all waiters.
func (p *pipe) update(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.change()
}

// Form returns [Bare], [Events] or [Lines].
func (c *Conn) Form() contracts.Form {
	switch {
	case c.p.opts.Bare:
		return Bare{}
	case c.p.opts.Stream:
		return Events{}
	}
	return Lines{}
}

// ReadFrame returns the next text from the peer. It returns io.EOF after the
// peer has left, and net.ErrClosed after Close.
func (c *Conn) ReadFrame() ([]byte, error) {
	var text string
	var err error
	// Background: the wait ends with Close or when the peer leaves.
	_ = c.p.await(context.Background(), func() bool {
		switch {
		case c.p.ended():
			err = net.ErrClosed
		case len(c.p.in) > 0:
			next := c.p.in[0]
			c.p.in = c.p.in[1:]
			c.p.inBytes -= len(next.text)
			text = next.text
			if next.err != nil {
				err = next.err
			}
			c.p.change()
		case c.p.gone:
			err = io.EOF
		default:
			return false
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return []byte(text), nil
}

// Write sends whole frames. It waits while the buffer is full or the peer is
// frozen. After the write timeout the connection is broken for both ends, and
// the error wraps os.ErrDeadlineExceeded.
func (c *Conn) Write(frames []byte) error {
	rest, err := frames, error(nil)
	step := func() bool {
		if c.p.ended() || c.p.gone {
			err = net.ErrClosed
			return true
		}
		if c.p.frozen && len(rest) > 0 {
			return false
		}
		if n := min(len(rest), c.p.opts.Buffer-len(c.p.out)); n > 0 {
			c.p.out = append(c.p.out, rest[:n]...)
			rest = rest[n:]
			c.p.change()
		}
		if len(rest) == 0 && !c.p.silent && hasPing(frames) {
			c.p.seen = time.Now()
		}
		return len(rest) == 0
	}
	if c.p.attempt(step) {
		return err
	}
	ctx := context.Background()
	if !c.p.opts.Bare {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.p.opts.WriteTimeout)
		defer cancel()
	}
	if c.p.await(ctx, step) != nil {
		c.p.update(func() { c.p.broken = true })
		return fmt.Errorf("write %d bytes: %w", len(rest), os.ErrDeadlineExceeded)
	}
	return err
}

// hasPing reports whether frames contain an empty line.
func hasPing(frames []byte) bool {
	return bytes.HasPrefix(frames, []byte("\n")) || bytes.Contains(frames, []byte("\n\n"))
}

// LastSeen returns when the peer last sent something or answered a ping. On a
// stream it returns the zero time.
func (c *Conn) LastSeen() time.Time {
	if c.p.opts.Stream {
		return time.Time{}
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.p.seen
}

// Close ends the connection: ReadFrame and Write return at once. The peer still
// receives what was written. Later calls have no effect.
func (c *Conn) Close(why *contracts.Error) {
	c.p.update(func() {
		if !c.p.closed {
			c.p.closed, c.p.why = true, why
		}
	})
}

// Send sends one text. It waits while the buffer to the server is full. It
// fails with io.ErrClosedPipe if the connection has ended or is a stream.
func (p *Peer) Send(text string) error { return p.send(inbound{text: text}) }

// SendBad makes ReadFrame return err once, as a transport does for an
// unreadable frame that does not end the connection.
func (p *Peer) SendBad(err *contracts.Error) error { return p.send(inbound{err: err}) }

func (p *Peer) send(m inbound) error {
	var err error
	// Background: the wait ends when the server reads or either end closes.
	_ = p.p.await(context.Background(), func() bool {
		switch {
		case p.p.ended() || p.p.gone || p.p.opts.Stream:
			err = io.ErrClosedPipe
		case len(p.p.in) > 0 && p.p.inBytes+len(m.text) > p.p.opts.Buffer:
			return false
		default:
			p.p.in = append(p.p.in, m)
			p.p.inBytes += len(m.text)
			p.p.seen = time.Now()
			p.p.change()
		}
		return true
	})
	return err
}

// Next returns the next frame from the server without pings. It waits for a
// frame, and while the peer is frozen. It returns io.EOF after the last frame
// of an ended connection.
func (p *Peer) Next(ctx context.Context) (string, error) {
	for {
		if line, rest, ok := bytes.Cut(p.rest, []byte("\n")); ok && !p.isFrozen() {
			p.rest = rest
			if len(line) > 0 {
				return string(line), nil
			}
			continue
		}
		var ended bool
		err := p.p.await(ctx, func() bool {
			if p.p.frozen {
				return false
			}
			ended = len(p.p.out) == 0 && (p.p.ended() || p.p.gone) && !bytes.Contains(p.rest, []byte("\n"))
			if len(p.p.out) > 0 {
				p.rest = append(p.rest, p.p.out...)
				p.p.out = p.p.out[:0]
				p.p.change()
			}
			return ended || bytes.Contains(p.rest, []byte("\n"))
		})
		if err != nil {
			return "", err
		}
		if ended {
			return "", io.EOF
		}
	}
}

func (p *Peer) isFrozen() bool {
	p.p.mu.Lock()
	defer p.p.mu.Unlock()
	return p.p.frozen
}

// Freeze makes the peer stop reading, as if all buffers on the way were full.
// The server's writes wait until [Peer.Thaw] or their timeout.
func (p *Peer) Freeze() { p.p.update(func() { p.p.frozen = true }) }

// Thaw makes a frozen peer read again.
func (p *Peer) Thaw() { p.p.update(func() { p.p.frozen = false }) }

// Mute makes the peer ignore pings for good. It looks dead unless it sends.
func (p *Peer) Mute() { p.p.update(func() { p.p.silent = true }) }

// Close makes the peer leave. The server still receives what the peer sent
// before.
func (p *Peer) Close() { p.p.update(func() { p.p.gone = true }) }

// Closed reports whether the server has called Close, and why.
func (p *Peer) Closed() (why *contracts.Error, ok bool) {
	p.p.mu.Lock()
	defer p.p.mu.Unlock()
	return p.p.why, p.p.closed
}
