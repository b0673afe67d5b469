package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

// A link is one connection. Until its writer starts, it belongs to the goroutine
// that made it; afterwards that goroutine only reads.
type link struct {
	conn     *websocket.Conn // CloseNow unblocks reads and writes
	decoder  contracts.Decoder
	attached *contracts.Attached

	// Frames of the server before a close.
	refusal *contracts.Refusal
	goodbye *contracts.Goodbye

	// silence ends the link after three heartbeat intervals without a frame or a
	// ping. It is nil during the handshake, and stopped while the client waits for its
	// caller.
	silence      *time.Timer
	silenceLimit time.Duration
}

// openTimeout is how long the server may take to answer a request for a connection. It
// may have to start an agent first, which takes up to a minute.
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
	var err error
	if l.conn, err = c.dial(opening, c.address, query, l.noteActivity); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, contracts.DefaultHandshakeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, l.close)()
	if err := l.handshake(&c.position, c.greeting); err != nil {
		l.close()
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
		_ = l.write(text)
	}
	_ = l.write(hello)
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
	kind, text, err := l.conn.Read(context.Background())
	if err != nil {
		return nil, 0, err
	}
	if kind != websocket.MessageText {
		return nil, 0, fmt.Errorf("a %v frame: the protocol has text only", kind)
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

// maxFrame bounds one received text in bytes. A snapshot is the largest: two texts
// of MaxStateText and the outputs of all active tools and commands.
const maxFrame = 64 << 20

// dial connects to address with query added. The goroutine that reads calls onPing for
// each ping. The error is a *CloseError.
func (c *config) dial(ctx context.Context, address *url.URL, query url.Values, onPing func()) (*websocket.Conn, error) {
	header := http.Header{}
	if err := c.authorize(header); err != nil {
		return nil, &CloseError{Code: codeLost, Err: err, undialed: true}
	}
	target := *address
	target.RawQuery = query.Encode()
	conn, res, err := websocket.Dial(ctx, target.String(), &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: c.transport(), CheckRedirect: sameHost},
		HTTPHeader:   header,
		Subprotocols: []string{contracts.Subprotocol},
		OnPingReceived: func(context.Context, []byte) bool {
			onPing()
			return true
		},
	})
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the URL may contain a ticket
	}
	if err != nil {
		return nil, upgradeError(err, res)
	}
	if e := wrongProtocol(conn.Subprotocol()); e != nil {
		_ = conn.CloseNow()
		return nil, e
	}
	conn.SetReadLimit(maxFrame)
	return conn, nil
}

// sameHost follows a redirect only to the same host and not from https to http: nobody else
// must get the credential and the headers of WithHeader.
func sameHost(req *http.Request, via []*http.Request) error {
	from := via[0].URL
	if req.URL.Host != from.Host || from.Scheme == "https" && req.URL.Scheme != "https" || len(via) >= 10 {
		return http.ErrUseLastResponse
	}
	return nil
}

// transport returns the transport for one request.
func (c *config) transport() *http.Transport {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		DialContext:         (&net.Dialer{Timeout: contracts.DefaultHandshakeTimeout}).DialContext,
		TLSHandshakeTimeout: contracts.DefaultHandshakeTimeout,
	}
	if c.dialer != nil {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dialer(ctx) }
	}
	return t
}

// authorize adds the credential, if there is one, and the headers of the caller.
func (c *config) authorize(h http.Header) error {
	token, err := c.credential()
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	if c.header != nil && err == nil {
		c.header(h)
	}
	return err
}

// write sends a text. If the server does not read it within the write timeout, the
// connection ends.
func (l *link) write(text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), contracts.DefaultWriteTimeout)
	defer cancel()
	return l.conn.Write(ctx, websocket.MessageText, text)
}

// close ends the connection at once.
func (l *link) close() { _ = l.conn.CloseNow() }

// endpoint returns the WebSocket address of a base URL, and the single-use ticket
// in it, if any.
func endpoint(base string) (address *url.URL, ticket string, err error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, "", fmt.Errorf("server address: %w", err)
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return nil, "", fmt.Errorf("server address %q: want ws://, wss://, http:// or https://", base)
	}
	if u.Host == "" {
		return nil, "", fmt.Errorf("server address %q: no host", base)
	}
	ticket = u.Query().Get("ticket")
	u.RawQuery, u.Fragment = "", ""
	if !strings.HasSuffix(u.Path, "/ws") {
		u.Path = strings.TrimSuffix(u.Path, "/") + "/api/headless/ws"
	}
	return u, ticket, nil
}
