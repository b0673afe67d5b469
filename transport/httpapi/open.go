package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/httperr"
)

// welcome is the text for a person who opens the server's address in a browser.
// It is the same on every server, because the reader has shown no credential.
const welcome = `This is a Maestro server: a coding agent that one client at a time drives, and any number watch.

There is nothing to click here. Attach from a terminal:

    maestro attach ADDRESS

ADDRESS is that of this page. What the server printed when it started is the same line with
all that is needed, such as where its token is.
`

// noRoute serves paths without a route. A browser at / gets the welcome text,
// every other request a refusal.
func noRoute(w http.ResponseWriter, r *http.Request) {
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
	_, _ = w.Write([]byte(welcome)) // an error says that the browser has gone
}

// healthz answers that the process runs.
func healthz(w http.ResponseWriter, _ *http.Request) {
	httperr.WriteJSON(w, http.StatusOK, []byte(`{"ok":true}`))
}

// readyz says whether clients may attach. It says nothing else, because probes
// carry no credential.
func (h *Handler) readyz(w http.ResponseWriter, _ *http.Request) {
	ready, draining := true, false
	if h.opts.Ready != nil {
		ready, draining = h.opts.Ready()
	}
	if ready {
		httperr.WriteJSON(w, http.StatusOK, []byte(`{"ok":true,"ready":true,"draining":false}`))
		return
	}
	refusal := &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "not accepting new attachments"}
	httperr.WriteWith(w, refusal, fmt.Sprintf(`"draining":%t,"ok":false,"ready":false,`, draining))
}
