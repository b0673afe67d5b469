package auth

import (
	"errors"
	"net/http"
	"net/netip"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/ratelimit"
)

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
	if g.rates.Failure(from.Addr()) > 0 {
		return &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many wrong credentials"}
	}
	return err
}

// authorizeOwnRoute is Authorize for a route of this package. It also counts
// the request.
func (g *Authenticator) authorizeOwnRoute(w http.ResponseWriter, r *http.Request) (contracts.Principal, error) {
	p, err := g.Authorize(r)
	if err != nil {
		return contracts.Principal{}, err
	}
	return p, ratelimit.Refusal(w.Header(), g.rates.Request(p.ID))
}
