package elicit

import (
	"encoding/json"
	"strings"
	"testing"

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
	for _, tt := range []struct {
		mode, schema, said string
		want               string // as JSON
		why                string
	}{
		{"form", form, `{"action":"decline","content":{"name":"Ada"}}`, `{"action":"decline"}`, ""},
		{"form", form, `{"action":"cancel"}`, `{"action":"cancel"}`, ""},
		{"form", form, `{"action":"accept","content":{"name":"Ada","age":36,"ok":true,"many":["x"],"unknown":null}}`, "", `"unknown" is no text`},
		{"form", form, `{"action":"accept","content":{"name":"Ada","age":36.0,"ok":true,"many":["x"]},"more":1}`,
			`{"action":"accept","content":{"age":36.0,"many":["x"],"name":"Ada","ok":true}}`, ""},
		{"form", form, `{"action":"accept","content":{"name":"Ada","born":"1815-12-10","mail":"ada@example.org","page":"https://a.example/","at":"1843-10-18T12:00:00Z","kind":"a"}}`,
			`{"action":"accept","content":{"at":"1843-10-18T12:00:00Z","born":"1815-12-10","kind":"a","mail":"ada@example.org","name":"Ada","page":"https://a.example/"}}`, ""},
		{"form", form, `{"action":"accept"}`, "", `"name" is missing`},
		{"form", form, `{"action":"accept","content":{"name":"A"}}`, "", `"name" is not as it should be`},
		{"form", form, `{"action":"accept","content":{"name":"secret","age":-1}}`, "", `"age" is not as it should be`},
		{"form", form, `{"action":"accept","content":{"name":"secret","age":"36"}}`, "", `"age"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","born":"yesterday"}}`, "", `"born"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","mail":"Ada <ada@example.org>"}}`, "", `"mail"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","page":"a.example"}}`, "", `"page"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","at":"noon"}}`, "", `"at"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","kind":"c"}}`, "", `"kind"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","many":["z"]}}`, "", `"many"`},
		{"form", form, `{"action":"accept","content":{"name":"secret","many":[1]}}`, "", `"many" is no text`},
		{"form", form, `{"action":"accept","content":{"name":{"first":"secret"}}}`, "", `"name" is no text`},
		{"form", form, `{"action":"accept","content":{"name":"secret","extra":"x"}}`, "", `do not go together`},
		{"form", form, `{"action":"accept","content":["secret"]}`, "", "not understood"},
		{"form", `{"type":7}`, `{"action":"accept","content":{"name":"secret"}}`, "", "the form is not understood"},
		{"form", ``, `{"action":"accept","content":{"any":"thing"}}`, `{"action":"accept","content":{"any":"thing"}}`, ""},
		{"form", ``, `{"action":"accept"}`, `{"action":"accept"}`, ""},
		{"form", form, `{"action":"maybe"}`, "", "no action that is known"},
		{"form", form, `{"action":7}`, "", "not understood"},
		{"form", form, `{"Action":"accept"}`, "", "no action that is known"},
		{"form", form, `secret`, "", "not understood"},
		{"form", form, ``, "", "not understood"},
		{"url", ``, `{"action":"accept","content":{"any":"thing"}}`, `{"action":"accept"}`, ""},
	} {
		answer, why := (&Question{Mode: tt.mode, RequestedSchema: json.RawMessage(tt.schema)}).Read(text(tt.said))
		got := ""
		if answer != nil {
			raw, err := json.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			got = string(raw)
		}
		if got != tt.want || !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") {
			t.Errorf("%s: got %s, %q; want %s, %q", tt.said, got, why, tt.want, tt.why)
		}
		if strings.Contains(why, "secret") {
			t.Errorf("%s: got a reason that repeats it, %q", tt.said, why)
		}
	}
	if got, why := (&Question{Mode: "form"}).Read([]contracts.ContentBlock{{Type: "image"}}); got != nil || why == "" {
		t.Errorf("got %v, %q; want no answer", got, why)
	}
	blocks := append([]contracts.ContentBlock{{Type: "image"}}, text(`{"action":"decline"}`)...)
	if got, _ := (&Question{Mode: "form"}).Read(append(blocks, text(`{"action":"accept"}`)...)); got == nil || got.Action != "decline" {
		t.Errorf("got %v, want the first text to count", got)
	}
}

func TestFieldsTakeWhatTheirSchemasSay(t *testing.T) {
	for _, tt := range []struct {
		schema         string
		takes, refuses any
	}{
		{`{"type":"string","minLength":2,"pattern":"^a"}`, "ab", "ba"},
		{`{"type":"string","maxLength":2}`, "äb", "abc"},
		{`{"type":"string","format":"date"}`, "2000-02-28", "2000-02-30"},
		{`{"type":"integer","maximum":7}`, 7.0, 8.0},
		{`{"type":"integer"}`, 7.0, 7.5},
		{`{"type":"boolean"}`, true, "true"},
		{`{"type":"array","maxItems":1}`, []any{"a"}, []any{"a", "b"}},
		{`{"enum":["a",7]}`, 7.0, "b"},
		{`{}`, "any", nil},
		{`{"type":"array"}`, []any{}, []any{1.0}},
	} {
		field, err := NewField(json.RawMessage(tt.schema))
		if err != nil || !field.Takes(tt.takes) || field.Takes(tt.refuses) {
			t.Errorf("%s: got %v, or %v refused, or %v taken", tt.schema, err, tt.takes, tt.refuses)
		}
	}
	for _, schema := range []string{`7`, `{`, `{"type":7}`, `{"pattern":"("}`, `{"$ref":"#"}`, `{"items":{"$dynamicRef":"#"}}`} {
		if _, err := NewField(json.RawMessage(schema)); err == nil {
			t.Errorf("%s: got a field, want an error", schema)
		}
	}
}

func TestQuestionsThatCannotBePutAreRefused(t *testing.T) {
	long := strings.Repeat("x", maxForm)
	for name, tt := range map[string]struct {
		question Question
		want     string
	}{
		"unknown":          {Question{Mode: "dance"}, "unknown kind"},
		"itself":           {Question{RequestedSchema: json.RawMessage(`{"$ref":"#"}`)}, "refers to itself"},
		"itself below":     {Question{RequestedSchema: json.RawMessage(`{"allOf":[{"$dynamicRef":"#"}]}`)}, "refers to itself"},
		"long":             {Question{RequestedSchema: json.RawMessage(`{"title":"` + long + `"}`)}, "too long"},
		"script":           {Question{Mode: "url", URL: "javascript:alert(1)"}, "none of the web"},
		"file":             {Question{Mode: "url", URL: "file:///etc/passwd"}, "none of the web"},
		"without a host":   {Question{Mode: "url", URL: "https:///x"}, "none of the web"},
		"another's name":   {Question{Mode: "url", URL: "https://bank.example@evil.example/"}, "does not show where it leads"},
		"look-alike":       {Question{Mode: "url", URL: "https://b\u0430nk.example/"}, "does not show where it leads"},
		"encoded":          {Question{Mode: "url", URL: "https://b%D0%B0nk.example/"}, "does not show where it leads"},
		"turned around":    {Question{Mode: "url", URL: "https://evil.example/\u202eknab"}, "does not show where it leads"},
		"two readings":     {Question{Mode: "url", URL: `https://evil.example\@bank.example/`}, ""},
		"only a port":      {Question{Mode: "url", URL: "https://:443/"}, "none of the web"},
		"title that moves": {Question{RequestedSchema: json.RawMessage(`{"properties":{"a":{"title":"\u001b[2JApproved"}}}`)}, "cannot be shown"},
		"name that moves":  {Question{RequestedSchema: json.RawMessage(`{"properties":{"a\u0085":{}}}`)}, "cannot be shown"},
		"address too long": {Question{Mode: "url", URL: "https://h/" + long}, "none of the web, or too long"},
	} {
		if err := tt.question.Check("one"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
	moves := Question{Message: "a\x1b[2J\u009bb\nc\td\u202e"}
	if err := moves.Check("one"); err != nil || moves.Message != "a\uFFFD[2J\uFFFDb\nc\td\uFFFD" {
		t.Errorf("got %q, %v; want nothing that a terminal obeys", moves.Message, err)
	}
	q := Question{Message: strings.Repeat("ä", maxMessage)}
	if err := q.Check("one"); err != nil || len(q.Message) > maxMessage {
		t.Errorf("got a message of %d bytes, %v; want it cut", len(q.Message), err)
	}
}

func TestQuestionsArePutInOneForm(t *testing.T) {
	q := Question{
		Mode: "url", URL: "https://a.example/", ElicitationID: strings.Repeat("e", 2*maxID), RequestedSchema: json.RawMessage(`{}`),
		RequestID: "theirs", Message: "Go",
	}
	if err := q.Check(strings.Repeat("n", 2*maxName)); err != nil {
		t.Fatal(err)
	}
	req, err := q.Request(FromServer)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"serverName":"` + q.ServerName + `","requestId":"` + q.RequestID + `","mode":"url","message":"Go","url":"https://a.example/","elicitationId":"` + q.ElicitationID + `"}`
	if string(req.Args) != want || len(q.ServerName) != maxName || len(q.ElicitationID) != maxID || q.RequestID == "theirs" {
		t.Errorf("got args %s, want %s", req.Args, want)
	}
	if req.RequestID != Tool+":"+q.ServerName+":"+q.RequestID || req.CallID != req.RequestID || req.Tool != Tool || req.RequestType != contracts.RequestMCPElicitation {
		t.Errorf("got %+v, want a request of the wire's form", req)
	}
}

func TestQuestionThatNobodyCouldReadIsNotPut(t *testing.T) {
	q := Question{RequestedSchema: json.RawMessage(`{"title":"` + strings.Repeat("<", maxForm/2) + `"}`)}
	if err := q.Check("one"); err != nil {
		t.Fatal(err)
	}
	if req, err := q.Request(FromServer); err == nil {
		t.Errorf("got args of %d bytes, want an error", len(req.Args))
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"string","format":"email"}},"required":["a"]}`, `{"action":"accept","content":{"a":"b@c"}}`)
	f.Add(`{"properties":{"a":{"type":"string","$ref":"#"}}}`, `{"action":"accept","content":{"a":[]}}`)
	f.Add(`{"$ref":"#"}`, `{"action":"accept"}`) // followed without end if it is followed
	f.Add(`{"allOf":[{"$dynamicRef":"#"}]}`, `{"action":"accept"}`)
	f.Add(`{"pattern":"(","properties":{"a":null}}`, `{"action":"accept","content":{"a":1}}`)
	f.Fuzz(func(t *testing.T, schema, said string) {
		q := &Question{Message: "?", RequestedSchema: json.RawMessage(schema)}
		if q.Check("one") != nil {
			return
		}
		answer, why := q.Read(text(said))
		if (answer == nil) == (why == "") {
			t.Errorf("got %v, %q; want an answer or a reason", answer, why)
		}
	})
}
