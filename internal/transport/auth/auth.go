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
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
	"github.com/seed-028515a8/maestro/internal/transport/ratelimit"
)

// Options configures [New].
type Options struct {
	// Token authenticates a client as the owner of the server. It has at least 16
	// bytes of printable ASCII without spaces. It may be empty with Off, Keys or
	// Authenticate.
	Token string

	// Off admits every request as the anonymous principal, without a credential.
	// Host and Origin are still checked. The caller must make the server listen
	// on loopback addresses only.
	Off bool

	// Keys verify JWTs, which are accepted besides the token; nil accepts none.
	Keys *Keys

	// Authenticate returns the principal of a request that has none of the other
	// credentials; nil accepts none. An error that is no [contracts.Error] is refused
	// with unauthenticated. Host and Origin have been checked.
	Authenticate func(*http.Request) (contracts.Principal, error)

	// Issuer is the required iss of a JWT, and Audience must be in its aud. An
	// empty one is not checked.
	Issuer, Audience string

	// ScopeClaim names the claim of a JWT that sets the principal's scope. Empty
	// means "scope". If the issuer uses "scope" for OAuth scopes, choose another
	// name; otherwise all its users share their sessions.
	ScopeClaim string

	// ControlToken authorizes control of the server itself. It has the form of
	// Token and must differ from it. If it is empty and authentication is on,
	// control is refused to all.
	ControlToken string

	// MetricsToken authorizes Metrics and nothing else. It has the form of Token and
	// must differ from the other tokens. If it is empty, only the owner is authorized.
	MetricsToken string

	// ShareFile keeps the shares across restarts. Only one process may use it at
	// a time. Empty keeps them in memory.
	ShareFile string

	// CookieFile keeps the cookies across restarts, but not across a change of the
	// token or the keys. Only one process may use it at a time. Empty keeps them in
	// memory.
	CookieFile string

	Version string // of the server; WhoAmI tells it
	WebPush bool   // the server sends Web Push; WhoAmI tells it

	// Page says that the server has a page at /, which explains to the reader of a
	// browser why a link did not log in.
	Page bool

	// Session returns an error for a session that the principal cannot share,
	// such as an unknown one; nil allows all.
	Session func(ctx context.Context, p contracts.Principal, sessionID string) error

	// Revoked is called with the principal ID of each revoked share, so that the
	// principal's connections can be closed. It must not wait for requests. It
	// may be nil.
	Revoked func(principalID string)

	// Hosts are names, besides the loopback ones, by which clients reach the
	// server. A name with a port is valid with that port only.
	Hosts []string

	// Origins are web origins, such as https://app.example.com, whose pages may
	// use the server besides its own pages.
	Origins []string

	// BehindTLS says that a proxy ends TLS in front of the server, so that
	// cookies get the Secure attribute.
	BehindTLS bool

	// Identified is called with the principal of a request, and may refuse it;
	// nil refuses none.
	Identified func(*http.Request, contracts.Principal) error

	// Refuse answers a request that Wrap refuses; nil means httperr.Write.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)

	// RateLimit limits requests and wrong credentials; nil means a limiter with
	// defaults.
	RateLimit *ratelimit.Limiter

	// Log gets internal errors, which clients do not see; nil discards them.
	Log *slog.Logger

	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Authenticator checks requests. It is safe for concurrent use.
type Authenticator struct {
	// Static after New.
	opts    Options            // without the tokens
	token   *[sha256.Size]byte // hash; nil accepts none
	control *[sha256.Size]byte // hash; nil accepts none
	metrics *[sha256.Size]byte // hash; nil accepts none
	owner   contracts.Principal
	jwts    *jwtReader      // nil accepts none
	hosts   map[string]bool // lower case, as in Options
	origins map[string]bool // canonical
	cross   *http.CrossOriginProtection

	tickets passes
	logins  passes // tickets for Login only
	cookies *cookies
	shares  *shares

	signOuts signOuts
}

// Anonymous is the principal's id when authentication is off.
const Anonymous = "anon"

// ownerPrefix begins the id of the owner. No other principal has it.
const ownerPrefix = "key_"

// New returns an Authenticator.
func New(opts Options) (*Authenticator, error) {
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.RateLimit = cmp.Or(opts.RateLimit, ratelimit.New(ratelimit.Options{Now: opts.Now}))
	if opts.Identified == nil {
		opts.Identified = func(*http.Request, contracts.Principal) error { return nil }
	}
	if opts.Refuse == nil {
		opts.Refuse = func(w http.ResponseWriter, _ *http.Request, err error) { httperr.Write(w, err) }
	}
	if opts.Revoked == nil {
		opts.Revoked = func(string) {}
	}
	if opts.Off { // no share or cookie is needed, and those in the files must not change
		opts.ShareFile, opts.CookieFile = "", ""
	}
	g := &Authenticator{
		hosts: map[string]bool{}, origins: map[string]bool{}, cross: http.NewCrossOriginProtection(),
		tickets: newPasses(ticketTTL, maxTickets), logins: newPasses(loginTTL, maxTickets),
	}
	err := g.setCredentials(opts)
	if err == nil {
		err = g.setHostsAndOrigins(opts)
	}
	if err == nil {
		g.shares, err = openShares(opts.ShareFile, opts.Now(), opts.Log)
	}
	if err == nil {
		g.cookies, err = openCookies(opts, g.credentials(opts))
	}
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	opts.Token, opts.ControlToken, opts.MetricsToken = "", "", ""
	g.opts = opts
	return g, nil
}

// setCredentials sets the tokens and the keys.
func (g *Authenticator) setCredentials(opts Options) error {
	if opts.Off {
		g.owner.ID, g.owner.Name = Anonymous, "anonymous"
		if opts.Token != "" || opts.Keys != nil || opts.Authenticate != nil || opts.ControlToken != "" || opts.MetricsToken != "" {
			return errors.New("a credential is of no use when authentication is off")
		}
		return nil
	}
	if opts.Keys != nil {
		g.jwts = newJWTReader(opts)
	}
	if opts.Token != "" || opts.Keys == nil && opts.Authenticate == nil {
		if err := CheckToken(opts.Token); err != nil {
			return err
		}
		g.token = new(sha256.Sum256([]byte(opts.Token)))
		g.owner.ID, g.owner.Name = ownerPrefix+hex.EncodeToString(g.token[:8]), "owner"
	}
	others := []string{opts.Token}
	for _, t := range []struct {
		name, text string
		hash       **[sha256.Size]byte
	}{{"control token", opts.ControlToken, &g.control}, {"metrics token", opts.MetricsToken, &g.metrics}} {
		if t.text == "" {
			continue
		}
		if err := CheckToken(t.text); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if slices.Contains(others, t.text) {
			return fmt.Errorf("the %s must differ from the other tokens", t.name)
		}
		others = append(others, t.text)
		*t.hash = new(sha256.Sum256([]byte(t.text)))
	}
	return nil
}

// setHostsAndOrigins sets the accepted hosts and origins.
func (g *Authenticator) setHostsAndOrigins(opts Options) error {
	for _, host := range opts.Hosts {
		if err := CheckHost(host); err != nil {
			return err
		}
		g.hosts[strings.ToLower(host)] = true
	}
	for _, origin := range opts.Origins {
		if err := CheckOrigin(origin); err != nil {
			return err
		}
		canonical, _ := canonicalOrigin(origin)
		g.origins[canonical] = true
		if err := g.cross.AddTrustedOrigin(canonical); err != nil {
			return err
		}
	}
	return nil
}

// Authorize returns the principal of a request. It refuses with access_denied
// if a foreign web page may have sent the request, with unauthenticated if the
// credential is missing, wrong or expired, and with rate_limited after too many
// wrong credentials from the same address. It uses the first credential present
// of:
//
//   - the headers Authorization: Bearer, and x-maestro-api-key,
//     x-composer-api-key or x-evalops-api-key;
//   - the cookie of [Authenticator.Login], for requests of the server's own
//     pages;
//   - a ticket in the query of a GET, which is used up;
//   - a bearer subprotocol;
//   - what [Options].Authenticate accepts. It is also asked about a header or a
//     subprotocol with an unknown key.
//
// A ticket and a subprotocol are for browsers, so a WebSocket request with one must
// have an Origin. A cookie that has expired, or that the request may not use, counts as
// absent, because browsers also add it to requests that do not want it.
func (g *Authenticator) Authorize(r *http.Request) (contracts.Principal, error) {
	p, err := g.authorize(r)
	if err == nil {
		err = g.opts.Identified(r, p)
	}
	if err != nil {
		return contracts.Principal{}, err
	}
	if isShare(p) {
		g.shares.usages.note(strings.TrimPrefix(p.ID, shareOwner), r.RemoteAddr, g.opts.Now())
	}
	return p, nil
}

// CheckSender refuses a request whose Host or Origin is not the server's.
func (g *Authenticator) CheckSender(r *http.Request) error {
	_, err := g.checkSender(r)
	return err
}

// Close writes what is known about the use of shares to the file. The Authenticator
// stays usable.
func (g *Authenticator) Close() error { return g.shares.flush(g.opts.Now()) }

func (g *Authenticator) authorize(r *http.Request) (contracts.Principal, error) {
	origin, err := g.checkSender(r)
	if err != nil {
		return contracts.Principal{}, err
	}
	if g.opts.Off {
		return g.owner, nil
	}
	key, err := headerKey(r.Header)
	switch {
	case err != nil:
		return contracts.Principal{}, err
	case key != "":
		return g.admit(r, key)
	}
	p, cookieErr := g.cookieHolder(r, origin)
	if cookieErr == nil {
		return p, nil
	}
	ticket, err := queryTicket(r)
	key, errKey := protocolKey(r.Header)
	switch {
	case err != nil || errKey != nil:
		return contracts.Principal{}, cmp.Or(err, errKey)
	case ticket == "" && key == "":
		return g.ask(r, cookieErr)
	case origin == "" && r.Header.Get("Upgrade") != "":
		return contracts.Principal{}, denied("an Origin is required with this credential")
	case ticket != "":
		return g.redeem(r, ticket, origin, false)
	}
	return g.admit(r, key)
}

// admit checks the credential in key.
func (g *Authenticator) admit(r *http.Request, key string) (contracts.Principal, error) {
	p, err := g.holder(key)
	if err == errWrong {
		return g.ask(r, err)
	}
	return p, g.countFailure(r, err)
}

// holder returns the principal of a key.
func (g *Authenticator) holder(key string) (contracts.Principal, error) {
	if len(key) > maxCredential {
		return contracts.Principal{}, errWrong
	}
	if equals(key, g.token) {
		return g.owner, nil
	}
	switch {
	case strings.HasPrefix(key, sharePrefix):
		hash := hashOfToken(key)
		if one := g.shares.find(g.opts.Now(), func(one *share) bool { return one.SHA256 == hash }); one != nil {
			return one.bearer(), nil
		}
	case g.jwts != nil && strings.Count(key, ".") == 2:
		return g.jwts.holder(key)
	}
	return contracts.Principal{}, errWrong
}

// countFailure counts a wrong credential against the remote address and returns
// err, the outcome of checking the credential. Beyond the limit it returns a
// refusal with rate_limited instead.
//
// A right credential is never refused because of wrong ones: behind a proxy all
// clients have one address, so one client could lock out all. The length of
// credentials protects them from guessing.
func (g *Authenticator) countFailure(r *http.Request, err error) error {
	if err == nil || err == errMissing || !errors.Is(err, &contracts.Error{Code: contracts.CodeUnauthenticated}) {
		return err
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // an invalid address has an allowance as well
	if g.opts.RateLimit.Failure(from.Addr()) > 0 {
		return &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many wrong credentials"}
	}
	return err
}

// equals reports whether key has the hash, in constant time.
func equals(key string, hash *[sha256.Size]byte) bool {
	sum := sha256.Sum256([]byte(key))
	return hash != nil && subtle.ConstantTimeCompare(sum[:], hash[:]) == 1
}

// Alive reports whether the credential of a principal is still valid: it has
// not expired, a share has not been revoked, and SignOut was not called for a principal of
// Options.Authenticate. A ticket or cookie is valid no longer than the credential that
// it was made for. Call Alive again after registering a connection: the credential may
// have been revoked between Authorize and registration.
func (g *Authenticator) Alive(p contracts.Principal) bool {
	return !p.Expired(g.opts.Now()) && (!isShare(p) || g.shares.has(p.ID, g.opts.Now())) && !g.signedOut(p)
}

// StillAlive is Alive for a principal that an earlier process may have stored: the owner
// must have the present token.
func (g *Authenticator) StillAlive(p contracts.Principal) bool {
	owner := p.ID == Anonymous || strings.HasPrefix(p.ID, ownerPrefix)
	return g.Alive(p) && (!owner || p.ID == g.owner.ID)
}

// Control refuses a request that may not control the server itself, such as
// drain it. With authentication on, it requires the control token as
// Authorization: Bearer. It refuses a missing credential with unauthenticated,
// and a client's credential with access_denied. With authentication off, it
// checks Host and Origin only.
func (g *Authenticator) Control(r *http.Request) error {
	if _, err := g.checkSender(r); err != nil {
		return err
	}
	key, err := bearerKey(r.Header)
	switch {
	case g.opts.Off, err == nil && equals(key, g.control):
		return g.opts.Identified(r, contracts.Principal{}) // control requests have the bounds of the owner
	case err != nil:
		return err
	}
	// A client with a valid credential gets access_denied.
	if _, err := g.Authorize(r); err != nil {
		return err
	}
	return denied("the control credential is required")
}

// Metrics refuses a request that may not read the metrics of all sessions. It accepts the
// metrics token as Authorization: Bearer, and the owner. It refuses other clients with
// access_denied. With authentication off, it checks Host and Origin only.
func (g *Authenticator) Metrics(r *http.Request) error {
	if _, err := g.checkSender(r); err != nil {
		return err
	}
	if key, err := bearerKey(r.Header); err == nil && equals(key, g.metrics) {
		return g.opts.Identified(r, contracts.Principal{}) // with the bounds of the owner
	}
	p, err := g.Authorize(r)
	if err == nil && !p.Owner() {
		err = denied("the metrics of all sessions are for the server's owner and the metrics token")
	}
	return err
}
