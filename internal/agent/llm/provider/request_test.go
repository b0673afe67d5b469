package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/testkit/localmodel"
)

func TestOpenChecksWhatItIsGiven(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Provider: Anthropic, Model: "m", Key: "k"}, ""},
		{Options{Provider: OpenAI, Model: "m", Key: "k"}, ""},
		{Options{Provider: OpenAIChat, Model: "m", BaseURL: "http://localhost:1"}, ""},
		{Options{Provider: Anthropic, Model: "m"}, "open model: anthropic needs a key: set ANTHROPIC_API_KEY, or say --model-url"},
		{Options{Provider: OpenAI, Model: "m", BaseURL: "https://eu.api.openai.com/v1"}, "open model: openai needs a key: set OPENAI_API_KEY, or say --model-url"},
		{Options{Provider: Anthropic, Key: "k"}, "open model: no model is named"},
		{Options{Provider: "x", Model: "m"}, `open model: unknown provider "x"; there are anthropic, openai and openai-chat`},
		{Options{Provider: OpenAI, Model: "m", BaseURL: "://secret"}, "open model: the base URL is not a URL"},
		{Options{Provider: OpenAI, Model: "m", BaseURL: "file:///x"}, "open model: the base URL is not an absolute http or https URL"},
		{Options{Provider: OpenAI, Model: "m", BaseURL: "http://me:secret@x"}, "open model: the base URL has credentials in it; give them as the key"},
		{Options{Provider: OpenAI, Model: "m", BaseURL: "http://x?key=secret"}, "open model: the base URL has a query or a fragment"},
	} {
		_, err := Open(tt.o)
		if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && got != tt.want {
			t.Errorf("%+v: got %v, want %q", tt.o, err, tt.want)
		}
	}
}

func TestPathsFollowTheBase(t *testing.T) {
	for _, tt := range []struct{ provider, path, want string }{
		{Anthropic, "", "/v1/messages"},
		{Anthropic, "/v1/", "/v1/messages"},
		{Anthropic, "/gateway", "/gateway/v1/messages"},
		{OpenAI, "", "/v1/responses"},
		{OpenAI, "/v1", "/v1/responses"},
		{OpenAIChat, "/api/v3/", "/api/v3/chat/completions"},
	} {
		server := local(localmodel.Options{})
		m := open(t, tt.provider, server, func(o *Options) { o.BaseURL += tt.path })
		mustStream(t, m, prompt("say a"))
		if got := server.Requests()[0].Path; got != tt.want {
			t.Errorf("%s with %q: got %s, want %s", tt.provider, tt.path, got, tt.want)
		}
	}
	var path string
	m := open(t, OpenAIChat, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { path = r.URL.Path }), func(o *Options) { o.Complete = true })
	_, _ = stream(t.Context(), m, prompt("say a")) // the answer is empty
	if path != "/chat/completions" {
		t.Errorf("with a complete base: got %s, want /chat/completions", path)
	}
}

// What a service answers to a refused request is shown without secrets, and without the
// texts of the request.
func TestAnswersOfServicesAreRedacted(t *testing.T) {
	const said = "a question that nobody else may ever read"
	for answer, want := range map[string]string{
		`{"error":{"message":"Model error","code":500,"by":["sk-secret-key",null]}}`: `{"error":{"by":["***",null],"code":500,"message":"Model error"}}`,
		`{"error":{"message":"you said \"` + said + `\""}}`:                          `{"error":{"message":"its message repeats the request and is not shown"}}`,
		`<html>`: "",
		`{"error":{"message":"` + strings.Repeat("long ", 1000) + `"}}`: "",
	} {
		m := open(t, OpenAIChat, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, answer)
		}), func(o *Options) { o.Key = "sk-secret-key" })
		_, err := stream(t.Context(), m, prompt(said))
		if got := string(failed(t, err).Details); got != want {
			t.Errorf("%.80s: got %s, want %s", answer, got, want)
		}
	}
}

// A key of the environment is for the service itself, and nobody asked for it.
func TestEnvironmentIsNotRead(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"} {
		t.Setenv(name, "of-the-environment")
	}
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Custom: of-the-environment")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Custom: of-the-environment")
	for _, provider := range providers {
		for _, key := range []string{"", "given"} {
			var seen http.Header
			server := local(localmodel.Options{})
			m := open(t, provider, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen = r.Header.Clone()
				server.ServeHTTP(w, r)
			}), func(o *Options) { o.Key = key })
			mustStream(t, m, prompt("say a"))
			if got := fmt.Sprint(seen); strings.Contains(got, "of-the-environment") {
				t.Errorf("%s: got %s, want nothing of the environment", provider, got)
			}
			got := strings.TrimPrefix(seen.Get("Authorization"), "Bearer ") + seen.Get("X-Api-Key")
			if got != key {
				t.Errorf("%s: got key %q, want %q", provider, got, key)
			}
		}
	}
}

func TestLabelsGoToGatewaysInHeaders(t *testing.T) {
	for _, provider := range providers {
		server := local(localmodel.Options{})
		m := open(t, provider, server)
		req := prompt("say a")
		req.Metadata = map[string]string{"agent_id": "a-1", "TraceID": "t", "bad key": "x", "new": "line\nbreak", "": "x", "empty": "",
			"long": strings.Repeat("x", 513), "user_id": "u-1"}
		mustStream(t, m, req)
		got := server.Requests()[0]
		var labelled []string
		for name, values := range got.Header {
			if strings.HasPrefix(name, "X-Maestro-Metadata-") {
				labelled = append(labelled, values...)
			}
		}
		if len(labelled) != 3 || got.Header.Get("X-Maestro-Metadata-Agent-Id") != "a-1" || got.Header.Get("X-Maestro-Metadata-TraceID") != "t" {
			t.Errorf("%s: got %v, want the three labels that fit", provider, got.Header)
		}
		var body struct{ Metadata map[string]string }
		if err := json.Unmarshal(got.Body, &body); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			Anthropic: "map[user_id:u-1]", OpenAI: "map[TraceID:t agent_id:a-1 user_id:u-1]",
			OpenAIChat: "map[]", // takes them only for what it stores
		}[provider]
		if got := fmt.Sprint(body.Metadata); got != want {
			t.Errorf("%s: got %s, want %s", provider, got, want)
		}
	}
	own := &service{official: true}
	if got := own.headers(&model.Request{Metadata: map[string]string{"a": "b"}}); len(got) > 0 {
		t.Errorf("got %v for the service itself, want no headers", got)
	}
}

func TestAddressOfAUserIsNotAnID(t *testing.T) {
	server := local(localmodel.Options{})
	m := open(t, Anthropic, server)
	req := prompt("say a")
	req.Metadata = map[string]string{"user_id": "me@example.org"}
	mustStream(t, m, req)
	if body := string(server.Requests()[0].Body); strings.Contains(body, "example.org") {
		t.Errorf("got %s, want no address", body)
	}
}

func TestEffortsAreInTheWordsOfTheModel(t *testing.T) {
	for _, tt := range []struct {
		provider, model string
		effort          model.Effort
		max             int64
		want            string // what of the request says so
	}{
		{Anthropic, "claude-opus-4-7", "", 0, `max_tokens:32000`},
		{Anthropic, "claude-opus-4-7", model.EffortOff, 0, `max_tokens:32000`},
		{Anthropic, "claude-opus-4-7", model.EffortUltra, 0, `max_tokens:32000 output_config:{"effort":"max"} thinking:{"display":"summarized","type":"adaptive"}`},
		{Anthropic, "claude-sonnet-4-6", model.EffortUltra, 0, `max_tokens:32000 output_config:{"effort":"high"} thinking:{"display":"summarized","type":"adaptive"}`},
		{Anthropic, "claude-sonnet-5", model.EffortMinimal, 7, `max_tokens:7 output_config:{"effort":"low"} thinking:{"display":"summarized","type":"adaptive"}`},
		{Anthropic, "claude-haiku-4-5-20251001", model.EffortMedium, 0, `max_tokens:32000 thinking:{"budget_tokens":8192,"type":"enabled"}`},
		{Anthropic, "claude-haiku-4-5", model.EffortUltra, 4096, `max_tokens:4096 thinking:{"budget_tokens":3072,"type":"enabled"}`},
		{Anthropic, "claude-haiku-4-5", model.EffortHigh, 2000, `max_tokens:2000`},
		{Anthropic, "claude-3-7-sonnet-20250219", model.EffortLow, 0, `max_tokens:32000 thinking:{"budget_tokens":2048,"type":"enabled"}`},
		{Anthropic, "claude-3-5-haiku-20241022", model.EffortHigh, 0, `max_tokens:4096`},
		{OpenAI, "gpt-5.2", "", 9, `include:["reasoning.encrypted_content"] max_output_tokens:9 store:false`},
		{OpenAI, "gpt-5.2", model.EffortOff, 0, `include:["reasoning.encrypted_content"] reasoning:{"effort":"none"} store:false`},
		{OpenAI, "gpt-5", model.EffortOff, 0, `include:["reasoning.encrypted_content"] reasoning:{"effort":"minimal"} store:false`},
		{OpenAI, "gpt-5.2-codex", model.EffortUltra, 0, `include:["reasoning.encrypted_content"] reasoning:{"effort":"xhigh","summary":"auto"} store:false`},
		{OpenAI, "o3", model.EffortMinimal, 0, `include:["reasoning.encrypted_content"] reasoning:{"effort":"low","summary":"auto"} store:false`},
		{OpenAI, "o3", model.EffortOff, 0, `include:["reasoning.encrypted_content"] store:false`},
		{OpenAI, "gpt-4.1", model.EffortHigh, 0, `store:false`},
		{OpenAIChat, "openai/gpt-4o", model.EffortHigh, 5, `max_tokens:5`},
		{OpenAIChat, "deepseek-reasoner", model.EffortHigh, 0, `reasoning_effort:"high"`},
		{OpenAIChat, "gpt-5.1", model.EffortUltra, 0, `reasoning_effort:"high"`},
		{OpenAIChat, "qwen3", model.EffortOff, 0, ``},
	} {
		server := local(localmodel.Options{})
		m := open(t, tt.provider, server, func(o *Options) { o.Model = tt.model })
		req := prompt("say a")
		req.Thinking, req.MaxTokens = tt.effort, tt.max
		mustStream(t, m, req)
		var body map[string]json.RawMessage
		if err := json.Unmarshal(server.Requests()[0].Body, &body); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range []string{"include", "max_output_tokens", "max_tokens", "output_config", "reasoning", "reasoning_effort", "store", "thinking"} {
			if value, ok := body[name]; ok {
				got = append(got, name+":"+sorted(t, value))
			}
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s/%s %q: got %s, want %s", tt.provider, tt.model, tt.effort, got, tt.want)
		}
	}
}

// sorted is JSON with its keys in order.
func sorted(t *testing.T, text json.RawMessage) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Models with a budget refuse to begin to think in the middle of a turn.
func TestThinkingDoesNotBeginInTheMiddle(t *testing.T) {
	for _, thought := range []bool{false, true} {
		server := local(localmodel.Options{})
		m := open(t, Anthropic, server, func(o *Options) { o.Model = "claude-haiku-4-5" })
		req := prompt("call a")
		if thought {
			req = prompt("think b\ncall a")
		}
		h := mustStream(t, m, req)
		req.Messages = append(req.Messages, h.Message, model.Message{Role: model.RoleUser, Parts: []model.Part{
			{Result: &model.CallResult{ID: calls(h.Message)[0].ID, Text: "c"}}}})
		req.Thinking = model.EffortHigh
		mustStream(t, m, req)
		if got := strings.Contains(string(server.Requests()[1].Body), `"budget_tokens"`); got != thought {
			t.Errorf("got a budget: %v, want %v", got, thought)
		}
	}
}

func TestSummariesThatAreRefusedAreNotAskedForAgain(t *testing.T) {
	server := local(localmodel.Options{})
	var asked []bool
	m := open(t, OpenAI, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		summary := strings.Contains(string(body), `"summary":"auto"`)
		asked = append(asked, summary)
		if summary {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"error":{"message":"Your organization must be verified to generate reasoning summaries.","type":"invalid_request_error","param":"reasoning.summary","code":"unsupported_value"}}`)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		server.ServeHTTP(w, r)
	}))
	req := prompt("say a")
	req.Thinking = model.EffortHigh
	for range 2 {
		if h := mustStream(t, m, req); h.text != "a" {
			t.Errorf("got %q, want a", h.text)
		}
	}
	if got := fmt.Sprint(asked); got != "[true false false]" {
		t.Errorf("got summaries asked for %s, want once", got)
	}
}

func TestSchemasAreThoseOfObjects(t *testing.T) {
	for schema, want := range map[string]string{
		"":                                   `{"properties":{},"type":"object"}`,
		"{}":                                 `{"properties":{},"type":"object"}`,
		"null":                               `{"properties":{},"type":"object"}`,
		"[]":                                 `{"properties":{},"type":"object"}`,
		`{"type":"object"}`:                  `{"properties":{},"type":"object"}`,
		`{"properties":{"a":{}}}`:            `{"properties":{"a":{}},"type":"object"}`,
		`{"type":"object", "properties":{}}`: `{"type":"object", "properties":{}}`,
	} {
		if got := string(schemaOf(model.Tool{Schema: json.RawMessage(schema)})); got != want {
			t.Errorf("%s: got %s, want %s", schema, got, want)
		}
	}
}

func TestFailureWithPicturesIsToldInWordsToAnthropic(t *testing.T) {
	pictures := []model.Image{{MimeType: "image/png", Data: []byte("x")}}
	for _, tt := range []struct {
		result model.CallResult
		failed bool
		says   string
	}{
		{model.CallResult{ID: "a", Text: "no", IsError: true}, true, "no"},
		{model.CallResult{ID: "a", Text: "no", IsError: true, Images: pictures}, false, "Error: no"},
		{model.CallResult{ID: "a", Text: "yes", Images: pictures}, false, "yes"},
	} {
		got := anthropicResult(&tt.result)
		content := got["content"].([]object)
		if (got["is_error"] == true) != tt.failed || content[0]["text"] != tt.says || len(content) != 1+len(tt.result.Images) {
			t.Errorf("%+v: got %+v, want an error: %t, and %q", tt.result, got, tt.failed, tt.says)
		}
	}
}

func TestNoMessageEndsInThinkingForAnthropic(t *testing.T) {
	s := &service{Options: Options{Provider: Anthropic}}
	thought := func(kept string) model.Part {
		return model.Part{Thinking: &model.Thinking{Text: "hm", Provider: Anthropic, Opaque: json.RawMessage(kept)}}
	}
	open, sealed, text := thought(`{"signature":"s"}`), thought(`{"data":"d"}`), "hello"
	for _, tt := range []struct {
		parts []model.Part
		want  int
	}{
		{[]model.Part{open, {Text: &text}, sealed, open}, 2},
		{[]model.Part{open, sealed, {Text: &text}}, 3},
		{[]model.Part{open, sealed}, 0},
	} {
		if got := s.anthropicAssistant(tt.parts); len(got) != tt.want {
			t.Errorf("got %d blocks of %d parts, want %d", len(got), len(tt.parts), tt.want)
		}
	}
}
