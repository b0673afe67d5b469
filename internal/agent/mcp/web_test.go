package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
)

// A site is a server on HTTP. Its handler may be exchanged.
type site struct {
	*httptest.Server
	mu      sync.Mutex
	handler http.Handler
	seen    []http.Header // of messages
}

func newSite(t *testing.T, handler http.Handler) *site {
	w := &site{handler: handler}
	w.Server = httptest.NewServer(w)
	t.Cleanup(func() {
		w.CloseClientConnections()
		w.Close()
	})
	return w
}

func (w *site) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	w.mu.Lock()
	if req.Method == http.MethodPost {
		w.seen = append(w.seen, req.Header.Clone())
	}
	handler := w.handler
	w.mu.Unlock()
	handler.ServeHTTP(out, req)
}

func (w *site) set(handler http.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handler = handler
}

func (w *site) headers() []http.Header {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// webTools serves the tools in one revision, or in all if it is empty. That of the
// newer generation has no sessions.
func webTools(t *testing.T, revision string) http.Handler {
	t.Setenv(revisionVariable, revision)
	return webServer(t, newToolServer(), revision, false)
}

func webServer(t *testing.T, server *sdk.Server, revision string, json bool) http.Handler {
	t.Cleanup(func() {
		for session := range server.Sessions() { // that nobody has ended
			_ = session.Close()
		}
	})
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server },
		&sdk.StreamableHTTPOptions{Stateless: revision == "2026-07-28", JSONResponse: json, PropagateRequestCancellation: true})
}

func TestToolsOfAddressesAreListedAndCalled(t *testing.T) {
	for _, revision := range append(revisions, "") {
		for _, json := range []bool{false, true} {
			t.Run(fmt.Sprint(revision, json), func(t *testing.T) {
				t.Setenv(revisionVariable, revision)
				site := newSite(t, webServer(t, newToolServer(), revision, json))
				h := newHost(t)
				s := open(t, h, Options{SessionID: "sess-1"}, Server{
					Name: "one", URL: site.URL + "/mcp", Platform: true,
					Headers: map[string]string{"Authorization": "Bearer t", "X-EvalOps-Scopes": "cerebro:read", "Content-Type": "text/nonsense"},
				})
				says(t, must(t, s, "mcp__one__echo", `{"text":"hello"}`), `{"said":"hello"}`)
				if res := must(t, s, "mcp__one__fail", ""); !res.IsError || res.Text != "no luck" {
					t.Errorf("got %+v, want a failure", res)
				}
				if got := statuses(h); got != "" {
					t.Errorf("got %q said, want nothing", got)
				}
				ids := map[string]bool{}
				for _, header := range site.headers() {
					if header.Get("Authorization") != "Bearer t" || header.Get("X-EvalOps-Scopes") != "cerebro:read" || header.Get("X-EvalOps-Session-Id") != "sess-1" ||
						header.Get("Content-Type") == "text/nonsense" {
						t.Errorf("got headers %v, want those of the server", header)
					}
					ids[header.Get("X-EvalOps-Request-Id")] = true
				}
				if len(ids) != len(site.headers()) {
					t.Errorf("got %d ids of %d requests, want one each", len(ids), len(site.headers()))
				}
			})
		}
	}
}

func TestBothShapesOfElicitationComeOverHTTP(t *testing.T) {
	for _, shape := range shapes {
		site := newSite(t, webTools(t, shape.revision))
		h := newHost(t)
		s := open(t, h, Options{}, Server{Name: "one", URL: site.URL})
		req, done := ask(t, s, h, shape.tool)
		h.Resolve(req.RequestID, answeredBy(`{"action":"accept","content":{"name":"Ada"}}`))
		says(t, result(t, done), shape.prefix+"accept map[name:Ada]")
	}
}

func TestChangesOfToolsAreFollowedOverHTTP(t *testing.T) {
	for _, revision := range revisions {
		site := newSite(t, webTools(t, revision))
		h := newHost(t)
		s := open(t, h, Options{}, Server{Name: "one", URL: site.URL})
		says(t, must(t, s, "mcp__one__grow", ""), "grown")
		awaitStatus(t, h, "has other tools now: 1 more (new)")
	}
}

func TestReportsThatEndAreBegunAnew(t *testing.T) {
	site := newSite(t, webTools(t, "2026-07-28"))
	h := newHost(t)
	rec, log := newRecord()
	s := open(t, h, Options{Log: log}, Server{Name: "one", URL: site.URL})
	l := s.links[0]
	l.mu.Lock()
	before := l.session
	before.since = before.since.Add(-2 * minLapse)
	l.mu.Unlock()
	site.CloseClientConnections()
	rec.await(t, "no longer reports changes")
	says(t, must(t, s, "mcp__one__grow", ""), "grown")
	awaitStatus(t, h, "has other tools now: 1 more (new)")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == before {
		t.Error("got the same connection, want another")
	}
}

func TestCallsOverHTTPAreCancelledAtTheServer(t *testing.T) {
	for _, revision := range revisions {
		ended := make(chan struct{})
		t.Setenv(revisionVariable, revision)
		server := newToolServer()
		addText(server, "linger", func(ctx context.Context, _ *sdk.CallToolRequest) (string, error) {
			<-ctx.Done()
			close(ended)
			return "", ctx.Err()
		})
		started := make(chan struct{}, 1)
		server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
			return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
				if method == "tools/call" {
					started <- struct{}{}
				}
				return next(ctx, method, req)
			}
		})
		site := newSite(t, webServer(t, server, revision, false))
		s := open(t, nil, Options{}, Server{Name: "one", URL: site.URL})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-started
			cancel()
		}()
		if _, err := s.Call(ctx, "mcp__one__linger", nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		select {
		case <-ended:
		case <-time.After(hosttest.Patience):
			t.Error("got a server that goes on, want that it was told")
		}
		s.Close()
	}
}

func TestServersThatForgotTheSessionAreGreetedAgain(t *testing.T) {
	site := newSite(t, webTools(t, "2025-11-25"))
	h := newHost(t)
	s := open(t, h, Options{}, Server{Name: "one", URL: site.URL})
	says(t, must(t, s, "mcp__one__echo", `{"text":"a"}`), `{"said":"a"}`)
	site.set(webTools(t, "2025-11-25")) // as after a restart
	says(t, must(t, s, "mcp__one__echo", `{"text":"b"}`), `{"said":"b"}`)
}

func TestAddressesThatFailSaySo(t *testing.T) {
	elsewhere := newSite(t, http.NotFoundHandler())
	refuse := func(status int) http.Handler {
		return http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { http.Error(out, "no", status) })
	}
	for name, tt := range map[string]struct {
		handler http.Handler
		want    string
	}{
		"unauthorized": {refuse(http.StatusUnauthorized), "it answered 401 Unauthorized"},
		"overloaded":   {refuse(http.StatusServiceUnavailable), "it answered 503 Service Unavailable"},
		"redirecting":  {http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect), "redirects elsewhere"},
		"hanging": {http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body) // so that the end of the connection is noticed
			<-req.Context().Done()
		}), "did not answer in time"},
		"garbage": {http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(out, "Welcome!")
		}), "what it answered is not MCP"},
		"missing": {http.NotFoundHandler(), "it answered 404 Not Found"},
		"endless": {http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("Content-Type", "application/json")
			for line := strings.Repeat("[", 1<<20); ; {
				if _, err := io.WriteString(out, line); err != nil {
					return
				}
			}
		}), "an answer longer than"},
		"endless error": {http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("Content-Type", "text/event-stream")
			out.WriteHeader(http.StatusBadRequest)
			for line, i := strings.Repeat("[", 1<<20), 0; i < 64; i++ { // as far as nobody is harmed who reads it all
				if _, err := io.WriteString(out, line); err != nil {
					return
				}
			}
		}), "an answer longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			site := newSite(t, tt.handler)
			h := newHost(t)
			patience := hosttest.Patience
			if name == "hanging" {
				patience = 2 * time.Second
			}
			s := open(t, h, Options{connectTimeout: patience}, Server{Name: "one", URL: site.URL + "/mcp?key=s3cret-key", Headers: map[string]string{"Authorization": "Bearer s3cret-token"}})
			awaitStatus(t, h, "is not available")
			if got := statuses(h); !strings.Contains(got, `MCP server "one" (`+site.URL+`) is not available: `) || !strings.Contains(got, tt.want) || strings.Contains(got, "s3cret") || strings.Contains(got, "/mcp") {
				t.Errorf("got %q, want %q, the host alone and no secrets", got, tt.want)
			}
			s.Close()
		})
	}
	if seen := elsewhere.headers(); len(seen) > 0 {
		t.Errorf("got requests %v, want none where the server sent us", seen)
	}
}

// A server that was trusted may turn, in the middle of its life.
func TestCredentialsFollowNoRedirect(t *testing.T) {
	t.Parallel()
	var visits atomic.Int64
	elsewhere := newSite(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	for _, status := range []int{http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		f := &flooder{over: make(chan struct{})}
		site := newSite(t, f)
		s := open(t, nil, Options{}, Server{Name: "one", URL: site.URL, Headers: map[string]string{"Authorization": "Bearer t"}})
		site.set(http.RedirectHandler(elsewhere.URL, status))
		if res, err := s.Call(t.Context(), "mcp__one__go", nil, nil); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), errElsewhere.words) {
			t.Errorf("%d: got %+v, %v; want %v and why", status, res, err, ErrUnavailable)
		}
		s.Close()
	}
	if n := visits.Load(); n > 0 {
		t.Errorf("got %d requests, want none where the server sent us", n)
	}
}

func TestRedirectsOfTheSameHostAreFollowed(t *testing.T) {
	tools := webTools(t, "2026-07-28")
	site := newSite(t, http.HandlerFunc(func(out http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/mcp" {
			http.Redirect(out, req, "/mcp/", http.StatusTemporaryRedirect)
			return
		}
		tools.ServeHTTP(out, req)
	}))
	s := open(t, nil, Options{}, Server{Name: "one", URL: site.URL + "/mcp", Headers: map[string]string{"X-Key": "k"}})
	says(t, must(t, s, "mcp__one__echo", `{"text":"x"}`), `{"said":"x"}`)
}
