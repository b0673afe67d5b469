package auth

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

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
	if !ok || !g.isConfiguredHost(name, port) && !isLocal(name, r) {
		return denied("Host is not one of this server's")
	}
	return nil
}

func (g *Authenticator) isConfiguredHost(name, port string) bool {
	return g.hosts[name] || port != "" && g.hosts[net.JoinHostPort(name, port)]
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
// server's nor listed, and returns the canonical Origin. It returns "" for
// requests not sent by a page, and for reads that the browser sends without an
// Origin.
func (g *Authenticator) checkOrigin(r *http.Request) (string, error) {
	values := r.Header.Values("Origin")
	if len(values) == 0 {
		return "", g.checkCross(r)
	}
	origin, ok := canonicalOrigin(values[0])
	if len(values) > 1 || !ok || !g.origins[origin] && !sameOrigin(origin, r.Host) {
		return "", denied("Origin is not allowed")
	}
	return origin, g.checkCross(r)
}

// checkCross refuses cross-origin writes by the headers that newer browsers
// send besides Origin.
func (g *Authenticator) checkCross(r *http.Request) error {
	if g.cross.Check(r) != nil {
		return denied("cross-origin request refused")
	}
	return nil
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

// sameOrigin reports whether a canonical origin belongs to host. It does not
// compare schemes, because a proxy may have ended TLS; the scheme only gives
// the default port.
func sameOrigin(origin, host string) bool {
	scheme, rest, _ := strings.Cut(origin, "://")
	return (scheme == "http" || scheme == "https") && rest == trimPort(scheme, strings.ToLower(host))
}

func trimPort(scheme, host string) string {
	switch scheme {
	case "http":
		return strings.TrimSuffix(host, ":80")
	case "https":
		return strings.TrimSuffix(host, ":443")
	}
	return host
}
