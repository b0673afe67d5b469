package auth

import (
	"net/http"
	"path"
	"strings"
)

// Methods and headers for pages of allowed origins, besides those for all
// pages.
const (
	allowMethods  = "GET, HEAD, POST, PATCH, DELETE"
	exposeHeaders = "X-Maestro-Headless-Epoch, X-Maestro-Headless-Connection-Token, Retry-After, X-Maestro-Drain-Replayed"
	preflightAge  = "600" // seconds for which a browser may cache the answer
)

// allowHeaders lists all headers that clients send, in each of their spellings.
// Constant.
var allowHeaders = func() string {
	list := []string{
		"Authorization", "Content-Type", "Last-Event-ID", "Idempotency-Key", "traceparent", "tracestate",
		"x-csrf-token", "x-xsrf-token", "x-maestro-owner-instance-id",
	}
	for _, family := range []string{"x-maestro-", "x-composer-", "x-evalops-"} {
		for _, name := range []string{
			"api-key", "csrf", "approval-mode", "headless-role", "headless-connection-id",
			"headless-subscriber-id", "headless-subscription-id", "headless-connection-token",
		} {
			list = append(list, family+name)
		}
	}
	return strings.Join(list, ", ")
}()

// Wrap checks the Host of every request before h sees it, refuses writes of
// foreign pages, answers preflight requests, and lets pages of allowed origins
// read the answers (CORS). Use it for all routes, including those that need no
// credential.
func (g *Authenticator) Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.checkHost(r); err != nil {
			g.opts.Refuse(w, r, err)
			return
		}
		if !cleanPath(r.URL.Path) {
			g.opts.Refuse(w, r, badRequest("malformed path"))
			return
		}
		origin, err := g.checkOrigin(r)
		if r.Header.Get("Upgrade") == "" { // CORS does not apply to WebSockets
			w.Header().Add("Vary", "Origin")
			if err == nil && origin != "" {
				w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
				w.Header().Set("Access-Control-Expose-Headers", exposeHeaders)
			}
		}
		switch {
		case err != nil && (!safe(r.Method) || preflight(r)):
			g.opts.Refuse(w, r, err)
		case preflight(r):
			answerPreflight(w)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// preflight reports whether r is a CORS preflight request.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

func answerPreflight(w http.ResponseWriter) {
	h := w.Header()
	h.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	h.Set("Access-Control-Allow-Methods", allowMethods)
	h.Set("Access-Control-Allow-Headers", allowHeaders)
	h.Set("Access-Control-Max-Age", preflightAge)
	w.WriteHeader(http.StatusNoContent)
}

// cleanPath reports whether a path is clean. For any other path http.ServeMux
// redirects, and repeats the query with the ticket in it.
func cleanPath(p string) bool {
	return p == "" || p == "*" || p == path.Clean(p) || strings.TrimSuffix(p, "/") == path.Clean(p)
}
