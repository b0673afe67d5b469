package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/httperr"
	"github.com/seed-028515a8/maestro/transport/ratelimit"
)

// Options configures [New].
type Options struct {
	// Token is the secret that lets a client in as the owner of the server: at
	// least 16 bytes of printable ASCII without spaces. It may be empty with Off
	// or Keys.
	Token string

	// Off lets everybody in without a credential, as the anonymous principal.
	// Host and Origin are checked all the same. The caller sees to it that the
	// server then listens on loopback only.
	Off bool

	// Keys verify JWTs, which are accepted beside the token; nil accepts none.
	Keys *Keys

	// Issuer is what iss must be in a JWT, and Audience what must be in its aud.
	// Empty leaves either open.
	Issuer, Audience string

	// ScopeClaim names the claim of a JWT that is its scope. Empty means
	// "scope". An issuer that puts OAuth scopes there wants another name here:
	// all its users would share their sessions.
	ScopeClaim string

	// ControlToken is the secret for those who control the server itself, of the
	// form of Token and different from it. Empty refuses control to everybody
	// while authentication is on.
	ControlToken string

	// ShareFile keeps the shares over restarts. It belongs to one process at a
	// time. Empty keeps them in memory.
	ShareFile string

	// Session refuses sessions that the principal cannot share, such as unknown
	// ones; nil refuses none.
	Session func(ctx context.Context, p contracts.Principal, sessionID string) error

	// Revoked is told of each share that was revoked, by the id of its
	// principal, whose connections are to be closed; nil tells nobody. It must
	// not wait for requests.
	Revoked func(principalID string)

	// Hosts are names, beside the loopback ones, by which clients reach the
	// server. A name with a port is legal with that port only.
	Hosts []string

	// Origins are web origins, such as https://app.example.com, whose pages may
	// use the server beside its own.
	Origins []string

	// BehindTLS says that browsers reach the server over TLS although a proxy
	// ends it, so that cookies are marked for TLS only.
	BehindTLS bool

	// Identified is told who sent a request, and may refuse it; nil refuses none.
	Identified func(*http.Request, contracts.Principal) error

	// RateLimit limits requests and wrong credentials; nil means one with defaults.
	RateLimit *ratelimit.Limiter

	// Log gets faults, which clients are not told; nil discards them.
	Log *slog.Logger

	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Authenticator checks requests. It is safe for concurrent use.
type Authenticator struct {
	// Static after New.
	off       bool
	token     *[sha256.Size]byte // hash; nil accepts none
	control   *[sha256.Size]byte // hash; nil accepts none
	owner     contracts.Principal
	jwts      *jwtReader      // nil accepts none
	hosts     map[string]bool // lower case, as in Options
	origins   map[string]bool // canonical
	cross     *http.CrossOriginProtection
	behindTLS bool
	session   func(context.Context, contracts.Principal, string) error
	revoked   func(string)
	known     func(*http.Request, contracts.Principal) error
	rates     *ratelimit.Limiter
	log       *slog.Logger
	now       func() time.Time

	tickets passes
	cookies passes
	shares  *shares
}

// Anonymous is the principal's id when authentication is off.
const Anonymous = "anon"

// New returns an Authenticator.
func New(opts Options) (*Authenticator, error) {
	g := &Authenticator{
		off: opts.Off, hosts: map[string]bool{}, origins: map[string]bool{},
		cross: http.NewCrossOriginProtection(), behindTLS: opts.BehindTLS,
		session: opts.Session, revoked: opts.Revoked, known: opts.Identified, rates: opts.RateLimit,
		log: cmp.Or(opts.Log, slog.New(slog.DiscardHandler)), now: opts.Now,
		tickets: newPasses(ticketTTL, maxTickets), cookies: newPasses(cookieTTL, maxCookies),
	}
	if g.now == nil {
		g.now = time.Now
	}
	if g.rates == nil {
		g.rates = ratelimit.New(ratelimit.Options{Now: g.now})
	}
	if err := g.setCredentials(opts); err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	if err := g.setPlaces(opts); err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	if opts.Off { // nobody needs a share, and nobody may change those of other times
		opts.ShareFile = ""
	}
	var err error
	if g.shares, err = openShares(opts.ShareFile, g.now(), g.log); err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	return g, nil
}

// setCredentials takes over what lets clients in.
func (g *Authenticator) setCredentials(opts Options) error {
	if opts.Off {
		g.owner.ID = Anonymous
		if opts.Token != "" || opts.Keys != nil || opts.ControlToken != "" {
			return errors.New("a credential is of no use when authentication is off")
		}
		return nil
	}
	if opts.Keys != nil {
		g.jwts = newJWTReader(opts, g.now)
	}
	if opts.Token != "" || opts.Keys == nil {
		if err := checkToken(opts.Token); err != nil {
			return err
		}
		sum := sha256.Sum256([]byte(opts.Token))
		g.token = &sum
		g.owner.ID = "key_" + hex.EncodeToString(sum[:8])
	}
	if opts.ControlToken == "" {
		return nil
	}
	if err := checkToken(opts.ControlToken); err != nil {
		return fmt.Errorf("control token: %w", err)
	}
	if opts.ControlToken == opts.Token {
		return errors.New("the control token must differ from the token")
	}
	sum := sha256.Sum256([]byte(opts.ControlToken))
	g.control = &sum
	return nil
}

// setPlaces takes over where requests may come from and go to.
func (g *Authenticator) setPlaces(opts Options) error {
	for _, host := range opts.Hosts {
		g.hosts[strings.ToLower(host)] = true
	}
	for _, origin := range opts.Origins {
		canonical, ok := canonicalOrigin(origin)
		if !ok {
			return fmt.Errorf("%q is not an origin", origin)
		}
		g.origins[canonical] = true
		if err := g.cross.AddTrustedOrigin(canonical); err != nil {
			return err
		}
	}
	return nil
}

// Authorize says who sent the request. It refuses with access_denied if a
// strange web page may have, with unauthenticated if the credential is missing,
// wrong or at its end, and with rate_limited if too many wrong ones came from
// the same address. Accepted are, the first that is present counting:
//
//   - the headers Authorization: Bearer, and x-maestro-api-key,
//     x-composer-api-key or x-evalops-api-key;
//   - the cookie of [Authenticator.Login], for requests of the server's own pages;
//   - a ticket in the query of a GET, which is used up;
//   - a bearer subprotocol.
//
// The last two are for browsers, so that a WebSocket with one needs an Origin. A
// cookie that is at its end, or that a request may not use, counts as absent:
// the browser adds it to requests that mean to do without.
func (g *Authenticator) Authorize(r *http.Request) (contracts.Principal, error) {
	p, err := g.authorize(r)
	if err == nil {
		err = g.identified(r, p)
	}
	if err != nil {
		return contracts.Principal{}, err
	}
	return p, nil
}

func (g *Authenticator) identified(r *http.Request, p contracts.Principal) error {
	if g.known == nil {
		return nil
	}
	return g.known(r, p)
}

func (g *Authenticator) authorize(r *http.Request) (contracts.Principal, error) {
	if err := g.checkHost(r); err != nil {
		return contracts.Principal{}, err
	}
	origin, err := g.checkOrigin(r)
	if err != nil {
		return contracts.Principal{}, err
	}
	if g.off {
		return g.owner, nil
	}
	if key, err := headerKey(r.Header); err != nil || key != "" {
		return g.admit(r, key, err)
	}
	p, cookieErr := g.cookieHolder(r, origin)
	if cookieErr == nil {
		return p, nil
	}
	ticket, err := queryTicket(r)
	if err != nil {
		return contracts.Principal{}, err
	}
	key, err := protocolKey(r.Header)
	switch {
	case err != nil:
		return contracts.Principal{}, err
	case ticket == "" && key == "":
		return contracts.Principal{}, g.counted(r, cookieErr)
	case origin == "" && r.Header.Get("Upgrade") != "":
		return contracts.Principal{}, denied("an Origin is required with this credential")
	case ticket != "":
		return g.redeem(r, ticket, origin)
	}
	return g.admit(r, key, nil)
}

// admit checks a key that was presented.
func (g *Authenticator) admit(r *http.Request, key string, err error) (contracts.Principal, error) {
	if err != nil {
		return contracts.Principal{}, err
	}
	p, err := g.holder(key)
	return p, g.counted(r, err)
}

// holder returns whose key it is.
func (g *Authenticator) holder(key string) (contracts.Principal, error) {
	if len(key) > maxCredential {
		return contracts.Principal{}, errWrong
	}
	if equals(key, g.token) {
		return g.owner, nil
	}
	switch {
	case strings.HasPrefix(key, sharePrefix):
		if p, ok := g.shares.holder(key, g.now()); ok {
			return p, nil
		}
	case g.jwts != nil && strings.Count(key, ".") == 2:
		return g.jwts.holder(key)
	}
	return contracts.Principal{}, errWrong
}

// equals reports whether key has the hash, in a time that says nothing about
// either.
func equals(key string, hash *[sha256.Size]byte) bool {
	sum := sha256.Sum256([]byte(key))
	return hash != nil && subtle.ConstantTimeCompare(sum[:], hash[:]) == 1
}

// Alive reports whether the credential of a principal still counts: it has not
// expired, and if it is a share, it has not been revoked. Tickets and cookies
// count no longer than what they were given for. Whoever keeps a connection asks
// once more after having put it where a revocation finds it: one may have come
// since Authorize.
func (g *Authenticator) Alive(p contracts.Principal) bool {
	return !p.Expired(g.now()) && (!isShare(p) || g.shares.has(p.ID, g.now()))
}

// fail answers with err. What is not a refusal is logged.
func (g *Authenticator) fail(w http.ResponseWriter, r *http.Request, err error) {
	if _, refused := errors.AsType[*contracts.Error](err); !refused {
		g.log.Error("request failed", "route", r.Pattern, "error", err)
	}
	httperr.Write(w, err)
}
