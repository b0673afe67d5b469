package mcp

import (
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/contracts"
)

func text(s string) []contracts.ContentBlock {
	return []contracts.ContentBlock{{Type: "text", Text: s}}
}

func TestQuestionsAreTakenWhole(t *testing.T) {
	q, err := newQuestion("one", &sdk.ElicitParams{Message: "?", RequestedSchema: map[string]any{"type": "object"}})
	if err != nil || q.ServerName != "one" || q.Message != "?" || string(q.RequestedSchema) != `{"type":"object"}` {
		t.Errorf("got %+v, %v", q, err)
	}
	for name, p := range map[string]*sdk.ElicitParams{"none": nil, "a kind that is not known": {Mode: "dance"}} {
		if q, err := newQuestion("one", p); err == nil {
			t.Errorf("%s: got %+v, want an error", name, q)
		}
	}
}
