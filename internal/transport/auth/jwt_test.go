package auth

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-028515a8/maestro/contracts"
)

var epoch = time.Unix(1_800_000_000, 0)

// changes replaces claims or headers; nil leaves one out.
type changes map[string]any

// sign makes a JWT that is right but for what changes.
func sign(method jwt.SigningMethod, key any, claims, header changes) string {
	c := jwt.MapClaims{
		"iss": "https://issuer.example", "aud": "maestro", "sub": "alice",
		"exp": epoch.Add(time.Hour).Unix(), "iat": epoch.Unix(),
	}
	for name, value := range claims {
		c[name] = value
		if value == nil {
			delete(c, name)
		}
	}
	t := jwt.NewWithClaims(method, c)
	maps.Copy(t.Header, header)
	text, err := t.SignedString(key)
	if err != nil {
		panic(err)
	}
	return text
}

func withClaims(c changes) string   { return sign(jwt.SigningMethodRS256, rsaKey(), c, nil) }
func withHeader(h changes) string   { return sign(jwt.SigningMethodRS256, rsaKey(), nil, h) }
func inSeconds(s time.Duration) int { return int(epoch.Add(s * time.Second).Unix()) }

// jwtAuthenticator accepts JWTs only.
func jwtAuthenticator(t *testing.T, keys string, opts Options) *Authenticator {
	t.Helper()
	opts.Keys, opts.Issuer, opts.Audience = loadKeys(t, keys), "https://issuer.example", "maestro"
	if opts.Now == nil {
		opts.Now = (&clock{epoch}).Now
	}
	g, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func present(g *Authenticator, key string) (contracts.Principal, error) {
	return g.Authorize(request("GET", socket, "Authorization: Bearer "+key))
}

func TestForgedJWTsAreRefused(t *testing.T) {
	const (
		denied = contracts.CodeAccessDenied
		unauth = contracts.CodeUnauthenticated
	)
	public := publicPEM(&rsaKey().PublicKey)
	good := withClaims(nil)
	head, rest, _ := strings.Cut(good, ".")
	body, signature, _ := strings.Cut(rest, ".")
	unsigned := func(header, claims string) string { return b64([]byte(header)) + "." + b64([]byte(claims)) + "." }
	const claims = `{"iss":"https://issuer.example","aud":"maestro","sub":"alice","exp":1800003600}`
	hmac := func(key string, header changes) string {
		return sign(jwt.SigningMethodHS256, []byte(key), nil, header)
	}
	for _, tt := range []struct {
		name, token string
		want        contracts.Code
	}{
		// The algorithm.
		{"none", sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil), unauth},
		{"none in other letters", unsigned(`{"alg":"nOnE","typ":"JWT"}`, claims), unauth},
		{"none with a signature", unsigned(`{"alg":"none"}`, claims) + signature, unauth},
		{"empty algorithm", unsigned(`{"alg":""}`, claims), unauth},
		{"no algorithm", unsigned(`{}`, claims), unauth},
		{"algorithm that is no text", unsigned(`{"alg":["RS256"]}`, claims), unauth},
		{"algorithm twice", unsigned(`{"alg":"RS256","alg":"none"}`, claims), unauth},
		{"public key as a secret", hmac(public, nil), unauth},
		{"public key as a secret, trimmed", hmac(strings.TrimSpace(public), nil), unauth},
		{"public key as a secret, DER", hmac(string(publicDER(&rsaKey().PublicKey)), nil), unauth},
		{"empty secret", hmac("", nil), unauth},
		{"right key, stronger hash", sign(jwt.SigningMethodRS512, rsaKey(), nil, nil), unauth},
		{"right key, other padding", sign(jwt.SigningMethodPS256, rsaKey(), nil, nil), unauth},
		{"another kind of key", sign(jwt.SigningMethodES256, ecKey(), nil, nil), unauth},

		// The key.
		{"another key", sign(jwt.SigningMethodRS256, otherRSA(), nil, nil), unauth},
		{"another key that it brings along", sign(jwt.SigningMethodRS256, otherRSA(), nil, changes{"jwk": webKeyOf(&otherRSA().PublicKey, nil)}), unauth},
		{"another key that it points to", sign(jwt.SigningMethodRS256, otherRSA(), nil, changes{"jku": "https://evil.example/keys", "x5u": "https://evil.example/cert"}), unauth},
		{"key id that is a path", hmac("", changes{"kid": "../../../../dev/null"}), unauth},
		{"key id that is a query", sign(jwt.SigningMethodRS256, otherRSA(), nil, changes{"kid": "x' UNION SELECT 'y"}), unauth},
		{"key id that is a number", withHeader(changes{"kid": 7}), unauth},
		{"key id that is null", withHeader(changes{"kid": nil}), unauth},
		{"extension", withHeader(changes{"crit": []string{"exp"}, "exp": 1}), unauth},

		// The form.
		{"other claims", head + "." + b64([]byte(claims)) + "." + signature, unauth},
		{"other header", b64([]byte(`{"alg":"RS256"}`)) + "." + body + "." + signature, unauth},
		{"no signature", head + "." + body + ".", unauth},
		{"half a signature", good[:len(good)-100], unauth},
		{"two parts", head + "." + body, unauth},
		{"four parts", good + "." + signature, unauth},
		{"padding", good + "==", unauth},
		{"signature spelled differently", good[:len(good)-1] + string(respelled(good[len(good)-1])), unauth},
		{"standard base64", head + "." + body + "." + strings.NewReplacer("-", "+", "_", "/").Replace(signature) + "+", unauth},
		{"nothing", "..", unauth},
		{"not JSON", b64([]byte("{")) + "." + body + "." + signature, unauth},
		{"huge", withClaims(changes{"x": strings.Repeat("x", maxCredential)}), unauth},

		// The time.
		{"no end", withClaims(changes{"exp": nil}), unauth},
		{"end that is null", unsigned(`{"alg":"RS256"}`, `{"exp":null}`), unauth},
		{"end at zero", withClaims(changes{"exp": 0}), unauth},
		{"end as a text", withClaims(changes{"exp": "1800003600"}), unauth},
		{"end beyond time", withClaims(changes{"exp": 1e300}), unauth},
		{"end in the year 10000", withClaims(changes{"exp": int64(maxExpires)}), unauth},
		{"ended", withClaims(changes{"exp": inSeconds(-3600)}), unauth},
		{"ends now", withClaims(changes{"exp": inSeconds(0)}), unauth},
		{"ended a moment ago", withClaims(changes{"exp": inSeconds(-1)}), unauth},
		{"end in capitals", withClaims(changes{"exp": nil, "EXP": inSeconds(60)}), unauth},
		{"not yet", withClaims(changes{"nbf": inSeconds(31)}), unauth},
		{"issued tomorrow", withClaims(changes{"iat": inSeconds(86400)}), unauth},

		// The claims.
		{"another issuer", withClaims(changes{"iss": "https://evil.example"}), unauth},
		{"no issuer", withClaims(changes{"iss": nil}), unauth},
		{"issuer in capitals", withClaims(changes{"iss": nil, "ISS": "https://issuer.example"}), unauth},
		{"another audience", withClaims(changes{"aud": "other"}), denied},
		{"other audiences", withClaims(changes{"aud": []string{"other", "maestro2"}}), denied},
		{"no audience", withClaims(changes{"aud": nil}), denied},
		{"audience that is a number", withClaims(changes{"aud": 1}), denied},
		{"another audience and ended", withClaims(changes{"aud": "other", "exp": inSeconds(-1)}), unauth},
		{"another audience and forged", sign(jwt.SigningMethodRS256, otherRSA(), changes{"aud": "other"}, nil), unauth},
		{"nobody", withClaims(changes{"sub": nil}), unauth},
		{"empty subject", withClaims(changes{"sub": ""}), unauth},
		{"subject that is a number", withClaims(changes{"sub": 1}), unauth},
		{"unknown role", withClaims(changes{"role": "admin"}), denied},
		{"role in capitals", withClaims(changes{"role": "Viewer"}), denied},
		{"roles", withClaims(changes{"role": []string{"viewer"}}), unauth},
		{"session that is a path", withClaims(changes{"session_id": "../x"}), denied},
		{"session that is a number", withClaims(changes{"session_id": 1}), unauth},
		{"scope that is a path", withClaims(changes{"scope": "../x"}), denied},
		{"scope that is the folder above", withClaims(changes{"scope": ".."}), denied},
		{"scopes of OAuth", withClaims(changes{"scope": "openid profile"}), denied},
		{"long scope", withClaims(changes{"scope": strings.Repeat("x", maxScope+1)}), denied},
		{"organization that is an object", withClaims(changes{"org_id": changes{"a": 1}}), unauth},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := present(jwtAuthenticator(t, public, Options{}), tt.token)
			if !errors.Is(err, &contracts.Error{Code: tt.want}) || p != (contracts.Principal{}) {
				t.Fatalf("got %+v, %v, want %s", p, err, tt.want)
			}
		})
	}
	if _, err := present(jwtAuthenticator(t, public, Options{}), good); err != nil {
		t.Errorf("the one that the others were made of: %v", err)
	}
}

func TestKeyOfOneAlgorithmIsNotUsedForAnother(t *testing.T) {
	g := jwtAuthenticator(t, keySet(
		webKeyOf(&rsaKey().PublicKey, map[string]string{"kid": "r"}), webKeyOf(&ecKey().PublicKey, map[string]string{"kid": "e"}),
		webKeyOf(&otherEC().PublicKey, map[string]string{"kid": "e2"}), webKeyOf(secretKey, map[string]string{"kid": "s"}),
	), Options{})
	keys := map[jwt.SigningMethod]any{
		jwt.SigningMethodRS256: rsaKey(), jwt.SigningMethodES256: ecKey(), jwt.SigningMethodHS256: []byte(secretKey),
	}
	right := map[jwt.SigningMethod]string{jwt.SigningMethodRS256: "r", jwt.SigningMethodES256: "e", jwt.SigningMethodHS256: "s"}
	for method, key := range keys {
		if _, err := present(g, sign(method, key, nil, nil)); err != nil {
			t.Errorf("%s without a key id: %v", method.Alg(), err)
		}
		for _, id := range []string{"r", "e", "e2", "s", "unknown", ""} {
			_, err := present(g, sign(method, key, nil, changes{"kid": id}))
			if (err == nil) != (id == right[method]) {
				t.Errorf("%s with key id %q: got %v, want admission %v", method.Alg(), id, err, id == right[method])
			}
		}
	}
	if _, err := present(g, sign(jwt.SigningMethodHS512, []byte(secretKey), nil, nil)); err == nil {
		t.Error("HS512 with the secret: got in")
	}
}

func TestJWTsOfEachKindComeIn(t *testing.T) {
	for _, tt := range []struct {
		name, keys, token string
	}{
		{"RS256", publicPEM(&rsaKey().PublicKey), withClaims(nil)},
		{"ES256", publicPEM(&ecKey().PublicKey), sign(jwt.SigningMethodES256, ecKey(), nil, nil)},
		{"HS256", secretKey, sign(jwt.SigningMethodHS256, []byte(secretKey), nil, nil)},
		{"key id for a file that has none", publicPEM(&rsaKey().PublicKey), withHeader(changes{"kid": "2027-01"})},
		{"second of two keys", publicPEM(&otherRSA().PublicKey) + publicPEM(&rsaKey().PublicKey), withClaims(nil)},
		{"one of the audiences", publicPEM(&rsaKey().PublicKey), withClaims(changes{"aud": []string{"other", "maestro"}})},
		{"clock that is ahead", publicPEM(&rsaKey().PublicKey), withClaims(changes{"nbf": inSeconds(29), "iat": inSeconds(29)})},
		{"about to end", publicPEM(&rsaKey().PublicKey), withClaims(changes{"exp": inSeconds(1)})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := jwtAuthenticator(t, tt.keys, Options{})
			if p, err := present(g, tt.token); err != nil || p.ID != "user_alice" {
				t.Fatalf("got %+v, %v, want user_alice", p, err)
			}
			if _, err := g.Authorize(request("GET", socket, upgrade, sameOne, offer(tt.token))); err != nil {
				t.Errorf("as a subprotocol: %v", err)
			}
		})
	}
}

func TestClaimsSayWhoItIs(t *testing.T) {
	end := epoch.Add(time.Hour).UTC()
	// printf '40:%s,1:o,1:t,5:alice,' "$(printf 'w%.0s' {1..40})" | sha256sum | cut -c1-32
	const long = "principal_c0405d86d93f0a7a036ae18b37838d11"
	// printf '0:,0:,0:,12:../\303\244|b\n@x.y,' | sha256sum | cut -c1-32
	const odd = "principal_733bbd7104e54190e1ba994948642303"
	for _, tt := range []struct {
		name   string
		claims changes
		want   contracts.Principal
	}{
		{"subject", nil, contracts.Principal{ID: "user_alice", Scope: "user_alice"}},
		{"all", changes{"workspace_id": "w", "org_id": "o", "team_id": "t"},
			contracts.Principal{ID: "workspace_w__org_o__team_t__user_alice", Scope: "workspace_w__org_o__team_t__user_alice"}},
		{"some", changes{"org_id": "o", "team_id": ""}, contracts.Principal{ID: "org_o__user_alice", Scope: "org_o__user_alice"}},
		{"odd characters", changes{"sub": "../ä|b\n@x.y"}, contracts.Principal{ID: odd, Scope: odd, Name: "../ä|b@x.y"}},
		{"64 characters", changes{"sub": strings.Repeat("x", 59)},
			contracts.Principal{ID: "user_" + strings.Repeat("x", 59), Scope: "user_" + strings.Repeat("x", 59), Name: strings.Repeat("x", 59)}},
		{"more", changes{"workspace_id": strings.Repeat("w", 40), "org_id": "o", "team_id": "t"}, contracts.Principal{ID: long, Scope: long}},
		{"scope", changes{"scope": "project-7"}, contracts.Principal{ID: "user_alice", Scope: "project-7"}},
		{"viewer", changes{"role": "viewer"}, contracts.Principal{ID: "user_alice", Scope: "user_alice", Role: contracts.RoleViewer}},
		{"controller", changes{"role": "controller"}, contracts.Principal{ID: "user_alice", Scope: "user_alice"}},
		{"approver", changes{"role": "approver"}, contracts.Principal{ID: "user_alice", Scope: "user_alice", Role: contracts.RoleApprover}},
		{"session", changes{"session_id": "sess_a"}, contracts.Principal{ID: "user_alice", Scope: "user_alice", SessionID: "sess_a"}},
		{"name", changes{"name": "Alice\u202e Doe\n" + strings.Repeat("x", 300)},
			contracts.Principal{ID: "user_alice", Scope: "user_alice", Name: "Alice Doe" + strings.Repeat("x", contracts.MaxLabelBytes-9)}},
		{"name of another type", changes{"name": 7}, contracts.Principal{ID: "user_alice", Scope: "user_alice"}},
		{"nulls", changes{"role": jwtNull{}, "session_id": jwtNull{}, "scope": jwtNull{}}, contracts.Principal{ID: "user_alice", Scope: "user_alice"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Expires, tt.want.Name = end, cmp.Or(tt.want.Name, "alice")
			token := withClaims(tt.claims)
			tt.want.Credential = "jwt_" + hashOfToken(token)[:16]
			p, err := present(jwtAuthenticator(t, publicPEM(&rsaKey().PublicKey), Options{}), token)
			if err != nil || p != tt.want {
				t.Errorf("got %+v, %v, want %+v", p, err, tt.want)
			}
		})
	}
}

// respelled returns another last character of base64 that stands for the same
// bytes to a lenient reader: an RSA signature leaves four of its bits unused.
func respelled(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)^1]
}

type jwtNull struct{}

func (jwtNull) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

func TestScopeClaimCanHaveAnotherName(t *testing.T) {
	g := jwtAuthenticator(t, publicPEM(&rsaKey().PublicKey), Options{ScopeClaim: "https://maestro.example/scope"})
	for _, tt := range []struct {
		claims changes
		want   string
	}{
		{changes{"scope": "openid"}, "user_alice"},
		{changes{"scope": "openid", "https://maestro.example/scope": "project-7"}, "project-7"},
	} {
		if p, err := present(g, withClaims(tt.claims)); err != nil || p.Scope != tt.want {
			t.Errorf("%v: got %+v, %v, want scope %s", tt.claims, p, err, tt.want)
		}
	}
}

func TestTokenAndJWTsAreAcceptedTogether(t *testing.T) {
	g := jwtAuthenticator(t, secretKey, Options{Token: token})
	if p, err := present(g, token); err != nil || p != g.owner || p.Scope != "" {
		t.Errorf("token: got %+v, %v, want the owner", p, err)
	}
	if p, err := present(g, sign(jwt.SigningMethodHS256, []byte(secretKey), nil, nil)); err != nil || p.ID != "user_alice" {
		t.Errorf("JWT: got %+v, %v, want user_alice", p, err)
	}
	if _, err := present(g, secretKey); err == nil {
		t.Error("the key itself: got in")
	}
	alone := jwtAuthenticator(t, secretKey, Options{})
	for _, key := range []string{token, "", " "} {
		if _, err := present(alone, key); err == nil {
			t.Errorf("%q without a token: got in", key)
		}
	}
	if _, err := present(newAuthenticator(t, Options{}), withClaims(nil)); err == nil {
		t.Error("JWT without keys: got in")
	}
}

func TestWhatAJWTIsExchangedForEndsWithIt(t *testing.T) {
	c := &clock{epoch}
	g := jwtAuthenticator(t, publicPEM(&rsaKey().PublicKey), Options{Now: c.Now})
	p, err := present(g, withClaims(changes{"exp": inSeconds(10)}))
	if err != nil {
		t.Fatal(err)
	}
	ticket := func() string {
		text, _, err := g.Mint(p, "", "", "", false)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	early, late := ticket(), ticket()
	w := serve(g.Login(), request("GET", "/login?ticket="+ticket()))
	cookie := "Cookie: " + cookieOf(t, w)
	if got := w.Header().Get("Set-Cookie"); !strings.Contains(got, "Max-Age=10;") {
		t.Errorf("got %q, want 10 s", got)
	}
	for _, tt := range []struct {
		at time.Time
		ok bool
	}{{epoch.Add(10*time.Second - 1), true}, {epoch.Add(10 * time.Second), false}} {
		c.now = tt.at
		if _, err := g.Authorize(request("GET", "/", cookie)); (err == nil) != tt.ok {
			t.Errorf("cookie at %v: got %v, want admission %v", tt.at.Sub(epoch), err, tt.ok)
		}
		text := early
		if !tt.ok {
			text = late
		}
		if _, err := g.Authorize(request("GET", "/?ticket="+text)); (err == nil) != tt.ok {
			t.Errorf("ticket at %v: got %v, want admission %v", tt.at.Sub(epoch), err, tt.ok)
		}
	}
}

func FuzzJWT(f *testing.F) {
	keys, err := parseKeys([]byte(keySet(webKeyOf(&rsaKey().PublicKey, nil), webKeyOf(&ecKey().PublicKey, nil), webKeyOf(secretKey, nil))))
	if err != nil {
		f.Fatal(err)
	}
	g, err := New(Options{Keys: keys, Now: (&clock{epoch}).Now})
	if err != nil {
		f.Fatal(err)
	}
	good := sign(jwt.SigningMethodHS256, []byte(secretKey), nil, nil)
	f.Add("")
	f.Add("..")
	f.Add(strings.TrimSuffix(good, good[len(good)-3:]))
	f.Add(sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil))
	f.Fuzz(func(t *testing.T, text string) {
		r := request("GET", "/")
		r.Header = http.Header{"Authorization": {"Bearer " + text}}
		if p, err := g.Authorize(r); err == nil && strings.TrimSpace(text) != good {
			t.Fatalf("%q came in as %+v", text, p)
		}
	})
}
