package localmodel_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestHistoriesAreHeldToTheRules(t *testing.T) {
	p := serve(t, localmodel.Options{})
	for _, tt := range []struct{ name, path, body, want string }{
		{"no length", "/v1/messages", `{"messages":[{"role":"user","content":"a"}]}`, "max_tokens: Field required"},
		{"no messages", "/v1/messages", `{"max_tokens":1}`, "at least one message"},
		{"not JSON", "/v1/messages", `{`, "not valid JSON"},
		{"no stream", "/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":"a"}]}`, "Only streams"},
		{"a role", "/v1/messages", `{"max_tokens":1,"messages":[{"role":"tool","content":"a"}]}`, "messages.0.role"},
		{"an empty text", "/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":""}]}`, "must be non-empty"},
		{"a blank text", "/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":" "}]}`, "non-whitespace"},
		{"an empty message", "/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":[]},{"role":"user","content":"a"}]}`, "messages.0: all messages must have non-empty content"},
		{"an open call", "/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"x"}]},{"role":"user","content":"b"}]}`, "without `tool_result` blocks immediately after: x"},
		{"an open call at the end", "/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"x"}]}]}`, "immediately after: x"},
		{"a result behind a text", "/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"x"}]},{"role":"user","content":[{"type":"text","text":"b"},{"type":"tool_result","tool_use_id":"x"}]}]}`, "immediately after: x"},
		{"a result without a call", "/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x"}]}]}`, "unexpected `tool_use_id`"},
		{"changed thinking", "/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"b","signature":"c"}]},{"role":"user","content":"b"}]}`, "messages.1.content.0: Invalid `signature`"},
		{"no input", "/v1/responses", `{}`, "Missing required parameter: 'input'"},
		{"an open call", "/v1/responses", `{"input":[{"type":"function_call","call_id":"x"}]}`, "No tool output found for function call x"},
		{"an output without a call", "/v1/responses", `{"input":[{"type":"function_call_output","call_id":"x"}]}`, "No tool call found"},
		{"reasoning from the store", "/v1/responses", `{"input":[{"type":"reasoning","id":"rs","summary":[]}]}`, "Item with id 'rs' not found"},
		{"changed reasoning", "/v1/responses", `{"input":[{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"x"}]}`, "could not be verified"},
		{"no messages", "/v1/chat/completions", `{}`, "empty array"},
		{"a role", "/v1/chat/completions", `{"messages":[{"role":"x"}]}`, "Invalid value: 'x'"},
		{"an open call", "/v1/chat/completions", `{"messages":[{"role":"assistant","tool_calls":[{"id":"x"}]},{"role":"user","content":"a"}]}`, "did not have response messages: x"},
		{"a result without a call", "/v1/chat/completions", `{"messages":[{"role":"tool","tool_call_id":"x"}]}`, "must be a response to a preceding message"},
	} {
		status, _, body, _ := p.post(t, tt.path, tt.body)
		if status != 400 || !strings.Contains(body, tt.want) {
			t.Errorf("%s, %s: got %d %s, want 400 with %s", tt.path, tt.name, status, body, tt.want)
		}
	}
	if status, _, _, _ := p.post(t, "/v1/elsewhere", "{}"); status != 404 {
		t.Errorf("got %d for an unknown path, want 404", status)
	}
}

var times = regexp.MustCompile(`"created(_at)?":\d+`)

func TestStreamsAreAsTheyWere(t *testing.T) {
	p := serve(t, localmodel.Options{})
	for _, f := range forms {
		_, _, got, err := p.post(t, f.path, f.ask("think Hm.\nsay Grüße\ncall bash {\"command\":\"ls\"}"))
		if err != nil {
			t.Fatal(err)
		}
		got = times.ReplaceAllString(got, `"created$1":0`)
		path := filepath.Join("testdata", f.name+".sse")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: got %s, want %s", f.name, got, want)
		}
	}
}

func TestCachesAreCounted(t *testing.T) {
	p := serve(t, localmodel.Options{})
	first := `{"max_tokens":1,"stream":true,"system":[{"type":"text","text":"` + strings.Repeat("x", 400) + `","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"a"}]}`
	_, _, body, _ := p.post(t, "/v1/messages", first)
	if !strings.Contains(body, `"cache_read_input_tokens":0`) || strings.Contains(body, `"cache_creation_input_tokens":0`) {
		t.Errorf("got %s, want a cache that is written", body)
	}
	second := strings.Replace(first, `"a"}]`, `"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]`, 1)
	_, _, body, _ = p.post(t, "/v1/messages", second)
	if strings.Contains(body, `"cache_read_input_tokens":0`) || !strings.Contains(body, `"cache_creation_input_tokens":0`) {
		t.Errorf("got %s, want a cache that is read", body)
	}
}
