package gate

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/httperr"
)

// Options configures a gate.
type Options struct {
	// Token is the secret that lets a client in: at least 16 bytes of printable
	// ASCII without spaces. It is empty only with Off.
	Token string

	// Off lets everybody in without a credential, as the anonymous principal.
	// Host and Origin are checked all the same. The caller sees to it that the
	// server then listens on loopback only.
	Off bool

	// Hosts are names, beside the loopback ones, by which clients reach the
	// server. A name with a port is legal with that port only.
	Hosts []string

	// Origins are web origins, such as https://app.example.com, whose pages may
	// use the server beside its own.
	Origins []string

	// Now is the clock of the tickets; nil means time.Now.
	Now func() time.Time
}

// Gate checks requests. It is safe for concurrent use.
type Gate struct {
	// Static after New.
	off     bool
	secret  [sha256.Size]byte // of the token
	owner   contracts.Principal
	hosts   map[string]bool // lower case, as in Options
	origins map[string]bool // canonical
	cross   *http.CrossOriginProtection

	tickets tickets
}

// Anonymous is the principal's id when authentication is off
// (maestro-attach 1.3).
const Anonymous = "anon"

// maxCredential is the longest credential that is looked at, in bytes.
const maxCredential = 4 << 10

// bearerProtocol begins an offered subprotocol that is a credential: browsers
// cannot set headers on a WebSocket.
const bearerProtocol = "maestro-headless-bearer."

// New returns a gate.
func New(opts Options) (*Gate, error) {
	g := &Gate{
		off: opts.Off, hosts: map[string]bool{}, origins: map[string]bool{},
		cross: http.NewCrossOriginProtection(), tickets: newTickets(opts.Now),
	}
	switch {
	case opts.Off && opts.Token != "":
		return nil, errors.New("gate: a token is of no use when authentication is off")
	case opts.Off:
		g.owner.ID = Anonymous
	default:
		if err := checkToken(opts.Token); err != nil {
			return nil, fmt.Errorf("gate: %w", err)
		}
		g.secret = sha256.Sum256([]byte(opts.Token))
		g.owner.ID = "key_" + hex.EncodeToString(g.secret[:8]) // maestro-attach 1.3
	}
	for _, host := range opts.Hosts {
		g.hosts[strings.ToLower(host)] = true
	}
	for _, origin := range opts.Origins {
		canonical, ok := canonicalOrigin(origin)
		if !ok {
			return nil, fmt.Errorf("gate: %q is not an origin", origin)
		}
		g.origins[canonical] = true
		if err := g.cross.AddTrustedOrigin(canonical); err != nil {
			return nil, fmt.Errorf("gate: %w", err)
		}
	}
	return g, nil
}

// Wrap checks the Host of every request before h sees it. It is for all routes,
// those that need no credential included.
func (g *Gate) Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.checkHost(r); err != nil {
			httperr.Write(w, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Authorize says who sent the request. It refuses with access_denied if a
// strange web page may have, and with unauthenticated if the credential is
// missing or wrong. Accepted are, the first that is present counting: the
// headers Authorization: Bearer, x-maestro-api-key and x-composer-api-key; a
// ticket in the query of a GET, which is used up; a bearer subprotocol. The
// last two are for browsers, so that a WebSocket with one needs an Origin.
func (g *Gate) Authorize(r *http.Request) (contracts.Principal, error) {
	if err := g.checkHost(r); err != nil {
		return contracts.Principal{}, err
	}
	origin, err := g.checkOrigin(r)
	if err != nil {
		return contracts.Principal{}, err
	}
	if g.off {
		return g.owner, nil
	}
	if key, err := headerKey(r.Header); err != nil || key != "" {
		return g.admit(key, err)
	}
	ticket, err := queryTicket(r)
	if err != nil {
		return contracts.Principal{}, err
	}
	key, err := protocolKey(r.Header)
	switch {
	case err != nil:
		return contracts.Principal{}, err
	case ticket == "" && key == "":
		return contracts.Principal{}, unauthenticated("a credential is required")
	case origin == "" && r.Header.Get("Upgrade") != "":
		return contracts.Principal{}, denied("an Origin is required with this credential")
	case ticket != "":
		return g.tickets.redeem(ticket, origin)
	}
	return g.admit(key, nil)
}

// admit checks a key that was presented.
func (g *Gate) admit(key string, err error) (contracts.Principal, error) {
	if err != nil {
		return contracts.Principal{}, err
	}
	if len(key) <= maxCredential {
		sum := sha256.Sum256([]byte(key))
		if subtle.ConstantTimeCompare(sum[:], g.secret[:]) == 1 {
			return g.owner, nil
		}
	}
	return contracts.Principal{}, unauthenticated("invalid credential")
}

// headerKey returns the key in the request's headers, or the empty string.
// Spellings that contradict each other are refused (maestro-attach 1.2).
func headerKey(h http.Header) (string, error) {
	if len(h.Values("Authorization")) > 1 {
		return "", badRequest("more than one Authorization header")
	}
	scheme, key, _ := strings.Cut(h.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		if key = strings.TrimSpace(key); key == "" {
			return "", unauthenticated("a credential is required")
		}
		return key, nil
	}
	key = ""
	for _, name := range []string{"X-Maestro-Api-Key", "X-Composer-Api-Key"} {
		for _, value := range h.Values(name) {
			if key != "" && value != key {
				return "", badRequest("the API key headers contradict each other")
			}
			key = value
		}
	}
	return key, nil
}

// queryTicket returns the ticket in the request's query, or the empty string. A
// ticket lets in only what a browser does without headers, so that nobody can
// renew it by asking for another with it.
func queryTicket(r *http.Request) (string, error) {
	if r.Method != http.MethodGet {
		return "", nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(query["ticket"]) > 1 {
		return "", badRequest("malformed query")
	}
	return query.Get("ticket"), nil
}

// protocolKey returns the key among the offered subprotocols, or the empty
// string.
func protocolKey(h http.Header) (string, error) {
	key := ""
	for _, line := range h.Values("Sec-Websocket-Protocol") {
		for offer := range strings.SplitSeq(line, ",") {
			encoded, ok := strings.CutPrefix(strings.TrimSpace(offer), bearerProtocol)
			if !ok {
				continue
			}
			b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(encoded, "="))
			if err != nil || len(b) == 0 || key != "" {
				return "", badRequest("malformed bearer subprotocol")
			}
			key = string(b)
		}
	}
	return key, nil
}

func badRequest(text string) error {
	return &contracts.Error{Code: contracts.CodeBadRequest, Message: text}
}

func unauthenticated(text string) error {
	return &contracts.Error{Code: contracts.CodeUnauthenticated, Message: text}
}

func denied(text string) error {
	return &contracts.Error{Code: contracts.CodeAccessDenied, Message: text}
}
