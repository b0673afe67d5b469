package mcp

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-028515a8/maestro/contracts"
)

func text(s string) []contracts.ContentBlock {
	return []contracts.ContentBlock{{Type: "text", Text: s}}
}

func TestAnswersAreReadAsTheyAreMeant(t *testing.T) {
	const form = `{"type":"object","properties":{
		"name":{"type":"string","minLength":2},"age":{"type":"integer","minimum":0},"ok":{"type":"boolean"},"born":{"type":"string","format":"date"},
		"mail":{"type":"string","format":"email"},"page":{"type":"string","format":"uri"},"at":{"type":"string","format":"date-time"},
		"kind":{"type":"string","enum":["a","b"]},"many":{"type":"array","items":{"type":"string","enum":["x","y"]}}
	},"required":["name"],"additionalProperties":false}`
	accept := func(content map[string]any) *sdk.ElicitResult {
		return &sdk.ElicitResult{Action: "accept", Content: content}
	}
	for _, tt := range []struct {
		mode, schema, said string
		want               *sdk.ElicitResult
		why                string
	}{
		{"form", form, `{"action":"decline","content":{"name":"Ada"}}`, &sdk.ElicitResult{Action: "decline"}, ""},
		{"form", form, `{"action":"cancel"}`, &sdk.ElicitResult{Action: "cancel"}, ""},
		{"form", form, `{"action":"accept","content":{"name":"Ada","age":36,"ok":true,"many":["x"],"unknown":null}}`, nil, `"unknown" is no text`},
		{"form", form, `{"action":"accept","content":{"name":"Ada","age":36,"ok":true,"many":["x"]},"more":1}`,
			accept(map[string]any{"name": "Ada", "age": 36.0, "ok": true, "many": []any{"x"}}), ""},
		{"form", form, `{"action":"accept","content":{"name":"Ada","born":"1815-12-10","mail":"ada@example.org","page":"https://a.example/","at":"1843-10-18T12:00:00Z","kind":"a"}}`,
			accept(map[string]any{"name": "Ada", "born": "1815-12-10", "mail": "ada@example.org", "page": "https://a.example/", "at": "1843-10-18T12:00:00Z", "kind": "a"}), ""},
		{"form", form, `{"action":"accept"}`, nil, `"name" is missing`},
		{"form", form, `{"action":"accept","content":{"name":"A"}}`, nil, `"name" is not as it should be`},
		{"form", form, `{"action":"accept","content":{"name":"secret","age":-1}}`, nil, `"age" is not as it should be`},
		{"form", form, `{"action":"accept","content":{"name":"secret","age":"36"}}`, nil, `"age"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","born":"yesterday"}}`, nil, `"born"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","mail":"Ada <ada@example.org>"}}`, nil, `"mail"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","page":"a.example"}}`, nil, `"page"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","at":"noon"}}`, nil, `"at"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","kind":"c"}}`, nil, `"kind"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","many":["z"]}}`, nil, `"many"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","many":[1]}}`, nil, `"many" is no text`},
		{"form", form, `{"action":"accept","content":{"name":{"first":"secret"}}}`, nil, `"name" is no text`},
		{"form", form, `{"action":"accept","content":{"name":"secret","extra":"x"}}`, nil, `do not go together`},
		{"form", form, `{"action":"accept","content":["secret"]}`, nil, "not understood"},
		{"form", `{"type":7}`, `{"action":"accept","content":{"name":"secret"}}`, nil, "the form is not understood"},
		{"form", ``, `{"action":"accept","content":{"any":"thing"}}`, accept(map[string]any{"any": "thing"}), ""},
		{"form", ``, `{"action":"accept"}`, accept(map[string]any{}), ""},
		{"form", form, `{"action":"maybe"}`, nil, "no action that is known"},
		{"form", form, `{"action":7}`, nil, "not understood"},
		{"form", form, `{"Action":"accept"}`, nil, "no action that is known"},
		{"form", form, `secret`, nil, "not understood"},
		{"form", form, ``, nil, "not understood"},
		{"url", ``, `{"action":"accept","content":{"any":"thing"}}`, &sdk.ElicitResult{Action: "accept"}, ""},
	} {
		got, why := answerOf(&question{Mode: tt.mode, RequestedSchema: json.RawMessage(tt.schema)}, text(tt.said))
		if !reflect.DeepEqual(got, tt.want) || !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") {
			t.Errorf("%s: got %+v, %q; want %+v, %q", tt.said, got, why, tt.want, tt.why)
		}
		if strings.Contains(why, "secret") {
			t.Errorf("%s: got a reason that repeats it, %q", tt.said, why)
		}
	}
	if got, why := answerOf(&question{Mode: "form"}, []contracts.ContentBlock{{Type: "image"}}); got != nil || why == "" {
		t.Errorf("got %v, %q; want no answer", got, why)
	}
	blocks := append([]contracts.ContentBlock{{Type: "image"}}, text(`{"action":"decline"}`)...)
	if got, _ := answerOf(&question{Mode: "form"}, append(blocks, text(`{"action":"accept"}`)...)); got == nil || got.Action != "decline" {
		t.Errorf("got %v, want the first text to count", got)
	}
}

func TestQuestionsThatCannotBePutAreRefused(t *testing.T) {
	long := strings.Repeat("x", maxFormBytes)
	for name, tt := range map[string]struct {
		params *sdk.ElicitParams
		want   string
	}{
		"empty":            {nil, "is empty"},
		"unknown":          {&sdk.ElicitParams{Mode: "dance"}, "unknown kind"},
		"itself":           {&sdk.ElicitParams{RequestedSchema: map[string]any{"$ref": "#"}}, "refers to itself"},
		"itself below":     {&sdk.ElicitParams{RequestedSchema: map[string]any{"allOf": []any{map[string]any{"$dynamicRef": "#"}}}}, "refers to itself"},
		"long":             {&sdk.ElicitParams{RequestedSchema: map[string]any{"title": long}}, "too long"},
		"script":           {&sdk.ElicitParams{Mode: "url", URL: "javascript:alert(1)"}, "none of the web"},
		"file":             {&sdk.ElicitParams{Mode: "url", URL: "file:///etc/passwd"}, "none of the web"},
		"without a host":   {&sdk.ElicitParams{Mode: "url", URL: "https:///x"}, "none of the web"},
		"address too long": {&sdk.ElicitParams{Mode: "url", URL: "https://h/" + long}, "none of the web, or too long"},
	} {
		if q, err := newQuestion("one", tt.params); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %+v, %v; want an error with %q", name, q, err, tt.want)
		}
	}
	q, err := newQuestion("one", &sdk.ElicitParams{Message: strings.Repeat("ä", maxMessage)})
	if err != nil || len(q.Message) > maxMessage {
		t.Errorf("got a message of %d bytes, %v; want it cut", len(q.Message), err)
	}
}
