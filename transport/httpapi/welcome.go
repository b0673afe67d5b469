package httpapi

import (
	"net/http"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/httperr"
)

// welcome is what a person sees who opens the server's address in a browser. It is
// the same for everybody and on every server: whoever reads it has shown no
// credential.
const welcome = `This is a Maestro server: a coding agent that one client at a time drives, and any number watch.

There is nothing to click here. Attach from a terminal:

    maestro attach ADDRESS

ADDRESS is that of this page. What the server printed when it started is the same line with
all that is needed, such as where its token is.
`

// elsewhere serves what has no route: to a browser at / the welcome, to everybody
// else a refusal.
func elsewhere(w http.ResponseWriter, r *http.Request) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if r.URL.Path == "/" {
		w.Header().Add("Vary", "Accept")
	}
	if r.URL.Path != "/" || !reads || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		httperr.Write(w, &contracts.Error{Code: contracts.CodeNotFound, Message: "route not found"})
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	_, _ = w.Write([]byte(welcome)) // a browser that has gone asks again
}
