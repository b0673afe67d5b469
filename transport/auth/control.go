package auth

import (
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
)

// Control refuses a request that may not control the server itself, such as
// drain it. With authentication on, it requires the control token as
// Authorization: Bearer. It refuses a missing credential with unauthenticated,
// and a client's credential with access_denied. With authentication off, it
// checks Host and Origin only.
func (g *Authenticator) Control(r *http.Request) error {
	if err := g.checkHost(r); err != nil {
		return err
	}
	if _, err := g.checkOrigin(r); err != nil {
		return err
	}
	owner := contracts.Principal{} // control requests have the bounds of the owner
	if g.off {
		return g.identified(r, owner)
	}
	key, ok, err := bearerKey(r.Header)
	switch {
	case err != nil:
		return err
	case ok && equals(key, g.control):
		return g.identified(r, owner)
	}
	// A client with a valid credential gets access_denied.
	if _, err := g.Authorize(r); err != nil {
		return err
	}
	return denied("the control credential is required")
}
