package provider

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The streams of testdata are as services and gateways send them; beside each lies
// what becomes of it.
func TestStreamsAreUnderstood(t *testing.T) {
	streams, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(streams) == 0 {
		t.Fatalf("got %q and %v, want streams", streams, err)
	}
	for _, path := range streams {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			provider, _, _ := strings.Cut(filepath.Base(path), ".")
			m := open(t, provider, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = w.Write(data)
			}))
			h, err := stream(t.Context(), m, prompt("hello"))
			got := struct {
				Reply          model.Reply
				Text, Thinking string
				Error          *model.Error `json:",omitempty"`
			}{Reply: h.Reply, Text: h.text, Thinking: h.thinking}
			if err != nil {
				got.Error = failed(t, err)
			}
			compare(t, strings.TrimSuffix(path, ".sse")+".json", got)
		})
	}
}

// compare holds a value to what a golden file has.
func compare(t *testing.T, path string, value any) {
	t.Helper()
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		t.Fatal(err)
	}
	got := text.Bytes()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The requests of testdata are what services are sent, with how characters are
// escaped.
func TestRequestsAreInTheFormOfTheService(t *testing.T) {
	models := map[string]string{Anthropic: "claude-opus-4-7", OpenAI: "gpt-5.2", OpenAIChat: "gpt-5.2"}
	sealed := map[string]string{ // as a journal has it
		Anthropic: `{"signature":"c2ln"}`,
		OpenAI:    `{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"a < b"}],"encrypted_content":"gAAA"}`,
	}
	image := model.Image{MimeType: "image/png", Data: []byte("pixels")}
	text := func(text string) model.Part { return model.Part{Text: &text} }
	for _, provider := range providers {
		thought := func(opaque string) model.Part {
			return model.Part{Thinking: &model.Thinking{Text: "a < b", Provider: provider, Opaque: json.RawMessage(opaque)}}
		}
		call := func(id, args string) model.Part {
			return model.Part{Call: &model.Call{ID: id, Tool: "read", Args: json.RawMessage(args)}}
		}
		full := &model.Request{
			System: "Be <kind> & \"brief\".\u2028",
			Messages: []model.Message{
				{Role: model.RoleUser, Parts: []model.Part{text("look at <this>"), {Image: &image}}},
				{Role: model.RoleAssistant, Parts: []model.Part{thought(sealed[provider]), text("I look."), call("call_1", `{"path": "a"}`), call("call_2", `{}`), call("call_3", `{}`)}},
				{Role: model.RoleUser, Parts: []model.Part{
					{Result: &model.CallResult{ID: "call_1", Text: "é 世界"}},
					{Result: &model.CallResult{ID: "call_2", Text: "no", IsError: true}},
					{Result: &model.CallResult{ID: "call_3", Text: "seen", Images: []model.Image{image}}},
					text("and now?"),
				}},
			},
			Tools: []model.Tool{
				{Name: "read", Description: "reads a file", Schema: json.RawMessage(`{"type":"object","required":["path"],"properties":{"path":{"type":"string","maxLength":9007199254740993}}}`)},
				{Name: "now"},
			},
			Thinking: model.EffortHigh, MaxTokens: 4096,
			Metadata: map[string]string{"user_id": "u-1", "b": "2", "a": "1"},
		}
		turn := prompt("read it")
		turn.Messages = append(turn.Messages,
			model.Message{Role: model.RoleAssistant, Parts: []model.Part{thought(sealed[provider]), call("call_1", `{}`)}},
			model.Message{Role: model.RoleUser, Parts: []model.Part{{Result: &model.CallResult{ID: "call_1"}}}})
		for name, req := range map[string]*model.Request{"full": full, "plain": prompt("hello"), "turn": turn} {
			var got struct {
				Header map[string]string
				Body   json.RawMessage
			}
			m := open(t, provider, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got.Header = map[string]string{}
				for _, name := range []string{"Accept", "Anthropic-Version", "Authorization", "Content-Type", "X-Api-Key"} {
					if value := r.Header.Get(name); value != "" {
						got.Header[name] = value
					}
				}
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				got.Body = body
			}), func(o *Options) { o.Model, o.Key = models[provider], "key" })
			if _, err := stream(t.Context(), m, req); err == nil {
				t.Fatal("got a reply, want none of an empty answer")
			}
			compare(t, "testdata/"+provider+".request."+name+".json", got)
		}
	}
}
