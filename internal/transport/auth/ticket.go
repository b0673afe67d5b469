package auth

import (
	"cmp"
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

const (
	ticketTTL  = 30 * time.Second
	loginTTL   = 10 * time.Minute // for a person to open a link
	maxTickets = 4096             // of each kind; beyond it the oldest is forgotten

	maxOfOne = 256 // passes of one kind of one principal except the owner; beyond it its oldest is forgotten
)

var errTicket = unauthenticated("the ticket is unknown, used or expired")

// Mint makes a ticket for one request on behalf of p, valid for 30 seconds, or for a
// login within 10 minutes, and for pages of origin; an empty origin allows all. The request then has the
// rights of p, confined to session unless session is empty, and to role unless it is
// empty or controller. Mint refuses rights that p does not have.
func (g *Authenticator) Mint(p contracts.Principal, session string, role contracts.Role, origin string, login bool) (text string, expires time.Time, err error) {
	if role != "" {
		if err := p.CheckRole(role); err != nil {
			return "", time.Time{}, err
		}
	}
	if p.SessionID != "" && session != "" && session != p.SessionID {
		return "", time.Time{}, denied("this credential is for another session")
	}
	p.SessionID = cmp.Or(session, p.SessionID)
	if role == contracts.RoleViewer || role == contracts.RoleApprover {
		p.Role = role
	}
	if origin != "" {
		canonical, ok := canonicalOrigin(origin)
		if !ok {
			return "", time.Time{}, badRequest("malformed origin")
		}
		origin = canonical
	}
	kind := &g.tickets
	if login {
		kind = &g.logins
	}
	text, expires = kind.add(p, origin, g.opts.Now())
	return text, expires, nil
}

// LoginPath returns the path and query of a link that logs a browser in as the owner,
// once and within 10 minutes. It is "/" if there is no token.
func (g *Authenticator) LoginPath() string {
	if g.token == nil {
		return "/"
	}
	text, _ := g.logins.add(g.owner, "", g.opts.Now())
	return "/login?ticket=" + text
}

// redeem uses up a ticket, even if it then does not fit the request.
func (g *Authenticator) redeem(r *http.Request, text, origin string, login bool) (contracts.Principal, error) {
	used, ok := g.tickets.find(text, true, g.opts.Now())
	if !ok && login {
		used, ok = g.logins.find(text, true, g.opts.Now())
	}
	switch {
	case !ok || !g.Alive(used.holder):
		return contracts.Principal{}, g.countFailure(r, errTicket)
	case used.origin != "" && used.origin != origin && !ownRead(r, used.origin, origin):
		return contracts.Principal{}, denied("the ticket is for another origin")
	}
	return used.holder, nil
}

// ownRead reports whether a request without an Origin comes from the page that
// the ticket is for. Browsers send no Origin when a page reads from its own
// server.
func ownRead(r *http.Request, wanted, origin string) bool {
	return origin == "" && r.Header.Get("Sec-Fetch-Site") == "same-origin" && sameOrigin(wanted, r.Host)
}

// WhoAmI serves GET /api/headless/whoami: it says whose credential the request
// has, and what it allows. A page asks it who its reader is.
func (g *Authenticator) WhoAmI() http.Handler {
	return httperr.Methods{"GET": g.route(func(w http.ResponseWriter, r *http.Request) (any, error) {
		p, err := g.authorizeOwnRoute(w, r)
		if err != nil {
			return nil, err
		}
		w.Header().Set("Cache-Control", "no-store")
		answer := &contracts.WhoAmI{
			Principal: p.ID, Name: p.Name, Role: cmp.Or(p.Role, contracts.RoleController), SessionID: p.SessionID,
			Version: g.opts.Version, WebPush: g.opts.WebPush,
		}
		if !p.Expires.IsZero() {
			answer.ExpiresAt = timestamp(p.Expires)
		}
		return answer, nil
	})}
}

// Tickets serves POST /api/headless/ws-tickets: it makes a ticket for the
// principal of the request, bound to the session and role in the body and to
// the request's Origin.
func (g *Authenticator) Tickets() http.Handler {
	return httperr.Methods{"POST": g.route(func(w http.ResponseWriter, r *http.Request) (any, error) {
		principal, err := g.authorizeOwnRoute(w, r)
		if err != nil {
			return nil, err
		}
		var req contracts.TicketRequest
		if err := readBody(w, r, &req); err != nil {
			return nil, err
		}
		if req.SessionID != "" && !contracts.ValidID(req.SessionID) {
			return nil, badRequest("malformed session id")
		}
		text, expires, err := g.Mint(principal, req.SessionID, req.Role, r.Header.Get("Origin"), req.Login)
		if err != nil {
			return nil, err
		}
		return &contracts.TicketAnswer{Ticket: text, ExpiresAt: timestamp(expires)}, nil
	})}
}

// A pass is a secret that stands for a principal for a limited time: a ticket
// or a cookie.
type pass struct {
	key     [sha256.Size]byte // a hash, so that the duration of a lookup says nothing about the secret
	holder  contracts.Principal
	origin  string // canonical; empty allows every allowed origin
	expires time.Time
}

// passes are the valid passes. All live equally long, so they expire in the
// order in which they were made.
type passes struct {
	ttl  time.Duration
	most int // beyond it the oldest is forgotten

	mu    sync.Mutex
	order *list.List                          // of *pass, oldest first; at most most
	byKey map[[sha256.Size]byte]*list.Element // into order
}

func newPasses(ttl time.Duration, most int) passes {
	return passes{ttl: ttl, most: most, order: list.New(), byKey: map[[sha256.Size]byte]*list.Element{}}
}

// newSecret returns 256 random bits as base64url text.
func newSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails; it ends the program instead
	return base64.RawURLEncoding.EncodeToString(secret)
}

// add makes a pass and returns its secret, which is not stored.
func (p *passes) add(holder contracts.Principal, origin string, now time.Time) (secret string, expires time.Time) {
	secret = newSecret()
	expires = now.Add(p.ttl)
	made := &pass{key: sha256.Sum256([]byte(secret)), holder: holder, origin: origin, expires: expires}
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.order.Front(); e != nil; e = p.order.Front() {
		if old := e.Value.(*pass); p.order.Len() < p.most && now.Before(old.expires) {
			break
		}
		p.remove(e)
	}
	if !holder.Owner() {
		p.makeRoom(holder.ID)
	}
	p.byKey[made.key] = p.order.PushBack(made)
	return secret, expires
}

// makeRoom removes the oldest pass of a principal that has maxOfOne, so that one principal
// cannot end the passes of others. The caller holds mu.
func (p *passes) makeRoom(principalID string) {
	held := 0
	for e := p.order.Back(); e != nil; e = e.Prev() {
		if e.Value.(*pass).holder.ID != principalID {
			continue
		}
		if held++; held == maxOfOne {
			p.remove(e)
			return
		}
	}
}

// find returns the valid pass with a secret, and removes it if it is used up.
func (p *passes) find(secret string, usedUp bool, now time.Time) (found pass, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.byKey[sha256.Sum256([]byte(secret))]
	if e == nil {
		return pass{}, false
	}
	found = *e.Value.(*pass)
	ok = now.Before(found.expires)
	if usedUp || !ok {
		p.remove(e)
	}
	return found, ok
}

// forget removes the passes of a principal.
func (p *passes) forget(principalID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.order.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*pass).holder.ID == principalID {
			p.remove(e)
		}
		e = next
	}
}

// remove removes a pass. The caller holds mu.
func (p *passes) remove(e *list.Element) {
	delete(p.byKey, p.order.Remove(e).(*pass).key)
}
