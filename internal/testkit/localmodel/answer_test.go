package localmodel_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

// said sends messages in the form of Chat Completions and returns what is said
// and called.
func (p place) said(t *testing.T, messages []any, tools ...any) (text string, calls []string) {
	t.Helper()
	status, _, body, err := p.post(t, "/v1/chat/completions", encoded(map[string]any{"stream": true, "messages": messages, "tools": tools}))
	if status != 200 || err != nil {
		t.Fatalf("got %d, %v and %s, want an answer", status, err, body)
	}
	for line := range strings.Lines(body) {
		data, ok := strings.CutPrefix(line, "data: {")
		if !ok {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content   string `json:"content"`
					ToolCalls []struct {
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
			}
		}
		if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
			t.Fatal(err)
		}
		delta := chunk.Choices[0].Delta
		text += delta.Content
		for _, c := range delta.ToolCalls {
			if c.Function.Name != "" {
				calls = append(calls, c.Function.Name+" ")
			}
			calls[len(calls)-1] += c.Function.Arguments
		}
	}
	return text, calls
}

func ask(prompt string) any { return map[string]any{"role": "user", "content": prompt} }

// acted is one turn of an agent: the model called a tool, which answered.
func acted(n int, result string) []any {
	id := fmt.Sprint("call_", n)
	return []any{
		map[string]any{"role": "assistant", "tool_calls": []any{
			map[string]any{"id": id, "type": "function", "function": map[string]any{"name": "bash", "arguments": "{}"}}}},
		map[string]any{"role": "tool", "tool_call_id": id, "content": result},
	}
}

func function(name string) any {
	return map[string]any{"type": "function", "function": map[string]any{"name": name}}
}

func TestPromptsAreProgramsOrSaidBack(t *testing.T) {
	p := serve(t, localmodel.Options{})
	for _, tt := range []struct {
		name, prompt string
		turns        int // the model has acted so often since
		tools        []any
		text         string
		calls        string
	}{
		{"anything", "Hello", 0, nil, "You said: Hello", ""},
		{"nothing", " ", 0, nil, "Nothing was said.", ""},
		{"say", "say a\nb\nsay c", 0, nil, "a\nb\nc", ""},
		{"call", "call ls", 0, nil, "", "ls {}"},
		{"calls", "say go\ncall ls {\"a\":1}\ncall cat {}\nsay done", 0, nil, "go", `ls {"a":1}; cat {}`},
		{"after calls", "say go\ncall ls\nsay done", 1, nil, "done", ""},
		{"then", "call ls\nthen\ncall cat", 1, nil, "", "cat {}"},
		{"then between texts", "say a\nthen\nsay b", 0, nil, "a", ""},
		{"the result at the end", "call ls", 1, nil, "The tool answered: result 1", ""},
		{"the first that is offered", "call Read|read|cat {}", 0, []any{function("cat"), function("read")}, "", "read {}"},
		{"none is offered", "call Read|read {}", 0, nil, "", "Read {}"},
		{"a turn with nothing in it", "call ls\nfault slow", 1, nil, "The tool answered: result 1", ""},
		{"a fault alone", "fault slow", 0, nil, "That was all.", ""},
		{"no object", "call ls [1]", 0, nil, `I cannot do that: a call of "ls" whose arguments are no JSON object: [1].`, ""},
		{"no fault", "fault sneeze", 0, nil, `I cannot do that: unknown fault "sneeze".`, ""},
		{"no reason to stop", "say a\nstop now", 0, nil, `I cannot do that: unknown stop "now".`, ""},
		{"a word that begins like one", "sayonara", 0, nil, "You said: sayonara", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			messages := []any{ask(tt.prompt)}
			for i := range tt.turns {
				messages = append(messages, acted(i+1, fmt.Sprint("result ", i+1))...)
			}
			text, calls := p.said(t, messages, tt.tools...)
			if got := strings.Join(calls, "; "); text != tt.text || got != tt.calls {
				t.Errorf("got %q and calls %s, want %q and %s", text, got, tt.text, tt.calls)
			}
		})
	}
}

func TestTurnsFollowFromTheConversation(t *testing.T) {
	script := []localmodel.Case{
		{Match: "count", Turns: []localmodel.Turn{
			{Text: "one", Calls: []localmodel.Call{{Tool: "bash"}}}, {Text: "two after {{result}}"}}},
		{Match: "Who", Turns: []localmodel.Turn{{Text: "{{prompt}} me"}}},
		{Turns: []localmodel.Turn{{Text: "default"}}},
	}
	p := serve(t, localmodel.Options{Script: script})

	history := []any{map[string]any{"role": "system", "content": "count"}, ask("count to two")}
	want := []string{"one", "two after a", "The tool answered: b"}
	for i, want := range want {
		if got, _ := p.said(t, history); got != want {
			t.Errorf("turn %d: got %q, want %q", i, got, want)
		}
		history = append(history, acted(i, string(rune('a'+i)))...)
	}
	history = append(history, map[string]any{"role": "assistant", "content": "two"}, ask("Who?"))
	if got, _ := p.said(t, history); got != "Who? me" {
		t.Errorf("got %q for a new prompt, want its own case", got)
	}
	history = append(history, map[string]any{"role": "assistant", "content": "me"}, ask("else"))
	if got, _ := p.said(t, history); got != "default" {
		t.Errorf("got %q for a prompt without a case, want the default", got)
	}
}

// What agents put around a prompt is not the prompt.
func TestPromptIsFoundAmongWhatAgentsAdd(t *testing.T) {
	p := serve(t, localmodel.Options{})
	for _, body := range []string{
		`{"max_tokens":1,"stream":true,"messages":[{"role":"user","content":[
			{"type":"text","text":"<system-reminder>\nsay no\n</system-reminder>"},{"type":"text","text":"say Y"}]}]}`,
		`{"max_tokens":1,"stream":true,"messages":[{"role":"user","content":"say Y\nthen\nsay Y"},
			{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"},{"type":"text","text":"<system-reminder>say no</system-reminder>"}]}]}`,
		`{"max_tokens":1,"stream":true,"messages":[{"role":"user","content":"<b>say no</b>"},{"role":"user","content":"say Y"}]}`,
		`{"max_tokens":1,"stream":true,"messages":[{"role":"user","content":"say Y"},{"role":"system","content":"say no"}]}`,
	} {
		status, _, answer, err := p.post(t, "/v1/messages", body)
		if status != 200 || err != nil || !strings.Contains(answer, `"text":"Y"`) {
			t.Errorf("got %d, %v and %s for %s, want Y", status, err, answer, body)
		}
	}
	_, _, answer, _ := p.post(t, "/v1/responses", `{"stream":true,"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"say no"}]},
		{"role":"user","content":[{"type":"input_text","text":"<environment_context>say no</environment_context>"}]},
		{"role":"user","content":[{"type":"input_text","text":"say Y"}]}]}`)
	_, _, chat, _ := p.post(t, "/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"say Y"},{"role":"user","content":"<b>say no\n\nsay never</b>"}]}`)
	if !strings.Contains(chat, `"Y"`) {
		t.Errorf("got %s from Chat Completions, want Y", chat)
	}
	if !strings.Contains(answer, `"text":"Y"`) {
		t.Errorf("got %s from Responses, want Y", answer)
	}
}

// A turn of thoughts alone, or one that failed, leaves prompts without an answer,
// which agents send along with the next one.
func TestPromptsWithoutAnAnswerAreOver(t *testing.T) {
	p := serve(t, localmodel.Options{})
	for path, bodies := range map[string][]string{
		"/v1/messages": {
			`{"max_tokens":1,"stream":true,"messages":[{"role":"user","content":"think hm"},{"role":"user","content":"call b"},{"role":"user","content":"say Y"}]}`,
			`{"max_tokens":1,"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"think hm"},{"type":"text","text":"say Y"}]}]}`,
		},
		"/v1/chat/completions": {
			`{"stream":true,"messages":[{"role":"user","content":"think hm\n\ncall b\n\nsay Y"}]}`,
			`{"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"think hm"},{"type":"text","text":"say Y"}]}]}`,
		},
		"/v1/responses": {
			`{"stream":true,"input":[{"role":"user","content":[{"type":"input_text","text":"think hm"},{"type":"input_text","text":"say Y"}]}]}`,
			`{"stream":true,"input":[{"role":"user","content":"think hm"},{"role":"user","content":"say Y"}]}`,
		},
	} {
		for _, body := range bodies {
			status, _, answer, err := p.post(t, path, body)
			if status != 200 || err != nil || !strings.Contains(answer, `"Y"`) || strings.Contains(answer, "hm") {
				t.Errorf("%s: got %d, %v and %s for %s, want Y alone", path, status, err, answer, body)
			}
		}
	}
}

func TestScriptsAreChecked(t *testing.T) {
	for _, tt := range []struct{ script, want string }{
		{`[{"match":"a","turns":[{"text":"b"}]}]`, ""},
		{`[{"turns":[{"calls":[{"tool":"a|b","args":{}}],"stop":"length","fault":{"kind":"hang","times":2}}]}]`, ""},
		{`[`, "unexpected EOF"},
		{`[{"case":[]}]`, `unknown field "case"`},
		{`[{"turns":[{"stop":"x"}]}]`, `unknown stop "x"`},
		{`[{"turns":[{"fault":{"kind":"x"}}]}]`, `unknown fault "x"`},
		{`[{"turns":[{"calls":[{}]}]}]`, `a call of "" whose arguments are no JSON object: `},
		{`[{"turns":[{"calls":[{"tool":"a","args":[]}]}]}]`, `a call of "a" whose arguments are no JSON object: []`},
	} {
		path := filepath.Join(t.TempDir(), "script.json")
		if err := os.WriteFile(path, []byte(tt.script), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := localmodel.LoadScript(path)
		if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && (!strings.HasSuffix(got, tt.want) || !strings.Contains(got, path)) {
			t.Errorf("%s: got %v, want %q", tt.script, err, tt.want)
		}
	}
}

func TestRequestsAreKeptWithinBounds(t *testing.T) {
	const most, bytes = 64, 16 << 20
	p := serve(t, localmodel.Options{})
	for i := range most + 1 {
		p.said(t, []any{ask(fmt.Sprint("prompt ", i))})
	}
	got := p.Requests()
	if len(got) != most || got[0].Prompt != "prompt 1" {
		t.Errorf("got %d from %q, want the last %d", len(got), got[0].Prompt, most)
	}
	p.said(t, []any{ask(strings.Repeat("x", bytes))})
	if got := p.Requests(); len(got) != 1 || len(got[0].Body) < bytes {
		t.Errorf("got %d requests, want the large one alone", len(got))
	}
}

func TestCredentialsAreNotKept(t *testing.T) {
	p := serve(t, localmodel.Options{})
	for _, header := range []string{"X-Api-Key", "Authorization"} {
		req, err := http.NewRequest("POST", p.url+"/v1/messages", strings.NewReader(forms[0].ask("hello")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header, "secret")
		req.Header.Set("X-Other", "seen")
		res, err := p.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	for _, r := range p.Requests() {
		if got := fmt.Sprint(r.Header); strings.Contains(got, "secret") || r.Header.Get("X-Other") != "seen" {
			t.Errorf("got %s, want all headers but those with credentials", got)
		}
	}
}

func TestTooLongARequestIsRefused(t *testing.T) {
	p := serve(t, localmodel.Options{})
	for _, f := range forms {
		if status, _, _, _ := p.post(t, f.path, f.ask(strings.Repeat("x", 32<<20))); status != 413 {
			t.Errorf("%s: got %d, want 413", f.name, status)
		}
	}
}
