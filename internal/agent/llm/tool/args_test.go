package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/internal/workspace"
)

// A schema is what the schemas of the tools are made of.
type schema struct {
	Type                 string              `json:"type"`
	Properties           map[string]property `json:"properties"`
	Required             []string            `json:"required"`
	AdditionalProperties *bool               `json:"additionalProperties"`
}

type property struct {
	Type        string   `json:"type"`
	Description string   `json:"description"`
	Enum        []string `json:"enum"`
	Minimum     *int     `json:"minimum"`
	Maximum     *int     `json:"maximum"`
	MinLength   int      `json:"minLength"`
	MaxLength   int      `json:"maxLength"`
}

// good returns a value that the property allows.
func (p property) good() any {
	switch {
	case p.Type == "boolean":
		return true
	case p.Type == "integer":
		return *p.Minimum
	case p.Enum != nil:
		return p.Enum[0]
	}
	return "x"
}

// What the schemas say is what is checked.
func TestArgsAreCheckedAsTheSchemasSay(t *testing.T) {
	b := on(t, map[string]string{"x/file": ""})
	for _, tool := range b.Tools() {
		var s schema
		dec := json.NewDecoder(strings.NewReader(string(tool.Schema)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&s); err != nil || s.Type != "object" || s.AdditionalProperties == nil || *s.AdditionalProperties {
			t.Fatalf("%s: got %+v, %v; want the closed schema of an object", tool.Name, s, err)
		}
		if _, listed := s.Properties["pattern"]; tool.Name != "bash" && !listed {
			if _, listed := s.Properties["path"]; !listed {
				t.Errorf("%s: got neither a path nor a pattern, want one", tool.Name)
			}
		}
		all := args{}
		for name, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s: got no description of %s, want one", tool.Name, name)
			}
			all[name] = p.good()
		}
		if tool.Name == "edit" {
			all["new_string"] = "y"
		}
		for name, p := range s.Properties {
			checkProperty(t, b, tool.Name, all, name, p)
		}
		for _, name := range s.Required {
			b.refuses(tool.Name, without(all, name), "The argument "+name+" is missing. The arguments are ")
			b.refuses(tool.Name, with(all, name, nil), "The argument "+name+" is missing. The arguments are ")
		}
		b.refuses(tool.Name, with(all, "file_path", "x"), `Unknown argument "file_path". The arguments are `, s.Required[0])
		b.refuses(tool.Name, with(all, strings.ToUpper(s.Required[0]), "x"), "Unknown argument")
	}
}

func checkProperty(t *testing.T, b bench, tool string, all args, name string, p property) {
	t.Helper()
	b.refuses(tool, with(all, name, []int{1}), "The argument "+name+" must be ")
	switch p.Type {
	case "string":
		b.refuses(tool, with(all, name, 7), "must be a string")
		if p.Enum != nil {
			b.refuses(tool, with(all, name, "other"), "must be one of "+strings.Join(p.Enum, ", "))
		}
		if p.MinLength > 0 {
			if res := b.call(tool, with(all, name, "")); name != "path" && !res.IsError {
				t.Errorf("%s: got %q for an empty %s, want a refusal", tool, res.Text, name)
			}
		}
		if p.MaxLength > 0 {
			b.refuses(tool, with(all, name, strings.Repeat("x", p.MaxLength+1)), fmt.Sprintf("longer than %d characters", p.MaxLength))
		}
	case "boolean":
		b.refuses(tool, with(all, name, "yes"), "must be true or false")
	case "integer":
		b.refuses(tool, with(all, name, 1.5), "must be a whole number")
		b.refuses(tool, with(all, name, *p.Minimum-1), fmt.Sprintf("must be at least %d", *p.Minimum))
		if p.Maximum != nil {
			b.refuses(tool, with(all, name, *p.Maximum+1), fmt.Sprintf("must be at most %d", *p.Maximum))
		}
	default:
		t.Errorf("%s: got type %q of %s, want one that is checked", tool, p.Type, name)
	}
}

func with(all args, name string, value any) args {
	changed := without(all, name)
	changed[name] = value
	return changed
}

func without(all args, name string) args {
	left := args{}
	for k, v := range all {
		if k != name {
			left[k] = v
		}
	}
	return left
}

func TestWholeNumbersMayBeSpelledAsFloats(t *testing.T) {
	b := on(t, map[string]string{"a": "1\n2\n3\n"})
	for _, offset := range []string{"2", "2.0", "2e0", "0.2e1"} {
		if got := b.does("read", args{"path": "a", "offset": json.Number(offset)}); !strings.HasPrefix(got, "     2\t2\n") {
			t.Errorf("%s: got %q, want the lines from 2 on", offset, got)
		}
	}
	b.refuses("read", args{"path": "a", "offset": json.Number("1e300")}, "must be a whole number")
}

func TestWhatIsNoObjectIsRefused(t *testing.T) {
	b := on(t, nil)
	for _, raw := range []string{"", " ", "null", "[]", `"x"`, "{", "7", "{}{}"} {
		res, err := b.tool("read").Run(t.Context(), json.RawMessage(raw), nil)
		if err != nil || !res.IsError || !strings.Contains(res.Text, "The arguments are path, offset (optional), limit (optional).") {
			t.Errorf("%q: got %+v, %v; want a refusal that says what to give", raw, res, err)
		}
	}
}

// fuzzArgs checks that whatever args are, they are read or refused in words, and
// labelled.
func fuzzArgs(f *testing.F, tool Tool, decode func(json.RawMessage) error) {
	var s schema
	if err := json.Unmarshal(tool.Schema, &s); err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		``, `{}`, `null`, `[]`, `{"command":"ls","timeout_ms":5}`, `{"path":"a","offset":1,"limit":2}`, `{"path":"a","content":"b"}`,
		`{"path":"a","old_string":"a","new_string":"b","replace_all":true}`, `{"pattern":"*","path":null}`,
		`{"pattern":"a","glob":"*","output_mode":"count","context":3,"ignore_case":false,"limit":1e2}`, `{"pattern":"\ud800"}`, `{"pattern":"a","pattern":2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		label, action := tool.Brief(raw)
		for _, text := range []string{label, action} {
			if text == "" || strings.Contains(text, "\n") || utf8.RuneCountInString(text) > maxBriefChars+20 || !utf8.ValidString(text) {
				t.Errorf("got label %q, want a short line", text)
			}
		}
		err := decode(raw)
		if r, refused := err.(refusal); err != nil && (!refused || len(r) < 10 || len(r) > 1500) {
			t.Fatalf("got %v, want a refusal", err)
		}
		if err != nil {
			return
		}
		var given map[string]any
		if err := json.Unmarshal(raw, &given); err != nil {
			t.Fatalf("got %q read, want it refused: %v", raw, err)
		}
		for name := range given {
			if _, known := s.Properties[name]; !known {
				t.Errorf("got %q read, want it refused for %q", raw, name)
			}
		}
		for _, name := range s.Required {
			if given[name] == nil {
				t.Errorf("got %q read, want it refused without %s", raw, name)
			}
		}
	})
}

var kit = &Kit{Workspace: &workspace.Workspace{}}

func decoding[A any](raw json.RawMessage) error { return Decode(raw, new(A)) }

func FuzzBashArgs(f *testing.F)  { fuzzArgs(f, kit.bash(), decoding[bashArgs]) }
func FuzzReadArgs(f *testing.F)  { fuzzArgs(f, kit.read(), decoding[readArgs]) }
func FuzzWriteArgs(f *testing.F) { fuzzArgs(f, kit.write(), decoding[writeArgs]) }
func FuzzEditArgs(f *testing.F)  { fuzzArgs(f, kit.edit(), decoding[editArgs]) }
func FuzzGlobArgs(f *testing.F)  { fuzzArgs(f, kit.glob(), decoding[globArgs]) }
func FuzzGrepArgs(f *testing.F)  { fuzzArgs(f, kit.grep(), decoding[grepArgs]) }
