package client

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A link is one connection. Until its writer starts, it belongs to the goroutine
// that made it; afterwards that goroutine only reads.
type link struct {
	pipe     pipe
	decoder  contracts.Decoder
	attached *contracts.Attached

	// Frames of the server before a close.
	refusal *contracts.Refusal
	goodbye *contracts.Goodbye

	// silence ends the link after three heartbeat intervals without a frame or a
	// ping. It is nil during the handshake, which has a timeout of its own, and
	// stopped while the client waits for its caller.
	silence      *time.Timer
	silenceLimit time.Duration
}

// openTimeout is how long the server may take to answer a request for a connection.
// A server that must open the session first waits up to one minute for its agent to
// start.
const openTimeout = 90 * time.Second

// attach makes a connection at the client's position and does the handshake. The
// error is a *CloseError.
func (c *Client) attach(ctx context.Context, takeover contracts.Takeover, ticket string) (*link, error) {
	query := c.position.query(&c.config, takeover)
	if ticket != "" {
		query.Set("ticket", ticket)
	}
	l := &link{}
	opening, opened := context.WithTimeout(ctx, openTimeout)
	defer opened()
	conn, err := openSocket(opening, &c.config, c.address, query, l.noteActivity)
	if err != nil {
		return nil, err
	}
	l.pipe = conn
	ctx, cancel := context.WithTimeout(ctx, contracts.DefaultHandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, conn.close)
	defer stop()
	if err := l.handshake(&c.position, c.greeting); err != nil {
		conn.close()
		return nil, l.closeError(cmp.Or(context.Cause(ctx), err))
	}
	interval := time.Duration(l.attached.HeartbeatIntervalMS) * time.Millisecond
	l.silenceLimit = 3 * cmp.Or(interval, contracts.DefaultHeartbeatInterval)
	return l, nil
}

// handshake sends ws.resume, if there is a connection to continue, and hello, and
// waits for ws.attached. It ignores failed writes: the next read finds the
// connection closed, with a reason.
func (l *link) handshake(at *position, hello []byte) error {
	if at.connection != "" {
		text, err := contracts.EncodeFrame(&contracts.Resume{ConnectionToken: at.token})
		if err != nil {
			return err
		}
		_ = l.pipe.write(text)
	}
	_ = l.pipe.write(hello)
	for {
		frame, _, err := l.next()
		if err != nil {
			return err
		}
		switch f := frame.(type) {
		case *contracts.Attached:
			l.attached = f
			return nil
		case *contracts.Refusal:
			l.refusal = f // the server closes next
		case *contracts.Goodbye:
		default:
			return &protocolError{fmt.Errorf("%s before ws.attached", f.FrameType())}
		}
	}
}

// next returns the next frame and its size. It also stores a goodbye.
func (l *link) next() (contracts.Frame, int, error) {
	text, err := l.pipe.read()
	if err != nil {
		return nil, 0, err
	}
	frame, err := l.decoder.ServerFrame(text)
	if err != nil {
		return nil, 0, &protocolError{err}
	}
	if g, ok := frame.(*contracts.Goodbye); ok {
		l.goodbye = g
	}
	return frame, len(text), nil
}

// noteActivity restarts the silence timer. The goroutine that reads calls it for
// each frame and ping.
func (l *link) noteActivity() {
	if l.silence != nil {
		l.silence.Reset(l.silenceLimit)
	}
}

// A protocolError is a frame that no server of this protocol sends. A retry would
// get it again.
type protocolError struct{ err error }

func (f *protocolError) Error() string { return "frame from the server: " + f.err.Error() }
func (f *protocolError) Unwrap() error { return f.err }
