package gate

import (
	"bytes"
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/httperr"
)

const (
	ticketTTL        = 30 * time.Second
	maxTickets       = 4096    // beyond, the oldest is forgotten
	maxTicketRequest = 4 << 10 // bytes of a request body
)

// A ticket lets one request in. It stands in a URL, where no lasting secret may
// stand.
type ticket struct {
	key     [sha256.Size]byte // hash: a lookup's duration says nothing about the ticket
	holder  contracts.Principal
	origin  string // canonical; empty admits every origin that is allowed at all
	expires time.Time
}

// tickets are those not yet used. All live equally long, so that the order in
// which they were made is that in which they expire.
type tickets struct {
	now func() time.Time

	mu    sync.Mutex
	order *list.List                          // of *ticket, oldest first; at most maxTickets
	byKey map[[sha256.Size]byte]*list.Element // into order
}

func newTickets(now func() time.Time) tickets {
	if now == nil {
		now = time.Now
	}
	return tickets{now: now, order: list.New(), byKey: map[[sha256.Size]byte]*list.Element{}}
}

// Mint makes a ticket for one request on behalf of p, within 30 seconds and
// from pages of origin; an empty origin leaves that open. The request is then
// p's, confined to session unless that is empty, and to viewing if role is
// viewer. It refuses what p may not do itself.
func (g *Gate) Mint(p contracts.Principal, session string, role contracts.Role, origin string) (text string, expires time.Time, err error) {
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
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails: it ends the program rather
	text = base64.RawURLEncoding.EncodeToString(secret)
	return text, g.tickets.add(&ticket{key: sha256.Sum256([]byte(text)), holder: p, origin: origin}), nil
}

// add keeps t and returns when it expires.
func (t *tickets) add(new *ticket) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	new.expires = now.Add(ticketTTL)
	for e := t.order.Front(); e != nil; e = t.order.Front() {
		if old := e.Value.(*ticket); t.order.Len() < maxTickets && now.Before(old.expires) {
			break
		}
		t.remove(e)
	}
	t.byKey[new.key] = t.order.PushBack(new)
	return new.expires
}

func (t *tickets) remove(e *list.Element) {
	delete(t.byKey, t.order.Remove(e).(*ticket).key)
}

// redeem uses a ticket up, whether or not it then fits the request.
func (t *tickets) redeem(text, origin string) (contracts.Principal, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.byKey[sha256.Sum256([]byte(text))]
	if !ok {
		return contracts.Principal{}, unauthenticated("the ticket is unknown, used or expired")
	}
	used := e.Value.(*ticket)
	t.remove(e)
	switch {
	case !t.now().Before(used.expires):
		return contracts.Principal{}, unauthenticated("the ticket is unknown, used or expired")
	case used.origin != "" && used.origin != origin:
		return contracts.Principal{}, denied("the ticket is for another origin")
	}
	return used.holder, nil
}

// Tickets serves POST /api/headless/ws-tickets: who presents a key gets a
// ticket that is bound to what the body names and to the Origin it came from.
func (g *Gate) Tickets() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := g.issue(w, r)
		if err != nil {
			httperr.Write(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(answer) // the peer may be gone; its ticket expires
	})
}

// A ticketAnswer is what it gets.
type ticketAnswer struct {
	Ticket    string `json:"ticket"`
	ExpiresAt string `json:"expires_at"`
}

func (g *Gate) issue(w http.ResponseWriter, r *http.Request) (*ticketAnswer, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, &contracts.Error{Code: contracts.CodeMethodNotAllowed, Message: "method not allowed"}
	}
	principal, err := g.Authorize(r)
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
	return &ticketAnswer{text, expires.UTC().Format("2006-01-02T15:04:05.000Z")}, nil
}

// readTicketRequest reads the body, {sessionId?, role?}. It may be empty.
func readTicketRequest(w http.ResponseWriter, r *http.Request) (session string, role contracts.Role, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxTicketRequest))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return "", "", &contracts.Error{Code: contracts.CodePayloadTooLarge, Message: "Payload too large"}
	}
	if err != nil {
		return "", "", badRequest("the body could not be read")
	}
	if len(body) == 0 {
		return "", "", nil
	}
	// The form of a strange page can send anything but this content type.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return "", "", badRequest("the content type must be application/json")
	}
	members, ok := stringMembers(body, "sessionId", "role")
	session, role = members["sessionId"], contracts.Role(members["role"])
	switch {
	case !ok:
		return "", "", badRequest("the body must be an object with optional strings sessionId and role")
	case role != "" && role != contracts.RoleViewer && role != contracts.RoleController:
		return "", "", badRequest("role must be viewer or controller")
	case len(session) > contracts.MaxIDBytes || strings.ContainsFunc(session, notInID):
		return "", "", badRequest("malformed session id")
	}
	return session, role, nil
}

// notInID reports whether r may not be in an id (maestro-attach 1.1).
func notInID(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:-", r)
}

// stringMembers returns the named members of a JSON object. Each is an optional
// string, and null means absent. Other members are ignored, but a name that
// comes twice is not JSON that means anything, and names match by case (D13);
// encoding/json alone holds to neither.
func stringMembers(body []byte, names ...string) (members map[string]string, ok bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') || !utf8.Valid(body) {
		return nil, false
	}
	members = map[string]string{}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, isName := t.(string)
		var raw json.RawMessage
		if err != nil || !isName || seen[name] || d.Decode(&raw) != nil {
			return nil, false
		}
		seen[name] = true
		if !slices.Contains(names, name) {
			continue
		}
		var value *string
		if json.Unmarshal(raw, &value) != nil {
			return nil, false
		}
		if value != nil {
			members[name] = *value
		}
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return nil, false
	}
	_, err := d.Token()
	return members, err == io.EOF
}
