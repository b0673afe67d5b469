//go:build unix

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/mcp"
	"github.com/seed-028515a8/maestro/internal/testkit/hosttest"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// A notes is an MCP server with one tool, which says back what it is told.
type notes struct {
	calls atomic.Int64
	hints map[string]any // what the tool is said to be
	lost  bool           // in the middle of every call
}

// ServeHTTP implements [http.Handler].
func (n *notes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "no stream here", http.StatusMethodNotAllowed)
		return
	}
	var req struct {
		ID     json.RawMessage
		Method string
		Params struct {
			ProtocolVersion string
			Arguments       struct{ Text string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if req.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": req.ID}
	switch req.Method {
	case "initialize":
		answer["result"] = map[string]any{
			"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "notes", "version": "1"},
		}
	case "tools/list":
		answer["result"] = map[string]any{"tools": []any{map[string]any{
			"name": "keep", "title": "Keep a note", "description": "Keeps a note.", "annotations": n.hints,
			"inputSchema": map[string]any{"type": "object", "properties": map[string]any{"text": map[string]any{"type": "string"}}},
		}}}
	case "tools/call":
		n.calls.Add(1)
		if n.lost {
			panic(http.ErrAbortHandler)
		}
		text := "kept " + req.Params.Arguments.Text
		answer["result"] = map[string]any{
			"isError": req.Params.Arguments.Text == "nothing", "content": []any{map[string]any{"type": "text", "text": text}},
		}
	default:
		answer["error"] = map[string]any{"code": -32601, "message": "no " + req.Method}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // a client that has left gets nothing
}

// noteServer serves notes.
func noteServer(t *testing.T) (*notes, *httptest.Server) {
	n := &notes{hints: map[string]any{"readOnlyHint": true}}
	web := httptest.NewServer(n)
	t.Cleanup(web.Close)
	return n, web
}

func TestToolsOfServersAreOfferedAndAskedAbout(t *testing.T) {
	n, notesWeb := noteServer(t)
	m := localmodel.New(localmodel.Options{})
	web := httptest.NewServer(m)
	t.Cleanup(web.Close)
	o := Options{Dir: t.TempDir(), Servers: []mcp.Server{{Name: "notes", URL: notesWeb.URL}}}
	s := nativeOn(t, "anthropic", web.URL, o)

	hosttest.Must(t, s.prompt("call mcp__notes__keep {\"text\":\"milk\"}"))
	asked := s.host.Asked()
	if len(asked) != 1 || asked[0].RequestType != contracts.RequestApproval || asked[0].Tool != "mcp__notes__keep" ||
		!strings.Contains(asked[0].DisplayName+asked[0].SummaryLabel, "notes: Keep a note") {
		t.Fatalf("asked %+v, want an approval, whatever the server says of the tool", asked)
	}
	if !strings.Contains(s.host.Said(), "kept milk") || n.calls.Load() != 1 {
		t.Errorf("got %q after %d calls, want the result", s.host.Said(), n.calls.Load())
	}

	s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
		return contracts.Outcome{Verdict: contracts.VerdictDenied, By: contracts.ResolvedByUser}
	}
	hosttest.Must(t, s.prompt("call mcp__notes__keep {\"text\":\"bread\"}"))
	if n.calls.Load() != 1 {
		t.Error("a call that was denied reached the server")
	}

	o.Allow = []string{"mcp__notes__*"}
	allowed := nativeOn(t, "openai", web.URL, o)
	hosttest.Must(t, allowed.prompt("call mcp__notes__keep {\"text\":\"eggs\"}"))
	if asked := allowed.host.Asked(); len(asked) > 0 || !strings.Contains(allowed.host.Said(), "kept eggs") {
		t.Errorf("asked %v and said %q, want the result without a question", asked, allowed.host.Said())
	}
}

func TestCallsOfServersFailAsToolsDo(t *testing.T) {
	n, web := noteServer(t)
	s := nativeOn(t, "anthropic", "http://127.0.0.1:1", Options{Dir: t.TempDir(), Servers: []mcp.Server{{Name: "notes", URL: web.URL}}})
	tools := s.agent.(*native).serverTools(t.Context())
	if len(tools) != 1 || !tools[0].Gated || tools[0].Name != "mcp__notes__keep" {
		t.Fatalf("got the tools %+v, want one that is asked about", tools)
	}
	call := func(text string) (string, bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience)
		defer cancel()
		res, err := tools[0].Run(ctx, json.RawMessage(`{"text":"`+text+`"}`), func(string) error { return nil })
		return res.Text, res.IsError, err
	}
	if text, failed, err := call("milk"); text != "kept milk" || failed || err != nil {
		t.Errorf("got %q, %v, %v, want the result", text, failed, err)
	}
	if text, failed, err := call("nothing"); text != "kept nothing" || !failed || err != nil {
		t.Errorf("got %q, %v, %v, want a result that is an error", text, failed, err)
	}
	web.Close()
	_, _, err := call("bread")
	if !errors.Is(err, mcp.ErrUnavailable) {
		t.Errorf("got %v, want an error that may pass", err)
	}
	if n.calls.Load() != 2 {
		t.Errorf("got %d calls, want 2", n.calls.Load())
	}
}

func TestLostCallsAreRepeatedOnlyIfThatDoesNoHarm(t *testing.T) {
	web := httptest.NewServer(localmodel.New(localmodel.Options{}))
	t.Cleanup(web.Close)
	for hint, want := range map[string]int64{"none": 1, "readOnlyHint": 2, "idempotentHint": 2} {
		n := &notes{hints: map[string]any{hint: true}, lost: true}
		notesWeb := httptest.NewServer(n)
		t.Cleanup(notesWeb.Close)
		s := nativeOn(t, "anthropic", web.URL, Options{
			Dir: t.TempDir(), Allow: []string{"mcp__notes__keep"}, Servers: []mcp.Server{{Name: "notes", URL: notesWeb.URL}},
		})
		var before int64
		s.host.Answer = func(*contracts.ServerRequest) contracts.Outcome {
			before = n.calls.Load()
			return contracts.Outcome{Verdict: contracts.VerdictSkipped, By: contracts.ResolvedByUser}
		}
		hosttest.Must(t, s.prompt("call mcp__notes__keep {\"text\":\"milk\"}"))
		if asked := s.host.Asked(); len(asked) != 1 || asked[0].RequestType != contracts.RequestToolRetry || before != want || n.calls.Load() != want {
			t.Errorf("%s: got %d calls and then the questions %+v, want %d and one about a retry", hint, before, asked, want)
		}
	}
}

// A server that is not there costs nothing but its tools.
func TestServersThatAreNotThereAreNoObstacle(t *testing.T) {
	m := localmodel.New(localmodel.Options{})
	web := httptest.NewServer(m)
	t.Cleanup(web.Close)
	s := nativeOn(t, "openai-chat", web.URL, Options{Dir: t.TempDir(), Servers: []mcp.Server{
		{Name: "gone", Command: "/does/not/exist"}, {Name: "closed", URL: "http://127.0.0.1:1"},
	}})
	hosttest.Must(t, s.prompt("say still here"))
	if s.host.Said() != "still here" {
		t.Errorf("got %q, want the answer", s.host.Said())
	}
	var told strings.Builder
	for _, status := range hosttest.As[*contracts.Status](s.host) {
		told.WriteString(status.Message + "\n")
	}
	for _, e := range hosttest.As[*contracts.ErrorEvent](s.host) {
		told.WriteString(e.Message + "\n")
	}
	for _, name := range []string{"gone", "closed"} {
		if !strings.Contains(told.String(), `"`+name+`"`) {
			t.Errorf("told %q, want that %s is not there", told.String(), name)
		}
	}
}

// An agent may be closed that was never started.
func TestNativeAgentsMayCloseWithoutAStart(t *testing.T) {
	a, err := Open("llm:anthropic/m", Options{Dir: t.TempDir(), ModelURL: "http://127.0.0.1:1", Servers: []mcp.Server{{Name: "a", Command: "a"}}})
	hosttest.Must(t, err)
	hosttest.Must(t, a.Close(t.Context()))
}

func TestNativeAgentsNeedAWorkspace(t *testing.T) {
	if _, err := Open("llm:anthropic/m", Options{Dir: filepath.Join(t.TempDir(), "gone"), ModelURL: "http://127.0.0.1:1"}); err == nil {
		t.Error("got no error for a workspace that is not there")
	}
}

// acpAgent is an ACP agent that keeps what session/new says in the file asked.
const acpAgent = `read -r _; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"mcpCapabilities":{"http":true}}}}'
read -r line; printf '%s' "$line" >asked; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s1"}}'
cat >/dev/null`

func TestServersAreHandedOn(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	hosttest.Must(t, err)
	hosttest.Must(t, os.Mkdir(filepath.Join(dir, "a dir"), 0o700))
	hosttest.Must(t, os.WriteFile(filepath.Join(dir, "agent.sh"), []byte(acpAgent), 0o600))
	platform, err := mcp.Platform(func(name string) string {
		return map[string]string{"MAESTRO_PLATFORM_MCP_URL": "https://platform.example", "MAESTRO_AGENT_ID": "a1"}[name]
	})
	hosttest.Must(t, err)
	a, err := Open("acp:sh agent.sh", Options{Dir: dir, SessionID: "sess_1", Servers: []mcp.Server{
		{Name: "plain", Command: "mcp-files", Args: []string{"--root", "."}, Env: map[string]string{"A": "b"}},
		{Name: "elsewhere", Command: "./here", Args: []string{"x", "$y z"}, Dir: "a dir"},
		{Name: "notes", URL: "http://notes.example/mcp", Headers: map[string]string{"X-A": "b"}},
		*platform,
	}})
	hosttest.Must(t, err)
	_, err = a.Start(t.Context(), hosttest.New(t))
	hosttest.Must(t, err)
	hosttest.Must(t, a.Close(t.Context()))

	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	hosttest.Must(t, err)
	type header struct{ Name, Value string }
	var got struct {
		Params struct {
			McpServers []struct {
				Name, Command, URL string
				Args               []string
				Env, Headers       []header
			}
		}
	}
	hosttest.Must(t, json.Unmarshal(asked, &got))
	list := got.Params.McpServers
	if len(list) != 4 {
		t.Fatalf("the agent was told %s, want four servers", asked)
	}
	if s := list[0]; s.Command != "mcp-files" || !slices.Equal(s.Args, []string{"--root", "."}) || !slices.Equal(s.Env, []header{{"A", "b"}}) {
		t.Errorf("got %+v, want the program as it is", s)
	}
	if s := list[2]; s.URL != "http://notes.example/mcp" || !slices.Equal(s.Headers, []header{{"X-A", "b"}}) {
		t.Errorf("got %+v, want the address with its header alone", s)
	}
	want := []header{{"X-EvalOps-Agent-Id", "a1"}, {"X-EvalOps-Session-Id", "sess_1"}}
	if s := list[3]; s.URL != "https://platform.example/mcp" || !slices.Equal(s.Headers, want) {
		t.Errorf("got %+v, want headers %v", s, want)
	}

	here := "#!/bin/sh\npwd; printf '%s|' \"$@\""
	hosttest.Must(t, os.WriteFile(filepath.Join(dir, "a dir", "here"), []byte(here), 0o700))
	out, err := exec.CommandContext(t.Context(), list[1].Command, list[1].Args...).CombinedOutput()
	if want := dir + "/a dir\nx|$y z|"; err != nil || string(out) != want {
		t.Errorf("%q says %q, %v; want %q", list[1], out, err, want)
	}
}
