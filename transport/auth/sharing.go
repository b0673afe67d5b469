package auth

import (
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := g.serveShares(w, r)
		if err != nil {
			g.fail(w, r, err)
			return
		}
		reply(w, answer)
	})
}

func (g *Authenticator) serveShares(w http.ResponseWriter, r *http.Request) (answer any, err error) {
	one := r.PathValue("share_id")
	switch {
	case one == "" && r.Method != http.MethodPost && r.Method != http.MethodGet:
		return nil, notAllowed(w, "GET, POST")
	case one != "" && r.Method != http.MethodDelete:
		return nil, notAllowed(w, http.MethodDelete)
	}
	p, session, err := g.authorizeSharing(w, r)
	switch {
	case err != nil:
		return nil, err
	case one != "":
		return g.revoke(p, session, one)
	case r.Method == http.MethodPost:
		return g.mintShare(w, r, p, session)
	}
	return g.listShares(p, session), nil
}

// authorizeSharing returns the principal and the session of a request about
// shares, or refuses it.
func (g *Authenticator) authorizeSharing(w http.ResponseWriter, r *http.Request) (p contracts.Principal, session string, err error) {
	p, err = g.authorizeOwnRoute(w, r)
	session = strings.Clone(r.PathValue("id")) // a copy, because shares outlive requests
	switch {
	case err != nil:
	case g.off:
		err = denied("with authentication off, everybody may attach")
	case isShare(p):
		err = denied("a share cannot be shared")
	case p.Role == contracts.RoleViewer:
		err = denied("this credential only allows viewing")
	case !validID(session):
		err = badRequest("malformed session id")
	case p.SessionID != "" && p.SessionID != session:
		err = denied("this credential is for another session")
	case g.session != nil:
		err = g.session(r.Context(), p, session)
	}
	return p, session, err
}

// A shareAnswer describes a share. Only the answer to POST has the token.
type shareAnswer struct {
	ShareID   string         `json:"share_id"`
	Token     string         `json:"token,omitempty"`
	Role      contracts.Role `json:"role"`
	SessionID string         `json:"session_id,omitempty"`
	Label     string         `json:"label,omitempty"`
	CreatedAt string         `json:"created_at,omitempty"`
	ExpiresAt string         `json:"expires_at"`
}

func (g *Authenticator) mintShare(w http.ResponseWriter, r *http.Request, p contracts.Principal, session string) (*shareAnswer, error) {
	role, label, ttl, err := readShareRequest(w, r)
	if err != nil {
		return nil, err
	}
	now := g.now().UTC().Truncate(time.Millisecond) // precision of the answer
	one := &share{scope: p.Scope, session: session, role: role, label: label, made: now, expires: now.Add(ttl)}
	if !p.Expires.IsZero() && p.Expires.Before(one.expires) {
		one.expires = p.Expires
	}
	token, err := g.shares.mint(one, now)
	if err != nil {
		return nil, err
	}
	return &shareAnswer{ShareID: one.id, Token: token, Role: role, SessionID: session, ExpiresAt: timestamp(one.expires)}, nil
}

// readShareRequest reads the body, {role?, expiresInSeconds?, label?}. It may
// be empty.
func readShareRequest(w http.ResponseWriter, r *http.Request) (role contracts.Role, label string, ttl time.Duration, err error) {
	m, err := readBody(w, r, "role", "expiresInSeconds", "label")
	if err != nil {
		return "", "", 0, err
	}
	text, okRole := m.text("role")
	label, okLabel := m.text("label")
	seconds, present, okSeconds := m.whole("expiresInSeconds")
	role, ttl = contracts.RoleViewer, defaultShareTTL
	if text != "" {
		role = contracts.Role(text)
	}
	if present {
		ttl = time.Duration(min(seconds, int64(2*maxShareTTL/time.Second))) * time.Second
	}
	switch {
	case !okRole || role != contracts.RoleViewer && role != contracts.RoleController:
		err = badRequest("role must be viewer or controller")
	case !okSeconds || ttl <= 0 || ttl > maxShareTTL:
		err = badRequest("expiresInSeconds must be a whole number from 1 to 2592000")
	case !okLabel || !validLabel(label):
		err = badRequest("label must be a text of at most 64 bytes")
	}
	return role, label, ttl, err
}

func validLabel(s string) bool {
	return len(s) <= maxLabel && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

type shareList struct {
	Shares []shareAnswer `json:"shares"`
}

func (g *Authenticator) listShares(p contracts.Principal, session string) *shareList {
	list := &shareList{Shares: []shareAnswer{}}
	for _, one := range g.shares.list(p.Scope, session, g.now()) {
		list.Shares = append(list.Shares, shareAnswer{
			ShareID: one.id, Role: one.role, Label: one.label,
			CreatedAt: timestamp(one.made), ExpiresAt: timestamp(one.expires),
		})
	}
	return list
}

func (g *Authenticator) revoke(p contracts.Principal, session, id string) (answer any, err error) {
	found, err := g.shares.revoke(p.Scope, session, id, g.now())
	if found && g.revoked != nil {
		g.revoked(shareOwner + id) // even if the share would return after a restart
	}
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, &contracts.Error{Code: contracts.CodeNotFound, Message: "share not found"}
	}
	return map[string]bool{"success": true}, nil
}
