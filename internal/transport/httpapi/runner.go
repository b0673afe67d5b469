package httpapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

// A Fence refuses requests that a hosted runner may not serve. A hosted runner
// is bound to one session, one workspace and one owner generation, and may be
// draining.
type Fence interface {
	CheckSession(id string) error       // the session id in the route
	CheckOwner(generation string) error // the owner header; empty if there is none
	CheckAttach() error                 // new connections and subscriptions
	CheckMessage() error                // client messages
	CheckWorkspace(path string) error   // the workspace that a client names
}

// A Runner is a hosted runner as its control plane uses it.
type Runner interface {
	Identity() contracts.RunnerIdentity
	// Drain ends the session in this process. replayed says that the session had
	// been drained before. The answer may say that the drain was interrupted.
	Drain(ctx context.Context, body []byte) (answer *contracts.DrainAnswer, replayed bool, err error)
}

const (
	headerOwner    = "X-Maestro-Owner-Instance-Id"
	headerReplayed = "X-Maestro-Drain-Replayed"
)

// RunnerRoutes adds the routes of a control plane to mux. If runner is nil,
// they answer 404. control authorizes a drain.
func RunnerRoutes(mux *http.ServeMux, runner Runner, control func(*http.Request) error) {
	const base = "/.well-known/evalops/remote-runner/"
	absent := func(what string) http.HandlerFunc {
		refusal := &contracts.Error{Code: contracts.CodeNotFound, Message: "hosted runner " + what + " unavailable"}
		return func(w http.ResponseWriter, _ *http.Request) { httperr.Write(w, refusal) }
	}
	identity, drain := absent("identity"), absent("drain")
	if runner != nil {
		identity = func(w http.ResponseWriter, _ *http.Request) {
			id := runner.Identity()
			answer(w, http.StatusOK, &id, nil)
		}
		drain = func(w http.ResponseWriter, r *http.Request) { drained(w, r, runner, control) }
	}
	mux.Handle(base+"identity", reads(identity))
	mux.Handle(base+"drain", httperr.Methods{"POST": drain})
}

func drained(w http.ResponseWriter, r *http.Request, runner Runner, control func(*http.Request) error) {
	var body []byte
	var result *contracts.DrainAnswer
	replayed, status := false, http.StatusOK
	err := control(r)
	if err == nil {
		body, err = connlimit.ReadBody(w, r, contracts.MaxDrainBytes)
	}
	if err == nil {
		result, replayed, err = runner.Drain(r.Context(), body)
	}
	if replayed {
		w.Header().Set(headerReplayed, "true")
	}
	if err == nil && result.Status != contracts.Drained {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	answer(w, status, result, err)
}

// fence checks a request against the runner's session and owner.
func (h *Handler) fence(r *http.Request, session string) error {
	if h.opts.Fence == nil {
		return nil
	}
	if err := h.opts.Fence.CheckSession(session); err != nil {
		return err
	}
	if generation := r.Header.Get(headerOwner); generation != "" {
		return h.opts.Fence.CheckOwner(generation)
	}
	return nil
}

// fenceAttach checks an attaching request against all that the runner is bound
// to.
func (h *Handler) fenceAttach(r *http.Request, req *contracts.AttachRequest) error {
	f := h.opts.Fence
	if f == nil {
		return nil
	}
	if err := fenceAttachment(f, r, req.SessionID); err != nil {
		return err
	}
	return f.CheckWorkspace(req.WorkspaceRoot)
}

// FenceUpgrade checks a WebSocket attachment against the runner's session and
// owner.
func FenceUpgrade(f Fence, r *http.Request) error {
	return fenceAttachment(f, r, cmp.Or(r.PathValue("id"), r.URL.Query().Get("sessionId")))
}

// fenceAttachment checks an attachment of any kind against the runner's session
// and owner.
func fenceAttachment(f Fence, r *http.Request, session string) error {
	if err := f.CheckSession(session); err != nil {
		return err
	}
	if err := f.CheckOwner(r.Header.Get(headerOwner)); err != nil {
		return err
	}
	return f.CheckAttach()
}
