package client

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A link is one connection. Until its writer is started it belongs to the
// goroutine that made it; from then on that goroutine only reads.
type link struct {
	pipe     pipe
	decoder  contracts.Decoder
	attached *contracts.Attached

	// What the server said before it closed.
	refusal *contracts.Refusal
	goodbye *contracts.Goodbye

	// silence ends the link after three heartbeat intervals without a frame or
	// a ping. It is nil during the handshake, which has its own bound, and
	// stopped while the caller is what we wait for.
	silence *time.Timer
	patient time.Duration
}

// openPatience is how long the server may take to answer the request for a
// connection. One that has to open the session first waits up to a minute for its
// agent to start.
const openPatience = 90 * time.Second

// attach makes a connection at the client's place and shakes hands. The error is
// a *CloseError.
func (c *Client) attach(ctx context.Context, takeover contracts.Takeover, ticket string) (*link, error) {
	query := c.place.query(&c.config, takeover)
	if ticket != "" {
		query.Set("ticket", ticket)
	}
	l := &link{}
	opening, opened := context.WithTimeout(ctx, openPatience)
	defer opened()
	conn, err := openSocket(opening, &c.config, c.address, query, l.alive)
	if err != nil {
		return nil, err
	}
	l.pipe = conn
	ctx, cancel := context.WithTimeout(ctx, contracts.DefaultHandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, conn.close)
	defer stop()
	if err := l.greet(&c.place, c.greeting); err != nil {
		conn.close()
		return nil, l.ended(cmp.Or(context.Cause(ctx), err))
	}
	interval := time.Duration(l.attached.HeartbeatIntervalMS) * time.Millisecond
	l.patient = 3 * cmp.Or(interval, contracts.DefaultHeartbeatInterval)
	return l, nil
}

// greet proves whose connection this continues, says hello and waits for the
// server's answer. Failed writes are not reported: the read that follows finds
// the connection closed and says why.
func (l *link) greet(at *place, hello []byte) error {
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
			l.refusal = f // the close that follows says the rest
		case *contracts.Goodbye:
		default:
			return &fault{fmt.Errorf("%s before ws.attached", f.FrameType())}
		}
	}
}

// next returns the next frame and its size. A goodbye is also kept.
func (l *link) next() (contracts.Frame, int, error) {
	text, err := l.pipe.read()
	if err != nil {
		return nil, 0, err
	}
	frame, err := l.decoder.ServerFrame(text)
	if err != nil {
		return nil, 0, &fault{err}
	}
	if g, ok := frame.(*contracts.Goodbye); ok {
		l.goodbye = g
	}
	return frame, len(text), nil
}

// alive is told of each sign of life, by the goroutine that reads.
func (l *link) alive() {
	if l.silence != nil {
		l.silence.Reset(l.patient)
	}
}

// A fault is something that no server of this protocol sends. Trying again
// would meet it again.
type fault struct{ err error }

func (f *fault) Error() string { return "frame from the server: " + f.err.Error() }
func (f *fault) Unwrap() error { return f.err }
