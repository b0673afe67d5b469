package auth

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// TestAuthenticateIsAskedLast names the user of a request in the header X-User.
func TestAuthenticateIsAskedLast(t *testing.T) {
	asked := 0
	refusal := &contracts.Error{Code: contracts.CodeAccessDenied, Message: "banned"}
	g := newAuthenticator(t, Options{Authenticate: func(r *http.Request) (contracts.Principal, error) {
		asked++
		switch name := r.Header.Get("X-User"); name {
		case "ann":
			return contracts.Principal{ID: "ann", Scope: "team", Role: contracts.RoleController, Expires: time.Now().Add(time.Hour)}, nil
		case "banned":
			return contracts.Principal{}, refusal
		}
		return contracts.Principal{}, errors.New("unknown")
	}})
	const ann = "X-User: ann"
	for _, tt := range []struct {
		name    string
		headers []string
		id      string
		err     error
		asked   int
	}{
		{"the token", []string{bearer, ann}, g.owner.ID, nil, 0},
		{"another key", []string{"Authorization: Bearer something-of-the-program", ann}, "ann", nil, 1},
		{"another scheme", []string{"Authorization: Basic x", ann}, "ann", nil, 1},
		{"a key in a subprotocol", []string{upgrade, sameOne, offer("something-of-the-program"), ann}, "ann", nil, 1},
		{"nothing of ours", []string{upgrade, ann}, "ann", nil, 1},
		{"an old cookie", []string{"Cookie: maestro_session_8787=gone", ann}, "ann", nil, 1},
		{"a stranger", nil, "", errWrong, 1},
		{"somebody banned", []string{"X-User: banned"}, "", refusal, 1},
		{"another host", []string{"Host: evil.example", ann}, "", &contracts.Error{Code: contracts.CodeAccessDenied}, 0},
		{"a foreign page", []string{"Origin: http://evil.example", ann}, "", &contracts.Error{Code: contracts.CodeAccessDenied}, 0},
	} {
		asked = 0
		p, err := g.Authorize(request("GET", socket, tt.headers...))
		if p.ID != tt.id || !errors.Is(err, tt.err) || asked != tt.asked {
			t.Errorf("%s: got %q, %v, asked %d times, want %q, %v, %d", tt.name, p.ID, err, asked, tt.id, tt.err, tt.asked)
		}
		if p.ID == "ann" && (p.Name != "ann" || p.Role != "") {
			t.Errorf("%s: got %+v, want a name and every role", tt.name, p)
		}
	}
}

// TestSignOutEndsWhatWasAccepted is about requests, tickets and cookies from before the call.
func TestSignOutEndsWhatWasAccepted(t *testing.T) {
	during := func() {}
	g := newAuthenticator(t, Options{Authenticate: func(r *http.Request) (contracts.Principal, error) {
		during()
		if name := r.Header.Get("X-User"); name != "" {
			return contracts.Principal{ID: name}, nil
		}
		return contracts.Principal{}, errors.New("unknown")
	}})
	accepted := func(headers ...string) contracts.Principal {
		t.Helper()
		p, err := g.Authorize(request("GET", socket, headers...))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	ticket := func(p contracts.Principal, login bool) string {
		t.Helper()
		text, _, err := g.Mint(p, "", "", "", login)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	owner, bob := accepted(bearer), accepted("X-User: bob")
	for range 2 { // again, after ann was accepted anew
		ann := accepted("X-User: ann")
		secret, _ := g.cookies.add(ann, "", g.opts.Now())
		one := ticket(ann, false)
		g.SignOut("ann")
		late := ticket(ann, false) // of a request that was accepted before
		for name, query := range map[string]string{"a ticket": "?ticket=" + one, "a late ticket": "?ticket=" + late} {
			if _, err := g.Authorize(request("GET", "/x"+query)); !errors.Is(err, errTicket) {
				t.Errorf("%s: got %v, want it refused", name, err)
			}
		}
		if _, found := g.cookies.find(secret, false, g.opts.Now()); found || g.Alive(ann) {
			t.Error("got a cookie or a principal that is still valid")
		}
		if !g.Alive(bob) || !g.Alive(owner) || !g.Alive(accepted("X-User: ann")) {
			t.Error("got somebody signed out who is not, or ann refused for good")
		}
	}
	g.SignOut(owner.ID)
	if !g.Alive(owner) {
		t.Error("got the owner refused, want the token valid")
	}
	during = func() { g.SignOut("ann") }
	if _, err := g.Authorize(request("GET", socket, "X-User: ann")); err != errWrong {
		t.Errorf("signed out meanwhile: got %v, want %v", err, errWrong)
	}
}

// A principal must not be taken for one that this package makes, and its scope is the name
// of a folder.
func TestUnfitPrincipalsAreNotAdmitted(t *testing.T) {
	for _, p := range []contracts.Principal{
		{}, {ID: "a b"}, {ID: Anonymous}, {ID: "key_0123456789abcdef"}, {ID: "share_1"},
		{ID: "x", Scope: ".."}, {ID: "x", Scope: "A"}, {ID: "x", Scope: "a/b"}, {ID: "x", Scope: "user_ann"}, {ID: "x", Scope: "claim_0"},
		{ID: "x", SessionID: "../y"}, {ID: "x", Role: "king"}, {ID: "x", Credential: "\x1b[2J"},
		{ID: "x", Expires: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, // JSON has no such time
	} {
		g := newAuthenticator(t, Options{Authenticate: func(*http.Request) (contracts.Principal, error) { return p, nil }})
		got, err := g.Authorize(request("GET", socket))
		if got != (contracts.Principal{}) || err == nil || errors.As(err, new(*contracts.Error)) {
			t.Errorf("%+v: got %+v, %v, want an internal error", p, got, err)
		}
	}
	g := newAuthenticator(t, Options{Authenticate: func(*http.Request) (contracts.Principal, error) {
		return contracts.Principal{ID: "x", Expires: time.Now().Add(-time.Second)}, nil
	}})
	if _, err := g.Authorize(request("GET", socket)); err != errExpired {
		t.Errorf("got %v, want %v", err, errExpired)
	}
}
