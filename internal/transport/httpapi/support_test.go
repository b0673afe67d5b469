package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A request is one call of a session, as it arrived there.
type request struct {
	method string
	attach *contracts.AttachRequest
	stream contracts.StreamRequest
	by     contracts.Caller
	text   string // of a message
	key    string // of a message
	sub    string // to unsubscribe
	cursor uint64 // of a state

	history *contracts.HistoryRequest
}

// A fakeSession notes what it is asked and answers the same every time.
type fakeSession struct {
	token string // of connections that it makes
	state string // its snapshot; empty is the constant
	err   error  // of every method but State and MayStream

	replied func() // called once the answer to a message has been written

	mu    sync.Mutex
	asked []request
}

const (
	epoch    = "e7f3"
	snapshot = `{"protocolVersion":"2026-04-02","session_id":"sess_a","cursor":3}`
)

func (s *fakeSession) note(r request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	return s.err
}

// last returns what was asked last, if it was one thing only, and forgets it.
func (s *fakeSession) last(t *testing.T) request {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	if len(asked) != 1 {
		t.Fatalf("the session was asked %+v, want one thing", asked)
	}
	return asked[0]
}

// untouched fails the test if anything was asked.
func (s *fakeSession) untouched(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) > 0 {
		t.Errorf("the session was asked %+v, want nothing", s.asked)
	}
	s.asked = nil
}

func (s *fakeSession) Epoch() string { return epoch }

func (s *fakeSession) State() ([]byte, error) {
	_ = s.note(request{method: "State"})
	return s.snapshot(), nil
}

func (s *fakeSession) StateAt(_ context.Context, cursor uint64, by contracts.Caller) ([]byte, error) {
	return s.snapshot(), s.note(request{method: "StateAt", cursor: cursor, by: by})
}

func (s *fakeSession) SnapshotBytes() int { return len(s.snapshot()) }

func (s *fakeSession) snapshot() []byte { return []byte(cmp.Or(s.state, snapshot)) }

func (s *fakeSession) Connect(req *contracts.AttachRequest, by contracts.Caller) (*contracts.ConnectionAnswer, string, error) {
	err := s.note(request{method: "Connect", attach: req, by: by})
	return &contracts.ConnectionAnswer{
		SessionID: "sess_a", ConnectionID: "conn_1", Role: contracts.RoleController, HeartbeatIntervalMS: 15000, Snapshot: s.snapshot(),
	}, s.token, err
}

func (s *fakeSession) Subscribe(req *contracts.AttachRequest, by contracts.Caller) (*contracts.SubscriptionAnswer, string, error) {
	err := s.note(request{method: "Subscribe", attach: req, by: by})
	return &contracts.SubscriptionAnswer{
		ConnectionID: "conn_1", SubscriptionID: "sub_1", Role: contracts.RoleController, HeartbeatIntervalMS: 15000, Snapshot: s.snapshot(),
	}, s.token, err
}

func (s *fakeSession) Unsubscribe(id string, by contracts.Caller) error {
	return s.note(request{method: "Unsubscribe", sub: id, by: by})
}

func (s *fakeSession) Post(text []byte, key string, by contracts.Caller, reply func([]byte)) error {
	err := s.note(request{method: "Post", text: string(text), key: key, by: by})
	if err == nil {
		reply([]byte(`{"ok":true}`))
		if s.replied != nil {
			s.replied()
		}
	}
	return err
}

func (s *fakeSession) Answer(a *contracts.ServerRequestResponse, by contracts.Caller) (uint64, bool, error) {
	text, err := json.Marshal(a)
	return 7, true, cmp.Or(s.note(request{method: "Answer", by: by, text: string(text)}), err)
}

func (s *fakeSession) Connections(by contracts.Caller) (*contracts.ConnectionList, error) {
	return &contracts.ConnectionList{Connections: []contracts.ConnectionEntry{}}, s.note(request{method: "Connections", by: by})
}

func (s *fakeSession) Offer(by contracts.Caller) (*contracts.AgentOffer, error) {
	return &contracts.AgentOffer{Commands: []contracts.AgentCommand{}}, s.note(request{method: "Offer", by: by})
}

func (s *fakeSession) Heartbeat(by contracts.Caller) (*contracts.HeartbeatAnswer, error) {
	return &contracts.HeartbeatAnswer{ConnectionID: "conn_1", HeartbeatIntervalMS: 15000}, s.note(request{method: "Heartbeat", by: by})
}

func (s *fakeSession) Disconnect(by contracts.Caller) (*contracts.DisconnectAnswer, error) {
	return &contracts.DisconnectAnswer{Success: true, ConnectionID: "conn_1", Subscriptions: []string{}}, s.note(request{method: "Disconnect", by: by})
}

func (s *fakeSession) History(_ context.Context, req *contracts.HistoryRequest, by contracts.Caller) (*contracts.HistoryPage, error) {
	return &contracts.HistoryPage{Epoch: epoch}, s.note(request{method: "History", history: req, by: by})
}

// errStream is how the session refuses all streams: what matters is how they
// were asked for. See TestEventsAreAStream for one that is not refused.
var errStream = &contracts.Error{Code: contracts.CodeSuperseded, Message: "asked for a stream"}

func (s *fakeSession) MayStream(req contracts.StreamRequest, by contracts.Caller) error {
	_ = s.note(request{method: "Stream", stream: req, by: by})
	return errStream
}

func (s *fakeSession) Stream(context.Context, *sse.Conn, contracts.StreamRequest, contracts.Caller) error {
	panic("a refused stream began")
}

// A house is a handler with all it is given.
type house struct {
	http.Handler
	t         *testing.T
	session   *fakeSession
	principal contracts.Principal // who asks
	refuse    error               // who asks may not
	found     error               // of Find
	opened    bool                // of Find
	wanted    []Wanted            // of Find
}

// newHouse returns one in which everybody may do everything. set changes its
// options.
func newHouse(t *testing.T, set func(*Options)) *house {
	t.Helper()
	h := &house{t: t, session: &fakeSession{}, principal: contracts.Principal{ID: "alice", Scope: "home"}}
	opts := Options{
		Authorize: func(*http.Request) (contracts.Principal, error) { return h.principal, h.refuse },
		Find: func(_ context.Context, want Wanted) (Session, bool, error) {
			h.wanted = append(h.wanted, want)
			return h.session, h.opened, h.found
		},
		Streams: sse.New(sse.Options{ConnLimit: connlimit.New(connlimit.Options{})}),
	}
	if set != nil {
		set(&opts)
	}
	handler, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	handler.Routes(mux)
	h.Handler = mux
	return h
}

// want returns the session that was looked for, if it was one, and forgets it.
func (h *house) want() Wanted {
	h.t.Helper()
	wanted := h.wanted
	h.wanted = nil
	if len(wanted) != 1 {
		h.t.Fatalf("got %+v looked for, want one session", wanted)
	}
	return wanted[0]
}

// An exchange is an answer with what was asked, for messages.
type exchange struct {
	*httptest.ResponseRecorder
	t    *testing.T
	what string
}

// ask sends a request. Headers are "name: value".
func (h *house) ask(method, target, body string, headers ...string) exchange {
	h.t.Helper()
	var r *http.Request
	if body == "" {
		r = httptest.NewRequest(method, target, nil)
	} else {
		r = httptest.NewRequest(method, target, strings.NewReader(body))
	}
	for _, header := range headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok {
			h.t.Fatalf("%q is no header", header)
		}
		r.Header.Add(name, strings.TrimPrefix(value, " "))
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	what := method + " " + target + " " + body + " " + strings.Join(headers, ", ")
	return exchange{w, h.t, what[:min(len(what), 300)]}
}

// ok fails the test unless the answer is JSON with status 200.
func (e exchange) ok() exchange {
	e.t.Helper()
	if e.Code != 200 || !json.Valid(e.Body.Bytes()) {
		e.t.Fatalf("%s: got %d %s, want 200", e.what, e.Code, e.Body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
	} {
		if got := e.Header().Get(name); got != want {
			e.t.Errorf("%s: %s: got %q, want %q", e.what, name, got, want)
		}
	}
	return e
}

// refused fails the test unless the answer is a refusal with code, in the one
// form of refusals.
func (e exchange) refused(code contracts.Code) httperr.Body {
	e.t.Helper()
	var body httperr.Body
	err := json.Unmarshal(e.Body.Bytes(), &body)
	if e.Code != code.HTTPStatus() || err != nil || body.Code != code || body.ErrorType != code || body.Message == "" {
		e.t.Errorf("%s: got %d %s, %v, want %d %s", e.what, e.Code, e.Body, err, code.HTTPStatus(), code)
	}
	return body
}

// has fails the test unless the refusal's text contains part.
func has(t *testing.T, body httperr.Body, part string) {
	t.Helper()
	if !strings.Contains(body.Message, part) {
		t.Errorf("got the text %q, want %q in it", body.Message, part)
	}
}

// serve lets clients ask h over a socket, and returns the address.
func (h *house) serve() (url string) {
	s := httptest.NewServer(h)
	h.t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.Close()
	})
	return s.URL
}

// A sequence reads its parts one after the other, and says nothing of its length.
func sequence(parts ...string) io.Reader {
	readers := make([]io.Reader, len(parts))
	for i, p := range parts {
		readers[i] = strings.NewReader(p)
	}
	return io.MultiReader(readers...)
}
