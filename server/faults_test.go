package server_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/server"
)

// A record keeps the lines of a log. It is safe for concurrent use.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *record) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *record) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// A panicking agent panics in the methods that its fields name.
type panicking struct{ start, configure, close bool }

func (a panicking) Start(context.Context, contracts.Host) (contracts.AgentInfo, error) {
	if a.start {
		panic("bug in Start")
	}
	return contracts.AgentInfo{Model: "m", Provider: "p", Executor: contracts.ExecutorLive}, nil
}

func (a panicking) Configure(*contracts.Init) {
	if a.configure {
		panic("bug in Configure")
	}
}

func (a panicking) Run(context.Context, contracts.Work) error { return nil }

func (a panicking) Close(context.Context) error {
	if a.close {
		panic("bug in Close")
	}
	return nil
}

// create asks for a session and returns the status. by adds a credential.
func create(t *testing.T, url, body string, by func(*http.Request)) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/api/headless/sessions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	by(req)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // nothing was read
	return res.StatusCode
}

func TestFaultyAgentDoesNotEndTheProgram(t *testing.T) {
	made := func(a contracts.Agent) func(server.Session) (contracts.Agent, error) {
		return func(server.Session) (contracts.Agent, error) { return a, nil }
	}
	const stack = "faults_test.go"
	for _, tt := range []struct {
		name   string
		agent  func(server.Session) (contracts.Agent, error)
		body   string
		status int
		log    []string
		closed string // in the error of Close
	}{
		{"NewAgent panics", func(server.Session) (contracts.Agent, error) { panic("bug in NewAgent") }, "", 500, []string{"bug in NewAgent", stack}, ""},
		{"Start panics", made(panicking{start: true}), "", 500, []string{"bug in Start", stack}, ""},
		{"Start and Close panic", made(panicking{start: true, close: true}), "", 500, []string{"bug in Start", "bug in Close"}, ""},
		{"Configure panics", made(panicking{configure: true}), `,"approvalMode":"fail"`, 200, []string{"bug in Configure", stack}, ""},
		{"Close panics", made(panicking{close: true}), "", 200, []string{"bug in Close", stack}, "session s: the agent failed: bug in Close"},
		{"NewAgent returns nothing", made(nil), "", 500, []string{"Options.NewAgent returned no agent"}, ""},
		{"no function", server.AgentFunc("empty", nil), "", 500, []string{"AgentFunc", "the function is nil"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := &record{}
			srv, err := server.New(server.Options{
				Token: token, StateDir: t.TempDir(), NewAgent: tt.agent, Log: slog.New(slog.NewTextHandler(log, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			web := httptest.NewServer(srv)
			defer web.Close()
			for range 2 { // a session that was refused is not left locked
				if got := create(t, web.URL, `{"sessionId":"s"`+tt.body+`}`, bearer(token)); got != tt.status {
					t.Errorf("got status %d, want %d", got, tt.status)
				}
			}
			err = srv.Close(t.Context())
			if tt.closed == "" && err != nil || tt.closed != "" && (err == nil || !strings.Contains(err.Error(), tt.closed)) {
				t.Errorf("Close: got %v, want %q", err, tt.closed)
			}
			for _, want := range tt.log {
				if got := log.String(); !strings.Contains(got, want) || strings.Contains(got, "another") {
					t.Errorf("got the log %s, want %q", got, want)
				}
			}
		})
	}
}

func TestCloseDoesNotWaitForAnAgentThatIsBeingMade(t *testing.T) {
	called, stuck := make(chan struct{}), make(chan struct{})
	srv, err := server.New(server.Options{Token: token, NewAgent: func(server.Session) (contracts.Agent, error) {
		close(called)
		<-stuck
		return panicking{start: true}, nil // which is not started
	}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(srv)
	defer web.Close()
	asked := make(chan struct{})
	go func() { // ends when the session is refused
		defer close(asked)
		create(t, web.URL, `{"sessionId":"s"}`, bearer(token))
	}()
	<-called
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := srv.Close(ctx); err == nil || !strings.Contains(err.Error(), "session s: it is still being opened") {
		t.Errorf("got %v, want an error that names the session", err)
	}
	close(stuck)
	<-asked
}

func TestCloseTakesNoContext(t *testing.T) {
	srv, err := server.New(server.Options{Token: token, NewAgent: server.AgentFunc("echo", echo)})
	if err != nil {
		t.Fatal(err)
	}
	var none context.Context
	if err := srv.Close(none); err != nil {
		t.Error(err)
	}
}

func TestCallWithoutAFunctionAsksNobody(t *testing.T) {
	_, web := open(t, server.Options{Token: token, NewAgent: server.AgentFunc("broken", func(ctx context.Context, r *server.Run) error {
		_, err := r.Call(ctx, "tool", nil, "", nil)
		return err
	})})
	if got, want := answer(t, dial(t, web.URL), "x", true), "error: Run.Call of tool: the function is nil"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSecondServerOfADirectoryRefusesWhatTheFirstHasOpen(t *testing.T) {
	dir, log := t.TempDir(), &record{}
	_, first := open(t, server.Options{Token: token, StateDir: dir})
	_, second := open(t, server.Options{Token: token, StateDir: dir, Log: slog.New(slog.NewTextHandler(log, nil))})
	if got := create(t, first.URL, `{"sessionId":"s"}`, bearer(token)); got != http.StatusOK {
		t.Fatalf("got status %d, want 200", got)
	}
	if got := create(t, second.URL, `{"sessionId":"s"}`, bearer(token)); got != http.StatusConflict {
		t.Errorf("got status %d, want 409", got)
	}
	if got := log.String(); !strings.Contains(got, "in use by another server") {
		t.Errorf("got the log %s, want that another server has the session", got)
	}
}

// TestControllersChooseTheApprovalMode holds what Run.Call documents.
func TestControllersChooseTheApprovalMode(t *testing.T) {
	_, web := open(t, server.Options{Token: token, NewAgent: server.AgentFunc("birthdays", birthday)})
	c := dial(t, web.URL)
	for mode, want := range map[contracts.ApprovalMode]string{
		contracts.ApprovalAuto: "Ann was born on May 4.", contracts.ApprovalFail: "error: " + server.ErrNotApproved.Error(),
	} {
		if _, err := c.Send(t.Context(), &contracts.Init{ApprovalMode: mode}); err != nil {
			t.Fatal(err)
		}
		if got := answer(t, c, "Ann", mode == contracts.ApprovalAuto); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", mode, got, want)
		}
	}
}

func TestMiddlewareThatHidesTheConnectionIsNamed(t *testing.T) {
	log := &record{}
	srv, _ := open(t, server.Options{Token: token, Log: slog.New(slog.NewTextHandler(log, nil))})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		srv.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	}))
	defer web.Close()
	upgrade := func(r *http.Request) {
		bearer(token)(r)
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
			"Sec-WebSocket-Protocol": contracts.Subprotocol,
		} {
			r.Header.Set(name, value)
		}
	}
	if got := status(t, web.URL+"/api/headless/ws", upgrade); got != http.StatusInternalServerError {
		t.Errorf("got status %d, want 500", got)
	}
	create(t, web.URL, `{"sessionId":"s"}`, bearer(token))
	if got := status(t, web.URL+"/api/headless/sessions/s/events", bearer(token)); got != http.StatusInternalServerError {
		t.Errorf("got status %d for a stream, want 500", got)
	}
	if got := log.String(); strings.Count(got, "level=ERROR") != 2 || strings.Count(got, "middleware hides the connection") != 2 {
		t.Errorf("got the log %s, want two errors about the middleware", got)
	}
}
