//go:build unix

package agent

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"testing"

	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

func TestMetadataIsWhatTheEnvironmentSays(t *testing.T) {
	for name, test := range map[string]struct {
		session   string
		env, want map[string]string
	}{
		"nothing":     {"", nil, map[string]string{"surface": "maestro"}},
		"the session": {"s1", nil, map[string]string{"surface": "maestro", "session_id": "s1", "maestro_session_id": "s1"}},
		"everything": {
			"s1",
			map[string]string{
				"MAESTRO_EVALOPS_AGENT_ID": "a1", "MAESTRO_AGENT_ID": "a2", "MAESTRO_EVALOPS_WORKSPACE_ID": "w1", "EVALOPS_WORKSPACE_ID": "w2",
				"MAESTRO_REMOTE_RUNNER_WORKSPACE_ID": "w3", "MAESTRO_EVALOPS_OBJECTIVE_ID": "o1", "MAESTRO_OBJECTIVE_ID": "o2",
				"MAESTRO_RUN_ID": "r1", "MAESTRO_AGENT_RUN_ID": "r2", "MAESTRO_AGENT_RUN_STEP_ID": "p1", "MAESTRO_SESSION_ID": "s2",
				"MAESTRO_TRACE_ID": "t1", "MAESTRO_WORKLOAD": "load", "MAESTRO_SURFACE": "web",
			},
			map[string]string{
				"agent_id": "a1", "workspace_id": "w1", "objective_id": "o1", "run_id": "r1", "agent_run_id": "r2", "agent_run_step_id": "p1",
				"session_id": "s1", "maestro_session_id": "s2", "trace_id": "t1", "workload": "load", "surface": "web",
			},
		},
		"second names": {
			"",
			map[string]string{"MAESTRO_AGENT_ID": "a2", "EVALOPS_WORKSPACE_ID": "w2", "MAESTRO_REMOTE_RUNNER_WORKSPACE_ID": "w3", "MAESTRO_OBJECTIVE_ID": "o2", "MAESTRO_AGENT_RUN_ID": "r2"},
			map[string]string{"agent_id": "a2", "workspace_id": "w2", "objective_id": "o2", "run_id": "r2", "agent_run_id": "r2", "surface": "maestro"},
		},
		"of whoever started us": {
			"", map[string]string{"EVALOPS_AGENT_ID": "a3", "TRACEPARENT": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
			map[string]string{"agent_id": "a3", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "surface": "maestro"},
		},
		"a runner's workspace": {
			"", map[string]string{"MAESTRO_REMOTE_RUNNER_WORKSPACE_ID": "w3"}, map[string]string{"workspace_id": "w3", "surface": "maestro"},
		},
	} {
		if got := metadata(test.session, func(key string) string { return test.env[key] }); !maps.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// Each service is told in its headers, and Responses in its own place as well.
func TestMetadataReachesTheService(t *testing.T) {
	t.Setenv("MAESTRO_EVALOPS_AGENT_ID", "agent-7")
	t.Setenv("MAESTRO_TRACE_ID", "trace-7")
	for _, service := range services {
		m := localmodel.New(localmodel.Options{})
		web := httptest.NewServer(m)
		t.Cleanup(web.Close)
		s := nativeOn(t, service, web.URL, Options{Dir: t.TempDir(), SessionID: "main"})
		hosttest.Must(t, s.prompt("hello"))
		r := m.Requests()[0]
		for header, want := range map[string]string{
			"X-Maestro-Metadata-Agent-Id": "agent-7", "X-Maestro-Metadata-Trace-Id": "trace-7", "X-Maestro-Metadata-Session-Id": "main",
		} {
			if got := r.Header.Get(header); got != want {
				t.Errorf("%s: got %s %q, want %q", service, header, got, want)
			}
		}
		var body struct{ Metadata map[string]string }
		hosttest.Must(t, json.Unmarshal(r.Body, &body))
		if got := body.Metadata["agent_id"]; service == "openai" && got != "agent-7" {
			t.Errorf("got the metadata %v, want the agent's id", body.Metadata)
		}
	}
}
