package launcher

import (
	"slices"
	"testing"
)

func TestFirstVariableCounts(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for name, tt := range map[string]struct {
		env  map[string]string
		want []ID
	}{
		"nothing": {nil, nil},
		"blank":   {map[string]string{"MAESTRO_AGENT_ID": " \t"}, nil},
		"first": {
			map[string]string{"MAESTRO_EVALOPS_AGENT_ID": " a1 ", "MAESTRO_AGENT_ID": "a2", "EVALOPS_AGENT_ID": "a3", "MAESTRO_TRACE_ID": "t1", "TRACEPARENT": parent},
			[]ID{{Agent, "a1", "MAESTRO_EVALOPS_AGENT_ID"}, {Trace, "t1", "MAESTRO_TRACE_ID"}},
		},
		"last": {
			map[string]string{"EVALOPS_AGENT_ID": "a3", "MAESTRO_REMOTE_RUNNER_WORKSPACE_ID": "w3", "MAESTRO_AGENT_RUN_ID": "r2", "TRACEPARENT": parent},
			[]ID{
				{Agent, "a3", "EVALOPS_AGENT_ID"}, {Workspace, "w3", "MAESTRO_REMOTE_RUNNER_WORKSPACE_ID"}, {"run_id", "r2", "MAESTRO_AGENT_RUN_ID"},
				{AgentRun, "r2", "MAESTRO_AGENT_RUN_ID"}, {Trace, "4bf92f3577b34da6a3ce929d0e0e4736", "TRACEPARENT"},
			},
		},
		"no trace": {map[string]string{"TRACEPARENT": parent + "\r\nx"}, nil},
	} {
		if got := IDs(func(key string) string { return tt.env[key] }); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}
