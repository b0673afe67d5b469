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
	// MaxLineBytes bounds a line from the peer, without its line end. Zero means
	// [contracts.MaxLineBytes]. A longer line is refused and reading goes on
	// (R13).
	MaxLineBytes int
}

// Conn is a local client's connection. One goroutine may call ReadFrame, and
// one at a time Write; any may call Close and LastSeen.
//
// A read or write of a blocking pipe cannot be interrupted. So each direction
// has a goroutine that does its I/O, and the methods wait for that goroutine or
// for Close, whichever comes first. After Close, the goroutine ends at once if
// it is idle or its stream has deadlines (a socket, a non-blocking pipe).
// Otherwise it ends when its system call returns, at the latest with the
// process.
type Conn struct {
	born time.Time
	seen atomic.Int64 // when the peer last sent anything, in ns since born

	want   chan struct{} // unbuffered; ReadFrame asks for a frame
	frames chan inbound  // unbuffered; ReadFrame gets the frame
	writes chan []byte   // unbuffered; Write passes bytes on
	wrote  chan error    // 1-buffered; Write gets the outcome, unless Close came first
	copied []byte        // copy of the bytes being written, because the caller may reuse them; owned by Write
	done   chan struct{} // closed when the connection has ended
	quit   func()        // ends the connection, once
	broken atomic.Bool   // a write failed
}

type inbound struct {
	text []byte
	err  error
}

// maxCopied is the largest buffer that is kept between writes, in bytes.
const maxCopied = 256 << 10

// New returns a connection that reads from in and writes to out. It starts two
// goroutines; see [Conn] for when they end. It closes neither stream.
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

// expire interrupts reads of in and writes to out, if they have deadlines.
func expire(in io.Reader, out io.Writer) {
	past := time.Unix(1, 0)
	if d, ok := in.(interface{ SetReadDeadline(time.Time) error }); ok {
		_ = d.SetReadDeadline(past) // fails on a blocking pipe, which cannot be interrupted
	}
	if d, ok := out.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(past) // as above
	}
}

// watched records the time of each read.
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

// pumpIn reads a line when ReadFrame asks for one, never ahead.
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
// call. It returns a *contracts.Error for a line that was too long; the caller
// may read on. It returns io.EOF at the end of the stream and after a failed
// write, and net.ErrClosed after Close.
func (c *Conn) ReadFrame() ([]byte, error) {
	select {
	case c.want <- struct{}{}:
	case <-c.done:
		return nil, c.ended()
	}
	select {
	case in := <-c.frames:
		if in.err != nil && c.isDone() { // Close has interrupted the read
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

// ended returns the error of ReadFrame after the end.
func (c *Conn) ended() error {
	if c.broken.Load() {
		return io.EOF
	}
	return net.ErrClosed
}

// Write sends whole frames and waits without a limit until the peer has taken
// them. An error ends the connection; after Close it is net.ErrClosed.
func (c *Conn) Write(frames []byte) error {
	if c.isDone() { // an earlier write may still be using copied
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
		case c.isDone(): // Close has interrupted the write
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

// Close ends the connection: ReadFrame and Write return at once. The peer
// cannot be told the reason. Frames for which Write returned nil have been
// written.
func (c *Conn) Close(*contracts.Error) { c.quit() }

// Form builds lines of bare messages, without cursors. A local client has no
// snapshots, resets or heartbeats. All Forms are equal.
type Form struct{}

var _ contracts.Form = Form{}

// AppendMessage appends body as a line.
func (Form) AppendMessage(dst []byte, _ uint64, body []byte) []byte { return appendLine(dst, body) }

// AppendSnapshot appends nothing.
func (Form) AppendSnapshot(dst []byte, _ uint64, _ []byte) []byte { return dst }

// AppendReset appends nothing.
func (Form) AppendReset(dst []byte, _ uint64, _ contracts.ResetReason, _ []byte) []byte { return dst }

// AppendHeartbeat appends nothing.
func (Form) AppendHeartbeat(dst []byte, _ uint64, _ bool) []byte { return dst }

// AppendOpening appends nothing.
func (Form) AppendOpening(dst []byte) []byte { return dst }

// AppendControl appends text as a line.
func (Form) AppendControl(dst, text []byte) []byte { return appendLine(dst, text) }

func appendLine(dst, text []byte) []byte { return append(append(dst, text...), '\n') }
