package sse

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeSession is a session whose stream is a function. Its zero value streams
// nothing.
type fakeSession struct {
	refuse error // by MayStream
	stream func(ctx context.Context, c *Conn) error
	asked  func(contracts.StreamRequest, contracts.Caller) // nil if nobody wants to know
}

const epoch = "e7f3"

func (f *fakeSession) Epoch() string { return epoch }

func (f *fakeSession) MayStream(req contracts.StreamRequest, by contracts.Caller) error {
	if f.asked != nil {
		f.asked(req, by)
	}
	return f.refuse
}

func (f *fakeSession) Stream(ctx context.Context, c *Conn, _ contracts.StreamRequest, _ contracts.Caller) error {
	if f.stream == nil {
		return nil
	}
	return f.stream(ctx, c)
}

// A server serves streams of one session over a real HTTP server.
type server struct {
	t         *testing.T
	connLimit *connlimit.Limiter
	log       *syncBuffer
	dial      func() (net.Conn, error)
	conns     chan *Conn // each, as its session begins
	read      chan error // what ReadFrame returned
}

// options are those of a test's server. The zero value is a session that waits
// for the end of each stream, on a socket.
type options struct {
	Options
	bubble  bool // pipes instead of a socket
	tls     bool
	session *fakeSession
	wrap    func(http.Handler) http.Handler
	listen  func(net.Listener) net.Listener
}

func newServer(t *testing.T, opts options) *server {
	t.Helper()
	s := &server{t: t, log: &syncBuffer{}, conns: make(chan *Conn, 256), read: make(chan error, 256)}
	if opts.ConnLimit == nil {
		opts.ConnLimit = connlimit.New(connlimit.Options{})
	}
	s.connLimit = opts.ConnLimit
	opts.Log = slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if opts.session == nil {
		opts.session = &fakeSession{stream: s.follow}
	}
	streams := New(opts.Options)
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := streams.Serve(w, r, opts.session, contracts.StreamRequest{}, contracts.Caller{}); err != nil {
			httperr.Write(w, err)
		}
	})
	if opts.wrap != nil {
		handler = opts.wrap(handler)
	}
	s.start(handler, opts)
	return s
}

// start listens and serves until the test ends.
func (s *server) start(handler http.Handler, opts options) {
	s.t.Helper()
	srv := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	var ln net.Listener
	if opts.bubble {
		pipes := newPipeListener()
		ln, s.dial = pipes, pipes.dial
	} else {
		sockets, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			s.t.Fatal(err)
		}
		ln, s.dial = sockets, func() (net.Conn, error) { return net.Dial("tcp", sockets.Addr().String()) }
	}
	if opts.listen != nil {
		ln = opts.listen(ln)
	}
	serve := srv.Serve
	if opts.tls {
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate()}}
		serve = func(ln net.Listener) error { return srv.ServeTLS(ln, "", "") }
	}
	ended := make(chan struct{})
	go func() { // ends with srv.Close
		defer close(ended)
		_ = serve(ln)
	}()
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.connLimit.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			s.t.Error(err)
		}
		_ = srv.Close()
		<-ended
	})
}

// follow is a session that writes nothing of its own accord.
func (s *server) follow(_ context.Context, c *Conn) error {
	s.conns <- c
	_, err := c.ReadFrame()
	s.read <- err
	return err
}

// A kind is a way in which clients ask for streams.
type kind struct {
	name  string
	proto string // of the answer
	opts  options
	plain bool // HTTP/1.0, which Go's client does not speak
}

var kinds = []kind{
	{name: "HTTP/1.1", proto: "HTTP/1.1"},
	{name: "HTTP/1.1 over TLS", proto: "HTTP/1.1", opts: options{tls: true}},
	{name: "HTTP/1.1 without hijacking", proto: "HTTP/1.1", opts: options{wrap: unhijackable}},
	{name: "HTTP/2", proto: "HTTP/2.0", opts: options{tls: true}},
	{name: "HTTP/1.0", proto: "HTTP/1.1", plain: true},
}

// unhijackable hides from a handler that it could hijack, as middleware may.
func unhijackable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(struct {
			http.ResponseWriter
			http.Flusher
			deadlines
		}{w, w.(http.Flusher), w.(deadlines)}, r)
	})
}

type deadlines interface{ SetWriteDeadline(time.Time) error }

// get asks for a stream as a well-behaved client. The body is closed at the end
// of the test.
func (s *server) get(k kind) *http.Response {
	s.t.Helper()
	if k.plain {
		p := s.raw("GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n")
		res, err := http.ReadResponse(p.r, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		res.Body = struct {
			io.Reader
			io.Closer
		}{res.Body, p.Conn}
		return res
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(k.proto == "HTTP/1.1")
	protocols.SetHTTP2(k.proto == "HTTP/2.0")
	transport := &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return s.dial() },
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives:  k.proto == "HTTP/1.1",
		DisableCompression: true,
		Protocols:          protocols,
	}
	url := "http://localhost/events"
	if k.opts.tls {
		url = "https://localhost/events"
	}
	res, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = res.Body.Close()
		transport.CloseIdleConnections()
	})
	if res.Proto != k.proto {
		s.t.Fatalf("got %s, want %s", res.Proto, k.proto)
	}
	return res
}

// certificate makes one for localhost.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// A raw peer writes and reads bytes.
type raw struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

const request = "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"

// raw connects and sends text.
func (s *server) raw(text string) *raw {
	s.t.Helper()
	conn, err := s.dial()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	p := &raw{s.t, conn, bufio.NewReader(conn)}
	if _, err := io.WriteString(conn, text); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// header reads the status and the header of the answer.
func (p *raw) header() (status string, header http.Header) {
	p.t.Helper()
	line, err := p.r.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	header = http.Header{}
	for {
		field, err := p.r.ReadString('\n')
		if err != nil || !strings.HasSuffix(field, "\r\n") {
			p.t.Fatalf("got %q, %v, want a header", field, err)
		}
		if field == "\r\n" {
			return strings.TrimSuffix(line, "\r\n"), header
		}
		name, value, ok := strings.Cut(strings.TrimSuffix(field, "\r\n"), ": ")
		if !ok {
			p.t.Fatalf("got %q, want a header", field)
		}
		header.Add(name, value)
	}
}

// chunk reads one chunk, which is empty at the end of the body. It is stricter
// than clients are.
func (p *raw) chunk() (string, error) {
	line, err := p.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	hex, ok := strings.CutSuffix(line, "\r\n")
	n, err := strconv.ParseUint(hex, 16, 31)
	if err != nil || !ok || hex != strconv.FormatUint(n, 16) {
		return "", fmt.Errorf("got %q, want the size of a chunk", line)
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(p.r, b); err != nil {
		return "", err
	}
	if string(b[n:]) != "\r\n" {
		return "", fmt.Errorf("got %q after %d bytes, want the end of the chunk", b[n:], n)
	}
	return string(b[:n]), nil
}

// ended fails the test unless the connection has ended here.
func (p *raw) ended() {
	p.t.Helper()
	if b, err := p.r.ReadByte(); err == nil {
		p.t.Errorf("got a byte %#x, want the end of the connection", b)
	}
}

// An event is one block of a stream.
type event struct {
	id, data string
	retry    string
	comment  string
}

// parse is a reader of streams that forgives nothing: fields are those that we
// send, once each, with one space after the colon; lines end with a newline;
// data is one line of JSON; and nothing is left over.
func parse(stream string) (events []event, err error) {
	if !utf8.ValidString(stream) || strings.ContainsAny(stream, "\r\x00") || strings.HasPrefix(stream, "\ufeff") {
		return nil, errors.New("a stream is UTF-8 without returns, NUL or a mark")
	}
	blocks := strings.Split(stream, "\n\n")
	if last := len(blocks) - 1; blocks[last] != "" {
		return nil, fmt.Errorf("%q is not a whole event", blocks[last])
	}
	for _, block := range blocks[:len(blocks)-1] {
		var e event
		for line := range strings.SplitSeq(block, "\n") {
			name, value, ok := strings.Cut(line, ": ")
			field := map[string]*string{"id": &e.id, "data": &e.data, "retry": &e.retry, "": &e.comment}[name]
			if !ok || field == nil || *field != "" || value == "" {
				return nil, fmt.Errorf("%q is not a line of an event", line)
			}
			*field = value
		}
		if e.data != "" && !json.Valid([]byte(e.data)) {
			return nil, fmt.Errorf("%q is not JSON", e.data)
		}
		events = append(events, e)
	}
	return events, nil
}

// A pipeListener accepts in-memory connections.
type pipeListener struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{accept: make(chan net.Conn), closed: make(chan struct{})}
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

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// A syncBuffer is a buffer that a logger may write while a test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// message returns an event as the hub would make it.
func message(cursor uint64, body string) []byte {
	return Form{epoch}.AppendMessage(nil, cursor, []byte(body))
}

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
