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
	jwtLeeway  = 30 * time.Second // how far an issuer's clock may be ahead
	maxExpires = 253402300800     // seconds; the year 10000, which a timestamp cannot express
)

// A jwtReader turns JWTs into principals. It is safe for concurrent use.
//
// The claim role limits the principal to viewing, or to viewing and answering
// questions; with controller or without the claim it is not limited. session_id confines it to one session. Its id consists
// of sub and, where present, workspace_id, org_id and team_id. Its scope is its
// id unless the scope claim sets one. Its name is the claim name, else sub.
type jwtReader struct {
	keys       []verifyKey
	parser     *jwt.Parser
	audience   string
	scopeClaim string
	now        func() time.Time
}

func newJWTReader(opts Options) *jwtReader {
	rules := []jwt.ParserOption{
		jwt.WithValidMethods([]string{algHMAC, algRSA, algECDSA}), jwt.WithStrictDecoding(), jwt.WithTimeFunc(opts.Now),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(jwtLeeway),
	}
	if opts.Issuer != "" {
		rules = append(rules, jwt.WithIssuer(opts.Issuer))
	}
	return &jwtReader{
		keys: opts.Keys.list, parser: jwt.NewParser(rules...), audience: opts.Audience,
		scopeClaim: cmp.Or(opts.ScopeClaim, "scope"), now: opts.Now,
	}
}

// holder returns the principal of a JWT. It refuses with unauthenticated a
// token that is not valid, and with access_denied a valid one that does not
// suffice.
func (j *jwtReader) holder(text string) (contracts.Principal, error) {
	claims := jwt.MapClaims{} // a map, because struct fields match names regardless of case
	_, err := j.parser.ParseWithClaims(text, claims, j.candidates)
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return contracts.Principal{}, errExpired // only the holder of a rightly signed token gets this
	case err != nil:
		return contracts.Principal{}, errWrong
	}
	c := claimReader{claims: claims}
	p := contracts.Principal{SessionID: c.text("session_id"), Expires: c.time("exp")}
	p.Credential = "jwt_" + hashOfToken(text)[:16]
	p.ID = scopeKey(c.text("workspace_id"), c.text("org_id"), c.text("team_id"), c.text("sub"))
	claimed := c.text(j.scopeClaim)
	if p.Scope = p.ID; claimed != "" {
		p.Scope = scopeOfClaim(claimed)
	}
	name, _ := claims["name"].(string) // for people only, so an odd one refuses nobody
	p.Name = contracts.CleanLabel(name, contracts.MaxLabelBytes)
	p.Name = cmp.Or(p.Name, contracts.CleanLabel(c.text("sub"), contracts.MaxLabelBytes))
	role := contracts.Role(c.text("role"))
	audiences, err := claims.GetAudience()
	switch {
	case c.bad || err != nil || c.text("sub") == "":
		return contracts.Principal{}, errWrong
	case p.Expired(j.now()): // the leeway is for clocks that are ahead, and does not extend Expires
		return contracts.Principal{}, errExpired
	case j.audience != "" && !slices.Contains(audiences, j.audience):
		return contracts.Principal{}, denied("this credential is for another audience")
	case !slices.Contains([]contracts.Role{"", contracts.RoleViewer, contracts.RoleApprover, contracts.RoleController}, role),
		p.SessionID != "" && !contracts.ValidID(p.SessionID), claimed != "" && !validScope(claimed):
		return contracts.Principal{}, denied("this credential has a claim that is not understood")
	}
	if role != contracts.RoleController {
		p.Role = role
	}
	return p, nil
}

// candidates returns the keys that may have signed the token: those for its
// algorithm. If the token names a key, only keys of that name and keys without
// a name qualify.
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

// A claimReader reads claims and notes if one is malformed. Null means absent.
type claimReader struct {
	claims jwt.MapClaims
	bad    bool
}

func (c *claimReader) text(name string) string {
	value, ok := c.claims[name].(string)
	// The replacement character stands for bytes that are not UTF-8. Several
	// claims decode to the same text, so such a text identifies nobody.
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
