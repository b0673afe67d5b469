package auth

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

const (
	cookieTTL  = 12 * time.Hour
	maxCookies = 4096 // beyond it the oldest is forgotten
	maxNext    = 2 << 10

	deadLink = "/#login=expired" // the page knows this address
)

// Login serves GET /login?ticket=...&next=/path. It uses up the ticket, sets a
// cookie for its holder that lasts 12 hours, and redirects the browser to next,
// a path of this server, by default /. The cookie is valid for requests of the
// server's own pages only. It ends with the credential that the ticket was made
// for, and with [Authenticator.Logout]. With authentication off, Login needs no
// ticket and sets no cookie.
//
// If the ticket is not valid and the server has a page, Login redirects browsers
// too: to next if the browser is logged in already, otherwise to the page, which
// explains the refusal.
func (g *Authenticator) Login() http.Handler {
	// A HEAD, such as of a link preview, would use up the ticket.
	return httperr.Methods{"GET": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		next, err := g.login(w, r)
		if (err == errTicket || err == errMissing) && g.opts.Page && strings.Contains(r.Header.Get("Accept"), "text/html") {
			if !g.loggedIn(r) {
				next = deadLink
			}
			err = nil
		}
		if err != nil {
			g.fail(w, r, err)
			return
		}
		w.Header().Set("Location", next)
		w.WriteHeader(http.StatusSeeOther)
	}}
}

// loggedIn reports whether the cookie of the request is valid.
func (g *Authenticator) loggedIn(r *http.Request) bool {
	secret, err := cookieSecret(r)
	if err != nil || secret == "" {
		return false
	}
	found, ok := g.cookies.find(secret, false, g.opts.Now())
	return ok && g.Alive(found.holder)
}

// login sets the cookie and returns the path to redirect to. It checks what
// needs no secret first, so that a malformed request does not use up a ticket.
func (g *Authenticator) login(w http.ResponseWriter, r *http.Request) (next string, err error) {
	origin, err := g.checkSender(r)
	if err != nil {
		return "", err
	}
	if next, err = nextPath(r); err != nil || g.opts.Off {
		return next, err
	}
	ticket, err := queryTicket(r)
	switch {
	case err != nil:
		return "", err
	case ticket == "":
		return next, errMissing
	}
	holder, err := g.redeem(r, ticket, origin, true)
	if err != nil {
		return next, err
	}
	now := g.opts.Now()
	if old, err := cookieSecret(r); err == nil && old != "" {
		g.cookies.find(old, true, now)
	}
	secret, expires := g.cookies.add(holder, "", now)
	_ = g.cookies.save() // has been logged; this process knows the cookie
	if e := holder.Expires; !e.IsZero() && e.Before(expires) {
		expires = e
	}
	g.setCookie(w, r, secret, max(1, int(expires.Sub(now)/time.Second)))
	return next, nil
}

// cookieName returns the name of the cookie of the server that a request is for. It
// has the port, because browsers send the cookies of all ports of a host to each.
func cookieName(r *http.Request) string {
	if _, port, ok := splitHost(r.Host); ok && port != "" {
		return "maestro_session_" + port
	}
	return "maestro_session"
}

// setCookie sets the cookie for that many seconds; a negative number deletes
// it.
func (g *Authenticator) setCookie(w http.ResponseWriter, r *http.Request, secret string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: secret, Path: "/", MaxAge: seconds,
		HttpOnly: true, Secure: r.TLS != nil || g.opts.BehindTLS, SameSite: http.SameSiteStrictMode,
	})
}

// nextPath returns the path that a login redirects to. It must be an absolute
// path that no browser takes for another server's address. Browsers drop tabs
// and newlines, and read a backslash as a slash.
func nextPath(r *http.Request) (string, error) {
	next, err := queryValue(r, "next")
	if err != nil || next == "" {
		return "/", err
	}
	u, err := url.Parse(next)
	if err != nil || len(next) > maxNext || strings.ContainsFunc(next, notInURL) || !localPath(next) ||
		u.Scheme != "" || u.Host != "" || u.User != nil || !localPath(u.Path) {
		return "", badRequest("next must be a path of this server")
	}
	return next, nil
}

func notInURL(c rune) bool { return c == ' ' || c > '~' }

func localPath(p string) bool {
	odd := func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' }
	return strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "//") && !strings.ContainsFunc(p, odd)
}

// Logout serves POST /logout: it ends the request's cookie. Connections made
// with it go on. A request without a cookie gets the same answer.
func (g *Authenticator) Logout() http.Handler {
	return httperr.Methods{"POST": g.route(func(w http.ResponseWriter, r *http.Request) (any, error) {
		origin, err := g.checkSender(r)
		if err != nil {
			return nil, err
		}
		cookies := r.CookiesNamed(cookieName(r))
		if len(cookies) > 0 && !fromOwnPage(r, origin) {
			return nil, errNotOwnPage
		}
		ended := false
		for _, c := range cookies {
			_, valid := g.cookies.find(c.Value, true, g.opts.Now())
			ended = ended || valid
		}
		if ended {
			if err := g.cookies.save(); err != nil {
				return nil, err // a restart would revive the cookie
			}
		}
		g.setCookie(w, r, "", -1)
		return &contracts.SuccessAnswer{Success: true}, nil
	})}
}

var errNotOwnPage = denied("the cookie is for this server's own pages")

// cookieHolder returns the principal of the request's cookie. A foreign page
// can make a browser send the cookie. SameSite prevents most of that, but a
// page on another port or a sibling domain counts as the same site. So a
// request that changes something or stays open must come from a page of this
// server.
func (g *Authenticator) cookieHolder(r *http.Request, origin string) (contracts.Principal, error) {
	secret, err := cookieSecret(r)
	switch {
	case err != nil:
		return contracts.Principal{}, err
	case secret == "":
		return contracts.Principal{}, errMissing
	case mayHarm(r) && !fromOwnPage(r, origin):
		return contracts.Principal{}, errNotOwnPage
	}
	found, ok := g.cookies.find(secret, false, g.opts.Now())
	if !ok || !g.Alive(found.holder) {
		return contracts.Principal{}, errWrong
	}
	return found.holder, nil
}

// cookieSecret returns the value of the request's cookie, or the empty string.
func cookieSecret(r *http.Request) (string, error) {
	secret := ""
	for _, c := range r.CookiesNamed(cookieName(r)) {
		if secret != "" && c.Value != secret {
			return "", badRequest("the cookies contradict each other")
		}
		secret = c.Value
	}
	return secret, nil
}

// mayHarm reports whether a request has an effect even if its sender cannot
// read the answer: writes, WebSockets and event streams.
func mayHarm(r *http.Request) bool {
	return !safe(r.Method) || r.Header.Get("Upgrade") != "" || strings.HasSuffix(strings.TrimRight(r.URL.Path, "/"), "/events") ||
		strings.Contains(strings.ToLower(r.Header.Get("Accept")), "text/event-stream")
}

// safe reports whether a method changes nothing.
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// fromOwnPage reports whether the browser says that a page of this server sent
// the request. Pages can set neither header.
func fromOwnPage(r *http.Request, origin string) bool {
	return r.Header.Get("Sec-Fetch-Site") == "same-origin" || origin != "" && sameOrigin(origin, r.Host)
}
