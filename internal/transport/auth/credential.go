package auth

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// maxCredential is the longest accepted credential, in bytes.
const maxCredential = 8 << 10

// bearerProtocol is the prefix of an offered subprotocol that is a credential.
// Browsers cannot set headers on a WebSocket.
const bearerProtocol = "maestro-headless-bearer."

// The refusals of credentials. A text gives the reason only where the rightful
// holder alone can get it.
var (
	errMissing = unauthenticated("a credential is required")
	errWrong   = unauthenticated("invalid credential")
	errExpired = unauthenticated("the credential has expired")
)

// headerKey returns the key in the request's headers, or "". It refuses headers
// that contradict each other.
func headerKey(h http.Header) (string, error) {
	key, err := bearerKey(h)
	if key != "" || err != nil {
		return key, err
	}
	for _, name := range []string{"X-Maestro-Api-Key", "X-Composer-Api-Key", "X-Evalops-Api-Key"} {
		for _, value := range h.Values(name) {
			if key != "" && value != "" && value != key {
				return "", badRequest("the API key headers contradict each other")
			}
			if value != "" {
				key = value
			}
		}
	}
	return key, nil
}

// bearerKey returns the key of an Authorization header with the scheme Bearer, or
// "". It ignores other schemes, which may be for a proxy.
func bearerKey(h http.Header) (string, error) {
	if len(h.Values("Authorization")) > 1 {
		return "", badRequest("more than one Authorization header")
	}
	scheme, key, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", nil
	}
	if key = strings.TrimSpace(key); key == "" {
		return "", errMissing
	}
	return key, nil
}

// queryTicket returns the ticket in the query of a GET, or "". A ticket does
// not authenticate a POST, so that it cannot be used to get another ticket.
func queryTicket(r *http.Request) (string, error) {
	if r.Method != http.MethodGet {
		return "", nil
	}
	return queryValue(r, "ticket")
}

// queryValue returns a query parameter that may appear once.
func queryValue(r *http.Request, name string) (string, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(query[name]) > 1 {
		return "", badRequest("malformed query")
	}
	return query.Get(name), nil
}

// protocolKey returns the key among the offered subprotocols, or "".
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

// checkSender refuses a request that a foreign page may have sent, by its Host and
// Origin, and returns the canonical Origin.
func (g *Authenticator) checkSender(r *http.Request) (origin string, err error) {
	if err := g.checkHost(r); err != nil {
		return "", err
	}
	return g.checkOrigin(r)
}

// checkHost refuses a request whose Host is not one of this server's. If a
// foreign page's host name was made to resolve to this machine (DNS rebinding),
// its requests have that name as Host. They cannot have localhost or an IP
// address, which DNS does not resolve.
func (g *Authenticator) checkHost(r *http.Request) error {
	name, port, ok := splitHost(r.Host)
	configured := g.hosts[name] || port != "" && g.hosts[net.JoinHostPort(name, port)]
	if !ok || !configured && !isLocal(name, r) {
		return denied("Host is not one of this server's")
	}
	return nil
}

// isLocal reports whether name is a loopback name or address, or the address at
// which the request arrived.
func isLocal(name string, r *http.Request) bool {
	if name == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() {
		return true
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.AddrPort().Addr().Unmap().WithZone("") == addr
}

// splitHost returns the parts of a Host header in lower case, without the
// brackets of an address and the final dot of a name.
func splitHost(host string) (name, port string, ok bool) {
	name = strings.ToLower(host)
	if h, p, err := net.SplitHostPort(name); err == nil {
		if _, err := strconv.ParseUint(p, 10, 16); err != nil {
			return "", "", false
		}
		name, port = h, p
	} else if inner, found := strings.CutPrefix(name, "["); found {
		name, found = strings.CutSuffix(inner, "]")
		if !found {
			return "", "", false
		}
	}
	name = strings.TrimSuffix(name, ".")
	return name, port, name != ""
}

// checkOrigin refuses a request from a page whose origin is neither the
// server's nor listed, and a cross-origin write. It returns the canonical
// Origin: "" for requests not sent by a page, and for reads that the browser
// sends without an Origin.
func (g *Authenticator) checkOrigin(r *http.Request) (origin string, err error) {
	if values := r.Header.Values("Origin"); len(values) > 0 {
		var ok bool
		origin, ok = canonicalOrigin(values[0])
		if len(values) > 1 || !ok || !g.origins[origin] && !sameOrigin(origin, r.Host) {
			return "", denied("Origin is not allowed")
		}
	}
	if g.cross.Check(r) != nil { // by the headers that newer browsers send besides Origin
		return "", denied("cross-origin request refused")
	}
	return origin, nil
}

// canonicalOrigin returns scheme://host[:port] in lower case, without the
// scheme's default port. It returns false for text that is not an origin,
// including "null".
func canonicalOrigin(s string) (string, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil ||
		u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery {
		return "", false
	}
	return u.Scheme + "://" + trimPort(u.Scheme, strings.ToLower(u.Host)), true
}

// CheckOrigin returns an error for a text that [Options].Origins cannot have.
func CheckOrigin(origin string) error {
	if _, ok := canonicalOrigin(origin); !ok {
		return fmt.Errorf("%q is not an origin, such as https://app.example.com", origin)
	}
	return nil
}

// CheckHost returns an error for a text that [Options].Hosts cannot have.
func CheckHost(host string) error {
	if name, _, ok := splitHost(host); !ok || strings.ContainsAny(name, "/*@?#[] \t\r\n") {
		return fmt.Errorf("%q is not a host name, such as app.example.com or app.example.com:8443", host)
	}
	return nil
}

// sameOrigin reports whether a canonical origin belongs to host. It does not
// compare schemes, because a proxy may have ended TLS; the scheme only gives
// the default port.
func sameOrigin(origin, host string) bool {
	scheme, rest, _ := strings.Cut(origin, "://")
	return defaultPorts[scheme] != "" && rest == trimPort(scheme, strings.ToLower(host))
}

var defaultPorts = map[string]string{"http": ":80", "https": ":443"}

func trimPort(scheme, host string) string { return strings.TrimSuffix(host, defaultPorts[scheme]) }
