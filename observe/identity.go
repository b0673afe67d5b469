package observe

import (
	"cmp"

	"go.opentelemetry.io/otel/attribute"
)

// An Identity says for whom and where a session runs, in the attributes of
// spans. Empty fields are left out.
type Identity struct {
	Organization string // MAESTRO_EVALOPS_ORG_ID or EVALOPS_ORGANIZATION_ID; evalops.organization_id
	User         string // MAESTRO_EVALOPS_USER_ID, EVALOPS_USER_ID or MAESTRO_USER_ID; enduser.id
	Workspace    string // MAESTRO_EVALOPS_WORKSPACE_ID or EVALOPS_WORKSPACE_ID; evalops.workspace_id
	AgentRun     string // MAESTRO_AGENT_RUN_ID; maestro.agent_run_id
	AgentRunStep string // MAESTRO_AGENT_RUN_STEP_ID; maestro.agent_run_step_id, of tools and questions only
}

// environment returns the identity in the environment variables.
func environment(getenv func(string) string) Identity {
	return Identity{
		Organization: cmp.Or(getenv("MAESTRO_EVALOPS_ORG_ID"), getenv("EVALOPS_ORGANIZATION_ID")),
		User:         cmp.Or(getenv("MAESTRO_EVALOPS_USER_ID"), getenv("EVALOPS_USER_ID"), getenv("MAESTRO_USER_ID")),
		Workspace:    cmp.Or(getenv("MAESTRO_EVALOPS_WORKSPACE_ID"), getenv("EVALOPS_WORKSPACE_ID")),
		AgentRun:     getenv("MAESTRO_AGENT_RUN_ID"),
		AgentRunStep: getenv("MAESTRO_AGENT_RUN_STEP_ID"),
	}
}

// or returns i with its empty fields taken from other.
func (i Identity) or(other Identity) Identity {
	return Identity{
		Organization: cmp.Or(i.Organization, other.Organization),
		User:         cmp.Or(i.User, other.User),
		Workspace:    cmp.Or(i.Workspace, other.Workspace),
		AgentRun:     cmp.Or(i.AgentRun, other.AgentRun),
		AgentRunStep: cmp.Or(i.AgentRunStep, other.AgentRunStep),
	}
}

// attributes returns the attributes of every span.
func (i Identity) attributes() []attribute.KeyValue {
	var attrs []attribute.KeyValue
	for _, a := range []struct{ key, value string }{
		{"evalops.organization_id", i.Organization},
		{"enduser.id", i.User},
		{"evalops.workspace_id", i.Workspace},
		{"maestro.agent_run_id", i.AgentRun},
	} {
		if a.value != "" {
			attrs = append(attrs, attribute.String(a.key, a.value))
		}
	}
	return attrs
}
