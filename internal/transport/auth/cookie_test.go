package auth

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const testCookie = "maestro_session_8787" // the host of request has this port

// cookieOf returns the cookie that an answer sets, as the browser sends it.
func cookieOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	set := w.Result().Cookies()
	if len(set) != 1 || set[0].Name != testCookie {
		t.Fatalf("got %d %s and cookies %v, want %s", w.Code, w.Body, set, testCookie)
	}
	return testCookie + "=" + set[0].Value
}

// mint returns a ticket of the owner.
func mint(t *testing.T, g *Authenticator, session string, role contracts.Role, origin string) string {
	t.Helper()
	text, _, err := g.Mint(g.owner, session, role, origin, false)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// login returns the header with a cookie of the owner.
func login(t *testing.T, g *Authenticator) string {
	t.Helper()
	return "Cookie: " + cookieOf(t, serve(g.Login(), request("GET", "/login?ticket="+mint(t, g, "", "", ""))))
}

func TestTicketBecomesACookie(t *testing.T) {
	g := newAuthenticator(t, Options{})
	w := serve(g.Login(), request("GET", "/login?next=/s/sess_a%3Fx%3D1&ticket="+mint(t, g, "sess_a", contracts.RoleViewer, "")))
	for name, want := range map[string]string{
		"Location": "/s/sess_a?x=1", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if w.Code != 303 || w.Body.Len() != 0 {
		t.Errorf("got %d %s, want 303 without a body", w.Code, w.Body)
	}
	_, value, _ := strings.Cut(cookieOf(t, w), "=")
	want := "maestro_session_8787=" + value + "; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"
	if got := w.Header().Get("Set-Cookie"); got != want || len(value) != 43 {
		t.Errorf("got %q, want %q with 256 bits", got, want)
	}
	for range 2 {
		p, err := g.Authorize(request("GET", "/", "Cookie: theme=dark; maestro_session_8787="+value))
		if want := (contracts.Principal{ID: g.owner.ID, Name: "owner", Role: contracts.RoleViewer, SessionID: "sess_a"}); err != nil || p != want {
			t.Fatalf("got %+v, %v, want %+v", p, err, want)
		}
	}
}

func TestTicketForALoginIsForNothingElse(t *testing.T) {
	c := &clock{time.Now()}
	g := newAuthenticator(t, Options{Now: c.Now})
	text := func() string {
		r := request("POST", "/api/headless/ws-tickets", "Authorization: Bearer "+token, "Content-Type: application/json")
		r.Body = io.NopCloser(strings.NewReader(`{"login":true}`))
		w := serve(g.Tickets(), r)
		var made contracts.TicketAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || made.ExpiresAt != timestamp(c.now.Add(10*time.Minute)) {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		return made.Ticket
	}
	first := text()
	if _, err := g.Authorize(request("GET", "/api/headless/sessions?ticket="+first)); err == nil {
		t.Error("it admits a request")
	}
	enter := func(ticket string) int { return serve(g.Login(), request("GET", "/login?ticket="+ticket)).Code }
	c.now = c.now.Add(10*time.Minute - 1)
	if first, again := enter(first), enter(first); first != 303 || again != 401 {
		t.Errorf("got %d and %d, want one login", first, again)
	}
	late, path := text(), g.LoginPath()
	c.now = c.now.Add(10 * time.Minute)
	if got := enter(late); got != 401 {
		t.Errorf("late: got %d, want 401", got)
	}
	if w := serve(g.Login(), request("GET", path)); w.Code != 401 {
		t.Errorf("late path: got %d, want 401", w.Code)
	}
	if w := serve(g.Login(), request("GET", g.LoginPath())); w.Code != 303 {
		t.Errorf("path: got %d, want 303", w.Code)
	}
}

func TestCookieIsForTLSOnlyWhereThereIsTLS(t *testing.T) {
	for _, tt := range []struct {
		name        string
		behind, tls bool
		want        bool
	}{{"plain", false, false, false}, {"TLS", false, true, true}, {"TLS of a proxy", true, false, true}} {
		g := newAuthenticator(t, Options{BehindTLS: tt.behind})
		r := request("GET", "/login?ticket="+mint(t, g, "", "", ""), "X-Forwarded-Proto: https") // anybody can say so
		if tt.tls {
			r.TLS = &tls.ConnectionState{}
		}
		if got := strings.Contains(serve(g.Login(), r).Header().Get("Set-Cookie"), "; Secure"); got != tt.want {
			t.Errorf("%s: got Secure %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestLoginLeadsNowhereElse(t *testing.T) {
	g := newAuthenticator(t, Options{})
	for _, tt := range []struct {
		next string // as the query has it, after decoding
		ok   bool
	}{
		{"", true}, {"/", true}, {"/a/b?c=d&e=%2F%2Fx#f", true}, {"/a%20b/%C3%A9", true}, {"/a//b", true}, {"/?next=https://evil.example", true}, {"/@evil.example", true},
		{"//evil.example", false}, {"///evil.example", false}, {`/\evil.example`, false}, {`\\evil.example`, false}, {`\/evil.example`, false},
		{"https://evil.example", false}, {"https:evil.example", false}, {"javascript:alert(1)", false}, {"data:text/html,x", false},
		{"evil.example", false}, {"./x", false}, {"../x", false}, {"?x", false}, {"#x", false}, {" //evil.example", false}, {" /x", false},
		{"/\t/evil.example", false}, {"\t//evil.example", false}, {"/\n/evil.example", false}, {"/\r\nSet-Cookie: a=b", false}, {"/\x00/evil.example", false},
		{"/%09/evil.example", false}, {"/%5cevil.example", false}, {"/%5Cevil.example", false}, {"/%2fevil.example", false}, {"/%2F%2Fevil.example", false}, {"/%0d%0aSet-Cookie:a=b", false},
		{"/a\\b", false}, {"/\u2044/evil.example", false}, {"/\uff0fevil.example", false}, {"/\x7f", false}, {"/%zz", false}, {"http://localhost:8787/", false},
		{"//localhost:8787/", false}, {"/" + strings.Repeat("x", maxNext), false},
	} {
		ticket := mint(t, g, "", "", "")
		w := serve(g.Login(), request("GET", "/login?ticket="+ticket+"&next="+url.QueryEscape(tt.next)))
		want := tt.next
		if want == "" {
			want = "/"
		}
		if tt.ok && (w.Code != 303 || w.Header().Get("Location") != want) {
			t.Errorf("%q: got %d to %q, want 303", tt.next, w.Code, w.Header().Get("Location"))
		}
		if tt.ok {
			continue
		}
		if w.Code != 400 || w.Header().Get("Location") != "" || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%q: got %d to %q, want 400", tt.next, w.Code, w.Header().Get("Location"))
		}
		if w := serve(g.Login(), request("GET", "/login?ticket="+ticket)); w.Code != 303 {
			t.Errorf("%q: the ticket was used up: got %d", tt.next, w.Code)
		}
	}
}

// TestADeadLoginLinkLeadsToThePage checks what a person sees who opens a link a second time.
func TestADeadLoginLinkLeadsToThePage(t *testing.T) {
	const html = "Accept: text/html,application/xhtml+xml"
	g := newAuthenticator(t, Options{Page: true})
	cookie := login(t, g)
	for _, tt := range []struct {
		name, target string
		headers      []string
		code         int
		location     string
	}{
		{"wrong ticket", "/login?ticket=wrong&next=/x", []string{html}, 303, "/#login=expired"},
		{"no ticket", "/login", []string{html}, 303, "/#login=expired"},
		{"logged in already", "/login?ticket=wrong&next=/x", []string{html, cookie}, 303, "/x"},
		{"a cookie that is not valid", "/login?ticket=wrong", []string{html, "Cookie: " + testCookie + "=wrong"}, 303, "/#login=expired"},
		{"a program", "/login?ticket=wrong&next=/x", nil, 401, ""},
		{"another place", "/login?ticket=wrong&next=https://evil.example/", []string{html, cookie}, 400, ""},
	} {
		w := serve(g.Login(), request("GET", tt.target, tt.headers...))
		if w.Code != tt.code || w.Header().Get("Location") != tt.location || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%s: got %d %v, want %d to %q", tt.name, w.Code, w.Header(), tt.code, tt.location)
		}
	}
	g = newAuthenticator(t, Options{})
	if w := serve(g.Login(), request("GET", "/login?ticket=wrong", html)); w.Code != 401 {
		t.Errorf("without a page: got %d, want 401", w.Code)
	}
}

func TestLoginIsRefused(t *testing.T) {
	g := newAuthenticator(t, Options{Origins: []string{"https://app.example"}})
	used := mint(t, g, "", "", "")
	serve(g.Login(), request("GET", "/login?ticket="+used))
	for _, tt := range []struct {
		name, method, target string
		headers              []string
		want                 int
	}{
		{"no ticket", "GET", "/login", nil, 401},
		{"used ticket", "GET", "/login?ticket=" + used, nil, 401},
		{"used ticket, with the key", "GET", "/login?ticket=" + used, []string{bearer}, 401},
		{"the key as a ticket", "GET", "/login?ticket=" + token, nil, 401},
		{"two tickets", "GET", "/login?ticket=a&ticket=b", nil, 400},
		{"two ways to go", "GET", "/login?ticket=a&next=/&next=/x", nil, 400},
		{"broken query", "GET", "/login?ticket=%zz", nil, 400},
		{"preview", "HEAD", "/login?ticket=" + mint(t, g, "", "", ""), nil, 405},
		{"write", "POST", "/login?ticket=" + mint(t, g, "", "", ""), nil, 405},
		{"rebinding", "GET", "/login?ticket=" + mint(t, g, "", "", ""), []string{"Host: evil.example"}, 403},
		{"strange page", "GET", "/login?ticket=" + mint(t, g, "", "", ""), []string{"Origin: https://evil.example"}, 403},
		{"ticket of another origin", "GET", "/login?ticket=" + mint(t, g, "", "", "https://app.example"), nil, 403},
		{"ticket of another origin, from a page of ours", "GET", "/login?ticket=" + mint(t, g, "", "", "https://app.example"), []string{"Sec-Fetch-Site: same-origin"}, 403},
		{"ticket of a page of ours, from elsewhere", "GET", "/login?ticket=" + mint(t, g, "", "", "http://localhost:8787"), []string{"Sec-Fetch-Site: cross-site"}, 403},
	} {
		w := serve(g.Login(), request(tt.method, tt.target, tt.headers...))
		if w.Code != tt.want || w.Header().Get("Set-Cookie") != "" || w.Header().Get("Location") != "" {
			t.Errorf("%s: got %d %v, want %d and no cookie", tt.name, w.Code, w.Header(), tt.want)
		}
	}
	if w := serve(g.Login(), request("GET", "/login?ticket="+mint(t, g, "", "", "http://localhost:8787"), "Sec-Fetch-Site: same-origin")); w.Code != 303 {
		t.Errorf("a page of ours with its own ticket: got %d, want 303", w.Code)
	}
}

// Tickets that a page got are bound to its origin, which browsers do not send
// when it reads from its own server.
func TestPageUsesItsTicketForAnEventStream(t *testing.T) {
	g := newAuthenticator(t, Options{})
	const events = "/api/headless/sessions/sess_a/events?ticket="
	for site, ok := range map[string]bool{"same-origin": true, "same-site": false, "none": false} {
		text := mint(t, g, "", "", "http://localhost:8787")
		if _, err := g.Authorize(request("GET", events+text, "Accept: text/event-stream", "Sec-Fetch-Site: "+site)); (err == nil) != ok {
			t.Errorf("%s: got %v, want admission %v", site, err, ok)
		}
	}
}

func TestCookieIsForOurOwnPages(t *testing.T) {
	g := newAuthenticator(t, Options{Origins: []string{"http://localhost:3000"}})
	cookie := login(t, g)
	const (
		state  = "/api/headless/sessions/sess_a"
		events = state + "/events"
		stream = "Accept: text/event-stream"
		same   = "Sec-Fetch-Site: same-origin"
		listed = "Origin: http://localhost:3000"
	)
	for _, tt := range []struct {
		name, method, target string
		headers              []string
		ok                   bool
	}{
		{"reading", "GET", state, nil, true},
		{"reading, typed", "GET", state, []string{"Sec-Fetch-Site: none"}, true},
		{"writing", "POST", state, []string{sameOne, same}, true},
		{"writing, older browser", "POST", state, []string{sameOne}, true},
		{"socket", "GET", socket, []string{upgrade, sameOne}, true},
		{"stream", "GET", events, []string{stream, same}, true},
		{"behind a proxy that changes the host", "POST", state, []string{listed, same}, true},

		{"writing of nobody", "POST", state, nil, false},
		{"deleting of nobody", "DELETE", state, nil, false},
		{"writing across sites", "POST", state, []string{"Sec-Fetch-Site: cross-site"}, false},
		{"writing of a neighbor", "POST", state, []string{"Sec-Fetch-Site: same-site"}, false},
		{"writing of a listed neighbor", "POST", state, []string{listed, "Sec-Fetch-Site: same-site"}, false},
		{"writing of a sandbox", "POST", state, []string{"Origin: null"}, false},
		{"writing of a stranger", "POST", state, []string{"Origin: https://evil.example"}, false},
		{"socket of nobody", "GET", socket, []string{upgrade}, false},
		{"socket of a listed neighbor", "GET", socket, []string{upgrade, listed}, false},
		{"socket of a stranger", "GET", socket, []string{upgrade, "Origin: https://evil.example"}, false},
		{"socket of a neighbor", "GET", socket, []string{upgrade, "Sec-Fetch-Site: same-site"}, false},
		{"stream of nobody", "GET", events, []string{stream}, false},
		{"stream of nobody that does not say so", "GET", events, nil, false},
		{"stream of a neighbor", "GET", events, []string{stream, "Sec-Fetch-Site: same-site"}, false},
		{"stream of a page elsewhere", "GET", state, []string{"Accept: TEXT/Event-Stream"}, false},
		{"rebinding", "GET", state, []string{"Host: evil.example"}, false},
	} {
		p, err := g.Authorize(request(tt.method, tt.target, append(tt.headers, cookie)...))
		if (err == nil) != tt.ok || tt.ok && p != g.owner {
			t.Errorf("%s: got %+v, %v, want admission %v", tt.name, p, err, tt.ok)
		}
	}
}

func TestCookieIsNoCredentialElsewhere(t *testing.T) {
	g := newAuthenticator(t, Options{Origins: []string{"http://localhost:3000"}})
	cookie := login(t, g)
	_, secret, _ := strings.Cut(cookie, "=")
	for name, headers := range map[string][]string{
		"bearer":      {"Authorization: Bearer " + secret},
		"key":         {"X-Maestro-Api-Key: " + secret},
		"other name":  {"Cookie: maestro_session2=" + secret},
		"wrong":       {"Cookie: maestro_session_8787=" + strings.Repeat("A", 43)},
		"empty":       {"Cookie: maestro_session_8787="},
		"the key":     {"Cookie: maestro_session_8787=" + token},
		"two":         {cookie, "Cookie: maestro_session_8787=x"},
		"two in one":  {"Cookie: maestro_session_8787=x; maestro_session_8787=" + secret},
		"wrong key":   {cookie, "Authorization: Bearer wrong"},
		"huge cookie": {"Cookie: maestro_session_8787=" + strings.Repeat("x", 16<<10)},
	} {
		if p, err := g.Authorize(request("GET", "/", headers...)); err == nil {
			t.Errorf("%s: got %+v, want a refusal", name, p)
		}
	}
	// Browsers add cookies to what has another credential.
	for name, headers := range map[string][]string{
		"stale cookie":                     {"Cookie: maestro_session_8787=x"},
		"cookies that contradict":          {cookie, "Cookie: maestro_session_8787=x"},
		"cookie that it may not use":       {cookie},
		"cookie that means nothing to us":  {"Cookie: maestro_session"},
		"cookie of another server of ours": {"Cookie: maestro_session_8787=" + strings.Repeat("B", 43)},
	} {
		listed := "http://localhost:3000"
		r := request("GET", socket+"?ticket="+mint(t, g, "sess_a", "", listed), append(headers, upgrade, "Origin: "+listed)...)
		if p, err := g.Authorize(r); err != nil || p.SessionID != "sess_a" {
			t.Errorf("%s beside a ticket: got %+v, %v, want the ticket's", name, p, err)
		}
	}
}

func TestCookieExpires(t *testing.T) {
	c := &clock{time.Now()}
	g := newAuthenticator(t, Options{Now: c.Now})
	cookie := login(t, g)
	for _, tt := range []struct {
		after time.Duration
		ok    bool
	}{{12*time.Hour - 1, true}, {1, false}} {
		c.now = c.now.Add(tt.after)
		if _, err := g.Authorize(request("GET", "/", cookie)); (err == nil) != tt.ok {
			t.Errorf("got %v, want admission %v", err, tt.ok)
		}
	}
	if len(g.cookies.byKey) != 0 || g.cookies.order.Len() != 0 {
		t.Error("an expired cookie is kept")
	}
}

func TestCookiesAreBounded(t *testing.T) {
	g := newAuthenticator(t, Options{})
	first, second := login(t, g), login(t, g)
	for range maxCookies - 1 {
		login(t, g)
	}
	if got := len(g.cookies.byKey); got != maxCookies || g.cookies.order.Len() != maxCookies {
		t.Errorf("got %d cookies, want %d", got, maxCookies)
	}
	for cookie, ok := range map[string]bool{first: false, second: true} {
		if _, err := g.Authorize(request("GET", "/", cookie)); (err == nil) != ok {
			t.Errorf("got %v, want admission %v", err, ok)
		}
	}
}

// Eve logs in again and again. The other users stay logged in.
func TestOnePrincipalDoesNotUseUpCookiesAndTickets(t *testing.T) {
	g := newAuthenticator(t, Options{})
	owner := login(t, g)
	eve := contracts.Principal{ID: "eve", Scope: "one"}
	mint := func(p contracts.Principal) string {
		text, _, err := g.Mint(p, "", "", "", false)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	other, first := mint(contracts.Principal{ID: "bob", Scope: "two"}), mint(eve)
	for range maxTickets {
		g.cookies.add(eve, "", time.Now())
		mint(eve)
	}
	if got := len(g.cookies.byKey); got != maxOfOne+1 || g.cookies.order.Len() != got {
		t.Errorf("got %d cookies, want %d and that of the owner", got, maxOfOne)
	}
	if _, err := g.Authorize(request("GET", "/", owner)); err != nil {
		t.Errorf("the owner was logged out: %v", err)
	}
	if _, err := g.Authorize(request("GET", "/?ticket="+other)); err != nil {
		t.Errorf("the ticket of another principal: %v", err)
	}
	if _, err := g.Authorize(request("GET", "/?ticket="+first)); err == nil {
		t.Error("the oldest ticket of eve is still valid")
	}
}

func TestNewLoginEndsTheOldCookie(t *testing.T) {
	g := newAuthenticator(t, Options{})
	old := login(t, g)
	w := serve(g.Login(), request("GET", "/login?ticket="+mint(t, g, "", "", ""), old))
	if fresh := "Cookie: " + cookieOf(t, w); fresh == old {
		t.Error("got the same cookie again, want a fresh one")
	}
	if _, err := g.Authorize(request("GET", "/", old)); err == nil {
		t.Error("the old cookie still lets in")
	}
}

func TestLogoutEndsTheCookie(t *testing.T) {
	g := newAuthenticator(t, Options{})
	cookie := login(t, g)
	for _, tt := range []struct {
		name, method string
		headers      []string
		want         int
	}{
		{"reading", "GET", []string{cookie}, 405},
		{"across sites", "POST", []string{cookie, "Sec-Fetch-Site: cross-site"}, 403},
		{"a stranger", "POST", []string{cookie, "Origin: https://evil.example"}, 403},
		{"nobody knows who", "POST", []string{cookie}, 403},
		{"rebinding", "POST", []string{cookie, "Host: evil.example"}, 403},
		{"without a cookie", "POST", nil, 200},
	} {
		if w := serve(g.Logout(), request(tt.method, "/logout", tt.headers...)); w.Code != tt.want {
			t.Errorf("%s: got %d %s, want %d", tt.name, w.Code, w.Body, tt.want)
		}
		if _, err := g.Authorize(request("GET", "/", cookie)); err != nil {
			t.Fatalf("%s: the cookie ended: %v", tt.name, err)
		}
	}
	w := serve(g.Logout(), request("POST", "/logout", cookie, sameOne))
	if got, want := w.Header().Get("Set-Cookie"), "maestro_session_8787=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"; w.Code != 200 || got != want {
		t.Errorf("got %d %q, want 200 %q", w.Code, got, want)
	}
	if _, err := g.Authorize(request("GET", "/", cookie)); !errors.Is(err, &contracts.Error{Code: contracts.CodeUnauthenticated}) {
		t.Errorf("afterwards: got %v, want unauthenticated", err)
	}
}

func TestOffNeedsNoLogin(t *testing.T) {
	g := newAuthenticator(t, Options{Off: true})
	if w := serve(g.Login(), request("GET", "/login?next=/x")); w.Code != 303 || w.Header().Get("Location") != "/x" || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("got %d %v, want 303 to /x without a cookie", w.Code, w.Header())
	}
	if w := serve(g.Login(), request("GET", "/login?next=//evil.example")); w.Code != 400 {
		t.Errorf("elsewhere: got %d, want 400", w.Code)
	}
}

func TestCookiesOutliveTheProcess(t *testing.T) {
	c := &clock{time.Now()}
	path := filepath.Join(t.TempDir(), "state", "cookies.json")
	opts := Options{Token: token, CookieFile: path, ShareFile: filepath.Join(filepath.Dir(path), "shares.json"), Now: c.Now}
	g := newAuthenticator(t, opts)
	ticket := func(p contracts.Principal, role contracts.Role) string {
		text, _, err := g.Mint(p, "sess_a", role, "", false)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	enter := func(ticket string) string {
		return "Cookie: " + cookieOf(t, serve(g.Login(), request("GET", "/login?ticket="+ticket)))
	}
	one := &share{SessionID: "sess_a", Role: contracts.RoleApprover, CreatedAt: c.now, ExpiresAt: c.now.Add(time.Hour)}
	if _, err := g.shares.mint(one, c.now); err != nil {
		t.Fatal(err)
	}
	viewer, guest, out := enter(ticket(g.owner, contracts.RoleViewer)), enter(ticket(one.bearer(), "")), login(t, g)
	if w := serve(g.Logout(), request("POST", "/logout", out, "Origin: http://localhost:8787")); w.Code != 200 {
		t.Fatalf("log out: got %d %s", w.Code, w.Body)
	}
	restart := func(opts Options) {
		var err error
		if g, err = New(opts); err != nil {
			t.Fatal(err)
		}
	}
	want := func(cookie string, wanted contracts.Principal) {
		t.Helper()
		if p, err := g.Authorize(request("GET", "/", cookie)); p != wanted || (err == nil) != (wanted.ID != "") {
			t.Errorf("got %+v, %v, want %+v", p, err, wanted)
		}
	}
	restart(opts)
	want(viewer, contracts.Principal{ID: g.owner.ID, Name: "owner", Role: contracts.RoleViewer, SessionID: "sess_a"})
	bearer := one.bearer()
	bearer.Expires = bearer.Expires.UTC()
	want(guest, bearer)
	want(out, contracts.Principal{})
	c.now = c.now.Add(time.Hour)
	want(guest, contracts.Principal{})
	c.now = c.now.Add(11 * time.Hour)
	restart(opts)
	want(viewer, contracts.Principal{})

	viewer = enter(ticket(g.owner, contracts.RoleViewer))
	other := opts
	other.Token = strings.Repeat("o", 43)
	restart(other)
	want(viewer, contracts.Principal{}) // another token ends all cookies

	for name, text := range map[string]string{
		"malformed": `{"version":1,`, "newer": `{"version":2}`,
		"hash": `{"version":1,"credentials":"` + g.credentials(other) + `","cookies":[{"sha256":"` + strings.Repeat("ab", 40) + `","holder":{"ID":"a"}}]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(other); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want a refusal that names the file", name, err)
		}
	}
}

func TestCookieThatCannotBeKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g := newAuthenticator(t, Options{CookieFile: filepath.Join(t.TempDir(), "cookies.json")})
	g.cookies.path = filepath.Join(file, "cookies.json") // the folder cannot be made
	cookie := login(t, g)
	if _, err := g.Authorize(request("GET", "/", cookie)); err != nil {
		t.Errorf("got %v, want that the running server knows the cookie", err)
	}
	if w := serve(g.Logout(), request("POST", "/logout", cookie, "Origin: http://localhost:8787")); w.Code == 200 {
		t.Error("a log-out that a restart takes back got 200")
	}
}
