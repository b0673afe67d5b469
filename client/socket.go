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

// maxFrame bounds one received text in bytes. A snapshot is the largest: two texts
// of MaxStateText and the outputs of all active tools and commands.
const maxFrame = 64 << 20

// A pipe sends and receives texts. close unblocks read and write; read is called
// from one goroutine, and write from one at a time.
type pipe interface {
	read() ([]byte, error)
	write(text []byte) error
	close()
}

// A socket is a pipe over a WebSocket.
type socket struct {
	conn *websocket.Conn
}

// openSocket connects to address with query added. The goroutine that reads calls
// onPing for each ping. The error is a *CloseError.
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
		return nil, upgradeError(withoutURL(err), res)
	}
	if e := wrongProtocol(conn.Subprotocol()); e != nil {
		_ = conn.CloseNow()
		return nil, e
	}
	conn.SetReadLimit(maxFrame)
	return &socket{conn: conn}, nil
}

// withoutURL removes the URL from an HTTP client's error, because it may contain a
// ticket.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// read returns the next text. It has no context of its own, because a context per
// read costs more than the read, and close unblocks it.
func (s *socket) read() ([]byte, error) {
	kind, text, err := s.conn.Read(context.Background())
	if err == nil && kind != websocket.MessageText {
		err = fmt.Errorf("a %v frame: the protocol has text only", kind)
	}
	return text, err
}

// write sends a text. If the server does not read it within the write timeout, the
// connection ends.
func (s *socket) write(text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), contracts.DefaultWriteTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, text)
}

// close ends the connection at once.
func (s *socket) close() { _ = s.conn.CloseNow() }

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
