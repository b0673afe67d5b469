package sse

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/httperr"
)

// Conn is one stream. ReadFrame is for one goroutine and Write for one at a
// time; Close and Cut may be called from any.
type Conn struct {
	// Static.
	form    Form
	header  http.Header // of the answer, until it has been sent
	wire    wire
	timeout time.Duration // of one write

	once   sync.Once
	closed chan struct{} // closed by Close

	// writing is 1-buffered and full while somebody writes to the wire: a lock,
	// but one that is held across I/O, so that waiting for it is waiting for the
	// peer.
	writing chan struct{}
	begun   bool // guarded by writing: the answer's header went out
	ended   bool // guarded by writing: nothing more goes out
}

// A wire carries the answer's body. begin sends the header, with the first
// bytes; write sends more; finish ends the body in order, and refuse is an
// answer of another kind; wait returns when the peer has gone, when one of the
// others has ended the connection, or after wake; cut breaks the connection off,
// also while another method waits for the peer; leave comes last, after which
// only cut and wake may be called, and do nothing.
type wire interface {
	begin(header http.Header, first []byte, deadline time.Time) error
	write(events []byte, deadline time.Time) error
	finish(deadline time.Time) error
	refuse(header http.Header, err error)
	wait() error
	wake()
	cut()
	leave()
}

func newConn(w wire, epoch string, timeout time.Duration) *Conn {
	h := http.Header{}
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // proxies that buffer would hold events back
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Maestro-Headless-Epoch", epoch)
	return &Conn{form: Form{epoch}, header: h, wire: w, timeout: timeout, closed: make(chan struct{}), writing: make(chan struct{}, 1)}
}

// Form returns the form of the session's streams.
func (c *Conn) Form() contracts.Form { return c.form }

// Write sends whole events made by [Form] with one system call for every part of
// contracts.WritePart, before the first of them the answer's header. When the
// peer has not taken a part within the write timeout, the error wraps
// os.ErrDeadlineExceeded and the connection is broken; after Close it is
// net.ErrClosed.
func (c *Conn) Write(events []byte) error {
	if len(events) == 0 {
		return nil
	}
	c.lock()
	defer c.unlock()
	if c.ended || c.isClosed() {
		return net.ErrClosed
	}
	for part := range slices.Chunk(events, contracts.WritePart) {
		if err := c.send(part); err != nil {
			c.ended = true
			c.wire.cut() // half an event may have gone out
			return fmt.Errorf("write %d bytes: %w", len(events), err)
		}
	}
	return nil
}

func (c *Conn) send(part []byte) error {
	deadline := time.Now().Add(c.timeout)
	if c.begun {
		return c.wire.write(part, deadline)
	}
	header := c.header
	c.begun, c.header = true, nil
	return c.wire.begin(header, part, deadline)
}

// ReadFrame waits until the peer has gone or the stream is closed. A client
// cannot say anything on it.
func (c *Conn) ReadFrame() ([]byte, error) {
	err := c.wire.wait()
	if c.isClosed() {
		return nil, net.ErrClosed
	}
	if err == nil {
		err = io.EOF
	}
	return nil, err
}

// LastSeen returns the zero time: there is nothing to hear on a stream.
func (c *Conn) LastSeen() time.Time { return time.Time{} }

// Close ends the stream in order, once a write that is under way has ended; a
// blocked one is given a second. Only the first call counts; it does not wait.
// A client is not told why: it asks again, and is then.
func (c *Conn) Close(*contracts.Error) {
	c.once.Do(func() {
		close(c.closed)
		hurry := time.AfterFunc(closeTimeout, c.wire.cut)
		go func() { // ends within closeTimeout
			defer hurry.Stop()
			c.lock()
			defer c.unlock()
			switch {
			case !c.begun:
				c.wire.wake() // the refusal still has to go out
			case !c.ended:
				_ = c.wire.finish(time.Now().Add(closeTimeout)) // a peer that has gone needs no end
				c.ended = true
			}
		}()
	})
}

// closeTimeout is what a peer gets to take the end of a stream.
const closeTimeout = time.Second

// Cut breaks the connection off.
func (c *Conn) Cut() { c.wire.cut() }

func (c *Conn) lock()   { c.writing <- struct{}{} }
func (c *Conn) unlock() { <-c.writing }

func (c *Conn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// conclude ends the connection after its session has, with a refusal if nothing
// was written.
func (c *Conn) conclude(err error) {
	c.lock()
	defer c.unlock()
	if !c.begun {
		c.begun = true
		if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
			err = &contracts.Error{Code: contracts.CodeGoingAway, Message: "the session ended before the stream began"}
		}
		c.wire.refuse(c.header, err)
	} else if !c.ended {
		_ = c.wire.finish(time.Now().Add(closeTimeout)) // as in Close
	}
	c.ended = true
	c.wire.leave()
}

// refusal is err as a whole HTTP answer. What it says of itself takes the place
// of what is in header.
func refusal(header http.Header, err error) (status int, body []byte) {
	r := &recorder{header: header}
	httperr.Write(r, err)
	return r.status, r.body
}

// A recorder is a ResponseWriter that keeps what is written.
type recorder struct {
	status int
	header http.Header
	body   []byte
}

func (r *recorder) Header() http.Header    { return r.header }
func (r *recorder) WriteHeader(status int) { r.status = status }
func (r *recorder) Write(p []byte) (int, error) {
	r.body = append(r.body, p...)
	return len(p), nil
}
