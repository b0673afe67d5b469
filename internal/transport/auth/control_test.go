package auth

import (
	"errors"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-028515a8/maestro/contracts"
)

const controlToken = "the-control-token-of-the-server"

func TestControlNeedsItsOwnCredential(t *testing.T) {
	const (
		denied = contracts.CodeAccessDenied
		unauth = contracts.CodeUnauthenticated
		bad    = contracts.CodeBadRequest
		fine   = contracts.Code("")
		right  = "Authorization: Bearer " + controlToken
	)
	g := jwtAuthenticator(t, secretKey, Options{Token: token, ControlToken: controlToken})
	cookie := login(t, g)
	for _, tt := range []struct {
		name    string
		headers []string
		want    contracts.Code
	}{
		{"right", []string{right}, fine},
		{"right, from a page of ours", []string{right, sameOne}, fine},
		{"none", nil, unauth},
		{"empty", []string{"Authorization: Bearer "}, unauth},
		{"wrong", []string{"Authorization: Bearer wrong"}, unauth},
		{"beginning", []string{right[:len(right)-1]}, unauth},
		{"in another case", []string{"Authorization: Bearer " + strings.ToUpper(controlToken)}, unauth},
		{"the token", []string{bearer}, denied},
		{"the token as a key", []string{"X-Maestro-Api-Key: " + token}, denied},
		{"as a key", []string{"X-Maestro-Api-Key: " + controlToken}, unauth},
		{"JWT", []string{"Authorization: Bearer " + sign(jwt.SigningMethodHS256, []byte(secretKey), nil, nil)}, denied},
		{"cookie", []string{cookie, sameOne}, denied},
		{"both", []string{right, bearer}, bad},
		{"rebinding", []string{right, "Host: evil.example"}, denied},
		{"strange page", []string{right, "Origin: https://evil.example"}, denied},
		{"across sites", []string{right, "Sec-Fetch-Site: cross-site"}, denied},
	} {
		err := g.Control(request("POST", "/.well-known/evalops/remote-runner/drain", tt.headers...))
		if tt.want == fine && err != nil || tt.want != fine && !errors.Is(err, &contracts.Error{Code: tt.want}) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	if p, err := present(g, controlToken); err == nil {
		t.Errorf("as a client's: got %+v, want a refusal", p)
	}
}

func TestControlWithoutACredentialForIt(t *testing.T) {
	g := newAuthenticator(t, Options{})
	for key, want := range map[string]contracts.Code{"": contracts.CodeUnauthenticated, "x": contracts.CodeUnauthenticated, token: contracts.CodeAccessDenied} {
		if err := g.Control(request("POST", "/", "Authorization: Bearer "+key)); !errors.Is(err, &contracts.Error{Code: want}) {
			t.Errorf("%q: got %v, want %s", key, err, want)
		}
	}
	off := newAuthenticator(t, Options{Off: true})
	if err := off.Control(request("POST", "/")); err != nil {
		t.Errorf("off: got %v, want admission", err)
	}
	if err := off.Control(request("POST", "/", "Host: evil.example")); err == nil {
		t.Error("off, rebinding: got in")
	}
}

func TestMetricsNeedTheirTokenOrTheOwners(t *testing.T) {
	const metricsToken = "metrics-0123456789abcdefghijklmnopqrstuvwxyz"
	g := jwtAuthenticator(t, secretKey, Options{Token: token, ControlToken: controlToken, MetricsToken: metricsToken})
	for name, c := range map[string]struct {
		headers []string
		want    contracts.Code
	}{
		"its token":               {[]string{"Authorization: Bearer " + metricsToken}, ""},
		"the owner's":             {[]string{bearer}, ""},
		"none":                    {nil, contracts.CodeUnauthenticated},
		"wrong":                   {[]string{"Authorization: Bearer " + metricsToken + "x"}, contracts.CodeUnauthenticated},
		"the control token":       {[]string{"Authorization: Bearer " + controlToken}, contracts.CodeUnauthenticated},
		"a JWT":                   {[]string{"Authorization: Bearer " + sign(jwt.SigningMethodHS256, []byte(secretKey), nil, nil)}, contracts.CodeAccessDenied},
		"its token, rebinding":    {[]string{"Authorization: Bearer " + metricsToken, "Host: evil.example"}, contracts.CodeAccessDenied},
		"its token, a bad page":   {[]string{"Authorization: Bearer " + metricsToken, "Origin: https://evil.example"}, contracts.CodeAccessDenied},
		"its token and another's": {[]string{"Authorization: Bearer " + metricsToken, bearer}, contracts.CodeBadRequest},
	} {
		err := g.Metrics(request("GET", "/metrics", c.headers...))
		if c.want == "" && err != nil || c.want != "" && !errors.Is(err, &contracts.Error{Code: c.want}) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if p, err := present(g, metricsToken); err == nil {
		t.Errorf("as a client's: got %+v, want a refusal", p)
	}
	if err := newAuthenticator(t, Options{}).Metrics(request("GET", "/metrics", "Authorization: Bearer ")); err == nil {
		t.Error("an empty token without one: got in")
	}
}

func TestMisconfiguredControlIsRefused(t *testing.T) {
	for name, opts := range map[string]Options{
		"the token":   {Token: token, ControlToken: token},
		"short":       {Token: token, ControlToken: "short"},
		"off":         {Off: true, ControlToken: controlToken},
		"off, a key":  {Off: true, Keys: &Keys{}},
		"metrics":     {Token: token, MetricsToken: token},
		"the same":    {Token: token, ControlToken: controlToken, MetricsToken: controlToken},
		"words":       {Token: token, ControlToken: "several words are not a token"},
		"not a share": {Token: token, ShareFile: t.TempDir()},
	} {
		if _, err := New(opts); err == nil {
			t.Errorf("%s: got an authenticator, want an error", name)
		}
	}
}
