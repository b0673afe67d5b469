package client

import (
	"context"
	"net/url"
)

// rawBacklog is how many texts may be unread by ReceiveText before the connection
// is not read any further.
const rawBacklog = 64

// A Raw is a connection that sends and receives texts without a handshake, cursors
// or reconnects. It is for programs that check a server frame by frame. It owns one
// goroutine, which reads until the connection ends.
//
// SendText and ReceiveText may be called from any goroutine.
type Raw struct {
	conn  *socket
	texts chan []byte // closed by the reader, after it set err
	err   error       // why reading ended; set before texts is closed
	life  context.Context
	stop  context.CancelFunc
}

// DialRaw connects to the WebSocket at base and sends nothing. It uses only the
// options for the credential and the dialer. query, which may be nil, is added
// to the address. ctx bounds the connecting.
func DialRaw(ctx context.Context, base string, query url.Values, opts ...Option) (*Raw, error) {
	address, ticket, err := endpoint(base)
	if err != nil {
		return nil, err
	}
	if query == nil {
		query = url.Values{}
	}
	if ticket != "" {
		query.Set("ticket", ticket)
	}
	c := newConfig(opts)
	conn, err := openSocket(ctx, &c, address, query, func() {})
	if err != nil {
		return nil, err
	}
	r := &Raw{conn: conn, texts: make(chan []byte, rawBacklog)}
	r.life, r.stop = context.WithCancel(context.Background())
	go r.read() // ends with the connection, which Close closes
	return r, nil
}

// read moves texts from the connection to the channel.
func (r *Raw) read() {
	defer close(r.texts)
	for {
		text, err := r.conn.read()
		if err == nil {
			select {
			case r.texts <- text:
				continue
			case <-r.life.Done():
			}
		}
		if r.err = err; r.life.Err() != nil {
			r.err = ErrClosed
		}
		return
	}
}

// SendText sends one text. If the write takes longer than the write timeout, the
// connection ends.
func (r *Raw) SendText(text []byte) error {
	return r.conn.write(text)
}

// ReceiveText returns the next text, or an error when ctx ends; the connection then
// stays open. At the end of the connection it returns a [*CloseError].
func (r *Raw) ReceiveText(ctx context.Context) ([]byte, error) {
	select {
	case text, ok := <-r.texts:
		if !ok {
			return nil, new(link).closeError(r.err)
		}
		return text, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close ends the connection at once and waits until the reader has ended. Texts that
// were not received are dropped.
func (r *Raw) Close() error {
	r.stop()
	r.conn.close()
	for range r.texts { // closed when the reader ends
	}
	return nil
}
