package memconn

import (
	"bytes"
	"cmp"
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
	changed *sync.Cond
	in      []inbound // to the server
	inBytes int       // bytes of in; at most opts.Buffer unless in has only one text
	out     []byte    // to the peer; at most opts.Buffer
	frozen  bool      // the peer has stopped reading
	silent  bool      // the peer does not answer pings
	seen    time.Time // when the peer last sent something
	broken  bool      // a write timed out; neither end can go on
	closed  bool      // by the server
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
	opts.Buffer = cmp.Or(max(opts.Buffer, 0), 1<<20)
	opts.WriteTimeout = cmp.Or(max(opts.WriteTimeout, 0), contracts.DefaultWriteTimeout)
	p := &pipe{opts: opts, seen: time.Now()}
	p.changed = sync.NewCond(&p.mu)
	return &Conn{p}, &Peer{p: p}
}

// update calls f under the lock and wakes all waiters.
func (p *pipe) update(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}

// await waits, under the lock, until ready returns true.
func (p *pipe) await(ready func() bool) {
	for !ready() {
		p.changed.Wait()
	}
}

// Form returns [Bare], [Events] or [Lines].
func (c *Conn) Form() contracts.Form {
	switch {
	case c.p.opts.Bare:
		return Bare
	case c.p.opts.Stream:
		return Events
	}
	return Lines
}

// ReadFrame returns the next text from the peer. It returns io.EOF after the
// peer has left, and net.ErrClosed after Close.
func (c *Conn) ReadFrame() (text []byte, err error) {
	p := c.p
	p.update(func() {
		p.await(func() bool { return p.ended() || p.gone || len(p.in) > 0 })
		switch {
		case p.ended():
			err = net.ErrClosed
		case len(p.in) == 0:
			err = io.EOF
		case p.in[0].err != nil:
			err = p.in[0].err
			p.in = p.in[1:]
		default:
			text = []byte(p.in[0].text)
			p.in = p.in[1:]
			p.inBytes -= len(text)
		}
	})
	return text, err
}

// Write sends whole frames. It waits while the buffer is full or the peer is
// frozen. After the write timeout the connection is broken for both ends, and
// the error wraps os.ErrDeadlineExceeded.
func (c *Conn) Write(frames []byte) (err error) {
	p, rest := c.p, frames
	var late bool
	var timer *time.Timer // of a write that waits
	blocked := func() bool { return p.frozen || len(p.out) >= p.opts.Buffer }
	p.update(func() {
		for len(rest) > 0 && !late && !p.ended() && !p.gone {
			if !blocked() {
				n := min(len(rest), p.opts.Buffer-len(p.out))
				p.out, rest = append(p.out, rest[:n]...), rest[n:]
				p.changed.Broadcast()
				continue
			}
			if timer == nil && !p.opts.Bare {
				timer = time.AfterFunc(p.opts.WriteTimeout, func() { p.update(func() { late = true }) })
				defer timer.Stop()
			}
			p.changed.Wait()
		}
		switch {
		case p.ended() || p.gone:
			err = net.ErrClosed
		case late && len(rest) > 0:
			p.broken = true
			err = fmt.Errorf("write %d bytes: %w", len(rest), os.ErrDeadlineExceeded)
		case !p.silent && hasPing(frames):
			p.seen = time.Now()
		}
	})
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

func (p *Peer) send(m inbound) (err error) {
	q := p.p
	q.update(func() {
		ended := func() bool { return q.ended() || q.gone || q.opts.Stream }
		q.await(func() bool { return ended() || len(q.in) == 0 || q.inBytes+len(m.text) <= q.opts.Buffer })
		if ended() {
			err = io.ErrClosedPipe
			return
		}
		q.in = append(q.in, m)
		q.inBytes += len(m.text)
		q.seen = time.Now()
	})
	return err
}

// Next returns the next frame from the server without pings. It waits for a
// frame, and while the peer is frozen. It returns io.EOF after the last frame
// of an ended connection.
func (p *Peer) Next(ctx context.Context) (line string, err error) {
	q := p.p
	stop := context.AfterFunc(ctx, func() { q.update(func() {}) })
	defer stop()
	q.update(func() {
		q.await(func() bool {
			if err = ctx.Err(); q.frozen {
				return err != nil
			}
			p.rest, q.out = append(p.rest, q.out...), q.out[:0]
			q.changed.Broadcast()
			p.rest = bytes.TrimLeft(p.rest, "\n") // pings
			if text, rest, found := bytes.Cut(p.rest, []byte("\n")); found {
				line, p.rest, err = string(text), rest, nil
				return true
			}
			if q.ended() || q.gone {
				err = io.EOF
			}
			return err != nil
		})
	})
	return line, err
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
