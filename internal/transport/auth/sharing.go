package auth

import (
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

// Shares serves the shares of a session:
//
//	POST   /api/headless/sessions/{id}/shares             makes one
//	GET    /api/headless/sessions/{id}/shares             lists them, without their tokens
//	DELETE /api/headless/sessions/{id}/shares/{share_id}  revokes one
//
// Mount it for /api/headless/sessions/{id}/shares and the same with
// /{share_id}. It refuses principals that may not control the session, and
// bearers of shares. A share has the scope of the principal that makes it, and
// ends with that principal's credential at the latest.
func (g *Authenticator) Shares() http.Handler {
	all := httperr.Methods{"POST": g.sharing(g.mintShare), "GET": g.sharing(g.listShares)}
	one := httperr.Methods{"DELETE": g.sharing(g.revoke)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("share_id") == "" {
			all.ServeHTTP(w, r)
		} else {
			one.ServeHTTP(w, r)
		}
	})
}

// sharing refuses a request about shares, or serves it with its principal and session.
func (g *Authenticator) sharing(serve func(http.ResponseWriter, *http.Request, contracts.Principal, string) (any, error)) http.HandlerFunc {
	return g.route(func(w http.ResponseWriter, r *http.Request) (any, error) {
		p, err := g.authorizeOwnRoute(w, r)
		session := strings.Clone(r.PathValue("id")) // a copy, because shares outlive requests
		switch {
		case err != nil:
		case g.opts.Off:
			err = denied("with authentication off, everybody may attach")
		case isShare(p):
			err = denied("a share cannot be shared")
		case p.Role != "":
			err = p.CheckRole(contracts.RoleController)
		case !contracts.ValidID(session):
			err = badRequest("malformed session id")
		case p.SessionID != "" && p.SessionID != session:
			err = denied("this credential is for another session")
		case g.opts.Session != nil:
			err = g.opts.Session(r.Context(), p, session)
		}
		if err != nil {
			return nil, err
		}
		return serve(w, r, p, session)
	})
}

func (g *Authenticator) mintShare(w http.ResponseWriter, r *http.Request, p contracts.Principal, session string) (any, error) {
	req := contracts.ShareRequest{Role: contracts.RoleViewer}
	if err := readBody(w, r, &req); err != nil {
		return nil, err
	}
	ttl := defaultShareTTL
	if n := req.ExpiresInSeconds; n != nil {
		ttl = time.Duration(min(max(*n, 0), int64(2*maxShareTTL/time.Second))) * time.Second
	}
	switch {
	case ttl <= 0 || ttl > maxShareTTL:
		return nil, badRequest("expiresInSeconds must be a whole number from 1 to 2592000")
	case !validLabel(req.Label):
		return nil, badRequest("label must be a text of at most 64 bytes")
	}
	now := g.opts.Now().UTC().Truncate(time.Millisecond) // precision of the answer
	one := &share{Scope: p.Scope, SessionID: session, Role: req.Role, Label: req.Label, CreatedAt: now, ExpiresAt: now.Add(ttl)}
	if !p.Expires.IsZero() && p.Expires.Before(one.ExpiresAt) {
		one.ExpiresAt = p.Expires
	}
	token, err := g.shares.mint(one, now)
	if err != nil {
		return nil, err
	}
	return &contracts.ShareAnswer{ShareID: one.ID, Token: token, Role: req.Role, SessionID: session, ExpiresAt: timestamp(one.ExpiresAt)}, nil
}

func validLabel(s string) bool {
	return len(s) <= maxLabel && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func (g *Authenticator) listShares(_ http.ResponseWriter, _ *http.Request, p contracts.Principal, session string) (any, error) {
	list := &contracts.ShareList{}
	for _, one := range g.shares.live(g.opts.Now()) {
		if one.Scope == p.Scope && one.SessionID == session {
			used := g.shares.usages.of(one.ID)
			answer := contracts.ShareAnswer{
				ShareID: one.ID, Role: one.Role, Label: one.Label,
				CreatedAt: timestamp(one.CreatedAt), ExpiresAt: timestamp(one.ExpiresAt),
				Uses: used.Uses, LastUsedFrom: used.From,
			}
			if used.Uses > 0 {
				answer.LastUsedAt = timestamp(used.At)
			}
			list.Shares = append(list.Shares, answer)
		}
	}
	return list, nil
}

func (g *Authenticator) revoke(_ http.ResponseWriter, r *http.Request, p contracts.Principal, session string) (any, error) {
	id := r.PathValue("share_id")
	found, err := g.shares.revoke(p.Scope, session, id, g.opts.Now())
	if found {
		g.opts.Revoked(shareOwner + id) // even if the share would return after a restart
	}
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, &contracts.Error{Code: contracts.CodeNotFound, Message: "share not found"}
	}
	return &contracts.SuccessAnswer{Success: true}, nil
}

// RevokeShares revokes all shares of a session that was removed, so that they are not for
// a later session of the same id.
func (g *Authenticator) RevokeShares(scope, session string) error {
	var failed error
	now := g.opts.Now()
	for _, one := range g.shares.live(now) {
		if one.Scope == scope && one.SessionID == session {
			_, err := g.shares.revoke(scope, session, one.ID, now)
			g.opts.Revoked(shareOwner + one.ID)
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
