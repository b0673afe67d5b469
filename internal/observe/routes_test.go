package observe_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/internal/observe"
)

// visit starts a server with a route of each kind behind Routes, and asks for
// each.
func visit(t *testing.T, o *observe.Observer) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sessions/{id}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("POST /sessions", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
	})
	mux.HandleFunc("GET /silent", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("GET /ws", func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.CloseNow() // the client sees it
	})
	mux.HandleFunc("GET /hijacked", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_ = conn.Close()
	})
	served := make(chan struct{}, 32) // a token for each request that was served to its end
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { served <- struct{}{} }()
		o.Routes(mux).ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = nil
	t.Cleanup(s.Close)
	for _, tt := range []struct{ method, path string }{
		{"GET", "/sessions/a"}, {"GET", "/sessions/b"}, {"POST", "/sessions"}, {"GET", "/silent"}, {"POST", "/panic"},
		{"GET", "/events"}, {"GET", "/hijacked"}, {"GET", "/nowhere/" + strings.Repeat("x", 100)}, {"DELETE", "/sessions/a"},
	} {
		req, err := http.NewRequest(tt.method, s.URL+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Client().Do(req)
		if (err != nil) != (tt.path == "/panic") {
			t.Fatalf("%s %s: got %v", tt.method, tt.path, err)
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		<-served
	}
	if conn, _, err := websocket.Dial(t.Context(), s.URL+"/ws", &websocket.DialOptions{HTTPClient: s.Client()}); err != nil {
		t.Errorf("dial: got %v, want a WebSocket", err)
	} else {
		_ = conn.CloseNow()
	}
	<-served
}

func TestRequestsAreLabelledByTheirPattern(t *testing.T) {
	o := newObserver(t, observe.Options{})
	visit(t, o)
	got := scrape(t, o)
	got.want(t, metrics{
		`maestro_http_requests_total{code="200",route="GET /sessions/{id}"}`: 2,
		`maestro_http_requests_total{code="201",route="POST /sessions"}`:     1,
		`maestro_http_requests_total{code="200",route="GET /silent"}`:        1,
		`maestro_http_requests_total{code="none",route="POST /panic"}`:       1,
		`maestro_http_requests_total{code="200",route="GET /events"}`:        1,
		`maestro_http_requests_total{code="200",route="GET /hijacked"}`:      1,
		`maestro_http_requests_total{code="101",route="GET /ws"}`:            1,
		`maestro_http_requests_total{code="404",route="unmatched"}`:          1,
		`maestro_http_requests_total{code="405",route="unmatched"}`:          1,

		`maestro_http_request_duration_seconds_count{route="GET /sessions/{id}"}`: 2,
		`maestro_http_request_duration_seconds_count{route="GET /ws"}`:            1,
	})
	if n, ok := got[`maestro_http_request_duration_seconds_count{route="GET /events"}`]; ok {
		t.Errorf("stream: got %v durations, want none", n)
	}
	for name := range got {
		if strings.Contains(name, "/sessions/a") || strings.Contains(name, "xxx") {
			t.Errorf("got %s, want no path among the labels", name)
		}
	}
}

// A writer that can do nothing but write, as HTTP/2 cannot be hijacked.
type plain struct{ http.ResponseWriter }

func TestRoutesInventNoAbilities(t *testing.T) {
	o := newObserver(t, observe.Options{})
	w := plain{httptest.NewRecorder()}
	o.Routes(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("hijack: got %v, want not supported", err)
		}
		if w.(interface{ Unwrap() http.ResponseWriter }).Unwrap() == nil {
			t.Error("unwrap: got nothing, want the writer below")
		}
		_, _ = io.WriteString(w, "ok") // a recorder cannot fail
		w.WriteHeader(999)
	})).ServeHTTP(w, httptest.NewRequest("GET", "/x", nil))
	scrape(t, o).want(t, metrics{`maestro_http_requests_total{code="200",route="unmatched"}`: 1})
}

func TestUnlikelyStatusesShareALabel(t *testing.T) {
	o := newObserver(t, observe.Options{})
	for status := 600; status < 700; status++ {
		o.Routes(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/x", nil))
	}
	scrape(t, o).want(t, metrics{`maestro_http_requests_total{code="other",route="unmatched"}`: 100})
}
