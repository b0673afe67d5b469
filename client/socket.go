package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

// maxFrame bounds one received text. A snapshot is the largest: two texts of
// MaxStateText and the outputs of all active tools and commands.
const maxFrame = 64 << 20

// A pipe carries texts both ways. close unblocks read and write; read is
// called from one goroutine, and write from one at a time.
type pipe interface {
	read() ([]byte, error)
	write(text []byte) error
	close()
}

// A socket is a pipe over a WebSocket.
type socket struct {
	conn *websocket.Conn
}

// openSocket makes a connection to address with query added. onPing is told of
// each ping, from the goroutine that reads. An error is a *CloseError.
func openSocket(ctx context.Context, c *config, address *url.URL, query url.Values, onPing func()) (*socket, error) {
	header := c.header.Clone()
	token, err := c.credential()
	if err != nil {
		return nil, &CloseError{Code: codeLost, Err: err}
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		DialContext:         (&net.Dialer{Timeout: contracts.DefaultHandshakeTimeout}).DialContext,
		TLSHandshakeTimeout: contracts.DefaultHandshakeTimeout,
	}
	if c.dialer != nil {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dialer(ctx) }
	}
	target := *address
	target.RawQuery = query.Encode()
	conn, res, err := websocket.Dial(ctx, target.String(), &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: transport},
		HTTPHeader:   header,
		Subprotocols: []string{contracts.Subprotocol},
		OnPingReceived: func(context.Context, []byte) bool {
			onPing()
			return true
		},
	})
	if err != nil {
		return nil, refused(scrub(err), res)
	}
	if e := wrongProtocol(conn.Subprotocol()); e != nil {
		_ = conn.CloseNow()
		return nil, e
	}
	conn.SetReadLimit(maxFrame)
	return &socket{conn: conn}, nil
}

// scrub removes the URL from an HTTP client's error: it can hold a ticket.
func scrub(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// read returns the next text. It is not given a context: one per read costs
// more than the read, and close does the same.
func (s *socket) read() ([]byte, error) {
	kind, text, err := s.conn.Read(context.Background())
	if err == nil && kind != websocket.MessageText {
		err = fmt.Errorf("a %v frame: the protocol has text only", kind)
	}
	return text, err
}

// write sends a text. If the server does not take it within the write timeout,
// the connection is over.
func (s *socket) write(text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), contracts.DefaultWriteTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, text)
}

// close ends the connection at once.
func (s *socket) close() { _ = s.conn.CloseNow() }

// endpoint returns the address of the WebSocket that a base URL stands for, and
// the single-use ticket it may carry.
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
