package auth

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	jwtLeeway  = 30 * time.Second // by which the clocks of issuers may be ahead
	maxExpires = 253402300800     // seconds; the year 10000, which no timestamp can say
)

// A jwtReader makes principals of JWTs. It is safe for concurrent use.
//
// Its issuer says with the claim role what the principal may do: viewer or
// controller, or both if there is none. session_id confines it to one session.
// Its id is made of sub and, where they are present, workspace_id, org_id and
// team_id, and so is its scope unless a claim of its own names it.
type jwtReader struct {
	keys       []verifyKey
	parser     *jwt.Parser
	audience   string
	scopeClaim string
	now        func() time.Time
}

func newJWTReader(opts Options, now func() time.Time) *jwtReader {
	rules := []jwt.ParserOption{
		jwt.WithValidMethods([]string{algHMAC, algRSA, algECDSA}), jwt.WithStrictDecoding(), jwt.WithTimeFunc(now),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(jwtLeeway),
	}
	if opts.Issuer != "" {
		rules = append(rules, jwt.WithIssuer(opts.Issuer))
	}
	return &jwtReader{
		keys: opts.Keys.list, parser: jwt.NewParser(rules...), audience: opts.Audience,
		scopeClaim: cmp.Or(opts.ScopeClaim, "scope"), now: now,
	}
}

// holder returns whom a JWT is about. It refuses with unauthenticated what it
// cannot believe, and with access_denied what is true but not enough.
func (j *jwtReader) holder(text string) (contracts.Principal, error) {
	claims := jwt.MapClaims{} // a map, whose names match by case
	_, err := j.parser.ParseWithClaims(text, claims, j.candidates)
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return contracts.Principal{}, errExpired // its signature is right
	case err != nil:
		return contracts.Principal{}, errWrong
	}
	c := claimReader{claims: claims}
	p := contracts.Principal{SessionID: c.text("session_id"), Expires: c.time("exp")}
	p.ID = scopeKey(c.text("workspace_id"), c.text("org_id"), c.text("team_id"), c.text("sub"))
	claimed := c.text(j.scopeClaim)
	if p.Scope = p.ID; claimed != "" {
		p.Scope = scopeOfClaim(claimed)
	}
	role := contracts.Role(c.text("role"))
	audiences, err := claims.GetAudience()
	switch {
	case c.bad || err != nil || c.text("sub") == "":
		return contracts.Principal{}, errWrong
	case p.Expired(j.now()): // the leeway is for clocks that are ahead, and Expires for connections
		return contracts.Principal{}, errExpired
	case j.audience != "" && !slices.Contains(audiences, j.audience):
		return contracts.Principal{}, denied("this credential is for another audience")
	case role != "" && role != contracts.RoleViewer && role != contracts.RoleController,
		p.SessionID != "" && !validID(p.SessionID), claimed != "" && !validScope(claimed):
		return contracts.Principal{}, denied("this credential has a claim that is not understood")
	}
	if role == contracts.RoleViewer {
		p.Role = role
	}
	return p, nil
}

// candidates returns the keys that may have signed the token: those for its
// algorithm, and of these, if it names one, that one and such as have no name.
func (j *jwtReader) candidates(t *jwt.Token) (any, error) {
	if _, ok := t.Header["crit"]; ok {
		return nil, errors.New("an extension that must be understood")
	}
	id, named := t.Header["kid"].(string)
	if _, present := t.Header["kid"]; present && !named {
		return nil, errors.New("malformed key id")
	}
	var set jwt.VerificationKeySet
	for _, k := range j.keys {
		if k.alg == t.Method.Alg() && (!named || k.id == id || k.id == "") {
			set.Keys = append(set.Keys, k.key)
		}
	}
	return set, nil
}

// A claimReader reads claims and remembers if one is malformed. Null means
// absent.
type claimReader struct {
	claims jwt.MapClaims
	bad    bool
}

func (c *claimReader) text(name string) string {
	value, ok := c.claims[name].(string)
	// The replacement character stands for bytes that are not UTF-8: several
	// claims become one text, which so identifies nobody.
	c.bad = c.bad || !ok && c.claims[name] != nil || strings.ContainsRune(value, utf8.RuneError)
	return value
}

func (c *claimReader) time(name string) time.Time {
	seconds, ok := c.claims[name].(float64)
	if !ok || seconds < 0 || seconds >= maxExpires {
		c.bad = true
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0).UTC()
}
