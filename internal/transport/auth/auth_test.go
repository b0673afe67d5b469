package auth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const token = "correct-horse-battery-staple"

func newAuthenticator(t *testing.T, opts Options) *Authenticator {
	t.Helper()
	if !opts.Off {
		opts.Token = token
	}
	g, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// request builds a request as the server sees it: it arrived at 192.0.2.7. Each
// header is "Name: value"; Host is one of them.
func request(method, target string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "localhost:8787"
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	at := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 8787}
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, at))
}

const (
	socket  = "/api/headless/ws"
	bearer  = "Authorization: Bearer " + token
	upgrade = "Upgrade: websocket"
	sameOne = "Origin: http://localhost:8787"
)

func offer(key string) string {
	return "Sec-WebSocket-Protocol: " + contracts.Subprotocol + ", " + bearerProtocol + base64.RawURLEncoding.EncodeToString([]byte(key))
}

func TestAttacksAreRefused(t *testing.T) {
	const (
		denied = contracts.CodeAccessDenied
		unauth = contracts.CodeUnauthenticated
		bad    = contracts.CodeBadRequest
	)
	attacks := []struct {
		name    string
		method  string
		target  string
		headers []string
		want    contracts.Code
	}{
		// Host: a name that was made to resolve here.
		{"rebinding", "GET", socket, []string{"Host: evil.example:8787", bearer}, denied},
		{"rebinding with the page's own origin", "GET", socket, []string{"Host: evil.example", "Origin: http://evil.example", bearer}, denied},
		{"loopback address as a label", "GET", socket, []string{"Host: 127.0.0.1.evil.example", bearer}, denied},
		{"localhost as a label", "GET", socket, []string{"Host: localhost.evil.example", bearer}, denied},
		{"name under localhost", "GET", socket, []string{"Host: evil.localhost", bearer}, denied},
		{"unspecified address", "GET", socket, []string{"Host: 0.0.0.0:8787", bearer}, denied},
		{"unspecified IPv6 address", "GET", socket, []string{"Host: [::]:8787", bearer}, denied},
		{"loopback in decimal", "GET", socket, []string{"Host: 2130706433", bearer}, denied},
		{"loopback in hexadecimal", "GET", socket, []string{"Host: 0x7f000001", bearer}, denied},
		{"short loopback", "GET", socket, []string{"Host: 127.1", bearer}, denied},
		{"somebody else's address", "GET", socket, []string{"Host: 198.51.100.9:8787", bearer}, denied},
		{"no host", "GET", socket, []string{"Host: ", bearer}, denied},
		{"port alone", "GET", socket, []string{"Host: :8787", bearer}, denied},
		{"two ports", "GET", socket, []string{"Host: localhost:8787:8787", bearer}, denied},
		{"port that is none", "GET", socket, []string{"Host: localhost:evil", bearer}, denied},
		{"user in host", "GET", socket, []string{"Host: localhost@evil.example", bearer}, denied},
		{"open bracket", "GET", socket, []string{"Host: [::1", bearer}, denied},
		{"forwarded host is not believed", "GET", socket, []string{"Host: evil.example", "X-Forwarded-Host: localhost", bearer}, denied},
		{"listed name with another port", "GET", socket, []string{"Host: runner.example:1", bearer}, denied},

		// Origin: the page of a stranger.
		{"strange page", "GET", socket, []string{"Origin: https://evil.example", bearer}, denied},
		{"strange page without a key", "GET", socket, []string{"Origin: https://evil.example"}, denied},
		{"another port of this machine", "GET", socket, []string{"Origin: http://localhost:3000", bearer}, denied},
		{"another name of this machine", "GET", socket, []string{"Origin: http://127.0.0.1:8787", bearer}, denied},
		{"sandboxed page", "GET", socket, []string{"Origin: null", bearer}, denied},
		{"origin with our host as user", "GET", socket, []string{"Origin: http://localhost:8787@evil.example", bearer}, denied},
		{"origin with our host as path", "GET", socket, []string{"Origin: http://evil.example/localhost:8787", bearer}, denied},
		{"origin that begins like ours", "GET", socket, []string{"Origin: http://localhost:87870", bearer}, denied},
		{"origin of another scheme", "GET", socket, []string{"Origin: ftp://localhost:8787", bearer}, denied},
		{"two origins", "GET", socket, []string{sameOne, "Origin: https://evil.example", bearer}, denied},
		{"listed origin over plain HTTP", "GET", socket, []string{"Origin: http://app.example", bearer}, denied},
		{"subdomain of a listed origin", "GET", socket, []string{"Origin: https://evil.app.example", bearer}, denied},
		{"empty origin", "GET", socket, []string{"Origin: ", bearer}, denied},
		{"cross-site write without origin", "POST", "/api/headless/connections", []string{"Sec-Fetch-Site: cross-site", bearer}, denied},
		{"write from another port of this machine", "POST", "/api/headless/connections", []string{"Sec-Fetch-Site: same-site", bearer}, denied},

		// Credentials.
		{"none", "GET", socket, nil, unauth},
		{"empty bearer", "GET", socket, []string{"Authorization: Bearer "}, unauth},
		{"wrong bearer", "GET", socket, []string{"Authorization: Bearer wrong-horse-battery-staple"}, unauth},
		{"beginning of the key", "GET", socket, []string{"Authorization: Bearer " + token[:len(token)-1]}, unauth},
		{"key and more", "GET", socket, []string{bearer + "x"}, unauth},
		{"key in another case", "GET", socket, []string{"Authorization: Bearer " + strings.ToUpper(token)}, unauth},
		{"another scheme", "GET", socket, []string{"Authorization: Basic " + token}, unauth},
		{"huge key", "GET", socket, []string{"Authorization: Bearer " + strings.Repeat("x", maxCredential+1)}, unauth},
		{"two authorizations", "GET", socket, []string{bearer, "Authorization: Bearer x"}, bad},
		{"contradicting spellings", "GET", socket, []string{"X-Maestro-Api-Key: " + token, "X-Composer-Api-Key: x"}, bad},
		{"wrong bearer beside a right key", "GET", socket, []string{"Authorization: Bearer x", "X-Maestro-Api-Key: " + token}, unauth},
		{"key in the query", "GET", socket + "?token=" + token, nil, unauth},
		{"key as a ticket", "GET", socket + "?ticket=" + token, nil, unauth},
		{"key in a cookie", "GET", socket, []string{"Cookie: token=" + token}, unauth},
		{"two tickets", "GET", socket + "?ticket=a&ticket=b", nil, bad},
		{"broken query", "GET", socket + "?ticket=%zz", nil, bad},
		{"ticket in a write", "POST", socket + "?ticket=a", nil, unauth},
		{"wrong subprotocol key", "GET", socket, []string{upgrade, sameOne, offer("wrong")}, unauth},
		{"subprotocol key that is not base64", "GET", socket, []string{upgrade, sameOne, "Sec-WebSocket-Protocol: " + bearerProtocol + "!"}, bad},
		{"empty subprotocol key", "GET", socket, []string{upgrade, sameOne, "Sec-WebSocket-Protocol: " + bearerProtocol}, bad},
		{"two subprotocol keys", "GET", socket, []string{upgrade, sameOne, offer("wrong"), offer(token)}, bad},
		{"subprotocol key without origin", "GET", socket, []string{upgrade, offer(token)}, denied},
		{"subprotocol key from a strange page", "GET", socket, []string{upgrade, "Origin: https://evil.example", offer(token)}, denied},
		{"ticket without origin", "GET", socket + "?ticket=a", []string{upgrade}, denied},
	}
	g := newAuthenticator(t, Options{Hosts: []string{"runner.example:8443"}, Origins: []string{"https://app.example"}})
	for _, tt := range attacks {
		t.Run(tt.name, func(t *testing.T) {
			p, err := g.Authorize(request(tt.method, tt.target, tt.headers...))
			if !errors.Is(err, &contracts.Error{Code: tt.want}) || p != (contracts.Principal{}) {
				t.Fatalf("got %+v, %v, want %s", p, err, tt.want)
			}
			if strings.Contains(err.Error(), token) {
				t.Errorf("the text shows the token: %v", err)
			}
		})
	}
}

func TestFriendsComeIn(t *testing.T) {
	g := newAuthenticator(t, Options{
		Hosts:   []string{"runner.example:8443", "Other.Example"},
		Origins: []string{"https://app.example", "HTTPS://APP2.example:443", "vscode-webview://abc"},
	})
	for name, headers := range map[string][]string{
		"bearer":                    {bearer},
		"bearer in lower case":      {"Authorization: bearer " + token},
		"maestro key":               {"X-Maestro-Api-Key: " + token},
		"composer key":              {"X-Composer-Api-Key: " + token},
		"both spellings":            {"X-Maestro-Api-Key: " + token, "X-Composer-Api-Key: " + token},
		"proxy's own authorization": {"Authorization: Basic eDp5", "X-Maestro-Api-Key: " + token},
		"header without origin":     {upgrade, bearer},
		"subprotocol":               {upgrade, sameOne, offer(token)},
		"padded subprotocol":        {upgrade, sameOne, "Sec-WebSocket-Protocol: " + bearerProtocol + base64.URLEncoding.EncodeToString([]byte(token))},
		"IPv4 loopback":             {"Host: 127.0.0.1:9000", bearer},
		"another IPv4 loopback":     {"Host: 127.3.2.1", bearer},
		"IPv6 loopback":             {"Host: [::1]:8787", "Origin: http://[::1]:8787", bearer},
		"mapped loopback":           {"Host: [::ffff:127.0.0.1]", bearer},
		"full name":                 {"Host: LOCALHOST.:8787", bearer},
		"address it arrived at":     {"Host: 192.0.2.7:8787", "Origin: http://192.0.2.7:8787", bearer},
		"listed name":               {"Host: other.example:1234", bearer},
		"listed name and port":      {"Host: runner.example:8443", bearer},
		"behind a TLS proxy":        {"Host: other.example", "Origin: https://other.example", bearer},
		"default port":              {"Host: localhost:80", "Origin: http://localhost", bearer},
		"listed origin":             {"Origin: https://app.example", bearer},
		"listed origin, canonical":  {"Origin: https://app2.example", bearer},
		"editor":                    {"Origin: vscode-webview://abc", bearer},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := g.Authorize(request("GET", socket, headers...))
			if err != nil || p != g.owner {
				t.Fatalf("got %+v, %v, want %+v", p, err, g.owner)
			}
		})
	}
}

func TestPrincipalIsTheHashOfTheKey(t *testing.T) {
	// printf %s maestro-maestro-maestro | sha256sum
	g, err := New(Options{Token: "maestro-maestro-maestro"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := g.Authorize(request("GET", "/", "Authorization: Bearer maestro-maestro-maestro"))
	if want := (contracts.Principal{ID: "key_6250c477cd8cd938", Name: "owner"}); err != nil || p != want {
		t.Fatalf("got %+v, %v, want %+v", p, err, want)
	}
}

func TestOffLetsInWithoutCredentialButNotFromAnywhere(t *testing.T) {
	g := newAuthenticator(t, Options{Off: true})
	for _, headers := range [][]string{nil, {sameOne}, {upgrade}, {bearer}} {
		if p, err := g.Authorize(request("GET", socket, headers...)); err != nil || p != (contracts.Principal{ID: Anonymous, Name: "anonymous"}) {
			t.Errorf("%v: got %+v, %v, want %s", headers, p, err, Anonymous)
		}
	}
	for _, headers := range [][]string{{"Host: evil.example"}, {"Origin: https://evil.example"}, {"Origin: null"}} {
		if _, err := g.Authorize(request("GET", socket, headers...)); !errors.Is(err, &contracts.Error{Code: contracts.CodeAccessDenied}) {
			t.Errorf("%v: got %v, want access_denied", headers, err)
		}
	}
	if _, err := g.Authorize(request("POST", "/", "Sec-Fetch-Site: cross-site")); !errors.Is(err, &contracts.Error{Code: contracts.CodeAccessDenied}) {
		t.Errorf("cross-site write: got %v, want access_denied", err)
	}
}

func TestMisconfiguredGateIsRefused(t *testing.T) {
	for name, opts := range map[string]Options{
		"nothing":        {},
		"both":           {Token: token, Off: true},
		"short token":    {Token: "short"},
		"token in words": {Token: "several words are not a token"},
		"star":           {Token: token, Origins: []string{"*"}},
		"null":           {Token: token, Origins: []string{"null"}},
		"origin as URL":  {Token: token, Origins: []string{"https://app.example/"}},
	} {
		if _, err := New(opts); err == nil {
			t.Errorf("%s: got an authenticator, want an error", name)
		}
	}
}

func TestWrapChecksTheHostOfEveryRoute(t *testing.T) {
	reached := 0
	h := newAuthenticator(t, Options{}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	for host, want := range map[string]int{"evil.example": 403, "localhost:8787": 200} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request("GET", "/healthz", "Host: "+host))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", host, w.Code, want)
		}
	}
	if reached != 1 {
		t.Errorf("got %d requests through, want 1", reached)
	}
}

// A clock that tests move.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func TestTicketLetsInOnce(t *testing.T) {
	g := newAuthenticator(t, Options{})
	minter := contracts.Principal{ID: "key_0"}
	text, _, err := g.Mint(minter, "sess_a", contracts.RoleViewer, "http://localhost:8787", false)
	if err != nil {
		t.Fatal(err)
	}
	p, err := g.Authorize(request("GET", socket+"?ticket="+text, upgrade, sameOne))
	if want := (contracts.Principal{ID: "key_0", Role: contracts.RoleViewer, SessionID: "sess_a"}); err != nil || p != want {
		t.Fatalf("got %+v, %v, want %+v", p, err, want)
	}
	if _, err := g.Authorize(request("GET", socket+"?ticket="+text, upgrade, sameOne)); !errors.Is(err, &contracts.Error{Code: contracts.CodeUnauthenticated}) {
		t.Fatalf("again: got %v, want unauthenticated", err)
	}
}

func TestTicketIsBoundToItsOrigin(t *testing.T) {
	g := newAuthenticator(t, Options{Origins: []string{"https://app.example"}})
	mint := func(origin string) string {
		text, _, err := g.Mint(contracts.Principal{ID: "key_0"}, "", "", origin, false)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := mint("https://app.example")
	if _, err := g.Authorize(request("GET", socket+"?ticket="+text, upgrade, sameOne)); !errors.Is(err, &contracts.Error{Code: contracts.CodeAccessDenied}) {
		t.Errorf("other origin: got %v, want access_denied", err)
	}
	if _, err := g.Authorize(request("GET", socket+"?ticket="+text, upgrade, "Origin: https://app.example")); !errors.Is(err, &contracts.Error{Code: contracts.CodeUnauthenticated}) {
		t.Errorf("after a misuse: got %v, want unauthenticated", err)
	}
	if _, err := g.Authorize(request("GET", "/?ticket="+mint(""))); err != nil {
		t.Errorf("open ticket on a page load: got %v", err)
	}
}

func TestTicketExpires(t *testing.T) {
	c := &clock{time.Now()}
	g := newAuthenticator(t, Options{Now: c.Now})
	for _, tt := range []struct {
		after time.Duration
		ok    bool
	}{{ticketTTL - time.Nanosecond, true}, {ticketTTL, false}} {
		text, expires, err := g.Mint(contracts.Principal{ID: "key_0"}, "", "", "", false)
		if err != nil || !expires.Equal(c.now.Add(30*time.Second)) {
			t.Fatalf("got %v, %v, want 30 s", expires.Sub(c.now), err)
		}
		c.now = c.now.Add(tt.after)
		if _, err := g.Authorize(request("GET", "/?ticket="+text)); (err == nil) != tt.ok {
			t.Errorf("after %v: got %v, want admission %v", tt.after, err, tt.ok)
		}
	}
}

func TestTicketsAreBounded(t *testing.T) {
	c := &clock{time.Now()}
	g := newAuthenticator(t, Options{Now: c.Now})
	mint := func() string {
		text, _, err := g.Mint(contracts.Principal{ID: "key_0"}, "", "", "", false)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first, second := mint(), mint()
	for range maxTickets - 1 {
		mint()
	}
	if got := len(g.tickets.byKey); got != maxTickets || g.tickets.order.Len() != maxTickets {
		t.Errorf("got %d tickets, want %d", got, maxTickets)
	}
	if _, err := g.Authorize(request("GET", "/?ticket="+first)); err == nil {
		t.Error("the oldest ticket is still valid")
	}
	if _, err := g.Authorize(request("GET", "/?ticket="+second)); err != nil {
		t.Errorf("the second oldest: %v", err)
	}
	c.now = c.now.Add(ticketTTL)
	mint()
	if got := len(g.tickets.byKey); got != 1 || g.tickets.order.Len() != 1 {
		t.Errorf("after all have expired: got %d tickets, want 1", got)
	}
}

func TestTicketGrantsNoMoreThanItsHolderHas(t *testing.T) {
	g := newAuthenticator(t, Options{})
	viewer := contracts.Principal{ID: "v", Role: contracts.RoleViewer, SessionID: "sess_a"}
	for _, tt := range []struct {
		session string
		role    contracts.Role
		ok      bool
	}{
		{"", "", true}, {"sess_a", contracts.RoleViewer, true},
		{"sess_b", "", false}, {"", contracts.RoleController, false},
	} {
		text, _, err := g.Mint(viewer, tt.session, tt.role, "", false)
		if (err == nil) != tt.ok {
			t.Errorf("%+v: got %v, want admission %v", tt, err, tt.ok)
		}
		if err != nil {
			continue
		}
		if p, err := g.Authorize(request("GET", "/?ticket="+text)); err != nil || p != viewer {
			t.Errorf("%+v: got %+v, %v, want %+v", tt, p, err, viewer)
		}
	}
}

func TestWhoAmISaysWhatTheCredentialAllows(t *testing.T) {
	g := newAuthenticator(t, Options{Version: "v1", WebPush: true})
	confined, _, err := g.Mint(g.owner, "sess_a", contracts.RoleApprover, "", false)
	if err != nil {
		t.Fatal(err)
	}
	expiring := g.owner
	expiring.Name, expiring.Expires = "ann", time.Now().Add(time.Hour)
	passing, _, err := g.Mint(expiring, "", "", "", false)
	if err != nil {
		t.Fatal(err)
	}
	const server = `,"version":"v1","web_push":true}`
	owner := `{"principal":"` + g.owner.ID + `","name":"`
	for _, tt := range []struct {
		what, url string
		headers   []string
		status    int
		want      string
	}{
		{"the token", "/", []string{bearer}, 200, owner + `owner","role":"controller"` + server},
		{"a ticket for a session", "/?ticket=" + confined, nil, 200, owner + `owner","role":"approver","session_id":"sess_a"` + server},
		{"a credential that ends", "/?ticket=" + passing, nil, 200, owner + `ann","role":"controller","expires_at":"` + timestamp(expiring.Expires) + `"` + server},
		{"nothing", "/", nil, 401, `{"error":`},
	} {
		w := serve(g.WhoAmI(), request("GET", tt.url, tt.headers...))
		if got := w.Body.String(); w.Code != tt.status || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %d %s, want %d %s", tt.what, w.Code, got, tt.status, tt.want)
		}
	}
}

func TestTicketsAreIssuedOverHTTP(t *testing.T) {
	const jsonType = "Content-Type: application/json"
	const path = "/api/headless/ws-tickets"
	for _, tt := range []struct {
		name    string
		method  string
		body    string
		headers []string
		want    int
	}{
		{"empty body", "POST", "", []string{bearer}, 200},
		{"empty object", "POST", "{}", []string{bearer, jsonType}, 200},
		{"both members", "POST", `{"sessionId":"sess_a","role":"viewer"}`, []string{bearer, sameOne, jsonType}, 200},
		{"nulls and strangers", "POST", `{"sessionId":null,"Role":7,"more":[1,{}]}`, []string{bearer, "Content-Type: application/json; charset=utf-8"}, 200},
		{"wrong method", "GET", "", []string{bearer}, 405},
		{"no key", "POST", "{}", []string{jsonType}, 401},
		{"cross-site", "POST", "{}", []string{bearer, jsonType, "Sec-Fetch-Site: cross-site"}, 403},
		{"strange page", "POST", "{}", []string{bearer, jsonType, "Origin: https://evil.example"}, 403},
		{"form", "POST", "{}", []string{bearer, "Content-Type: text/plain"}, 400},
		{"no content type", "POST", "{}", []string{bearer}, 400},
		{"not JSON", "POST", "{", []string{bearer, jsonType}, 400},
		{"more than JSON", "POST", "{}{}", []string{bearer, jsonType}, 400},
		{"array", "POST", "[]", []string{bearer, jsonType}, 400},
		{"number", "POST", `{"sessionId":1}`, []string{bearer, jsonType}, 400},
		{"twice", "POST", `{"role":"viewer","role":"controller"}`, []string{bearer, jsonType}, 400},
		{"not UTF-8", "POST", "{\"x\":\"\xff\"}", []string{bearer, jsonType}, 400},
		{"unknown role", "POST", `{"role":"owner"}`, []string{bearer, jsonType}, 400},
		{"malformed session", "POST", `{"sessionId":"../x"}`, []string{bearer, jsonType}, 400},
		{"long session", "POST", `{"sessionId":"` + strings.Repeat("x", 129) + `"}`, []string{bearer, jsonType}, 400},
		{"large body", "POST", `{"more":"` + strings.Repeat("x", maxRequestBody) + `"}`, []string{bearer, jsonType}, 413},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newAuthenticator(t, Options{})
			r := request(tt.method, path, tt.headers...)
			r.Body = http.NoBody
			if tt.body != "" {
				r.Body = httptest.NewRequest("POST", path, strings.NewReader(tt.body)).Body
			}
			w := httptest.NewRecorder()
			g.Tickets().ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Fatalf("got %d %s, want %d", w.Code, w.Body, tt.want)
			}
			if w.Header().Get("Cache-Control") != "no-store" {
				t.Error("the answer may be cached")
			}
			if tt.want == 405 && w.Header().Get("Allow") != "OPTIONS, POST" {
				t.Errorf("Allow: got %q, want OPTIONS, POST", w.Header().Get("Allow"))
			}
			if tt.want != 200 {
				return
			}
			var answer struct {
				Ticket    string    `json:"ticket"`
				ExpiresAt time.Time `json:"expires_at"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			if b, err := base64.RawURLEncoding.DecodeString(answer.Ticket); err != nil || len(b) != 32 {
				t.Errorf("got a ticket of %d bytes, %v, want 32", len(b), err)
			}
			if _, err := g.Authorize(request("GET", socket+"?ticket="+answer.Ticket, upgrade, sameOne)); err != nil {
				t.Errorf("using it: %v", err)
			}
		})
	}
}

func TestTicketUsedByManyAtOnceLetsInOne(t *testing.T) {
	g := newAuthenticator(t, Options{})
	text, _, err := g.Mint(contracts.Principal{ID: "key_0"}, "", "", "", false)
	if err != nil {
		t.Fatal(err)
	}
	const users = 16
	outcomes := make(chan error, users)
	for range users {
		go func() {
			_, err := g.Authorize(request("GET", "/?ticket="+text))
			outcomes <- err
		}()
	}
	admitted := 0
	for range users {
		if <-outcomes == nil {
			admitted++
		}
	}
	if admitted != 1 {
		t.Errorf("got %d admissions, want 1", admitted)
	}
}

func FuzzHostAndOrigin(f *testing.F) {
	f.Add("localhost:8787", "http://localhost:8787")
	f.Add("[::1]", "null")
	f.Add("127.0.0.1.", "https://a@b")
	g, err := New(Options{Off: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, host, origin string) {
		r := request("GET", "/")
		r.Host = host
		r.Header["Origin"] = []string{origin}
		if _, err := g.Authorize(r); err != nil {
			return
		}
		name := strings.ToLower(host)
		if h, _, err := net.SplitHostPort(name); err == nil {
			name = h
		}
		name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
		local := name == "localhost" || net.ParseIP(strings.SplitN(name, "%", 2)[0]) != nil
		if !local || !strings.Contains(strings.ToLower(origin), name) {
			t.Fatalf("host %q with origin %q came in", host, origin)
		}
	})
}

// What was registered with a token that was replaced, such as a browser for
// notifications, ends.
func TestOwnerWithAnEarlierTokenIsNotAlive(t *testing.T) {
	all := map[string]*Authenticator{}
	for name, opts := range map[string]Options{
		"earlier": {Token: strings.Repeat("a", 43)}, "now": {Token: strings.Repeat("b", 43)}, "off": {Off: true},
	} {
		g, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = g
	}
	for name, g := range all {
		for of, other := range all {
			if got := g.StillAlive(other.owner); got != (name == of) {
				t.Errorf("%s: got alive %t for the owner of %s", name, got, of)
			}
		}
		if !g.StillAlive(contracts.Principal{}) || !g.StillAlive(contracts.Principal{ID: "user_key_1", Scope: "user_key_1"}) {
			t.Errorf("%s: got others refused", name)
		}
	}
}
