package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
)

const sessionPath = "/api/headless/sessions/sess_a"

// A route is a path with what it can be asked for, a body that will do, and what
// the session is then asked.
type route struct {
	path, method string
	allow        string // of the answer to another method
	body         string
	reaches      string // the session's method
	attaches     bool
}

var routes = []route{
	{"/api/headless/connections", "POST", "OPTIONS, POST", `{"sessionId":"sess_a"}`, "Connect", true},
	{"/api/headless/sessions", "POST", "GET, HEAD, OPTIONS, POST", `{"sessionId":"sess_a"}`, "State", true},
	{sessionPath, "GET", "DELETE, GET, HEAD, OPTIONS, PATCH", "", "State", false},
	{sessionPath + "/state", "GET", "GET, HEAD, OPTIONS", "", "State", false},
	{sessionPath + "/subscribe", "POST", "OPTIONS, POST", `{}`, "Subscribe", true},
	{sessionPath + "/unsubscribe", "POST", "OPTIONS, POST", `{"subscriptionId":"sub_1"}`, "Unsubscribe", false},
	{sessionPath + "/events", "GET", "GET, OPTIONS", "", "Stream", true},
	{sessionPath + "/history", "GET", "GET, HEAD, OPTIONS", "", "History", false},
	{sessionPath + "/turns", "GET", "GET, HEAD, OPTIONS", "", "History", false},
	{sessionPath + "/search", "GET", "GET, HEAD, OPTIONS", "", "History", false},
	{sessionPath + "/connections", "GET", "GET, HEAD, OPTIONS", "", "Connections", false},
	{sessionPath + "/offer", "GET", "GET, HEAD, OPTIONS", "", "Offer", false},
	{sessionPath + "/messages", "POST", "OPTIONS, POST", `{"type":"interrupt"}`, "Post", false},
	{sessionPath + "/message", "POST", "OPTIONS, POST", `{"type":"interrupt"}`, "Post", false},
	{sessionPath + "/heartbeat", "POST", "OPTIONS, POST", "", "Heartbeat", false},
	{sessionPath + "/disconnect", "POST", "OPTIONS, POST", "", "Disconnect", false},
}

// in reports whether the route is about a session in the path.
func (r route) in() bool { return strings.HasPrefix(r.path, sessionPath) }

func TestEveryRouteReachesItsMethod(t *testing.T) {
	for _, r := range routes {
		for _, path := range []string{r.path, r.path + "/"} {
			t.Run(r.method+" "+path, func(t *testing.T) {
				h := newHouse(t, nil)
				e := h.ask(r.method, path, r.body)
				if r.reaches == "Stream" {
					e.refused(errStream.Code)
				} else {
					e.ok()
				}
				if got := h.session.last(t); got.method != r.reaches || got.method != "State" && got.by.Principal != h.principal {
					t.Errorf("got %+v, want %s by alice", got, r.reaches)
				}
				want := h.want()
				if want.ID != "sess_a" || want.Principal != h.principal || want.Create != (r.path == "/api/headless/sessions") || want.Socket {
					t.Errorf("got %+v looked for, want sess_a for alice", want)
				}
				if (want.Runtime != nil) != (r.attaches && !r.in()) {
					t.Errorf("got a wish %+v, want one of those alone that make sessions", want.Runtime)
				}
			})
		}
	}
}

func TestAnswersAreWhole(t *testing.T) {
	h := newHouse(t, nil)
	for target, want := range map[string]string{
		"POST /api/headless/connections": `{"session_id":"sess_a","connection_id":"conn_1","role":"controller","controller_lease_granted":false,"controller_connection_id":null,"lease_expires_at":null,"heartbeat_interval_ms":15000,"snapshot":` + snapshot + `}`,
		"POST /api/headless/sessions":    snapshot,
		"GET " + sessionPath:             snapshot,
		"POST " + sessionPath + "/subscribe": `{"connection_id":"conn_1","subscription_id":"sub_1","role":"controller","controller_lease_granted":false,"controller_subscription_id":null,` +
			`"controller_connection_id":null,"lease_expires_at":null,"heartbeat_interval_ms":15000,"snapshot":` + snapshot + `}`,
		"POST " + sessionPath + "/unsubscribe": `{"success":true}`,
		"POST " + sessionPath + "/messages":    `{"ok":true}`,
		"POST " + sessionPath + "/heartbeat":   `{"connection_id":"conn_1","controller_lease_granted":false,"controller_connection_id":null,"lease_expires_at":null,"heartbeat_interval_ms":15000}`,
		"POST " + sessionPath + "/disconnect":  `{"success":true,"connection_id":"conn_1","controller_connection_id":null,"disconnected_subscription_ids":[]}`,
	} {
		method, path, _ := strings.Cut(target, " ")
		body := ""
		if method == "POST" {
			body = `{"subscriptionId":"sub_1"}`
		}
		if got := h.ask(method, path, body).ok().Body.String(); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", target, got, want)
		}
	}
}

func TestSecretAndEpochAreInTheHeader(t *testing.T) {
	h := newHouse(t, nil)
	for _, r := range routes {
		for _, token := range []string{"", "a-secret"} {
			h.session.token = token
			header := h.ask(r.method, r.path, r.body).Header()
			makes := r.reaches == "Connect" || r.reaches == "Subscribe"
			if got := header.Get(contracts.HeaderConnectionToken); makes && got != token || !makes && got != "" {
				t.Errorf("%s: got the secret %q, want %q from those alone that make connections", r.path, got, token)
			}
			if got := header.Get(headerEpoch); (makes || r.reaches == "State") != (got == epoch) {
				t.Errorf("%s: got epoch %q", r.path, got)
			}
		}
	}
}

func TestWrongMethodsLearnTheRightOnes(t *testing.T) {
	h := newHouse(t, func(o *Options) {
		o.List = func(contracts.Principal) *contracts.SessionList { return &contracts.SessionList{} }
	})
	h.refuse = errors.New("asked who it is") // which is not of interest here
	others := []route{{path: "/healthz", method: "GET", allow: "GET, HEAD, OPTIONS"}, {path: "/readyz", method: "GET", allow: "GET, HEAD, OPTIONS"}}
	for _, r := range append(others, routes...) {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "POSTT", "PROPFIND"} {
			e := h.ask(method, r.path, "")
			switch {
			case strings.Contains(", "+r.allow+",", ", "+method+",") && method != "OPTIONS":
				if e.Code == 405 {
					t.Errorf("%s %s: got 405, want it to be allowed", method, r.path)
				}
				continue
			case method == "OPTIONS":
				if e.Code != 204 || e.Body.Len() > 0 {
					t.Errorf("%s: got %d %s, want 204", e.what, e.Code, e.Body)
				}
			default:
				e.refused(contracts.CodeMethodNotAllowed)
			}
			if got := e.Header().Get("Allow"); got != r.allow {
				t.Errorf("%s %s: got Allow %q, want %q", method, r.path, got, r.allow)
			}
		}
	}
	h.session.untouched(t)
}

func TestHeadOfAStreamIsNotAllowed(t *testing.T) {
	h := newHouse(t, nil)
	e := h.ask("HEAD", sessionPath+"/events", "")
	if e.Code != 405 || e.Header().Get("Allow") != "GET, OPTIONS" {
		t.Errorf("got %d, Allow %q, want 405 and GET, OPTIONS", e.Code, e.Header().Get("Allow"))
	}
	h.ask("HEAD", sessionPath, "").ok()
	if got := h.session.last(t); got.method != "State" {
		t.Errorf("got %+v, want the state alone", got)
	}
}

func TestUnknownPathsAreNotFound(t *testing.T) {
	h := newHouse(t, nil)
	for _, path := range []string{
		"/", "/api", "/api/headless", "/api/headless/", "/api/headless/session/sess_a", "/api/headless/sessions/sess_a/nothing", "/API/HEADLESS/SESSIONS",
		"/api/headless/sessions/sess_a/state/x", "/api/headless/sessions/sess_a/events/x", "/api/headless/connections/x", "/healthz/", "/index.html",
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			h.ask(method, path, "").refused(contracts.CodeNotFound)
		}
	}
	h.session.untouched(t)
}

func TestBrowsersGetThePage(t *testing.T) {
	h := newHouse(t, func(o *Options) {
		o.Page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("page " + r.URL.Path)) })
	})
	h.refuse = errors.New("a browser has no credential yet")
	for target, accept := range map[string]string{"/": "text/html", "/assets/a.js": "*/*", "/inbox": "*/*"} {
		if e := h.ask("GET", target, "", "Accept: "+accept); e.Code != 200 || e.Body.String() != "page "+target {
			t.Errorf("%s: got %d %q, want the page", target, e.Code, e.Body)
		}
	}
	h.ask("GET", "/", "", "Accept: */*").refused(contracts.CodeNotFound)
	h.ask("GET", "/index.html", "", "Accept: text/html").refused(contracts.CodeNotFound)
	h.session.untouched(t)
}

// A person who opens the address of a server without a page in a browser is told what is there;
// programs are told, as everywhere, that nothing is.
func TestBrowsersAreWelcomed(t *testing.T) {
	h := newHouse(t, nil)
	h.refuse = errors.New("a browser has no credential yet")
	const browser = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, target := range []string{"/", "/?ticket=secret", "/?<script>"} {
		e := h.ask("GET", target, "", browser)
		if got := e.Body.String(); e.Code != 200 || got != welcome || !strings.Contains(got, "maestro attach") {
			t.Errorf("%s: got %d %q, want the same words for all", e.what, e.Code, got)
		}
		for name, want := range map[string]string{
			"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Vary": "Accept",
		} {
			if got := e.Header().Get(name); got != want {
				t.Errorf("%s: got %s %q, want %q", e.what, name, got, want)
			}
		}
	}
	for _, accept := range []string{"Accept:", "Accept: */*", "Accept: application/json", "Accept: text/event-stream"} {
		h.ask("GET", "/", "", accept).refused(contracts.CodeNotFound)
	}
	h.ask("POST", "/", "", browser).refused(contracts.CodeNotFound)
	h.ask("GET", "/index.html", "", browser).refused(contracts.CodeNotFound)
	h.session.untouched(t)
}

func TestSessionIDsInPaths(t *testing.T) {
	h := newHouse(t, nil)
	long := strings.Repeat("x", contracts.MaxIDBytes)
	for id, want := range map[string]string{
		"sess_a": "sess_a", "A.b_c:d-9": "A.b_c:d-9", "sess%3Aa": "sess:a", "%61": "a", "a..b": "a..b", long: long,
		long + "x": "", "a%2Fb": "", "..%2Fb": "", "%00": "", "a%00": "", "a%20b": "", "a+b": "", "%C0%AE": "", "ä": "", "%25": "", "a%0d%0aX: y": "", "*": "",
		"a;b": "", "a%3Fb": "", "%5C": "", "~": "", "a,b": "", "%252e": "",
	} {
		for _, r := range routes {
			if !r.in() {
				continue
			}
			e := h.ask(r.method, strings.Replace(r.path, "sess_a", strings.ReplaceAll(id, " ", "%20"), 1), r.body)
			if want == "" {
				has(t, e.refused(contracts.CodeBadRequest), "malformed session id")
				h.session.untouched(t)
				continue
			}
			if got := h.want().ID; got != want {
				t.Errorf("%s: got session %q, want %q", e.what, got, want)
			}
			h.session.last(t)
		}
	}
}

func TestStrangersReachNothing(t *testing.T) {
	h := newHouse(t, func(o *Options) {
		o.List = func(contracts.Principal) *contracts.SessionList { panic("listed for a stranger") }
		o.Fence = &fakeFence{t: t, untouchable: true}
		o.Rates = &fakeRates{t: t, untouchable: true}
	})
	h.refuse = &contracts.Error{Code: contracts.CodeUnauthenticated, Message: "a credential is required"}
	for _, r := range append(routes, route{path: "/api/headless/sessions", method: "GET"}) {
		for _, id := range []string{"sess_a", "a%2Fb"} { // nor do they learn what an id looks like
			e := h.ask(r.method, strings.Replace(r.path, "sess_a", id, 1), `{"`, "x-maestro-headless-role: viewer", "x-composer-headless-role: controller")
			e.refused(contracts.CodeUnauthenticated)
			if e.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("%s: got no WWW-Authenticate", e.what)
			}
		}
	}
	h.session.untouched(t)
	if len(h.wanted) > 0 {
		t.Errorf("got %+v looked for, want nothing", h.wanted)
	}
}

func TestWhatTheSessionRefusesIsTheAnswer(t *testing.T) {
	for _, code := range contracts.Codes() {
		h := newHouse(t, nil)
		h.session.err = &contracts.Error{Code: code, Message: "because", Metadata: map[string]string{"k": "v"}}
		for _, r := range routes {
			if r.reaches == "State" || r.reaches == "Stream" {
				continue
			}
			e := h.ask(r.method, r.path, r.body)
			body := e.refused(code)
			if body.Message != "because" || body.Retryable != code.Retryable() || len(body.Details) != 1 || body.Details[0].Metadata["k"] != "v" {
				t.Errorf("%s: got %+v, want the refusal as it is", e.what, body)
			}
			if status := code.HTTPStatus(); (status == 429 || status == 503) != (e.Header().Get("Retry-After") != "") {
				t.Errorf("%s: got Retry-After %q with %d", e.what, e.Header().Get("Retry-After"), status)
			}
			if e.Header().Get(contracts.HeaderConnectionToken) != "" {
				t.Errorf("%s: got a secret with a refusal", e.what)
			}
		}
	}
}

func TestFaultsAreNotShown(t *testing.T) {
	h := newHouse(t, nil)
	for _, fault := range []func(){
		func() { h.session.err = errors.New("disk on fire at /home/alice") },
		func() { h.session.err, h.found = nil, errors.New("disk on fire at /home/alice") },
		func() { h.found, h.refuse = nil, errors.New("disk on fire at /home/alice") },
	} {
		fault()
		for _, r := range routes {
			if h.session.err != nil && (r.reaches == "State" || r.reaches == "Stream") {
				continue
			}
			if got := h.ask(r.method, r.path, r.body).refused(contracts.CodeInternal); got.Message != "Internal server error" {
				t.Errorf("%s: got %q, want a fixed text", r.path, got.Message)
			}
		}
	}
}

func TestListIsOfThePrincipal(t *testing.T) {
	newHouse(t, nil).ask("GET", "/api/headless/sessions", "").refused(contracts.CodeNotFound)
	var got contracts.Principal
	h := newHouse(t, func(o *Options) {
		o.List = func(p contracts.Principal) *contracts.SessionList {
			got = p
			return &contracts.SessionList{Sessions: []contracts.SessionEntry{{SessionID: "sess_a", UpdatedAt: "2026-04-02T00:00:00.000Z"}}, Truncated: true}
		}
	})
	h.principal.SessionID = "sess_b" // confines it, which is up to the list
	e := h.ask("GET", "/api/headless/sessions", "").ok()
	var list contracts.SessionList
	if err := json.Unmarshal(e.Body.Bytes(), &list); err != nil || len(list.Sessions) != 1 || !list.Truncated || got != h.principal {
		t.Errorf("got %s for %+v, %v, want the list of alice", e.Body, got, err)
	}
}

func TestProbes(t *testing.T) {
	for name, tt := range map[string]struct {
		ready  func() (refusal *contracts.Error, draining bool)
		status int
		want   string
	}{
		"always":   {nil, 200, `{"ok":true,"ready":true,"draining":false}`},
		"ready":    {func() (*contracts.Error, bool) { return nil, false }, 200, `{"ok":true,"ready":true,"draining":false}`},
		"draining": {func() (*contracts.Error, bool) { return ErrNotAttaching, true }, 503, `"draining":true,"ok":false,"ready":false`},
		"failed":   {func() (*contracts.Error, bool) { return ErrNotAttaching, false }, 503, `"draining":false,"ok":false,"ready":false`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, func(o *Options) {
				o.Ready = tt.ready
				o.Fence = &fakeFence{t: t, untouchable: true}
			})
			h.refuse = errors.New("probes carry no credential")
			e := h.ask("GET", "/readyz", "")
			if e.Code != tt.status || !strings.Contains(e.Body.String(), tt.want) {
				t.Errorf("got %d %s, want %d %s", e.Code, e.Body, tt.status, tt.want)
			}
			if tt.status == 503 {
				e.refused(contracts.CodeRuntimeNotReady)
				if e.Header().Get("Retry-After") == "" {
					t.Error("got no Retry-After")
				}
			}
			if got := h.ask("GET", "/healthz", "").ok().Body.String(); got != `{"ok":true}` {
				t.Errorf("healthz: got %s, want that it lives", got)
			}
		})
	}
}

func TestHandlerNeedsWhatItCannotDoWithout(t *testing.T) {
	authorize := func(*http.Request) (contracts.Principal, error) { return contracts.Principal{}, nil }
	find := func(context.Context, Wanted) (Session, bool, error) { return nil, false, nil }
	for _, opts := range []Options{
		{}, {Find: find, Streams: sse.New(sse.Options{})}, {Authorize: authorize, Streams: sse.New(sse.Options{})}, {Authorize: authorize, Find: find},
	} {
		if _, err := New(opts); err == nil {
			t.Errorf("got a handler of %+v, want an error", opts)
		}
	}
}

// A fakeRates allows until it is told to make somebody wait.
type fakeRates struct {
	t               *testing.T
	untouchable     bool
	request, attach time.Duration
	requests        []string // who asked
	attachments     []string
}

func (r *fakeRates) Request(id string) time.Duration {
	if r.untouchable {
		r.t.Error("a stranger's request was counted")
	}
	r.requests = append(r.requests, id)
	return r.request
}

func (r *fakeRates) Attach(id string) time.Duration {
	if r.untouchable {
		r.t.Error("a stranger's attachment was counted")
	}
	r.attachments = append(r.attachments, id)
	return r.attach
}

var _ RateLimiter = (*ratelimit.Limiter)(nil)

// TestEveryRequestCountsOnce looks at each route: what attaches is an attachment,
// everything else a request.
func TestEveryRequestCountsOnce(t *testing.T) {
	for _, r := range routes {
		limiter := &fakeRates{t: t}
		h := newHouse(t, func(o *Options) { o.Rates = limiter })
		h.ask(r.method, r.path, r.body)
		counted, other := limiter.requests, limiter.attachments
		if r.attaches {
			counted, other = other, counted
		}
		if !slices.Equal(counted, []string{"alice"}) || len(other) > 0 {
			t.Errorf("%s: got requests of %v and attachments of %v, want one of alice, an attachment: %v", r.path, limiter.requests, limiter.attachments, r.attaches)
		}
	}
}

func TestWhoAsksTooOftenIsToldWhenToComeBack(t *testing.T) {
	for _, r := range routes {
		for _, limiter := range []*fakeRates{{t: t, request: 1500 * time.Millisecond}, {t: t, attach: 1500 * time.Millisecond}} {
			h := newHouse(t, func(o *Options) { o.Rates = limiter })
			e := h.ask(r.method, r.path, r.body)
			if (limiter.attach > 0) != r.attaches {
				h.session.last(t)
				continue
			}
			if !e.refused(contracts.CodeRateLimited).Retryable || e.Header().Get("Retry-After") != "2" {
				t.Errorf("%s: got Retry-After %q, want 2", e.what, e.Header().Get("Retry-After"))
			}
			h.session.untouched(t)
			if len(h.wanted) > 0 {
				t.Errorf("%s: got a session looked for", e.what)
			}
		}
	}
}

// streaming is a session whose stream goes on.
type streaming struct{ *fakeSession }

func (s streaming) MayStream(contracts.StreamRequest, contracts.Caller) error { return nil }

func (s streaming) Stream(_ context.Context, c *sse.Conn, _ contracts.StreamRequest, _ contracts.Caller) error {
	if err := c.Write(c.Form().AppendMessage(nil, 7, []byte(`{"type":"ready"}`))); err != nil {
		return err
	}
	_, err := c.ReadFrame()
	return err
}

func TestEventsAreAStream(t *testing.T) {
	h := newHouse(t, func(o *Options) {
		o.Find = func(context.Context, Wanted) (Session, bool, error) { return streaming{&fakeSession{}}, false, nil }
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.serve(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET "+sessionPath+"/events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get(headerEpoch) != epoch {
		t.Fatalf("got %+v, %v, want a stream", res, err)
	}
	want := "id: e7f3.7\ndata: {\"type\":\"message\",\"cursor\":7,\"message\":{\"type\":\"ready\"}}\n\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
