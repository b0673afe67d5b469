package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/elicit"
)

const someForm = `{"serverName":"crm","mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{
	"name":{"type":"string","title":"Full name","minLength":2,"maxLength":5},
	"age":{"type":"integer","minimum":0,"maximum":150,"default":30},
	"colour":{"type":"string","enum":["red","1"],"enumNames":["Rot","Eins"]},
	"tags":{"type":"array","items":{"anyOf":[{"const":"a","title":"A"},{"const":"b"}]},"maxItems":1},
	"mail":{"type":"string","format":"email"},
	"ok":{"type":"boolean","description":"Sure?"}},"required":["name","ok"]}}`

func formQuestion() *question {
	return &question{id: "q", kind: contracts.RequestMCPElicitation, tool: "elicit", args: raw(someForm)}
}

func TestFormIsShownFieldByField(t *testing.T) {
	q := formQuestion()
	compareText(t, q.text(q.keys(false), false), `? mcp elicitation: elicit
  crm: Who?
  name: text, 2 to 5 characters, required - Full name
  age: whole number, 0 to 150, default 30
  colour: one of 1 = Rot (red), 2 = Eins (1)
  tags: at most 1, separated by commas, of 1 = A (a), 2 = b
  mail: an address such as ada@example.com
  ok: yes or no, required - Sure?
  field by field (enter takes the default, or leaves it out), decline, cancel, or a JSON object`)
	if got, want := q.prompt(false), "name (1 of 6): "; got != want {
		t.Errorf("got prompt %q, want %q", got, want)
	}
}

func TestFieldsShowWhatIsTyped(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"string","format":"date"}`:                    "a date such as 2000-02-28",
		`{"type":"string","format":"date-time"}`:               "a date and time such as 2000-02-28T13:30:00Z",
		`{"type":"string","format":"uri"}`:                     "an address such as https://example.com",
		`{"type":"string","format":"odd"}`:                     "text (odd)",
		`{"type":"string","pattern":"^[a-z]+$","minLength":2}`: "text, matching ^[a-z]+$, at least 2 characters",
		`{"type":"string","format":"email","maxLength":9}`:     "an address such as ada@example.com, at most 9 characters",
		`{"type":"number","minimum":0.5}`:                      "number, at least 0.5",
		`{"type":"array","minItems":1,"maxItems":3}`:           "texts, separated by commas, 1 to 3",
		`{"type":"array","items":{"enum":["a","b"]}}`:          "any, separated by commas, of 1 = a, 2 = b",
		`{"type":"array","default":["fish-1"]}`:                "texts, separated by commas, default fish-1",
		`{"type":"array","default":["fish-1","b c"]}`:          "texts, separated by commas, default fish-1, b c",
		`{"type":"array","default":["a,b"]}`:                   `texts, separated by commas, default ["a,b"]`,
		`{"type":"array","default":[]}`:                        "texts, separated by commas, default []",
		`{"type":"array","default":[1]}`:                       "texts, separated by commas, default [1]",
	} {
		f := newForm(raw(`{"properties":{"x":` + schema + `}}`))
		if got := f.text(); len(got) != 1 || got[0] != "x: "+want {
			t.Errorf("%s: got %q, want %q", schema, got, want)
		}
	}
	for format, text := range formats {
		field, err := elicit.NewField(raw(`{"type":"string","format":"` + format + `"}`))
		if example := text[strings.LastIndex(text, " ")+1:]; err != nil || !field.Takes(example) || field.Takes("x") {
			t.Errorf("%s: %s is not taken, or anything is, %v", format, example, err)
		}
	}
}

func TestFormIsFilledInFieldByField(t *testing.T) {
	for _, test := range []struct {
		lines []string // with what is refused after "!"
		want  string
	}{
		{[]string{"Ada", "", "1", "A", "a@b.c", "yes"}, `{"action":"accept","content":{"age":30,"colour":"red","mail":"a@b.c","name":"Ada","ok":true,"tags":["a"]}}`},
		{[]string{"! name: it is required", "A! name: want text, 2 to 5 char", "Adelaide! name: want text, 2 to 5 char", "Ada",
			"x! age: want whole number", "3.5! age: want whole", "151! age:", "7",
			"3! colour: want a choice from 1 to 2", `"1"`, "1,2! tags: want at most 1 of the choices from 1 to 2", "c! tags: want at most 1 of the choices", "",
			"nobody! mail: want an address such as", "", "maybe! ok: want yes or no", "n"},
			`{"action":"accept","content":{"age":7,"colour":"1","name":"Ada","ok":false}}`},
		{[]string{"Ada", "decline"}, `{"action":"decline"}`},
		{[]string{"cancel"}, `{"action":"cancel"}`},
		{[]string{`"Cancel"! name: want text`, `"can"`, "accept! ok: it is required", "", "", "", "", "y"}, `{"action":"accept","content":{"age":30,"name":"can","ok":true}}`},
		{[]string{`{"name":"Bo"}! ok: it is required`, `{"name":7,"ok":true}! name: want text`, `{"name":"Bo"! must be a JSON object`,
			`{"name":"Bo","ok":true,"colour":"blue"}! colour:`, `{"name":"Bo","ok":true,"tags":["z"]}! tags:`, `{"name":"Bo","ok":null}! ok:`,
			`accept {"name":"Bo","ok":true,"more":[1]}`}, `{"action":"accept","content":{"more":[1],"name":"Bo","ok":true}}`},
	} {
		q := formQuestion()
		for i, line := range test.lines {
			line, refusal, refused := strings.Cut(line, "! ")
			cmd, err := q.answer(line, false)
			switch {
			case refused:
				if err == nil || errors.Is(err, errMore) || !strings.Contains(err.Error(), refusal) {
					t.Errorf("%q: got %+v, %v; want an error with %q", line, cmd, err, refusal)
				}
			case i < len(test.lines)-1:
				if !errors.Is(err, errMore) {
					t.Errorf("%q: got %v, want that more is needed", line, err)
				}
			case err != nil || cmd.Content[0].Text != test.want:
				t.Errorf("%q: got %+v, %v; want %s", test.lines, cmd.Content, err, test.want)
			}
		}
		if q.begun() {
			t.Errorf("%q: got a form that is begun after its answer", test.lines)
		}
	}
}

func TestFormThatIsNotUnderstoodTakesAnObject(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object","properties":{"a":{"type":["string","null"]}}}`, `7`, `{"type":"object"}`,
		`{"type":"object","properties":{"a":{"$ref":"#"}}}`, `{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}`,
	} {
		q := question{id: "q", kind: contracts.RequestMCPElicitation, args: raw(`{"serverName":"s","message":"m","requestedSchema":` + schema + `}`)}
		if text := q.text("", false); !strings.Contains(text, schema) {
			t.Errorf("got %s, want %s in it", text, schema)
		}
		if _, err := q.answer("x", false); err == nil {
			t.Errorf("%s: a text was taken", schema)
		}
		if _, err := q.answer(`{"a":null}`, false); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}
