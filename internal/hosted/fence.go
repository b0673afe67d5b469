package hosted

import (
	"path/filepath"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// CheckOwner checks the owner header of an attaching request; a missing header
// is empty. A header with another generation, or any header if the runner has
// none, is refused with runtime_owned_elsewhere: the gateway has found the
// wrong runner. A missing one is refused with access_denied if the
// configuration requires it.
func (r *Runner) CheckOwner(header string) error {
	header = strings.TrimSpace(header)
	switch {
	case header == "" && r.config.RequireOwnerHeader:
		return &contracts.Error{Code: contracts.CodeAccessDenied, Message: "Hosted runner requires the owner instance header"}
	case header != "" && header != r.config.OwnerInstanceID:
		return &contracts.Error{
			Code: contracts.CodeRuntimeOwnedElsewhere, Message: "Hosted runner is owned by another instance",
			Metadata: r.metadata("requested_owner_instance_id", header),
		}
	}
	return nil
}

// CheckSession checks the session that a route names; empty names none. A
// session other than the runner's is refused with runtime_owned_elsewhere or,
// while the runner drains, with runtime_not_ready.
func (r *Runner) CheckSession(id string) error {
	bound := r.session.SessionID()
	if id == "" || id == bound {
		return nil
	}
	if r.isDraining() {
		return r.notReady("hosted runner is not accepting new attachments", "requested_maestro_session_id", id)
	}
	return &contracts.Error{
		Code: contracts.CodeRuntimeOwnedElsewhere, Message: "Hosted runner is bound to Maestro session " + bound,
		Metadata: r.metadata("requested_maestro_session_id", id),
	}
}

// CheckAttach refuses new connections and subscriptions with runtime_not_ready
// while the runner drains or is not ready.
func (r *Runner) CheckAttach() error {
	if r.Identity().Ready {
		return nil
	}
	return r.notReady("hosted runner is not accepting new attachments")
}

// CheckMessage refuses a client's message with runtime_not_ready while the
// runner drains, or if its session was not flushed completely before the
// restore.
func (r *Runner) CheckMessage() error {
	switch {
	case r.isDraining():
		return r.notReady("hosted runner is draining")
	case r.incomplete:
		return r.notReady("hosted runner is not ready")
	}
	return nil
}

// CheckWorkspace checks the workspace that an attaching client names; empty
// names none. With links resolved it must be the runner's.
func (r *Runner) CheckWorkspace(path string) error {
	switch {
	case path == "":
		return nil
	case !isDir(r.config.WorkspaceRoot):
		return &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: "Hosted runner workspace root is unavailable"}
	case !filepath.IsAbs(path) || !isDir(path):
		return &contracts.Error{Code: contracts.CodeBadRequest, Message: "Workspace root is not a directory"}
	}
	if real, err := filepath.EvalSymlinks(path); err != nil || real != r.config.WorkspaceRoot {
		return &contracts.Error{
			Code: contracts.CodeRuntimeOwnedElsewhere, Message: "Hosted runner is bound to another workspace root",
			Metadata: r.metadata(),
		}
	}
	return nil
}

func (r *Runner) isDraining() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

func (r *Runner) notReady(message string, more ...string) error {
	metadata := r.metadata(more...)
	if r.isDraining() {
		metadata["draining"] = "true"
	}
	return &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: message, Metadata: metadata}
}

// metadata returns the ids of this runner, so that a gateway can find the right
// one. more are further keys and values. Empty values are left out.
func (r *Runner) metadata(more ...string) map[string]string {
	pairs := append([]string{
		"runner_session_id", r.config.RunnerSessionID,
		"owner_instance_id", r.config.OwnerInstanceID,
		"workspace_id", r.config.WorkspaceID,
		"agent_run_id", r.config.AgentRunID,
		"maestro_session_id", r.session.SessionID(),
	}, more...)
	m := make(map[string]string, len(pairs)/2+1)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			m[pairs[i]] = pairs[i+1]
		}
	}
	return m
}
