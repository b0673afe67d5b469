package sse

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Conn is one stream. One goroutine may call ReadFrame, and one at a time
// Write; any may call Close and Cut.
type Conn struct {
	// Static.
	form    Form
	header  http.Header // of the answer, until it has been sent
	wire    wire
	timeout time.Duration // of one write

	closed atomic.Bool // Close was called

	// writing is a lock that is held across I/O: a channel of capacity 1, full
	// while it is locked. A goroutine that waits for it waits for the peer.
	writing chan struct{}
	begun   bool // guarded by writing: the answer's header was sent
	ended   bool // guarded by writing: nothing more is sent
}

// A wire carries the answer's body.
//   - begin sends the header with the first bytes, and write sends more.
//   - finish ends the body properly.
//   - refuse sends an error answer in place of the stream.
//   - wait returns when the peer has gone, when another method has ended the
//     connection, or after wake.
//   - cut closes the connection, also while another method waits for the peer.
//   - leave is the last call; after it only cut and wake may be called, and do
//     nothing.
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

// newConn returns a stream whose answer has the fields of h besides its own.
func newConn(w wire, h http.Header, epoch string, timeout time.Duration) *Conn {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // otherwise proxies buffer events
	h.Set("X-Content-Type-Options", "nosniff")
	if epoch != "" {
		h.Set("X-Maestro-Headless-Epoch", epoch)
	}
	return &Conn{form: Form{epoch}, header: h, wire: w, timeout: timeout, writing: make(chan struct{}, 1)}
}

func (c *Conn) Form() contracts.Form { return c.form }

// Write sends whole events made by [Form], with one system call for each
// contracts.WritePart bytes. The first Write sends the answer's header before
// them. If the peer has not taken a part within the write timeout, the error
// wraps os.ErrDeadlineExceeded and the connection is broken. After Close the
// error is net.ErrClosed.
func (c *Conn) Write(events []byte) error {
	if len(events) == 0 {
		return nil
	}
	c.lock()
	defer c.unlock()
	if c.ended || c.closed.Load() {
		return net.ErrClosed
	}
	for part := range slices.Chunk(events, contracts.WritePart) {
		if err := c.send(part); err != nil {
			c.ended = true
			c.wire.cut() // part of an event may have been sent
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

// ReadFrame waits until the peer has gone or the stream is closed. It never
// returns a frame: clients cannot send on a stream.
func (c *Conn) ReadFrame() ([]byte, error) {
	err := c.wire.wait()
	if c.closed.Load() {
		return nil, net.ErrClosed
	}
	if err == nil {
		err = io.EOF
	}
	return nil, err
}

// LastSeen returns the zero time: clients send nothing on a stream.
func (c *Conn) LastSeen() time.Time { return time.Time{} }

// Close ends the stream properly, after the write under way; a blocked write is
// cut after one second. Only the first call counts. Close does not wait. SSE
// has no close reason; the client learns it from its next request.
func (c *Conn) Close(*contracts.Error) {
	if c.closed.Swap(true) {
		return
	}
	hurry := time.AfterFunc(closeTimeout, c.wire.cut)
	go func() { // ends within closeTimeout
		defer hurry.Stop()
		c.lock()
		defer c.unlock()
		switch {
		case !c.begun:
			c.wire.wake() // finishOrRefuse still has to send the refusal
		case !c.ended:
			_ = c.wire.finish(time.Now().Add(closeTimeout)) // an error says that the peer has gone
			c.ended = true
		}
	}()
}

// closeTimeout is the time in which the peer must take the end of a stream.
const closeTimeout = time.Second

// Cut closes the connection at once.
func (c *Conn) Cut() { c.wire.cut() }

func (c *Conn) lock()   { c.writing <- struct{}{} }
func (c *Conn) unlock() { <-c.writing }

// finishOrRefuse ends the connection after its session has returned. If nothing
// was written, it sends a refusal.
func (c *Conn) finishOrRefuse(err error) {
	c.lock()
	defer c.unlock()
	if !c.begun {
		c.begun = true
		if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
			err = &contracts.Error{Code: contracts.CodeGoingAway, Message: "the session ended before the stream began"}
		}
		c.wire.refuse(c.header, err)
	} else if !c.ended {
		_ = c.wire.finish(time.Now().Add(closeTimeout)) // an error says that the peer has gone
	}
	c.ended = true
	c.wire.leave()
}
