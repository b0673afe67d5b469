package mcp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// The reference server of the protocol's authors, which is installed by make.
func TestTheReferenceServerIsServed(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs(filepath.Join("testdata", "everything"))
	if err != nil {
		t.Fatal(err)
	}
	command := filepath.Join(dir, "node_modules", ".bin", "mcp-server-everything")
	if _, err := os.Stat(command); err != nil {
		t.Fatalf("got %v, want the server installed: run make others, which needs npm", err)
	}
	h := newHost(t)
	s := open(t, h, Options{}, Server{Name: "everything", Command: command, Args: []string{"stdio"}})
	says(t, must(t, s, "mcp__everything__echo", `{"message":"hello"}`), "Echo: hello")

	req, done := ask(t, s, h, "mcp__everything__trigger-elicitation-request")
	if !strings.HasPrefix(req.CallID, "mcp_elicitation:everything:") || !strings.Contains(string(req.Args), `"mode":"form"`) {
		t.Errorf("got %+v, want a form", req)
	}
	h.Resolve(req.RequestID, answeredBy(`{"action":"accept","content":{"name":"Ada","check":true,"integer":36}}`))
	if res := result(t, done); res.IsError || !strings.Contains(res.Text, "Ada") {
		t.Errorf("got %+v, want the answer in the result", res)
	}
	if end := h.AwaitType("tool_end").(*contracts.ToolEnd); end.CallID != req.CallID || !end.Success {
		t.Errorf("got %+v, want the end of the question", end)
	}
}
