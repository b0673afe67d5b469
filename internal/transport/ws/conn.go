package ws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
)

// Conn is one upgraded connection. One goroutine may call ReadFrame, and one at
// a time Write; any may call Close and LastSeen.
type Conn struct {
	// Static.
	lib  *websocket.Conn
	tap  *tap
	slot *connlimit.Slot // counts the bytes of incomplete messages; nil counts none

	// Owned by the goroutine that reads.
	frame  *[]byte // the frame last returned, from buffers
	failed bool    // reading has failed; the library's position in the stream may be wrong

	noRoom *contracts.Error // refused a message for lack of memory; owned by the reader too

	closers sync.WaitGroup // waits for the goroutine that writes the close frame
}

// Close codes for violations below the level of JSON.
// [contracts.Code.CloseCode] returns the other codes.
const (
	closeNormal        = 1000
	closeProtocolError = 1002
	closeBinary        = 1003
	closeBadText       = 1007
)

const firstRead = 4 << 10 // initial size of a frame's buffer, in bytes; larger buffers are not pooled

// buffers holds buffers for frames. A connection has one only from the arrival
// of a frame until the next call of ReadFrame.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, firstRead); return &b }}

// Form returns the form of all WebSocket connections.
func (c *Conn) Form() contracts.Form { return Form{} }

// Write sends whole frames made by [Form] with one system call. If the peer has
// not taken them within the write timeout, the error wraps
// os.ErrDeadlineExceeded and the connection is broken. After Close the error is
// net.ErrClosed.
func (c *Conn) Write(frames []byte) error { return c.tap.writeFrames(frames) }

// LastSeen returns when the peer last sent any byte, pongs included.
func (c *Conn) LastSeen() time.Time { return c.tap.born.Add(time.Duration(c.tap.seen.Load())) }

// Close sends a close frame with the close code of why, or 1000 for nil. The
// peer has one second to answer it; within that second a blocked Write fails
// and ReadFrame ends. Only the first call counts. Close does not wait.
func (c *Conn) Close(why *contracts.Error) {
	if why == nil {
		c.closeWith(closeNormal, "")
		return
	}
	c.closeWith(why.Code.CloseCode(), why.Code)
}

// Cut closes the socket at once.
func (c *Conn) Cut() { connlimit.Cut(c.tap.Conn) }

func (c *Conn) closeWith(code int, reason contracts.Code) {
	c.tap.startClosing(func() {
		// Ends within closeTimeout, which is the deadline of its own write and of
		// the write that may hold the lock. linger waits for it.
		c.closers.Go(func() {
			_, _ = c.tap.Write(closeFrame(code, string(reason))) // an error says that the peer has gone
		})
	})
}

// linger ends the connection after its session has returned. It reads until the
// peer has answered the close frame or has hung up, for at most one second.
// Closing at once could make the kernel discard the close frame.
func (c *Conn) linger() {
	for {
		if _, err := c.ReadFrame(); err != nil {
			break
		}
	}
	c.closers.Wait()
	// Bytes are left to read only if the peer broke the protocol. Its close
	// frame then cannot be found among them, so the peer must hang up.
	if half, ok := c.tap.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails if the connection has ended
	}
	_, _ = io.Copy(io.Discard, c.tap.Conn) // ends at the peer's end of stream or at the deadline
	_ = c.lib.CloseNow()                   // an error says that it was closed already
}

// healthy reports whether nothing has ended the connection yet. Only the
// reading goroutine may call it.
func (c *Conn) healthy() bool {
	c.tap.lock()
	defer c.tap.unlock()
	return !c.tap.ended && c.tap.readErr == nil && !c.tap.isClosing()
}

// ReadFrame returns the next text message; it is valid until the next call. It
// returns io.EOF when the peer has closed the connection properly. A message
// that is not text (1003), not UTF-8 (1007), too large (1009), too slow (4408),
// against the WebSocket protocol (1002) or beyond the memory bounds (1013,
// 4429) closes the connection.
func (c *Conn) ReadFrame() ([]byte, error) {
	for {
		c.release() // a waiting reader holds no buffer
		if c.failed {
			return nil, net.ErrClosed
		}
		text, err := c.read()
		if err != nil {
			c.failed = true
			return nil, c.explain(err)
		}
		if !c.tap.isClosing() {
			return text, nil
		}
	}
}

func (c *Conn) release() {
	if c.frame != nil && cap(*c.frame) == firstRead {
		*c.frame = (*c.frame)[:0]
		buffers.Put(c.frame)
	}
	c.frame = nil
	c.slot.Release()
}

// Messages that close the connection.
var (
	errBinary  = errors.New("binary frame")
	errBadText = errors.New("frame is not UTF-8")
)

func (c *Conn) read() ([]byte, error) {
	// No context is needed: deadlines and Close interrupt the read.
	kind, r, err := c.lib.Reader(context.Background())
	if err != nil {
		return nil, err
	}
	c.tap.beginMessage()
	defer c.tap.endMessage()
	if kind != websocket.MessageText {
		return nil, errBinary
	}
	c.frame = buffers.Get().(*[]byte)
	*c.frame, err = c.slot.ReadAll(r, *c.frame, c.tap.scanner.most) // the scanner has checked announced lengths
	switch {
	case err != nil:
		return nil, err
	case c.tap.readErr == io.EOF: // the socket has ended; the library takes that for the message's end
		return nil, io.ErrUnexpectedEOF
	case c.tap.readErr != nil:
		return nil, c.tap.readErr
	case !utf8.Valid(*c.frame):
		return nil, errBadText
	}
	return *c.frame, nil
}

// explain returns the error of ReadFrame for a failed read, and closes the
// connection with the matching code.
func (c *Conn) explain(err error) error {
	if refusal, ok := errors.AsType[*contracts.Error](err); ok { // beyond the memory bounds
		c.noRoom = refusal
		c.Close(refusal)
		return err
	}
	switch websocket.CloseStatus(err) {
	case websocket.StatusNormalClosure, websocket.StatusGoingAway, websocket.StatusNoStatusRcvd:
		return io.EOF
	case -1:
	default:
		return fmt.Errorf("the peer closed the connection: %w", err)
	}
	switch {
	case err == errBinary:
		c.closeWith(closeBinary, contracts.CodeBadRequest)
	case err == errBadText:
		c.closeWith(closeBadText, contracts.CodeBadRequest)
	case c.tap.isClosing():
		return net.ErrClosed
	case errors.Is(err, errTooLarge), errors.Is(err, errFlood):
		c.Close(&contracts.Error{Code: contracts.CodePayloadTooLarge})
	case errors.Is(c.tap.readErr, os.ErrDeadlineExceeded):
		c.Close(&contracts.Error{Code: contracts.CodeTimeout})
	case c.tap.readErr == nil && !errors.Is(err, net.ErrClosed):
		c.closeWith(closeProtocolError, contracts.CodeBadRequest) // has no effect if the library has sent its own close frame
	}
	return err
}
