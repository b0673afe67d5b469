package mcp

import (
	"encoding/json"
	"reflect"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/agent/elicit"
	"github.com/seed-028515a8/maestro/contracts"
)

func text(s string) []contracts.ContentBlock {
	return []contracts.ContentBlock{{Type: "text", Text: s}}
}

func TestAnswersAreToldToServers(t *testing.T) {
	for _, tt := range []struct {
		mode, said string
		want       *sdk.ElicitResult
	}{
		{"form", `{"action":"accept","content":{"n":36,"many":["x"]}}`, &sdk.ElicitResult{Action: "accept", Content: map[string]any{"n": 36.0, "many": []any{"x"}}}},
		{"form", `{"action":"accept"}`, &sdk.ElicitResult{Action: "accept", Content: map[string]any{}}},
		{"url", `{"action":"accept"}`, &sdk.ElicitResult{Action: "accept"}},
		{"form", `{"action":"decline"}`, &sdk.ElicitResult{Action: "decline"}},
		{"form", `{"action":"maybe"}`, nil},
	} {
		q := &elicit.Question{Mode: tt.mode, RequestedSchema: json.RawMessage(`{}`)}
		if got, why := answerOf(q, text(tt.said)); !reflect.DeepEqual(got, tt.want) || (got == nil) == (why == "") {
			t.Errorf("%s: got %+v, %q; want %+v", tt.said, got, why, tt.want)
		}
	}
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
