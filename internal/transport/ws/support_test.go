package ws

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A serveFunc is a session that is a function.
type serveFunc func(context.Context, *Conn) error

func (f serveFunc) Serve(ctx context.Context, c *Conn) error { return f(ctx, c) }

// A seen is what a session has read: a text, or the error that ended reading.
type seen struct {
	text string
	err  error
}

// A server is a handler behind a real HTTP server.
type server struct {
	t         *testing.T
	handler   *Handler
	connLimit *connlimit.Limiter
	dial      func() (net.Conn, error)
	conns     chan *Conn // each connection, as its session begins
	read      chan seen  // what its session reads
}

// newServer starts a server whose sessions read until reading fails. Inside a
// bubble it listens on pipes, else on a socket. opts may leave out everything.
func newServer(t *testing.T, bubble bool, opts Options) *server {
	t.Helper()
	s := &server{t: t, conns: make(chan *Conn, 256), read: make(chan seen, 256)}
	if opts.Authorize == nil {
		opts.Authorize = func(*http.Request) (contracts.Principal, error) { return contracts.Principal{ID: "anon"}, nil }
	}
	if opts.Open == nil {
		opts.Open = func(context.Context, contracts.Attach) (Session, error) { return serveFunc(s.follow), nil }
	}
	if opts.ConnLimit == nil {
		opts.ConnLimit = connlimit.New(connlimit.Options{})
	}
	s.connLimit = opts.ConnLimit
	h, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.handler = h
	mux := http.NewServeMux()
	mux.Handle("/api/headless/ws", h)
	mux.Handle("/api/headless/sessions/{id}/ws", h)
	srv := &http.Server{Handler: mux, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	var ln net.Listener
	if bubble {
		pipes := newPipeListener()
		ln, s.dial = pipes, pipes.dial
	} else {
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		s.dial = func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) }
	}
	ended := make(chan struct{})
	go func() { // ends with srv.Close
		defer close(ended)
		_ = srv.Serve(ln)
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.connLimit.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		_ = srv.Close()
		<-ended
	})
	return s
}

func (s *server) follow(_ context.Context, c *Conn) error {
	s.conns <- c
	for {
		text, err := c.ReadFrame()
		s.read <- seen{string(text), err}
		if err != nil {
			return err
		}
	}
}

// client dials with the library, as a well-behaved client.
func (s *server) client() *websocket.Conn {
	s.t.Helper()
	c, _, err := websocket.Dial(s.t.Context(), "ws://localhost/api/headless/ws", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return s.dial() },
			DisableKeepAlives: true,
		}},
		Subprotocols: []string{contracts.Subprotocol},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	c.SetReadLimit(-1)
	s.t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

// A raw peer writes and reads bytes.
type raw struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

const handshake = "GET /api/headless/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
	"Sec-WebSocket-Protocol: " + contracts.Subprotocol + "\r\n\r\n"

// raw dials and shakes hands; early is sent along with the request.
func (s *server) raw(early ...byte) *raw { s.t.Helper(); return s.rawAs("", early...) }

// rawAs is raw with more lines in the header.
func (s *server) rawAs(header string, early ...byte) *raw {
	s.t.Helper()
	conn, err := s.dial()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	p := &raw{s.t, conn, bufio.NewReader(conn)}
	p.send(append([]byte(strings.TrimSuffix(handshake, "\r\n")+header+"\r\n"), early...))
	resp, err := http.ReadResponse(p.r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("handshake: got %v, %v, want 101", resp, err)
	}
	return p
}

func (p *raw) send(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// trySend sends although the server may be hanging up.
func (p *raw) trySend(b []byte) { _, _ = p.Write(b) }

// receive reads one frame.
func (p *raw) receive() (first byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	switch head[1] {
	case 126:
		var b [2]byte
		_, err = io.ReadFull(p.r, b[:])
		n = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		_, err = io.ReadFull(p.r, b[:])
		n = binary.BigEndian.Uint64(b[:])
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(p.r, payload)
	return head[0], payload, err
}

// closed reads up to the close frame, answers it, reads to the end of the stream
// and returns the close code and reason. It fails if anything follows the frame.
func (p *raw) closed() string {
	p.t.Helper()
	defer p.Close()
	for {
		first, payload, err := p.receive()
		if err != nil {
			return "no close frame: " + err.Error()
		}
		if first != finClose {
			continue
		}
		p.trySend(mask(finClose, string(payload)))
		if b, err := p.r.ReadByte(); err == nil {
			p.t.Errorf("a byte %#x after the close frame", b)
		}
		if len(payload) < 2 {
			return "empty"
		}
		return fmt.Sprintf("%d %s", binary.BigEndian.Uint16(payload), payload[2:])
	}
}

// mask returns a client's frame: first byte, length and masked payload.
func mask(first byte, payload string) []byte {
	return append(maskHeader(first, uint64(len(payload))), xor(payload)...)
}

var maskKey = [4]byte{1, 2, 3, 4}

func maskHeader(first byte, n uint64) []byte {
	b := []byte{first}
	switch {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), n)
	}
	return append(b, maskKey[:]...)
}

func xor(payload string) []byte {
	b := []byte(payload)
	for i := range b {
		b[i] ^= maskKey[i%4]
	}
	return b
}

// A pipeListener accepts in-memory connections.
type pipeListener struct {
	accept chan net.Conn
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{make(chan net.Conn), make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) dial() (net.Conn, error) {
	server, client := net.Pipe()
	select {
	case l.accept <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// text returns a frame as the hub would make it.
func text(body string) []byte { return Form{}.AppendControl(nil, []byte(body)) }

// receive waits for a value with a generous bound.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came in 20 s")
		panic("unreachable")
	}
}

// contains reports whether all of parts are in s.
func contains(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}
