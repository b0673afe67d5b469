package client

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

// A fakeServer accepts WebSockets over in-memory pipes and hands each to the
// test, which plays the server by hand.
type fakeServer struct {
	t       *testing.T
	conns   chan net.Conn
	peers   chan *peer
	closing chan struct{}

	mu      sync.Mutex
	down    bool         // dialing fails
	refusal http.Handler // answers upgrades instead of accepting them
}

// A peer is the server's end of one connection.
type peer struct {
	t      *testing.T
	conn   *websocket.Conn
	query  url.Values
	header http.Header
}

// dialing has a client dial the server, and returns the error that this ends with.
func (s *fakeServer) dialing(opts ...Option) <-chan error {
	failed := make(chan error)
	go func() {
		_, err := Dial(s.t.Context(), "ws://fake", append(opts, WithDialer(s.dial))...)
		failed <- err
	}()
	return failed
}

// newFakeServer starts a server that ends with the test. In a bubble it must be
// called inside it.
func newFakeServer(t *testing.T) *fakeServer {
	s := &fakeServer{t: t, conns: make(chan net.Conn), peers: make(chan *peer, 16), closing: make(chan struct{})}
	server := &http.Server{Handler: s}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(s) // always http.ErrServerClosed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return s
}

func (s *fakeServer) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.closing:
		return nil, net.ErrClosed
	}
}

func (s *fakeServer) Close() error   { close(s.closing); return nil }
func (s *fakeServer) Addr() net.Addr { return &net.UnixAddr{Name: "fake", Net: "unix"} }

// dial is the client's dialer.
func (s *fakeServer) dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
	}
	here, there := net.Pipe()
	select {
	case s.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *fakeServer) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *fakeServer) refuse(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal = h; h == nil {
		s.refusal = nil
	}
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refusal := s.refusal
	s.mu.Unlock()
	if refusal != nil {
		refusal.ServeHTTP(w, r)
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{contracts.Subprotocol}})
	if err != nil {
		s.t.Errorf("accept: %v", err)
		return
	}
	s.peers <- &peer{t: s.t, conn: conn, query: r.URL.Query(), header: r.Header}
}

// connect dials in the background while the test plays the other end with
// greet, and returns both ends.
func (s *fakeServer) connect(greet func(*peer), opts ...Option) (*Client, *peer) {
	s.t.Helper()
	type dialed struct {
		c   *Client
		err error
	}
	done := make(chan dialed, 1)
	go func() {
		c, err := Dial(s.t.Context(), "http://fake", append([]Option{WithDialer(s.dial)}, opts...)...)
		done <- dialed{c, err}
	}()
	p := <-s.peers
	greet(p)
	d := <-done
	if d.err != nil {
		s.t.Fatalf("Dial: %v", d.err)
	}
	s.t.Cleanup(func() {
		_ = p.conn.CloseNow() // Close need not wait for a goodbye
		_ = d.c.Close(false)
	})
	return d.c, p
}

// next returns the next connection that the client makes.
func (s *fakeServer) next() *peer {
	s.t.Helper()
	p := <-s.peers
	s.t.Cleanup(func() { _ = p.conn.CloseNow() })
	return p
}

// send writes a frame.
func (p *peer) send(frames ...contracts.Frame) {
	p.t.Helper()
	for _, f := range frames {
		text, err := contracts.EncodeFrame(f)
		if err != nil {
			p.t.Fatalf("encode %s: %v", f.FrameType(), err)
		}
		if err := p.conn.Write(p.t.Context(), websocket.MessageText, text); err != nil {
			p.t.Fatalf("server: send %s: %v", f.FrameType(), err)
		}
	}
}

// read returns the next frame of the client.
func (p *peer) read() contracts.Frame {
	p.t.Helper()
	_, text, err := p.conn.Read(p.t.Context())
	if err != nil {
		p.t.Fatalf("server: read: %v", err)
	}
	f, err := (&contracts.Decoder{Strict: true}).ClientFrame(text)
	if err != nil {
		p.t.Fatalf("server: the client sent %s: %v", text, err)
	}
	return f
}

// expect returns the next frame, which must be an F.
func expect[F contracts.Frame](p *peer) F {
	p.t.Helper()
	f := p.read()
	typed, ok := f.(F)
	if !ok {
		var want F
		p.t.Fatalf("server: got %s, want %T", f.FrameType(), want)
	}
	return typed
}

// attached is the answer to a handshake of connection conn in epoch.
func attached(conn, epoch, resume string) *contracts.Attached {
	return &contracts.Attached{
		SessionID: "sess_a", ConnectionID: conn, ConnectionToken: "token-of-" + conn, SubscriptionID: "sub_1",
		Role: contracts.RoleController, ControllerLeaseGranted: true, HeartbeatIntervalMS: 15_000,
		Epoch: epoch, Resume: resume, Limits: contracts.AttachLimits{MaxFrameBytes: 1 << 20, Mailbox: 1 << 20},
	}
}

// withBuffer sets how many bytes may be unread.
func withBuffer(bytes int) Option { return func(c *config) { c.buffer = bytes } }

// greetWith reads the handshake of a new connection and answers it.
func greetWith(frames ...contracts.Frame) func(*peer) {
	return func(p *peer) {
		p.t.Helper()
		expect[*contracts.Message](p)
		p.send(frames...)
	}
}

// message is an entry.
func message(cursor uint64, event contracts.Event) *contracts.MessageEnvelope {
	encoded, err := contracts.EncodeEvent(event)
	if err != nil {
		panic(err)
	}
	return &contracts.MessageEnvelope{Cursor: cursor, Message: json.RawMessage(encoded.Body)}
}

// status is an entry whose text is text.
func status(cursor uint64, text string) *contracts.MessageEnvelope {
	return message(cursor, &contracts.Status{Message: text})
}

// snapshot is the body of a snapshot at cursor.
func snapshot(cursor uint64) json.RawMessage {
	body, err := contracts.EncodeSnapshot(&contracts.Snapshot{
		ProtocolVersion: contracts.ProtocolVersion, SessionID: "sess_a", Cursor: cursor,
		State: contracts.State{Model: "atlas", IsReady: true},
	}, 0)
	if err != nil {
		panic(err)
	}
	return body
}

// next returns the client's next update.
func next(t *testing.T, c *Client) Update {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	u, err := c.Next(ctx)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return u
}

// wantKind returns the next update, which must be of the kind.
func wantKind(t *testing.T, c *Client, want Kind) Update {
	t.Helper()
	u := next(t, c)
	if u.Kind != want {
		t.Fatalf("got a %s update (%+v), want %s", u.Kind, u, want)
	}
	return u
}

// wantStatus expects the next update to be the status text at cursor.
func wantStatus(t *testing.T, c *Client, cursor uint64, text string) Update {
	t.Helper()
	u := wantKind(t, c, KindEvent)
	s, ok := u.Event.(*contracts.Status)
	if !ok || s.Message != text || u.Cursor != cursor {
		t.Fatalf("got %s at %d, want status %q at %d", u.Body, u.Cursor, text, cursor)
	}
	return u
}
