//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// elicits is the tool of the reference server that asks people.
const elicits = "mcp__everything__trigger-elicitation-request"

// referenceServer writes a configuration with the reference server of the
// protocol's authors, which is installed by make.
func referenceServer(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "internal", "agent", "mcp", "testdata", "everything"))
	if err != nil {
		t.Fatal(err)
	}
	command := filepath.Join(dir, "node_modules", ".bin", "mcp-server-everything")
	if _, err := os.Stat(command); err != nil {
		t.Fatalf("got %v, want the server installed: run make others, which needs npm", err)
	}
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"everything": map[string]any{"command": command, "args": []string{"stdio"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// elicitingServer serves an agent with the reference server.
func elicitingServer(t *testing.T) (*running, *localmodel.Server) {
	t.Helper()
	m, url := modelServer(t, localmodel.Options{})
	return serving(t, "--agent", "llm:anthropic/local", "--model-url", url, "--mcp-config", referenceServer(t), "--allow", "mcp__everything__*"), m
}

// offered prompts until the tool is offered: the server may take its time.
func (f *attendee) offered(m *localmodel.Server) {
	f.t.Helper()
	f.prompts("say ready")
	f.says("ready")
	for !strings.Contains(lastBody(f.t, m), `"`+elicits+`"`) {
		f.prompts("say ready")
		f.says("ready")
	}
}

func TestFormsOfServersAreAnsweredByWhoTookControl(t *testing.T) {
	t.Parallel()
	r, m := elicitingServer(t)
	answers := []contracts.RequestType{contracts.RequestApproval, contracts.RequestMCPElicitation}
	first, second := r.attend("first", contracts.RoleController, answers), r.attend("second", contracts.RoleController, answers)
	first.offered(m)
	first.prompts("call " + elicits)
	form := first.asked()
	if form.RequestType != contracts.RequestMCPElicitation || !strings.Contains(string(form.Args), `"mode":"form"`) ||
		!strings.Contains(string(form.Args), `"serverName":"everything"`) {
		t.Fatalf("got %+v, want the form of the server", form)
	}
	if other := second.asked(); other.RequestID != form.RequestID {
		t.Errorf("got the questions %s and %s, want one", form.RequestID, other.RequestID)
	}
	second.takes()
	answer := &contracts.ServerRequestResponse{
		RequestID: form.RequestID, RequestType: contracts.RequestMCPElicitation,
		Content: []contracts.ContentBlock{{Type: "text", Text: `{"action":"accept","content":{"name":"Ada","check":true,"integer":36}}`}},
	}
	if _, err := first.Send(t.Context(), answer); err == nil {
		t.Error("the form was answered without control")
	}
	if _, err := second.Send(t.Context(), answer); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*attendee{first, second} {
		f.says("Ada")
		checkEnds(f)
	}
	if body := lastBody(t, m); !strings.Contains(body, "Ada") {
		t.Errorf("got %s, want what was filled in", body)
	}
	if first.said.String() == "" || !strings.HasSuffix(second.said.String(), first.said.String()) {
		t.Errorf("got %q and %q, want the same text", first.said.String(), second.said.String())
	}
}

func TestFormsThatNobodyCanAnswerAreCancelledAloud(t *testing.T) {
	t.Parallel()
	r, m := elicitingServer(t)
	only := r.attend("only", contracts.RoleController, []contracts.RequestType{contracts.RequestApproval})
	only.offered(m)
	only.prompts("call " + elicits)
	only.status("cannot answer mcp_elicitation requests")
	only.says("cancel")
	for _, ev := range only.events {
		if q, ok := ev.(*contracts.ServerRequest); ok {
			t.Errorf("asked %+v, want no question that nobody can answer", q)
		}
	}
	if body := lastBody(t, m); strings.Contains(body, "Ada") || !strings.Contains(strings.ToLower(body), "cancel") {
		t.Errorf("got %s, want that it was cancelled", body)
	}
}
