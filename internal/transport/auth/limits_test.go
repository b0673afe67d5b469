package auth

import (
	"errors"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
)

func TestWrongCredentialsAreLimitedByAddress(t *testing.T) {
	for name, headers := range map[string][]string{
		"bearer":      {"Authorization: Bearer wrong"},
		"key":         {"X-Maestro-Api-Key: wrong"},
		"share":       {"Authorization: Bearer mshare_wrong"},
		"cookie":      {"Cookie: maestro_session_8787=wrong"},
		"subprotocol": {upgrade, sameOne, offer("wrong")},
		"huge":        {"Authorization: Bearer " + string(make([]byte, maxCredential+1))},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clock{time.Now()}
			g := newAuthenticator(t, Options{Now: c.Now})
			try := func(addr string, headers ...string) error {
				r := request("GET", socket, headers...)
				r.RemoteAddr = addr
				_, err := g.Authorize(r)
				return err
			}
			for i := range 50 {
				if err := try("198.51.100.1:1", headers...); !errors.Is(err, &contracts.Error{Code: contracts.CodeUnauthenticated}) {
					t.Fatalf("attempt %d: got %v, want unauthenticated", i+1, err)
				}
			}
			if err := try("198.51.100.1:2", headers...); !errors.Is(err, &contracts.Error{Code: contracts.CodeRateLimited}) {
				t.Errorf("attempt 51: got %v, want rate_limited", err)
			}
			if err := try("198.51.100.2:1", headers...); !errors.Is(err, &contracts.Error{Code: contracts.CodeUnauthenticated}) {
				t.Errorf("elsewhere: got %v, want unauthenticated", err)
			}
			if err := try("198.51.100.1:1", bearer); err != nil {
				t.Errorf("the right one: got %v, want admission", err)
			}
			if err := try("198.51.100.1:1"); !errors.Is(err, &contracts.Error{Code: contracts.CodeUnauthenticated}) {
				t.Errorf("none at all: got %v, want unauthenticated", err)
			}
			c.now = c.now.Add(100 * time.Millisecond)
			if err := try("198.51.100.1:1", headers...); !errors.Is(err, &contracts.Error{Code: contracts.CodeUnauthenticated}) {
				t.Errorf("a tenth of a second later: got %v, want unauthenticated", err)
			}
		})
	}
}

func TestOtherRefusalsDoNotCount(t *testing.T) {
	g := newAuthenticator(t, Options{RateLimit: ratelimit.New(ratelimit.Options{FailureRate: 0.001, FailureBurst: 1})})
	for range 10 {
		for _, headers := range [][]string{nil, {"Host: evil.example"}, {"Origin: https://evil.example", bearer}, {bearer, bearer}} {
			if _, err := g.Authorize(request("GET", socket, headers...)); errors.Is(err, &contracts.Error{Code: contracts.CodeRateLimited}) {
				t.Fatalf("%v: got %v", headers, err)
			}
		}
	}
}

func TestWrongTicketsAndControlAreLimited(t *testing.T) {
	for name, try := range map[string]func(g *Authenticator) int{
		"login": func(g *Authenticator) int { return serve(g.Login(), request("GET", "/login?ticket=x")).Code },
		"tickets": func(g *Authenticator) int {
			return serve(g.Tickets(), request("POST", "/x", "Authorization: Bearer x")).Code
		},
		"control": func(g *Authenticator) int {
			if errors.Is(g.Control(request("POST", "/", "Authorization: Bearer x")), &contracts.Error{Code: contracts.CodeRateLimited}) {
				return 429
			}
			return 401
		},
	} {
		g := newAuthenticator(t, Options{RateLimit: ratelimit.New(ratelimit.Options{FailureRate: 0.001, FailureBurst: 1})})
		if first, second := try(g), try(g); first != 401 || second != 429 {
			t.Errorf("%s: got %d, %d, want 401, 429", name, first, second)
		}
	}
}

func TestRequestsAreLimitedByPrincipal(t *testing.T) {
	g := newAuthenticator(t, Options{RateLimit: ratelimit.New(ratelimit.Options{RequestRate: 0.25, RequestBurst: 1})})
	if w := serve(g.Tickets(), request("POST", "/x", bearer)); w.Code != 200 {
		t.Fatalf("got %d, want 200", w.Code)
	}
	if w := serve(g.Tickets(), request("POST", "/x", bearer)); w.Code != 429 || w.Header().Get("Retry-After") != "4" {
		t.Errorf("got %d, Retry-After %q, want 429 and 4", w.Code, w.Header().Get("Retry-After"))
	}
}
