package ws

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
)

// refused asks h with a request and returns the refusal.
func refused(t *testing.T, h http.Handler, r *http.Request) (*httptest.ResponseRecorder, httperr.Body) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var body httperr.Body
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("got %d %s, %v, want a refusal", w.Code, w.Body, err)
	}
	return w, body
}

func TestRefusalIsPlainHTTP(t *testing.T) {
	opened := 0
	refuse := func(code contracts.Code) error { return &contracts.Error{Code: code, Message: string(code)} }
	viewer := contracts.Principal{ID: "v", Role: contracts.RoleViewer}
	bound := contracts.Principal{ID: "b", SessionID: "sess_a"}
	for _, tt := range []struct {
		name      string
		query     string
		principal contracts.Principal
		authorize error
		open      error
		status    int
		code      contracts.Code
		opened    int
	}{
		{"malformed query", "?cursor=x", contracts.Principal{}, nil, nil, 400, contracts.CodeBadRequest, 0},
		{"stranger", "", contracts.Principal{}, refuse(contracts.CodeUnauthenticated), nil, 401, contracts.CodeUnauthenticated, 0},
		{"viewer who wants control", "?role=controller", viewer, nil, nil, 403, contracts.CodeAccessDenied, 0},
		{"viewer who makes sessions", "?create=1&sessionId=sess_b", viewer, nil, nil, 403, contracts.CodeAccessDenied, 0},
		{"another session", "?sessionId=sess_b", bound, nil, nil, 403, contracts.CodeAccessDenied, 0},
		{"unknown session", "?sessionId=sess_b", contracts.Principal{}, nil, refuse(contracts.CodeStaleSession), 404, contracts.CodeStaleSession, 1},
		{"lease held", "?role=controller", contracts.Principal{}, nil, refuse(contracts.CodeControllerLeaseHeld), 409, contracts.CodeControllerLeaseHeld, 1},
		{"draining", "", contracts.Principal{}, nil, refuse(contracts.CodeRuntimeNotReady), 503, contracts.CodeRuntimeNotReady, 1},
		{"fault", "", contracts.Principal{}, nil, errors.New("disk on fire"), 500, contracts.CodeInternal, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opened = 0
			h, err := New(Options{
				ConnLimit: connlimit.New(connlimit.Options{}),
				Authorize: func(*http.Request) (contracts.Principal, error) { return tt.principal, tt.authorize },
				Open: func(context.Context, contracts.Attach) (Session, error) {
					opened++
					return nil, tt.open
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			r := upgradeRequest(nil)
			r.URL.RawQuery = strings.TrimPrefix(tt.query, "?")
			w, body := refused(t, h, r)
			if w.Code != tt.status || body.Code != tt.code || body.ErrorType != tt.code || body.Retryable != tt.code.Retryable() {
				t.Errorf("got %d %+v, want %d %s", w.Code, body, tt.status, tt.code)
			}
			if opened != tt.opened {
				t.Errorf("got %d calls of Open, want %d", opened, tt.opened)
			}
			if tt.status == 503 && w.Header().Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			if strings.Contains(w.Body.String(), "disk") {
				t.Errorf("the client sees a fault: %s", w.Body)
			}
			if h.opts.ConnLimit.Counts().Slots != 0 {
				t.Errorf("got %d places taken, want 0", h.opts.ConnLimit.Counts().Slots)
			}
		})
	}
}

// TestPagesLearnWhyTheyAreRefused is about browsers, which show a page nothing of the
// answer to a refused upgrade.
func TestPagesLearnWhyTheyAreRefused(t *testing.T) {
	synctest.Test(t, testPagesLearnWhyTheyAreRefused)
}

func testPagesLearnWhyTheyAreRefused(t *testing.T) {
	why := &contracts.Error{Code: contracts.CodeUnauthenticated, Message: "a credential is required"}
	s := newServer(t, true, Options{
		Authorize: func(*http.Request) (contracts.Principal, error) { return contracts.Principal{}, why },
		Explain:   func(r *http.Request) bool { return r.Header.Get("Origin") == "http://ours.example" },
	})
	var silent []*raw // hold every token
	for range maxExplained {
		silent = append(silent, s.rawAs("Origin: http://ours.example\r\n"))
	}
	for _, header := range []string{"", "Origin: http://other.example\r\n", "Origin: http://ours.example\r\n"} {
		conn, err := s.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, strings.TrimSuffix(handshake, "\r\n")+header+"\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q: got %v, %v, want 401", header, resp, err)
		}
	}
	for i, want := range []string{`{"type":"ws.error","id":null,"seq":0,"error":"a credential is required","code":"unauthenticated",`, `{"type":"ws.goodbye","code":4401,"reason":"unauthenticated",`, "\x11\x31unauthenticated"} {
		if _, payload, err := silent[0].receive(); err != nil || !strings.HasPrefix(string(payload), want) {
			t.Errorf("frame %d: got %q, %v, want %s", i, payload, err, want)
		}
	}
	silent[0].trySend(bytes.Repeat([]byte{0x81}, 2*maxExplainedFrame)) // nothing from it is kept
	for _, p := range silent {
		if _, err := io.Copy(io.Discard, p.r); err != nil {
			t.Errorf("got %v, want the end of the socket", err)
		}
	}
	synctest.Wait()
	again := s.rawAs("Origin: http://ours.example\r\n") // the tokens are free again
	_ = again.Close()
}

func TestPrincipalConfinesTheAttachment(t *testing.T) {
	var got contracts.Attach
	h, err := New(Options{
		ConnLimit: connlimit.New(connlimit.Options{}),
		Authorize: func(*http.Request) (contracts.Principal, error) {
			return contracts.Principal{ID: "p", Role: contracts.RoleViewer, SessionID: "sess_a"}, nil
		},
		Open: func(_ context.Context, att contracts.Attach) (Session, error) {
			got = att
			return nil, errInternal
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, h, upgradeRequest(nil))
	if got.SessionID != "sess_a" || got.Principal.ID != "p" || got.Role != "" {
		t.Errorf("got %+v, want session sess_a for p", got)
	}
}

func TestPathNamesTheSession(t *testing.T) {
	attached := make(chan contracts.Attach, 1)
	s := newServer(t, false, Options{Open: func(_ context.Context, att contracts.Attach) (Session, error) {
		attached <- att
		return nil, &contracts.Error{Code: contracts.CodeStaleSession}
	}})
	for path, want := range map[string]string{
		"/api/headless/sessions/sess%3Aa/ws": "sess:a",
		"/api/headless/ws?sessionId=sess_b":  "sess_b",
		"/api/headless/sessions/a%2Fb/ws":    "", // decoded, and then no id
	} {
		conn, err := s.dial()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, strings.Replace(handshake, "/api/headless/ws", path, 1))
		b := make([]byte, 4096)
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if want == "" {
			if !contains(string(b[:n]), "400 Bad Request", "malformed session id") {
				t.Errorf("%s: got %s, want 400", path, b[:n])
			}
			continue
		}
		if got := receive(t, attached).SessionID; got != want {
			t.Errorf("%s: got session %q, want %q", path, got, want)
		}
	}
}

func TestCredentialSubprotocolIsNotEchoed(t *testing.T) {
	s := newServer(t, false, Options{})
	conn, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, strings.Replace(handshake, contracts.Subprotocol, "MAESTRO-HEADLESS.2026-04-02, maestro-headless-bearer.c2VjcmV0, "+contracts.Subprotocol, 1))
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	if err != nil || !contains(string(b[:n]), "101 Switching", "Sec-Websocket-Protocol: "+contracts.Subprotocol+"\r\n") || strings.Contains(string(b[:n]), "bearer") {
		t.Errorf("got %s, %v, want our subprotocol alone", b[:n], err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	s := newServer(t, false, Options{ConnLimit: connlimit.New(connlimit.Options{Connections: 2})})
	first := s.raw()
	s.raw()
	if w, body := refused(t, s.handler, upgradeRequest(nil)); w.Code != 503 || body.Code != contracts.CodeOverloaded || w.Header().Get("Retry-After") == "" {
		t.Fatalf("third: got %d %s, want 503 overloaded", w.Code, body.Code)
	}
	c1, c2 := receive(t, s.conns), receive(t, s.conns)
	_ = first.Close()
	if got := receive(t, s.read); got.err == nil {
		t.Fatalf("got %q from a peer that left", got.text)
	}
	// The place is free once the connection has lingered and left.
	for s.connLimit.Counts().Conns > 1 {
		runtime.Gosched()
	}
	s.raw()
	receive(t, s.conns)
	_, _ = c1, c2
}

func TestAttachmentsAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := "alice"
		h, err := New(Options{
			ConnLimit: connlimit.New(connlimit.Options{}),
			RateLimit: ratelimit.New(ratelimit.Options{AttachRate: 0.5, AttachBurst: 2}),
			Authorize: func(*http.Request) (contracts.Principal, error) { return contracts.Principal{ID: id}, nil },
			Open:      func(context.Context, contracts.Attach) (Session, error) { return nil, errInternal },
		})
		if err != nil {
			t.Fatal(err)
		}
		attach := func(want int) string {
			t.Helper()
			w, _ := refused(t, h, upgradeRequest(nil))
			if w.Code != want {
				t.Fatalf("got %d, want %d", w.Code, want)
			}
			return w.Header().Get("Retry-After")
		}
		attach(500)
		attach(500)
		if got := attach(429); got != "2" {
			t.Errorf("Retry-After: got %s, want 2", got)
		}
		id = "bob"
		attach(500) // has an allowance of his own
		id = "alice"
		time.Sleep(2 * time.Second)
		attach(500)
		attach(429)
		time.Sleep(time.Hour)
		attach(500)
		attach(500)
		attach(429)
	})
}

func TestPanicEndsOneConnectionOnly(t *testing.T) {
	var log syncBuffer
	var s *server
	s = newServer(t, false, Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Open: func(context.Context, contracts.Attach) (Session, error) {
			return serveFunc(func(ctx context.Context, c *Conn) error {
				if text, err := c.ReadFrame(); err != nil || string(text) != "fine" {
					panic("an invariant broke")
				}
				return s.follow(ctx, c)
			}), nil
		},
	})
	bad, good := s.raw(), s.raw()
	bad.send(mask(finText, "not fine"))
	if got, want := bad.closed(), "1011 internal_error"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	good.send(append(mask(finText, "fine"), mask(finText, "still here")...))
	if got := receive(t, s.read); got.text != "still here" {
		t.Errorf("got %+v, want still here", got)
	}
	if !contains(log.String(), "an invariant broke", "handler_test.go") {
		t.Errorf("got log %s, want the panic and its stack", log.String())
	}
}

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

func TestSessionsErrorBecomesTheCloseCode(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"normal":  {nil, "1000 "},
		"refusal": {&contracts.Error{Code: contracts.CodeRoleConflict}, "4409 role_conflict"},
		"fault":   {errors.New("broken"), "1011 internal_error"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, false, Options{Open: func(context.Context, contracts.Attach) (Session, error) {
				return serveFunc(func(context.Context, *Conn) error { return tt.err }), nil
			}})
			if got := s.raw().closed(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCloseEndsEverything(t *testing.T) {
	s := newServer(t, false, Options{})
	polite, rude := s.client(), s.raw()
	receive(t, s.conns)
	receive(t, s.conns)
	start := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- s.connLimit.Close(context.Background()) }()
	if _, _, err := polite.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("polite client: got %v, want 1001", err)
	}
	if err := receive(t, closed); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(start); took > 10*closeTimeout {
		t.Errorf("close took %v, want about %v", took, closeTimeout)
	}
	if got, want := rude.closed(), "1001 going_away"; got != want {
		t.Errorf("rude client: got %q, want %q", got, want)
	}
	if got := s.connLimit.Counts().Conns; got != 0 {
		t.Errorf("got %d connections, want 0", got)
	}
	if w, body := refused(t, s.handler, upgradeRequest(nil)); w.Code != 503 || body.Code != contracts.CodeGoingAway {
		t.Errorf("afterwards: got %d %s, want 503 going_away", w.Code, body.Code)
	}
}

func TestCloseDoesNotWaitForAStuckSessionForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unstick := make(chan struct{})
		s := newServer(t, true, Options{Open: func(context.Context, contracts.Attach) (Session, error) {
			return serveFunc(func(context.Context, *Conn) error { <-unstick; return nil }), nil
		}})
		p := s.raw()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := s.connLimit.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		if _, _, err := p.receive(); err == nil {
			t.Error("the connection is still open")
		}
		close(unstick)
	})
}

func TestSessionContextEndsWithTheHandler(t *testing.T) {
	s := newServer(t, false, Options{Open: func(context.Context, contracts.Attach) (Session, error) {
		return serveFunc(func(ctx context.Context, _ *Conn) error { <-ctx.Done(); return ctx.Err() }), nil
	}})
	s.raw()
	if err := s.connLimit.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestMisconfiguredHandlerIsRefused(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("got a handler without Authorize and Open, want an error")
	}
}

func TestIdleConnectionCostsOneGoroutine(t *testing.T) {
	s := newServer(t, false, Options{})
	want := 50
	for range want {
		s.raw()
		receive(t, s.conns)
	}
	for served := goroutines("net/http.(*conn).serve"); served > 0; served = goroutines("net/http.(*conn).serve") {
		runtime.Gosched() // they are on their way out: the handler has returned
	}
	if got := goroutines("ws.(*Conn)", "ws.(*Handler)"); got != want {
		t.Errorf("got %d goroutines for %d connections, want one each", got, want)
	}
}

// goroutines counts those with one of the functions on their stack.
func goroutines(functions ...string) (n int) {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if slices.ContainsFunc(functions, func(f string) bool { return strings.Contains(stack, f) }) {
			n++
		}
	}
	return n
}
