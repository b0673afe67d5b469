package agent

import "cmp"

// metadata returns the ids by which a provider's or a gateway's books find the
// work that a session does, as far as they are known: those of the session and
// what a launcher put into the environment.
func metadata(sessionID string, getenv func(string) string) map[string]string {
	run := getenv("MAESTRO_AGENT_RUN_ID")
	known := map[string]string{
		"agent_id":           cmp.Or(getenv("MAESTRO_EVALOPS_AGENT_ID"), getenv("MAESTRO_AGENT_ID")),
		"workspace_id":       cmp.Or(getenv("MAESTRO_EVALOPS_WORKSPACE_ID"), getenv("EVALOPS_WORKSPACE_ID"), getenv("MAESTRO_REMOTE_RUNNER_WORKSPACE_ID")),
		"objective_id":       cmp.Or(getenv("MAESTRO_EVALOPS_OBJECTIVE_ID"), getenv("MAESTRO_OBJECTIVE_ID")),
		"run_id":             cmp.Or(getenv("MAESTRO_RUN_ID"), run),
		"agent_run_id":       run,
		"agent_run_step_id":  getenv("MAESTRO_AGENT_RUN_STEP_ID"),
		"session_id":         sessionID,
		"maestro_session_id": cmp.Or(getenv("MAESTRO_SESSION_ID"), sessionID),
		"trace_id":           getenv("MAESTRO_TRACE_ID"),
		"workload":           getenv("MAESTRO_WORKLOAD"),
		"surface":            cmp.Or(getenv("MAESTRO_SURFACE"), "maestro"),
	}
	for name, value := range known {
		if value == "" {
			delete(known, name)
		}
	}
	return known
}
