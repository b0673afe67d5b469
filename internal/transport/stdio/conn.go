package stdio

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

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
	seen atomic.Int64 // when the peer last sent a line, in ns since born

	reads  worker[struct{}, inbound]
	writes worker[[]byte, error]
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

// New returns a connection that reads from in and writes to out. A line from the peer
// that is longer than maxLine bytes, without its line end, is refused, and reading goes
// on (R13); zero means [contracts.MaxLineBytes]. New starts two goroutines; see [Conn]
// for when they end. It closes neither stream.
func New(in io.Reader, out io.Writer, maxLine int) *Conn { return open(in, out, maxLine, false) }

// NewText returns a connection like [New] that also reads lines of white space. It is
// for clients of other protocols.
func NewText(in io.Reader, out io.Writer, maxLine int) *Conn { return open(in, out, maxLine, true) }

func open(in io.Reader, out io.Writer, maxLine int, blank bool) *Conn {
	maxLine = cmp.Or(max(maxLine, 0), contracts.MaxLineBytes)
	c := &Conn{born: time.Now(), done: make(chan struct{})}
	c.quit = sync.OnceFunc(func() {
		close(c.done)
		past := time.Unix(1, 0) // interrupts reads and writes of streams that have deadlines
		if d, ok := in.(interface{ SetReadDeadline(time.Time) error }); ok {
			_ = d.SetReadDeadline(past) // fails on a blocking pipe, which cannot be interrupted
		}
		if d, ok := out.(interface{ SetWriteDeadline(time.Time) error }); ok {
			_ = d.SetWriteDeadline(past) // as above
		}
	})
	lines := newLines(in, maxLine, blank)
	c.reads = newWorker(c.done, func(struct{}) inbound {
		text, err := lines.next()
		c.seen.Store(int64(time.Since(c.born)))
		return inbound{text, err}
	})
	c.writes = newWorker(c.done, func(frames []byte) error {
		_, err := out.Write(frames)
		return err
	})
	return c
}

// A worker does the calls of one function in a goroutine of its own, until done is
// closed. So its caller need not wait for a call that is under way at that time.
type worker[A, R any] struct {
	done    <-chan struct{}
	asked   chan A // unbuffered
	outcome chan R // 1-buffered, so that the goroutine does not wait
}

func newWorker[A, R any](done <-chan struct{}, do func(A) R) worker[A, R] {
	w := worker[A, R]{done, make(chan A), make(chan R, 1)}
	go func() {
		for {
			select {
			case a := <-w.asked:
				w.outcome <- do(a)
			case <-done:
				return
			}
		}
	}()
	return w
}

// call returns false if done was closed first.
func (w *worker[A, R]) call(a A) (outcome R, ok bool) {
	select {
	case w.asked <- a:
	case <-w.done:
		return outcome, false
	}
	select {
	case outcome = <-w.outcome:
		return outcome, true
	case <-w.done:
		return outcome, false
	}
}

// Form returns the form of all stdio connections.
func (c *Conn) Form() contracts.Form { return Form{} }

// ReadFrame returns the next line that is not blank; it is valid until the next
// call. It returns a *contracts.Error for a line that was too long; the caller
// may read on. It returns io.EOF at the end of the stream and after a failed
// write, and net.ErrClosed after Close.
func (c *Conn) ReadFrame() ([]byte, error) {
	in, ok := c.reads.call(struct{}{})
	switch {
	case ok && (in.err == nil || !c.isDone()):
		return in.text, in.err
	case c.broken.Load():
		return nil, io.EOF
	}
	return nil, net.ErrClosed
}

func (c *Conn) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
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
	err, ok := c.writes.call(c.copied)
	switch {
	case ok && err == nil:
		return nil
	case c.isDone(): // Close has interrupted the write
		return net.ErrClosed
	}
	c.broken.Store(true)
	c.quit()
	return fmt.Errorf("write %d bytes: %w", len(frames), err)
}

// LastSeen returns when the peer last sent a line.
func (c *Conn) LastSeen() time.Time { return c.born.Add(time.Duration(c.seen.Load())) }

// Close ends the connection: ReadFrame and Write return at once. The peer
// cannot be told the reason. Frames for which Write returned nil have been
// written.
func (c *Conn) Close(*contracts.Error) { c.quit() }

// Form builds lines of bare messages, without cursors, of pages of the history, and of
// control frames. It appends nothing else: a local client has no snapshots, resets or
// heartbeats. All Forms are equal.
type Form struct{}

var _ contracts.Form = Form{}

func (Form) AppendMessage(dst []byte, _ uint64, body []byte) []byte                     { return appendLine(dst, body) }
func (Form) AppendSnapshot(dst []byte, _ uint64, _ []byte) []byte                       { return dst }
func (Form) AppendReset(dst []byte, _ uint64, _ contracts.ResetReason, _ []byte) []byte { return dst }
func (Form) AppendHeartbeat(dst []byte, _ uint64, _ bool) []byte                        { return dst }
func (Form) AppendOpening(dst []byte) []byte                                            { return dst }
func (Form) AppendHistory(dst, text []byte) []byte                                      { return appendLine(dst, text) }
func (Form) AppendControl(dst, text []byte) []byte                                      { return appendLine(dst, text) }

func appendLine(dst, text []byte) []byte { return append(append(dst, text...), '\n') }
