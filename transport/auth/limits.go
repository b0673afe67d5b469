package auth

import (
	"errors"
	"net/http"
	"net/netip"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/ratelimit"
)

// counted returns err, the outcome of looking at a credential. A wrong one
// counts against the address it came from, and beyond the limit the refusal says
// so.
//
// A right credential is never refused for the wrong ones of others: behind a
// proxy all have one address, and whoever can reach it could lock all out. What
// keeps a credential from being guessed is its length.
func (g *Authenticator) counted(r *http.Request, err error) error {
	if err == nil || err == errMissing || !errors.Is(err, &contracts.Error{Code: contracts.CodeUnauthenticated}) {
		return err
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // one that is none has an allowance as well
	if g.rates.Failure(from.Addr()) > 0 {
		return &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many wrong credentials"}
	}
	return err
}

// request is Authorize for a route of the authenticator itself, and counts the request.
func (g *Authenticator) request(w http.ResponseWriter, r *http.Request) (contracts.Principal, error) {
	p, err := g.Authorize(r)
	if err != nil {
		return contracts.Principal{}, err
	}
	return p, ratelimit.Refusal(w.Header(), g.rates.Request(p.ID))
}
