// Package launcher reads ids that the launcher of this program puts into the
// environment. Providers, gateways and platforms use them to attribute the work
// of a session.
//
// It defines the precedence of the variables. It does not check the values; the
// sender knows which values a header or label allows.
package launcher

import (
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// Keys of ids in the metadata of a request, besides those that only table names.
const (
	Agent     = "agent_id"
	Workspace = "workspace_id"
	AgentRun  = "agent_run_id"
	Session   = "maestro_session_id"
	Trace     = "trace_id"
	Surface   = "surface"
)

// table has the variables of each id; the first one that is set counts.
var table = []struct {
	key       string
	variables []string
}{
	{Agent, []string{"MAESTRO_EVALOPS_AGENT_ID", "MAESTRO_AGENT_ID", "EVALOPS_AGENT_ID"}},
	{Workspace, []string{"MAESTRO_EVALOPS_WORKSPACE_ID", "EVALOPS_WORKSPACE_ID", "MAESTRO_REMOTE_RUNNER_WORKSPACE_ID"}},
	{"objective_id", []string{"MAESTRO_EVALOPS_OBJECTIVE_ID", "MAESTRO_OBJECTIVE_ID"}},
	{"run_id", []string{"MAESTRO_RUN_ID", "MAESTRO_AGENT_RUN_ID"}},
	{AgentRun, []string{"MAESTRO_AGENT_RUN_ID"}},
	{"agent_run_step_id", []string{"MAESTRO_AGENT_RUN_STEP_ID"}},
	{Session, []string{"MAESTRO_SESSION_ID"}},
	{Trace, []string{"MAESTRO_TRACE_ID", traceVariable}},
	{"workload", []string{"MAESTRO_WORKLOAD"}},
	{Surface, []string{"MAESTRO_SURFACE"}},
}

// traceVariable contains the launcher's trace id among other data.
const traceVariable = "TRACEPARENT"

var traceparent = lazyregexp.New(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$`)

// An ID is one id in the environment.
type ID struct {
	Key      string // in the metadata
	Value    string // without white space around it; not empty
	Variable string // the variable that it was read from
}

// IDs returns the ids in the environment, in a fixed order.
func IDs(getenv func(string) string) []ID {
	var ids []ID
	for _, row := range table {
		for _, name := range row.variables {
			value := strings.TrimSpace(getenv(name))
			if name == traceVariable {
				_, value = Traceparent(getenv)
			}
			if value != "" {
				ids = append(ids, ID{row.key, value, name})
				break
			}
		}
	}
	return ids
}

// Traceparent returns the launcher's traceparent and its trace id, or nothing
// if it is missing or malformed.
func Traceparent(getenv func(string) string) (parent, trace string) {
	m := traceparent().FindStringSubmatch(getenv(traceVariable))
	if m == nil {
		return "", ""
	}
	return m[0], m[1]
}
