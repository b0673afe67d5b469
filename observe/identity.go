package observe

import (
	"cmp"
	"os"

	"go.opentelemetry.io/otel/attribute"
)

// An Identity says where a session runs, in the attributes of spans. Empty fields
// come from the environment, and so does for whom the session runs.
type Identity struct {
	Workspace string // MAESTRO_EVALOPS_WORKSPACE_ID or EVALOPS_WORKSPACE_ID
	AgentRun  string // MAESTRO_AGENT_RUN_ID
}

// attributes returns the attributes of every span of a session, without empty ones.
func (i Identity) attributes(session string) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	for _, a := range []struct{ key, value string }{
		{"evalops.organization_id", cmp.Or(os.Getenv("MAESTRO_EVALOPS_ORG_ID"), os.Getenv("EVALOPS_ORGANIZATION_ID"))},
		{"enduser.id", cmp.Or(os.Getenv("MAESTRO_EVALOPS_USER_ID"), os.Getenv("EVALOPS_USER_ID"), os.Getenv("MAESTRO_USER_ID"))},
		{"evalops.workspace_id", cmp.Or(i.Workspace, os.Getenv("MAESTRO_EVALOPS_WORKSPACE_ID"), os.Getenv("EVALOPS_WORKSPACE_ID"))},
		{"maestro.agent_run_id", cmp.Or(i.AgentRun, os.Getenv("MAESTRO_AGENT_RUN_ID"))},
		{"maestro.session_id", session},
	} {
		if a.value != "" {
			attrs = append(attrs, attribute.String(a.key, a.value))
		}
	}
	return attrs
}
