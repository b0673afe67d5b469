package auth

import (
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
)

// Control refuses a request that may not control the server itself, such as
// drain it. With authentication on it wants exactly the control token, as
// Authorization: Bearer: without a credential it refuses with unauthenticated,
// with one that is for clients with access_denied. With authentication off it
// checks Host and Origin only.
func (g *Authenticator) Control(r *http.Request) error {
	if err := g.checkHost(r); err != nil {
		return err
	}
	if _, err := g.checkOrigin(r); err != nil {
		return err
	}
	owner := contracts.Principal{} // whoever controls the server is bounded as its owner is
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
	// Whoever is somebody here learns that this is not enough.
	if _, err := g.Authorize(r); err != nil {
		return err
	}
	return denied("the control credential is required")
}
