package auth

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

const (
	appOrigin = "https://app.example"
	wanting   = "Access-Control-Request-Method: POST"
)

// corsHeaders returns the names of those of h, in order.
func corsHeaders(h http.Header) (names []string) {
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestPreflights(t *testing.T) {
	reached := 0
	h := newAuthenticator(t, Options{Origins: []string{appOrigin}}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	for _, tt := range []struct {
		name    string
		headers []string
		want    int
		origin  string
	}{
		{"listed", []string{"Origin: " + appOrigin, wanting}, 204, appOrigin},
		{"our own", []string{sameOne, wanting}, 204, "http://localhost:8787"},
		{"listed, with a wrong credential", []string{"Origin: " + appOrigin, wanting, "Authorization: Bearer x"}, 204, appOrigin},
		{"stranger", []string{"Origin: https://evil.example", wanting}, 403, ""},
		{"stranger with the token", []string{"Origin: https://evil.example", wanting, bearer}, 403, ""},
		{"sandbox", []string{"Origin: null", wanting}, 403, ""},
		{"two origins", []string{"Origin: " + appOrigin, "Origin: https://evil.example", wanting}, 403, ""},
		{"beginning of a listed one", []string{"Origin: https://app.example.evil.example", wanting}, 403, ""},
		{"listed one without TLS", []string{"Origin: http://app.example", wanting}, 403, ""},
		{"rebinding", []string{"Host: evil.example", "Origin: http://evil.example", wanting}, 403, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := serve(h, request("OPTIONS", "/api/headless/connections", tt.headers...))
			if w.Code != tt.want || w.Header().Get("Access-Control-Allow-Origin") != tt.origin {
				t.Fatalf("got %d %v, want %d for %q", w.Code, w.Header(), tt.want, tt.origin)
			}
			if tt.want != 204 {
				if got := corsHeaders(w.Header()); len(got) != 0 {
					t.Errorf("got %v, want no CORS headers", got)
				}
				return
			}
			want := []string{"Access-Control-Allow-Headers", "Access-Control-Allow-Methods", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Access-Control-Max-Age"}
			if got := corsHeaders(w.Header()); !slices.Equal(got, want) { // no Allow-Credentials: cookies are for our own pages
				t.Errorf("got %v, want %v", got, want)
			}
			if got := strings.Join(w.Header().Values("Vary"), ", "); !strings.HasPrefix(got, "Origin") {
				t.Errorf("Vary: got %q, want Origin", got)
			}
			if w.Body.Len() != 0 {
				t.Errorf("got a body of %d bytes, want none", w.Body.Len())
			}
		})
	}
	if reached != 0 {
		t.Errorf("got %d preflights through, want none", reached)
	}
}

func TestEveryHeaderOfTheProtocolMayBeSent(t *testing.T) {
	h := newAuthenticator(t, Options{Origins: []string{appOrigin}}).Wrap(http.NotFoundHandler())
	allowed := strings.Split(strings.ToLower(serve(h, request("OPTIONS", "/x", "Origin: "+appOrigin, wanting)).Header().Get("Access-Control-Allow-Headers")), ", ")
	want := []string{
		"authorization", "content-type", "last-event-id", "idempotency-key", "traceparent", "tracestate", "x-csrf-token", "x-xsrf-token",
		"x-maestro-api-key", "x-composer-api-key", "x-maestro-csrf", "x-composer-csrf",
		"x-maestro-headless-role", "x-composer-headless-role", "x-evalops-headless-role",
		"x-maestro-headless-connection-id", "x-composer-headless-connection-id", "x-evalops-headless-connection-id",
		"x-maestro-headless-subscriber-id", "x-composer-headless-subscriber-id", "x-evalops-headless-subscriber-id",
		"x-maestro-headless-subscription-id", "x-composer-headless-subscription-id", "x-evalops-headless-subscription-id",
		"x-maestro-headless-connection-token", "x-maestro-approval-mode", "x-composer-approval-mode", "x-evalops-approval-mode",
	}
	for _, name := range want {
		if !slices.Contains(allowed, name) {
			t.Errorf("got no %s, want it", name)
		}
	}
	if slices.Contains(allowed, "cookie") || slices.Contains(allowed, "*") {
		t.Errorf("got %v, want neither Cookie nor all", allowed)
	}
}

func TestAnswersAreReadByAllowedOriginsOnly(t *testing.T) {
	reached := 0
	h := newAuthenticator(t, Options{Origins: []string{appOrigin}}).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	for _, tt := range []struct {
		name, method string
		headers      []string
		want         int
		origin       string // that may read
	}{
		{"listed", "GET", []string{"Origin: " + appOrigin}, 200, appOrigin},
		{"listed, writing", "POST", []string{"Origin: " + appOrigin, "Sec-Fetch-Site: cross-site"}, 200, appOrigin},
		{"our own", "POST", []string{sameOne, "Sec-Fetch-Site: same-origin"}, 200, "http://localhost:8787"},
		{"no page", "POST", nil, 200, ""},
		{"options that are no preflight", "OPTIONS", []string{"Origin: " + appOrigin}, 200, appOrigin},
		{"options of nobody", "OPTIONS", []string{wanting}, 200, ""},
		{"stranger", "GET", []string{"Origin: https://evil.example"}, 200, ""},
		{"stranger, writing", "POST", []string{"Origin: https://evil.example"}, 403, ""},
		{"stranger, deleting", "DELETE", []string{"Origin: https://evil.example"}, 403, ""},
		{"stranger, with a method of its own", "BREW", []string{"Origin: https://evil.example"}, 403, ""},
		{"stranger, writing with the token", "POST", []string{"Origin: https://evil.example", bearer}, 403, ""},
		{"stranger that hides", "POST", []string{"Sec-Fetch-Site: cross-site"}, 403, ""},
		{"neighbor", "POST", []string{"Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"}, 403, ""},
		{"our own, as the browser denies", "POST", []string{sameOne, "Sec-Fetch-Site: cross-site"}, 403, ""},
		{"sandbox", "POST", []string{"Origin: null"}, 403, ""},
		{"socket", "GET", []string{upgrade, "Origin: " + appOrigin}, 200, ""},
	} {
		before := reached
		w := serve(h, request(tt.method, "/x", tt.headers...))
		if w.Code != tt.want || w.Header().Get("Access-Control-Allow-Origin") != tt.origin || (reached > before) != (tt.want == 200) {
			t.Errorf("%s: got %d for %q, reached %v, want %d for %q", tt.name, w.Code, w.Header().Get("Access-Control-Allow-Origin"), reached > before, tt.want, tt.origin)
		}
		if tt.origin == "" && len(corsHeaders(w.Header())) != 0 {
			t.Errorf("%s: got %v, want no CORS headers", tt.name, corsHeaders(w.Header()))
		}
		if want := "X-Maestro-Headless-Epoch, X-Maestro-Headless-Connection-Token, Retry-After, X-Maestro-Drain-Replayed"; tt.origin != "" && w.Header().Get("Access-Control-Expose-Headers") != want {
			t.Errorf("%s: got %q exposed, want %q", tt.name, w.Header().Get("Access-Control-Expose-Headers"), want)
		}
		if w.Header().Get("Vary") != "Origin" && !slices.Contains(tt.headers, upgrade) {
			t.Errorf("%s: Vary: got %q, want Origin", tt.name, w.Header().Get("Vary"))
		}
	}
}

// http.ServeMux redirects to the clean path, with the query as it is.
func TestNothingIsRedirectedWithATicket(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/login", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/ui/", func(http.ResponseWriter, *http.Request) {})
	h := newAuthenticator(t, Options{}).Wrap(mux)
	for target, want := range map[string]int{
		"/login?ticket=x": 200, "/ui/": 200, "/ui/a": 200,
		"//login?ticket=x": 400, "/./login?ticket=x": 400, "/ui/../login?ticket=x": 400, "/ui//?ticket=x": 400, "/%2e/login?ticket=x": 400, "/login/..?ticket=x": 400,
	} {
		r := request("GET", "/", bearer)
		r.URL = httptest.NewRequest("GET", "http://localhost"+target, nil).URL
		if w := serve(h, r); w.Code != want || w.Header().Get("Location") != "" {
			t.Errorf("%s: got %d to %q, want %d", target, w.Code, w.Header().Get("Location"), want)
		}
	}
}
