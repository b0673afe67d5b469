package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
)

// serveLarge serves a session with a state of 6 MiB behind a limiter, to a share
// unless the header Who names somebody.
func serveLarge(t *testing.T, opts connlimit.Options) (h *house, d *connlimit.Limiter, addr string) {
	t.Helper()
	d = connlimit.New(opts)
	h = newHouse(t, func(o *Options) {
		o.Authorize = func(r *http.Request) (contracts.Principal, error) {
			p := contracts.Principal{ID: "share_1", SessionID: "sess_a", Role: contracts.RoleViewer}
			if who := r.Header.Get("Who"); who != "" {
				p = contracts.Principal{ID: who}
			}
			return p, d.Identify(r, p)
		}
	})
	h.session.state = `{"text":"` + strings.Repeat("x", 6<<20) + `"}`
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	d.Guard(s)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends with the server
		defer close(ended)
		_ = s.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h, d, ln.Addr().String()
}

// A lazy client asks and reads no more than the status.
type lazy struct {
	net.Conn
	r      *bufio.Reader
	status string
}

func askLazily(t *testing.T, addr, who, method, target, body string) *lazy {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nWho: %s\r\nContent-Length: %d\r\n\r\n%s", method, target, who, len(body), body); err != nil {
		t.Fatal(err)
	}
	l := &lazy{Conn: conn, r: bufio.NewReaderSize(conn, 16)}
	line, err := l.r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	l.status = strings.Fields(line)[1]
	return l
}

// What carries the state is large. Clients that do not read it hold no more
// memory than they may.
func TestUnreadStatesAreBounded(t *testing.T) {
	const path = "/api/headless/sessions/sess_a"
	for _, tt := range []struct{ method, target, body string }{
		{"GET", path, ""},
		{"GET", path + "/state", ""},
		{"POST", path + "/subscribe", `{"role":"viewer"}`},
		{"POST", "/api/headless/connections", `{"sessionId":"sess_a","role":"viewer"}`},
		{"POST", "/api/headless/sessions", `{"sessionId":"sess_a","role":"viewer"}`},
	} {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			h, d, addr := serveLarge(t, connlimit.Options{Unfinished: 16 << 20, PrincipalUnfinished: 4 << 20})
			got := map[string]int{}
			var open []*lazy
			for range 100 {
				l := askLazily(t, addr, "", tt.method, tt.target, tt.body)
				if got[l.status]++; l.status == "200" {
					open = append(open, l)
				} else if rest, _ := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 429 x\r\n"), l.r)), nil); rest.Header.Get("Retry-After") == "" {
					t.Errorf("got a refusal without Retry-After")
				}
			}
			h.session.mu.Lock()
			encoded := len(h.session.asked)
			h.session.mu.Unlock()
			if got["200"] != 2 || got["429"] != 98 || encoded != 2 || d.Counts().Answers > 16<<20 || d.Counts().Unread.Excess != 98 {
				t.Errorf("got %v, %d states encoded and %+v, want two answers and the rest refused", got, encoded, d.Counts())
			}
			for _, who := range []string{"ada", "owner"} { // others are served
				if l := askLazily(t, addr, who, tt.method, tt.target, tt.body); l.status != "200" {
					t.Errorf("%s: got %s, want 200", who, l.status)
				}
			}
			for _, l := range open { // who has read may ask again
				head := bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\n"), l.r))
				res, err := http.ReadResponse(head, nil)
				if err != nil {
					t.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, res.Body); err != nil || n < 6<<20 {
					t.Errorf("got %d bytes, %v, want all", n, err)
				}
			}
			for d.Counts().Requests > 2 { // the handlers may still be returning
				runtime.Gosched()
			}
			if l := askLazily(t, addr, "", tt.method, tt.target, tt.body); l.status != "200" {
				t.Errorf("after the answers were read: got %s, want 200", l.status)
			}
		})
	}
}

// A client that never reads is cut at the write timeout, and its bytes are free.
func TestUnreadStateEndsWithTheWriteTimeout(t *testing.T) {
	_, d, addr := serveLarge(t, connlimit.Options{WriteTimeout: 50 * time.Millisecond})
	l := askLazily(t, addr, "", "GET", "/api/headless/sessions/sess_a", "")
	for d.Counts().Requests > 0 {
		runtime.Gosched()
	}
	if n, _ := io.Copy(io.Discard, l.r); n >= 6<<20 || d.Counts().Answers != 0 {
		t.Errorf("got %d bytes of the answer, and %d counted, want a part and none", n, d.Counts().Answers)
	}
}

// A state that is larger than all that one principal may have is answered, once
// at a time.
func TestStateBeyondTheBoundIsAnswered(t *testing.T) {
	for _, tt := range []struct {
		each int // for one principal
		next string
	}{{1 << 20, "429"}, {4 << 20, "503"}} {
		_, _, addr := serveLarge(t, connlimit.Options{Unfinished: 1 << 20, PrincipalUnfinished: tt.each / 4})
		for _, want := range []string{"200", tt.next} {
			if l := askLazily(t, addr, "", "GET", "/api/headless/sessions/sess_a", ""); l.status != want {
				t.Errorf("%d bytes for one: got %s, want %s", tt.each, l.status, want)
			}
		}
	}
}

// The body of an attachment is what the encoder makes of it.
func TestAttachmentsCarryTheState(t *testing.T) {
	h := newHouse(t, nil)
	got, _, _ := h.session.Subscribe(&contracts.AttachRequest{}, contracts.Caller{})
	want, err := contracts.EncodeBody(got)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.ask("POST", "/api/headless/sessions/sess_a/subscribe", `{}`).ok().Body.String(); got != string(want) {
		t.Errorf("got %s, want %s", got, want)
	}
}
