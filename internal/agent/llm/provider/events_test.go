package provider

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
)

// Services and gateways write server-sent events in all the ways that are allowed,
// and members in types that are not.
func TestEventsAreReadInAllTheirForms(t *testing.T) {
	const hello = `{"choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":"stop"}]}`
	for _, tt := range []struct{ body, text, failure string }{
		{body: "data: " + hello + "\n\n", text: "hello"},
		{body: "data:" + hello + "\n\n", text: "hello"},
		{body: "data: " + hello + "\r\n\r\n", text: "hello"},
		{body: ": waiting\n\n:\n\nid: 1\nretry: 2\nevent: chunk\ndata: " + hello + "\n\n", text: "hello"},
		{body: "data: " + strings.Replace(hello, ",", ",\ndata: ", 1) + "\n\n", text: "hello"},
		{body: "data\n\nevent: end\n\ndata: " + hello + "\n\ndata: [DONE]\n\ndata: nonsense\n\n", text: "hello"},
		{body: "data: " + strings.Replace(hello, "{", `{"error":null,`, 1) + "\n\n", text: "hello"},
		{body: "data: " + strings.Replace(hello, "{", `{"model":1,"usage":"none",`, 1) + "\n\n", text: "hello"},
		{body: "data: " + strings.Replace(hello, "hello", `an \"error\": {}`, 1) + "\n\n", text: `an "error": {}`},
		{body: "data: {\"error\":{\"message\":\"no room\"}}\n\ndata: " + hello + "\n\n", failure: "openai-chat broke off: no room"},
		{body: "data: {\"error\":\"no room\"}\n\n", failure: "openai-chat broke off: no room"},
		{body: "event: error\ndata: {\"type\":\"error\",\"message\":\"no room\"}\n\n", failure: "openai-chat broke off: no room"},
		{body: "event: error\ndata: no room\n\n", failure: "openai-chat sent an event that is not understood"},
		{body: "data: " + hello, failure: "openai-chat: the answer ended before it was complete"},
		{body: "data: [DONE]\n\n", failure: "openai-chat: the answer ended before it was complete"},
	} {
		m := open(t, OpenAIChat, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, tt.body)
		}))
		h, err := stream(t.Context(), m, prompt("hello"))
		if tt.failure == "" && err != nil || tt.failure != "" && failed(t, err).Message != tt.failure || h.text != tt.text {
			t.Errorf("got %q and %v for %q, want %q and %q", h.text, err, tt.body, tt.text, tt.failure)
		}
	}
}

func TestHistoryThatIsNoJSONIsNotSent(t *testing.T) {
	m := open(t, OpenAI, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("got a request") }))
	req := prompt("hello")
	req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Parts: []model.Part{
		{Thinking: &model.Thinking{Provider: OpenAI, Opaque: []byte(`{"cut`)}}, {Text: new("hi")}}})
	_, err := stream(t.Context(), m, req)
	if e := failed(t, err); e.Kind != model.KindInvalid || e.Message != "openai: the request is not JSON" {
		t.Errorf("got %+v, want an invalid request", e)
	}
}
