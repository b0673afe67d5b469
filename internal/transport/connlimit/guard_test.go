package connlimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

// A server is an HTTP server behind a limiter, inside a bubble.
type server struct {
	t       *testing.T
	limiter *Limiter
	http    *http.Server
	accept  chan net.Conn
	closed  chan struct{}
}

// An end is one of a connection, which comes from some address.
type end struct {
	net.Conn
	from net.Addr
}

func (e end) RemoteAddr() net.Addr { return e.from }

func (h *server) Accept() (net.Conn, error) {
	select {
	case c := <-h.accept:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *server) Close() error   { close(h.closed); return nil }
func (h *server) Addr() net.Addr { return &net.TCPAddr{} }

// newServer starts a server. /read reads the body of a request of the principal
// whose name is in the header Who. Every other request is refused.
func newServer(t *testing.T, opts Options) *server {
	t.Helper()
	h := &server{t: t, limiter: New(opts), accept: make(chan net.Conn), closed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		err := h.limiter.Identify(r, contracts.Principal{ID: r.Header.Get("Who"), SessionID: "main"})
		if err == nil {
			_, err = ReadBody(w, r, 1<<20)
		}
		if err != nil {
			httperr.Write(w, err)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		httperr.Write(w, &contracts.Error{Code: contracts.CodeUnauthenticated, Message: "no credential"})
	})
	h.http = &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
	}
	h.limiter.Guard(h.http)
	go func() { _ = h.http.Serve(h) }() // ends with the listener
	t.Cleanup(func() {
		_ = h.http.Close()
		if err := h.limiter.Close(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // net/http lets some peers read before it hangs up
	})
	return h
}

// A peer is a client.
type peer struct {
	net.Conn
	answers *bufio.Reader
}

func (h *server) dial(from string) *peer {
	h.t.Helper()
	server, client := net.Pipe()
	h.accept <- end{server, &net.TCPAddr{IP: net.ParseIP(from), Port: 1}}
	h.t.Cleanup(func() { _ = client.Close() })
	return &peer{client, bufio.NewReader(client)}
}

// ask sends a text in the background: a server that has read enough takes no
// more.
func (v *peer) ask(text string) *peer {
	go func() { _, _ = io.WriteString(v, text) }() // ends with the connection
	return v
}

// answer returns the status and the code of the next answer, or "closed".
func (v *peer) answer() string {
	res, err := http.ReadResponse(v.answers, nil)
	if err != nil {
		return "closed"
	}
	body, _ := io.ReadAll(res.Body)
	_, code, _ := strings.Cut(string(body), `"code":"`)
	code, _, _ = strings.Cut(code, `"`)
	return strings.TrimSpace(fmt.Sprint(res.StatusCode, " ", code))
}

// open reports whether the server has left the connection open.
func (v *peer) open() bool {
	_ = v.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := v.Read(make([]byte, 1))
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func post(who string, announced int, body string) string {
	return fmt.Sprintf("POST /read HTTP/1.1\r\nHost: x\r\nWho: %s\r\nContent-Length: %d\r\n\r\n%s", who, announced, body)
}

func TestSlowBodyIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newServer(t, Options{})
		v := h.dial("192.0.2.1").ask(post("ada", 10, "{"))
		start := time.Now()
		if got := v.answer(); got != "408 timeout" || time.Since(start) != 30*time.Second {
			t.Errorf("got %s after %v, want 408 timeout after 30s", got, time.Since(start))
		}
	})
}

func TestBodiesCountAsTheirPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newServer(t, Options{Unfinished: 1 << 20, PrincipalUnfinished: 256 << 10})
		large := strings.Repeat(" ", 100<<10)
		held := h.dial("192.0.2.1").ask(post("ada", 1<<20, large)) // 128 KiB
		synctest.Wait()
		if got := h.limiter.Counts().Unfinished; got != 128<<10 {
			t.Errorf("got %d bytes, want %d", got, 128<<10)
		}
		if got := h.dial("192.0.2.2").ask(post("ada", 1<<20, large)).answer(); got != "429 rate_limited" {
			t.Errorf("the same principal: got %s, want 429", got)
		}
		if got := h.dial("192.0.2.2").ask(post("bob", len(large), large)).answer(); got != "200" {
			t.Errorf("another one: got %s, want 200", got)
		}
		_ = held.Close()
		synctest.Wait()
		if got := h.limiter.Counts(); got.Unfinished != 0 || got.Requests != 0 {
			t.Errorf("got %+v, want nothing taken up", got)
		}
	})
}

func TestRequestsUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newServer(t, Options{Connections: 32})
		for i := range 16 {
			h.dial(fmt.Sprint("192.0.2.", i)).ask(post("ada", 10, ""))
		}
		synctest.Wait()
		if got := h.dial("198.51.100.1").ask(post("ada", 0, "")).answer(); got != "429 rate_limited" {
			t.Errorf("the same principal: got %s, want 429", got)
		}
		if got := h.dial("198.51.100.1").ask(post("bob", 0, "")).answer(); got != "200" {
			t.Errorf("another one: got %s, want 200", got)
		}
	})
}

// TestWhoHasWaitedLongestGoes fills the server up with connections of every kind
// that nobody is known on.
func TestWhoHasWaitedLongestGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newServer(t, Options{Connections: 8, AddressConnections: 4})
		busy := h.dial("192.0.2.1").ask(post("ada", 1, "")) // is kept, although it came first
		synctest.Wait()
		silent := h.dial("192.0.2.1")
		half := h.dial("192.0.2.1").ask("GET / HTTP/1.1\r\nHost: x\r\n")
		stuck := h.dial("192.0.2.1").ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n") // refused, and never read
		asked := h.dial("192.0.2.1").ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if got := asked.answer(); got != "401 unauthenticated" {
			t.Fatalf("got %s, want 401", got)
		}
		synctest.Wait()
		first := []*peer{silent, half, stuck, asked}
		for i, v := range first { // each newcomer of the address closes one
			h.dial("192.0.2.1")
			synctest.Wait()
			if v.open() {
				t.Errorf("%d of %d: got it open, want it closed", i+1, len(first))
			}
		}
		last := h.dial("192.0.2.2") // of another address, which has room
		more := []*peer{h.dial("192.0.2.2"), h.dial("192.0.2.2")}
		synctest.Wait()
		if got := h.limiter.Counts(); got.Waiting != 7 || got.Evicted != 4 || !last.open() || !more[0].open() {
			t.Errorf("got %+v, want 7 waiting and 4 evicted", got)
		}
		h.dial("192.0.2.3") // now there are as many as may be
		synctest.Wait()
		if got := h.limiter.Counts(); got.Waiting != 7 || got.Evicted != 5 {
			t.Errorf("got %+v, want 7 waiting and 5 evicted", got)
		}
		if got := busy.ask("x").answer(); got != "200" {
			t.Errorf("the request under way: got %s, want 200", got)
		}
		h.limiter.MakeRoom()
		if got := h.limiter.Counts(); got.Evicted != 6 {
			t.Errorf("without descriptors: got %+v, want 6 evicted", got)
		}
	})
}

// TestEndWaitsForNobodyWhoIsSilent closes a server with connections in every
// state. Nothing of it may take time: a real second of waiting would be a second
// of the bubble's.
func TestEndWaitsForNobodyWhoIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newServer(t, Options{})
		h.dial("192.0.2.1")                                                                     // silent
		h.dial("192.0.2.1").ask("GET / HTTP/1.1\r\nHost: x\r\n")                                // half-asked
		h.dial("192.0.2.1").ask("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")  // refused with half a body
		h.dial("192.0.2.1").ask("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n").answer() // half-asked again
		h.dial("192.0.2.1").ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").answer()                   // idle
		_ = h.dial("192.0.2.1").ask("GET / HT").Close()                                         // aborted
		_ = h.dial("192.0.2.1").ask(post("ada", 1000, "{")).Close()                             // aborted in the body
		half := h.dial("192.0.2.1").ask(post("ada", 1000, "{"))
		synctest.Wait()
		start := time.Now()
		if err := h.limiter.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("got the end after %v, want it at once", took)
		}
		if got := half.answer(); got != "503 going_away" {
			t.Errorf("half a body of somebody known: got %s, want 503 going_away", got)
		}
		late := h.dial("192.0.2.1")
		synctest.Wait()
		if late.open() {
			t.Error("a connection that came too late: got it open")
		}
	})
}

func TestAnswerThatIsNotTakenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newServer(t, Options{WriteTimeout: 10 * time.Second})
		h.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			start := time.Now()
			n, err := w.Write(make([]byte, 3*contracts.WritePart))
			if took := time.Since(start); err == nil || n >= 3*contracts.WritePart || took != 16*time.Second {
				t.Errorf("got %d bytes, %v after %v, want an error 10s after the last byte was taken", n, err, took)
			}
		})
		h.limiter.Guard(h.http)
		v := h.dial("192.0.2.1").ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(6 * time.Second)
		if _, err := io.ReadFull(v, make([]byte, contracts.WritePart+1<<10)); err != nil { // and then nothing more
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(time.Minute)
	})
}
