package auth

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// A tuple is what an issuer says of somebody.
type tuple struct{ workspace, org, team, user string }

func (p tuple) scope() string { return scopeKey(p.workspace, p.org, p.team, p.user) }

// word returns a name of the kind that scopes could confuse.
func word(r *rand.Rand) string {
	pieces := []string{
		"a", "b", "A", "B", "o", "t", "x.com", "_", "__", "@", "/", "|", "-", ".", "..", " ", "~", "#", ":", "\x00", "\n",
		"user_", "org_", "team_", "workspace_", "__user_", "__team_", "principal_", "claim_", "scope-",
		"\u00e4", "a\u0308", "\u00c4", "\u212b", "\u00c5", "\u0131", "I", "\u017f", "s", "\u00df", "ss", "\u4e2d", "\u56fd", "\U0001f600", "\u200b",
		"con", "nul", "lpt1", strings.Repeat("w", 30), strings.Repeat("W", 30), strings.Repeat("\u00e4", 20),
		"56c90972ea42d1dcf7a3b117", "56c90972ea42d1dcf7a3b11756c90972",
	}
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// near returns a tuple that is easily taken for p.
func near(r *rand.Rand, p tuple) tuple {
	parts := []*string{&p.workspace, &p.org, &p.team, &p.user}
	one, other := parts[r.IntN(4)], parts[r.IntN(4)]
	switch r.IntN(9) {
	case 0: // the separator moves into a name
		*one, *other = *one+"__team_"+*other, ""
	case 1:
		*one, *other = *other, *one
	case 2: // what sanitising made of it
		*one = strings.NewReplacer("@", "_", "/", "_", "|", "_", " ", "_", "\u00e4", "_").Replace(*one)
	case 3:
		*one = strings.ToUpper(*one)
	case 4:
		*one = strings.ToLower(*one)
	case 5: // another normal form
		*one = strings.NewReplacer("\u00e4", "a\u0308", "a\u0308", "\u00e4", "\u212b", "\u00c5").Replace(*one)
	case 6:
		*one = strings.TrimRight(*one, ".") + strings.Repeat(".", r.IntN(3))
	case 7: // the name that somebody else has
		p = tuple{user: strings.TrimPrefix(p.scope(), "user_")}
	case 8:
		*one += word(r)
	}
	if p.user == "" {
		p.user = "a"
	}
	return p
}

func TestDistinctPrincipalsNeverShareAScope(t *testing.T) {
	const pairs = 10_000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	scopes := map[string]tuple{} // of all pairs, by their scope as a case-insensitive file system sees it
	add := func(p tuple) {
		scope := p.scope()
		if !validScope(scope) || strings.HasSuffix(scope, ".") || scope != strings.ToLower(scope) {
			t.Fatalf("%+q: got scope %q, want a safe folder name", p, scope)
		}
		if other, known := scopes[scope]; known && other != p {
			t.Fatalf("%+q and %+q: got scope %q for both", p, other, scope)
		}
		scopes[scope] = p
	}
	for n := 0; n < pairs; {
		p := tuple{user: word(r)}
		for _, part := range []*string{&p.workspace, &p.org, &p.team} {
			if r.IntN(3) == 0 {
				*part = word(r)
			}
		}
		q := near(r, p)
		if p == q {
			continue
		}
		add(p)
		add(q)
		n++
	}
}

func TestPrincipalsThatWereOneAreApart(t *testing.T) {
	g := jwtAuthenticator(t, secretKey, Options{})
	scopeOf := func(claims changes) string {
		p, err := present(g, sign(jwt.SigningMethodHS256, []byte(secretKey), claims, nil))
		if err != nil {
			t.Fatalf("%v: %v", claims, err)
		}
		return p.Scope
	}
	for _, pair := range [][2]changes{
		{{"sub": "a@x.com"}, {"sub": "a_x.com"}},
		{{"sub": "a/b"}, {"sub": "a_b"}},
		{{"sub": "\u00e4"}, {"sub": "\u00f6"}},
		{{"sub": "\u00e4"}, {"sub": "a\u0308"}},
		{{"sub": "Ada"}, {"sub": "ada"}},
		{{"sub": "ada."}, {"sub": "ada"}},
		{{"org_id": "o__team_t"}, {"org_id": "o", "team_id": "t"}},
		{{"sub": "ada"}, {"sub": "bob", "scope": "user_ada"}},
		{{"sub": "bob", "scope": "Team"}, {"sub": "bob", "scope": "team"}},
		{{"sub": "bob", "scope": "team."}, {"sub": "bob", "scope": "team"}},
	} {
		one, other := scopeOf(pair[0]), scopeOf(pair[1])
		if strings.EqualFold(strings.TrimRight(one, "."), strings.TrimRight(other, ".")) {
			t.Errorf("%v and %v: got scopes %q and %q, want two folders", pair[0], pair[1], one, other)
		}
	}
	// Two broken texts that JSON reads alike.
	for _, sub := range []string{`"\ud800"`, `"\ud801"`, "\"\xff\""} {
		if p, err := present(g, sign(jwt.SigningMethodHS256, []byte(secretKey), changes{"sub": rawJSON(sub)}, nil)); err == nil {
			t.Errorf("%q: got in as %+v, want it refused", sub, p)
		}
	}
}

type rawJSON string

func (j rawJSON) MarshalJSON() ([]byte, error) { return []byte(j), nil }
