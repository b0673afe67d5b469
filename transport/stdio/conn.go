package stdio

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Options configures a connection.
type Options struct {
	// MaxLineBytes bounds a line from the peer, its end not counted. Zero means
	// [contracts.MaxLineBytes]. Longer lines are refused one by one (R13).
	MaxLineBytes int
}

// Conn is a local client's connection. ReadFrame is for one goroutine and Write
// for one at a time; Close and LastSeen may be called from any.
//
// A read or write of a blocking pipe cannot be interrupted, so each is done in
// a goroutine of its own, one per direction, and the methods wait for that
// goroutine or for Close, whichever comes first. Either goroutine ends at once
// when Close is called while it has nothing to do or its stream has deadlines
// (a socket, a non-blocking pipe); else when the call that it is in returns, in
// the worst case with the process.
type Conn struct {
	born time.Time
	seen atomic.Int64 // when the peer last sent anything, in ns since born

	want   chan struct{} // unbuffered; ReadFrame asks for a frame
	frames chan inbound  // unbuffered; and gets it
	writes chan []byte   // unbuffered; Write hands over bytes
	wrote  chan error    // 1-buffered; and gets the outcome, unless it has left
	copied []byte        // what is being written, which Write's caller may change; owned by Write
	done   chan struct{} // closed when the connection has ended
	quit   func()        // ends the connection, once
	broken atomic.Bool   // a write failed
}

type inbound struct {
	text []byte
	err  error
}

// maxCopied is the largest buffer kept between writes.
const maxCopied = 256 << 10

// New returns a connection over a client's output and input and starts its two
// goroutines; see [Conn] for when they end. Neither stream is closed.
func New(in io.Reader, out io.Writer, opts Options) *Conn {
	if opts.MaxLineBytes <= 0 {
		opts.MaxLineBytes = contracts.MaxLineBytes
	}
	c := &Conn{
		born: time.Now(),
		want: make(chan struct{}), frames: make(chan inbound),
		writes: make(chan []byte), wrote: make(chan error, 1),
		done: make(chan struct{}),
	}
	c.quit = sync.OnceFunc(func() {
		close(c.done)
		expire(in, out)
	})
	go c.pumpIn(newLines(watched{in, c}, opts.MaxLineBytes))
	go c.pumpOut(out)
	return c
}

// expire interrupts what reads and writes in and out, if they have deadlines.
func expire(in io.Reader, out io.Writer) {
	past := time.Unix(1, 0)
	if d, ok := in.(interface{ SetReadDeadline(time.Time) error }); ok {
		_ = d.SetReadDeadline(past) // fails on a blocking pipe, which cannot be interrupted
	}
	if d, ok := out.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(past) // as above
	}
}

// watched notes when something was read.
type watched struct {
	io.Reader
	conn *Conn
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.conn.seen.Store(int64(time.Since(w.conn.born)))
	}
	return n, err
}

// pumpIn reads a line whenever one is asked for, and never ahead.
func (c *Conn) pumpIn(l *lines) {
	for {
		select {
		case <-c.want:
		case <-c.done:
			return
		}
		text, err := l.next()
		select {
		case c.frames <- inbound{text, err}:
		case <-c.done:
			return
		}
	}
}

func (c *Conn) pumpOut(out io.Writer) {
	for {
		select {
		case frames := <-c.writes:
			_, err := out.Write(frames)
			c.wrote <- err
		case <-c.done:
			return
		}
	}
}

// Form returns the form of all stdio connections.
func (c *Conn) Form() contracts.Form { return Form{} }

// ReadFrame returns the next line that is not blank; it is valid until the next
// call. A *contracts.Error stands for a line that was too long, after which
// reading goes on. It returns io.EOF at the end of the stream and when the peer
// no longer takes what is written, and net.ErrClosed
// after Close.
func (c *Conn) ReadFrame() ([]byte, error) {
	select {
	case c.want <- struct{}{}:
	case <-c.done:
		return nil, c.ended()
	}
	select {
	case in := <-c.frames:
		if in.err != nil && c.isDone() { // Close has interrupted it
			return nil, c.ended()
		}
		return in.text, in.err
	case <-c.done:
		return nil, c.ended()
	}
}

func (c *Conn) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// ended says why there are no more frames.
func (c *Conn) ended() error {
	if c.broken.Load() {
		return io.EOF
	}
	return net.ErrClosed
}

// Write sends whole frames and waits until the peer has taken them, however
// long it takes. An error ends the connection; after Close it is net.ErrClosed.
func (c *Conn) Write(frames []byte) error {
	if c.isDone() { // an earlier write may be using copied still
		return net.ErrClosed
	}
	if cap(c.copied) > maxCopied {
		c.copied = nil
	}
	c.copied = append(c.copied[:0], frames...)
	select {
	case c.writes <- c.copied:
	case <-c.done:
		return net.ErrClosed
	}
	select {
	case err := <-c.wrote:
		switch {
		case err == nil:
			return nil
		case c.isDone(): // Close has interrupted it
			return net.ErrClosed
		}
		c.broken.Store(true)
		c.quit()
		return fmt.Errorf("write %d bytes: %w", len(frames), err)
	case <-c.done:
		return net.ErrClosed
	}
}

// LastSeen returns when the peer last sent anything.
func (c *Conn) LastSeen() time.Time { return c.born.Add(time.Duration(c.seen.Load())) }

// Close ends the connection: ReadFrame and Write return at once. There is no
// way to tell the peer why. What Write returned for has been written.
func (c *Conn) Close(*contracts.Error) { c.quit() }
