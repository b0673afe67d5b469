package auth

import (
	"net/http"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	ticketTTL  = 30 * time.Second
	maxTickets = 4096 // beyond, the oldest is forgotten
)

var errTicket = unauthenticated("the ticket is unknown, used or expired")

// Mint makes a ticket for one request on behalf of p, within 30 seconds and
// from pages of origin; an empty origin leaves that open. The request is then
// p's, confined to session unless that is empty, and to viewing if role is
// viewer. It refuses what p may not do itself.
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

// redeem uses a ticket up, whether or not it then fits the request.
func (g *Authenticator) redeem(r *http.Request, text, origin string) (contracts.Principal, error) {
	used, ok := g.tickets.take(text, g.now())
	switch {
	case !ok || !g.Alive(used.holder):
		return contracts.Principal{}, g.counted(r, errTicket)
	case used.origin != "" && used.origin != origin && !ownRead(r, used.origin, origin):
		return contracts.Principal{}, denied("the ticket is for another origin")
	}
	return used.holder, nil
}

// ownRead reports whether a request without an Origin, as browsers send it when
// a page reads from its own server, comes from the page that the ticket is for.
func ownRead(r *http.Request, wanted, origin string) bool {
	return origin == "" && r.Header.Get("Sec-Fetch-Site") == "same-origin" && sameOrigin(wanted, r.Host)
}

// Tickets serves POST /api/headless/ws-tickets: who presents a key gets a
// ticket that is bound to what the body names and to the Origin it came from.
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

// A ticketAnswer is what it gets.
type ticketAnswer struct {
	Ticket    string `json:"ticket"`
	ExpiresAt string `json:"expires_at"`
}

func (g *Authenticator) issue(w http.ResponseWriter, r *http.Request) (*ticketAnswer, error) {
	if r.Method != http.MethodPost {
		return nil, notAllowed(w, http.MethodPost)
	}
	principal, err := g.request(w, r)
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

// validID reports whether s can be an id.
func validID(s string) bool {
	return s != "" && len(s) <= contracts.MaxIDBytes && !strings.ContainsFunc(s, notInID)
}

func notInID(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:-", r)
}
