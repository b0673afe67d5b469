package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/coder/websocket"
)

// A Link is one connection to the server under test. It carries whole JSON
// texts: lines on stdio, frames on WebSocket. Send and the closing methods are
// called from one goroutine, Recv from one other.
type Link interface {
	// Send sends one text; on stdio it adds the line feed.
	Send(ctx context.Context, text []byte) error
	// SendRaw sends bytes as they are: without a line feed on stdio, as a
	// binary frame on WebSocket.
	SendRaw(ctx context.Context, data []byte) error
	// Recv waits for the next text. Its error ends the link: a *Closed if the
	// server ended it, io.EOF when a process closed its output.
	Recv(ctx context.Context) ([]byte, error)
	// CloseInput ends the client's half: EOF on the server's standard input,
	// a close frame on WebSocket.
	CloseInput() error
	// Wait returns the server's exit status once it has ended by itself.
	// It is an error on WebSocket.
	Wait(ctx context.Context) (int, error)
	// Diagnostics is what the server wrote for humans on this link.
	Diagnostics() string
	// Close ends the link at once, and the process behind it.
	Close() error
}

// errNoProcess is what Wait returns where no process belongs to the link.
var errNoProcess = errors.New("a socket has no exit status")

// Closed is the close frame that ended a WebSocket link.
type Closed struct {
	Code   int
	Reason string
}

// Error returns the code and the reason.
func (c *Closed) Error() string { return fmt.Sprintf("closed with %d %q", c.Code, c.Reason) }

// Refused is an attachment that was refused over HTTP, before the upgrade.
type Refused struct {
	Status int
	Code   string // code in the error body, if it has one
	Text   string // error in the error body
	Offers string // Sec-WebSocket-Protocol of the answer
	Cause  error
}

// Error returns the status and what the body said.
func (r *Refused) Error() string {
	return fmt.Sprintf("refused before the upgrade: %d %s %q (%v)", r.Status, r.Code, r.Text, r.Cause)
}

// socketPath is where a server listens unless the target names a path.
const socketPath = "/api/headless/ws"

// maxServerFrame bounds one frame from the server.
const maxServerFrame = 16 << 20

// socket is a link over WebSocket.
type socket struct {
	conn *websocket.Conn
}

// dialOptions are what a socket says before its first frame.
type dialOptions struct {
	base        string // ws:// or wss:// address of the server
	path        string // empty means that of base, else socketPath
	token       string // bearer credential; empty for none
	subprotocol string
	query       url.Values
}

// dialSocket opens a WebSocket. A refusal before the upgrade is a *Refused.
func dialSocket(ctx context.Context, o dialOptions) (Link, error) {
	u, err := url.Parse(o.base)
	if err != nil {
		return nil, err
	}
	if u.Path == "" || u.Path == "/" || o.path != "" {
		u.Path = cmp.Or(o.path, socketPath)
	}
	query := u.Query()
	maps.Copy(query, o.query)
	u.RawQuery = query.Encode()
	opts := &websocket.DialOptions{HTTPHeader: http.Header{}}
	if o.subprotocol != "" {
		opts.Subprotocols = []string{o.subprotocol}
	}
	if o.token != "" {
		opts.HTTPHeader.Set("Authorization", "Bearer "+o.token)
	}
	conn, resp, err := websocket.Dial(ctx, u.String(), opts)
	if err != nil {
		return nil, refusedBy(resp, err)
	}
	conn.SetReadLimit(maxServerFrame)
	return &socket{conn: conn}, nil
}

// refusedBy turns a failed dial into what the server said, if it said anything.
func refusedBy(resp *http.Response, err error) error {
	if resp == nil {
		return err
	}
	r := &Refused{Status: resp.StatusCode, Offers: resp.Header.Get("Sec-WebSocket-Protocol"), Cause: err}
	body, readErr := io.ReadAll(resp.Body)
	if readErr != nil {
		return r
	}
	var fields struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}
	if json.Unmarshal(body, &fields) == nil {
		r.Text, r.Code = fields.Error, fields.Code
	}
	return r
}

func (s *socket) Send(ctx context.Context, text []byte) error {
	return s.conn.Write(ctx, websocket.MessageText, text)
}

func (s *socket) SendRaw(ctx context.Context, data []byte) error {
	return s.conn.Write(ctx, websocket.MessageBinary, data)
}

func (s *socket) Recv(ctx context.Context) ([]byte, error) {
	kind, text, err := s.conn.Read(ctx)
	if closed, ok := errors.AsType[websocket.CloseError](err); ok {
		return nil, &Closed{Code: int(closed.Code), Reason: closed.Reason}
	}
	if err == nil && kind != websocket.MessageText {
		return nil, errors.New("the server sent a binary frame")
	}
	return text, err
}

func (s *socket) CloseInput() error { return s.conn.Close(websocket.StatusNormalClosure, "") }

func (s *socket) Wait(context.Context) (int, error) { return 0, errNoProcess }

func (s *socket) Diagnostics() string { return "" }

// Close drops the connection without a close frame.
func (s *socket) Close() error { return s.conn.CloseNow() }
