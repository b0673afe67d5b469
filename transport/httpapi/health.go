package httpapi

import (
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/transport/httperr"
)

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
	state := map[string]bool{"ok": false, "ready": false, "draining": draining}
	httperr.WriteWith(w, &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "not accepting new attachments"}, state)
}
