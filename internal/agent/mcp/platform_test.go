package mcp

import (
	"reflect"
	"strings"
	"testing"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestAddressesOfThePlatformMeanItsEndpoint(t *testing.T) {
	for address, want := range map[string]string{
		"https://app.example":                                                  "https://app.example/mcp",
		"https://app.example/":                                                 "https://app.example/mcp",
		"https://app.example/mcp":                                              "https://app.example/mcp",
		"https://app.example/mcp/":                                             "https://app.example/mcp",
		"https://app.example//mcp//":                                           "https://app.example/mcp",
		"https://app.example/.well-known/evalops/agent-mcp.json":               "https://app.example/mcp",
		"https://app.example/.well-known/evalops/agent-mcp.json/":              "https://app.example/mcp",
		"https://app.example:8443":                                             "https://app.example:8443/mcp",
		"https://app.example:8443/.well-known/evalops/agent-mcp.json?v=2#part": "https://app.example:8443/mcp",
		"https://app.example/tenants/acme":                                     "https://app.example/tenants/acme/mcp",
		"https://app.example/tenants/acme/":                                    "https://app.example/tenants/acme/mcp",
		"https://app.example/tenants/acme/mcp":                                 "https://app.example/tenants/acme/mcp",
		"https://app.example/tenants/acme/.well-known/evalops/agent-mcp.json":  "https://app.example/tenants/acme/mcp",
		"https://app.example/tenants/../acme/mcp":                              "https://app.example/acme/mcp",
		"https://app.example/?utm=1":                                           "https://app.example/mcp",
		"https://app.example/mcp?region=eu":                                    "https://app.example/mcp?region=eu",
		"https://app.example/mcp?":                                             "https://app.example/mcp",
		"https://app.example/mcp#x":                                            "https://app.example/mcp",
		"https://app.example/mcpx":                                             "https://app.example/mcpx/mcp",
		"http://localhost:9000":                                                "http://localhost:9000/mcp",
		"http://127.0.0.1:9000/mcp":                                            "http://127.0.0.1:9000/mcp",
		"http://[::1]:9000":                                                    "http://[::1]:9000/mcp",
		"  https://app.example  ":                                              "https://app.example/mcp",

		"http://app.example":              "", // without TLS
		"http://127.0.0.1.example":        "",
		"app.example":                     "",
		"/mcp":                            "",
		"ftp://app.example":               "",
		"https://":                        "",
		"https://:443":                    "",
		"https://user:s3cret@app.example": "",
		"https://app.example/%zz":         "",
	} {
		for _, name := range addressVariables {
			got, err := Platform(env(name, address))
			switch {
			case want == "":
				if err == nil || !strings.HasPrefix(err.Error(), name+": ") || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("%s=%s: got %v, %v; want an error that names the variable", name, address, got, err)
				}
			case err != nil || got.URL != want || !got.Platform:
				t.Errorf("%s=%s: got %+v, %v; want %s", name, address, got, err, want)
			}
		}
	}
	got, err := Platform(env("MAESTRO_PLATFORM_MCP_URL", "http://platform.svc:8080", "MAESTRO_PLATFORM_MCP_ALLOW_HTTP", "1"))
	if err != nil || got.URL != "http://platform.svc:8080/mcp" {
		t.Errorf("got %v, %v; want plain HTTP where it is allowed", got, err)
	}
}

func TestFirstAddressOfThePlatformCounts(t *testing.T) {
	got, err := Platform(env("MAESTRO_PLATFORM_MCP_MANIFEST_URL", "https://c", "MAESTRO_EVALOPS_AGENT_MCP_URL", "https://b", "MAESTRO_PLATFORM_MCP_URL", "https://a"))
	if err != nil || got.URL != "https://a/mcp" {
		t.Errorf("got %v, %v; want the first", got, err)
	}
	if got, err := Platform(env("MAESTRO_PLATFORM_MCP_URL", " ")); got != nil || err != nil {
		t.Errorf("got %v, %v; want no server", got, err)
	}
}

func TestThePlatformLearnsForWhomItWorks(t *testing.T) {
	const address, base = "MAESTRO_PLATFORM_MCP_URL", "https://app.example"
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, tt := range []struct {
		env  []string
		want map[string]string
	}{
		{nil, map[string]string{}},
		{[]string{"EVALOPS_AGENT_ID", "a3", "MAESTRO_AGENT_ID", "a2", "MAESTRO_EVALOPS_AGENT_ID", "a1"}, map[string]string{"X-EvalOps-Agent-Id": "a1"}},
		{[]string{"MAESTRO_REMOTE_RUNNER_WORKSPACE_ID", "w3", "MAESTRO_OBJECTIVE_ID", "o"}, map[string]string{"X-EvalOps-Workspace-Id": "w3"}},
		{[]string{"EVALOPS_WORKSPACE_ID", "w2"}, map[string]string{"X-EvalOps-Workspace-Id": "w2"}},
		{
			[]string{
				"EVALOPS_WORKSPACE_ID", "w2", "MAESTRO_EVALOPS_WORKSPACE_ID", "w1", "MAESTRO_SESSION_ID", "s1", "MAESTRO_AGENT_ID", "a1",
				"MAESTRO_AGENT_RUN_ID", "r1", "TRACEPARENT", parent,
				"MAESTRO_PLATFORM_MCP_SCOPES", "other:read", "MAESTRO_CEREBRO_MCP_SCOPES", " cerebro:read,cerebro:assert ",
			},
			map[string]string{
				"X-EvalOps-Workspace-Id": "w1", "X-EvalOps-Session-Id": "s1", "X-EvalOps-Agent-Id": "a1", "X-EvalOps-Agent-Run-Id": "r1",
				"X-EvalOps-Trace-Id": "4bf92f3577b34da6a3ce929d0e0e4736", "Traceparent": parent, "X-EvalOps-Scopes": "cerebro:read cerebro:assert",
			},
		},
		{[]string{"MAESTRO_TRACE_ID", "t1", "TRACEPARENT", parent}, map[string]string{"X-EvalOps-Trace-Id": "t1", "Traceparent": parent}},
		{[]string{"TRACEPARENT", "x\r\ny", "MAESTRO_PLATFORM_MCP_SCOPES", "cerebro:read"}, map[string]string{"X-EvalOps-Scopes": "cerebro:read"}},
	} {
		got, err := Platform(env(append(tt.env, address, base)...))
		if err != nil || !reflect.DeepEqual(got.Headers, tt.want) {
			t.Errorf("%q: got %v, %v; want %v", tt.env, got.Headers, err, tt.want)
		}
	}
	for _, bad := range [][2]string{
		{"MAESTRO_SESSION_ID", "a\r\nX-Other: b"}, {"MAESTRO_AGENT_RUN_ID", "a b"}, {"EVALOPS_WORKSPACE_ID", "ü"},
		{"MAESTRO_AGENT_ID", strings.Repeat("a", 257)}, {"MAESTRO_CEREBRO_MCP_SCOPES", "cerebro:read; drop"},
		{"MAESTRO_PLATFORM_MCP_SCOPES", strings.Repeat("a ", 65)},
	} {
		if got, err := Platform(env(bad[0], bad[1], address, base)); err == nil || !strings.HasPrefix(err.Error(), bad[0]) {
			t.Errorf("%s: got %v, %v; want an error that names the variable", bad[0], got, err)
		}
	}
}
