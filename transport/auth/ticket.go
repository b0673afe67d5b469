package auth

import (
	"net/http"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	ticketTTL  = 30 * time.Second
	maxTickets = 4096 // beyond it the oldest is forgotten
)

var errTicket = unauthenticated("the ticket is unknown, used or expired")

// Mint makes a ticket for one request on behalf of p, valid for 30 seconds and
// for pages of origin; an empty origin allows all. The request then has the
// rights of p, confined to session unless session is empty, and to viewing if
// role is viewer. Mint refuses rights that p does not have.
func (g *Authenticator) Mint(p contracts.Principal, session string, role contracts.Role, origin string) (text string, expires time.Time, err error) {
	if p.Role == contracts.RoleViewer && role == contracts.RoleController {
		return "", time.Time{}, denied("this credential only allows viewing")
	}
	if p.SessionID != "" && session != "" && session != p.SessionID {
		return "", time.Time{}, denied("this credential is for another session")
	}
	if session != "" {
		p.SessionID = session
	}
	if role == contracts.RoleViewer {
		p.Role = role
	}
	if origin != "" {
		canonical, ok := canonicalOrigin(origin)
		if !ok {
			return "", time.Time{}, badRequest("malformed origin")
		}
		origin = canonical
	}
	text, expires = g.tickets.add(p, origin, g.now())
	return text, expires, nil
}

// redeem uses up a ticket, even if it then does not fit the request.
func (g *Authenticator) redeem(r *http.Request, text, origin string) (contracts.Principal, error) {
	used, ok := g.tickets.use(text, g.now())
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

// Tickets serves POST /api/headless/ws-tickets: it makes a ticket for the
// principal of the request, bound to the session and role in the body and to
// the request's Origin.
func (g *Authenticator) Tickets() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := g.issue(w, r)
		if err != nil {
			g.fail(w, r, err)
			return
		}
		reply(w, answer)
	})
}

type ticketAnswer struct {
	Ticket    string `json:"ticket"`
	ExpiresAt string `json:"expires_at"`
}

func (g *Authenticator) issue(w http.ResponseWriter, r *http.Request) (*ticketAnswer, error) {
	if r.Method != http.MethodPost {
		return nil, notAllowed(w, http.MethodPost)
	}
	principal, err := g.authorizeOwnRoute(w, r)
	if err != nil {
		return nil, err
	}
	session, role, err := readTicketRequest(w, r)
	if err != nil {
		return nil, err
	}
	text, expires, err := g.Mint(principal, session, role, r.Header.Get("Origin"))
	if err != nil {
		return nil, err
	}
	return &ticketAnswer{text, timestamp(expires)}, nil
}

// readTicketRequest reads the body, {sessionId?, role?}. It may be empty.
func readTicketRequest(w http.ResponseWriter, r *http.Request) (session string, role contracts.Role, err error) {
	members, err := readBody(w, r, "sessionId", "role")
	if err != nil {
		return "", "", err
	}
	session, okSession := members.text("sessionId")
	text, okRole := members.text("role")
	role = contracts.Role(text)
	switch {
	case !okSession || !okRole:
		return "", "", badRequest("sessionId and role must be strings")
	case role != "" && role != contracts.RoleViewer && role != contracts.RoleController:
		return "", "", badRequest("role must be viewer or controller")
	case session != "" && !validID(session):
		return "", "", badRequest("malformed session id")
	}
	return session, role, nil
}

// validID reports whether s is a legal id.
func validID(s string) bool {
	return s != "" && len(s) <= contracts.MaxIDBytes && !strings.ContainsFunc(s, notInID)
}

func notInID(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:-", r)
}
