package ws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/connlimit"
)

// Conn is one upgraded connection. ReadFrame is for one goroutine and Write for
// one at a time; Close and LastSeen may be called from any.
type Conn struct {
	// Static.
	lib          *websocket.Conn
	tap          *tap
	slot         *connlimit.Slot // counts the bytes of unfinished messages; nil counts none
	frameTimeout time.Duration

	// Owned by the goroutine that reads.
	frame  *[]byte // the last frame returned, from the pool
	failed bool    // reading has ended; the library may have lost its place in the stream

	noRoom *contracts.Error // refused a message for which there was no room; likewise owned

	closers sync.WaitGroup // the goroutine that writes the close frame
}

// Close codes for what a peer may not do below the level of JSON. The other
// codes come from [contracts.Code.CloseCode].
const (
	closeNormal        = 1000
	closeProtocolError = 1002
	closeBinary        = 1003
	closeBadText       = 1007
)

const firstRead = 4 << 10 // what a frame's buffer begins with; larger ones are not kept

// buffers are what frames are read into. A connection has one only from the
// arrival of a frame until the next call of ReadFrame.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, firstRead); return &b }}

// Form returns the form of all WebSocket connections.
func (c *Conn) Form() contracts.Form { return Form{} }

// Write sends whole frames made by [Form] with one system call. When the peer
// has not taken them within the write timeout, the error wraps
// os.ErrDeadlineExceeded and the connection is broken; after Close it is
// net.ErrClosed.
func (c *Conn) Write(frames []byte) error { return c.tap.writeFrames(frames) }

// LastSeen returns when the peer last sent any byte, pongs included (ruling 10
// of the architecture).
func (c *Conn) LastSeen() time.Time { return c.tap.lastSeen() }

// Close sends a close frame with why's close code, or 1000
// for nil, and then gives the peer a second to answer it. A blocked Write fails
// and ReadFrame ends within that second. Only the first call counts; it does
// not wait.
func (c *Conn) Close(why *contracts.Error) {
	if why == nil {
		c.closeWith(closeNormal, "")
		return
	}
	c.closeWith(why.Code.CloseCode(), why.Code)
}

// Cut breaks the connection off. Over TLS it closes the socket below, so as not
// to wait until the peer has taken a goodbye.
func (c *Conn) Cut() {
	var socket net.Conn = c.tap.Conn
	if over, ok := socket.(interface{ NetConn() net.Conn }); ok {
		socket = over.NetConn()
	}
	_ = socket.Close() // whatever it says, nothing can be done
}

func (c *Conn) closeWith(code int, reason contracts.Code) {
	c.tap.hurry(func() {
		// Ends within closeTimeout, the deadline of the write that may hold the
		// lock and of its own. The connection's goroutine waits for it.
		c.closers.Go(func() {
			_, _ = c.tap.Write(closeFrame(code, string(reason))) // a dead peer needs no close frame
		})
	})
}

// linger ends the connection after its session has: it reads what still comes
// until the peer has answered the close frame or has hung up, a second at the
// most. Closing at once could make the kernel discard the close frame.
func (c *Conn) linger() {
	for {
		if _, err := c.ReadFrame(); err != nil {
			break
		}
	}
	c.closers.Wait()
	// Nothing is left to read unless the peer broke the protocol. Then its
	// answer could not be told from the rest, so that it has to hang up.
	if half, ok := c.tap.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails if the connection has ended
	}
	_, _ = io.Copy(io.Discard, c.tap.Conn) // ends with the peer or the deadline
	_ = c.lib.CloseNow()                   // an error says that it was closed already
}

// healthy reports whether nothing has happened yet that ends the connection.
// Only the goroutine that reads may call it.
func (c *Conn) healthy() bool {
	c.tap.lock()
	defer c.tap.unlock()
	return !c.tap.ended && c.tap.readErr == nil && !c.tap.isClosing()
}

// ReadFrame returns the next text message; it is valid until the next call. It
// returns io.EOF when the peer has closed the connection in order. Frames that
// are not text (1003), not UTF-8 (1007), too large (1009), too slow (4408),
// against the WebSocket protocol (1002) or more than there is room for (1013,
// 4429) close the connection.
func (c *Conn) ReadFrame() ([]byte, error) {
	for {
		c.release() // a reader that waits holds no buffer
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

// A violation is a message that closes the connection.
type violation struct {
	close  int
	reason contracts.Code
	text   string
}

func (v *violation) Error() string { return v.text }

func (c *Conn) read() ([]byte, error) {
	// Background: the socket's deadlines and Close interrupt it.
	kind, r, err := c.lib.Reader(context.Background())
	if err != nil {
		return nil, err
	}
	c.tap.begin(c.frameTimeout)
	defer c.tap.finish()
	if kind != websocket.MessageText {
		return nil, &violation{closeBinary, contracts.CodeBadRequest, "binary frame"}
	}
	c.frame = buffers.Get().(*[]byte)
	if err := c.fill(r); err != nil {
		return nil, err
	}
	if !utf8.Valid(*c.frame) {
		return nil, &violation{closeBadText, contracts.CodeBadRequest, "frame is not UTF-8"}
	}
	return *c.frame, nil
}

// fill reads a whole message into c.frame. The buffer grows with what arrives,
// never with what a header announces, of which the scanner knows that it is
// allowed.
func (c *Conn) fill(r io.Reader) error {
	b := *c.frame
	defer func() { *c.frame = b }()
	for {
		if len(b) == cap(b) {
			var err error
			if b, err = c.slot.Grow(b, c.tap.scanner.most); err != nil {
				return err
			}
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF && c.tap.readErr == io.EOF: // the socket has ended; the library takes it for the message's end
			return io.ErrUnexpectedEOF
		case err == io.EOF:
			return c.tap.readErr
		case err != nil:
			return err
		}
	}
}

// explain turns what ended reading into what the caller is told, and closes the
// connection with the code that says so.
func (c *Conn) explain(err error) error {
	if v, ok := errors.AsType[*violation](err); ok {
		c.closeWith(v.close, v.reason)
		return err
	}
	if refusal, ok := errors.AsType[*contracts.Error](err); ok { // there is no room for the message
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
	case c.tap.isClosing():
		return net.ErrClosed
	case errors.Is(err, errTooLarge), errors.Is(err, errFlood):
		c.closeWith(contracts.CodePayloadTooLarge.CloseCode(), contracts.CodePayloadTooLarge)
	case timedOut(c.tap.readErr):
		c.closeWith(contracts.CodeTimeout.CloseCode(), contracts.CodeTimeout)
	case c.tap.readErr == nil && !errors.Is(err, net.ErrClosed):
		c.closeWith(closeProtocolError, contracts.CodeBadRequest) // unless the library has said so
	}
	return err
}
