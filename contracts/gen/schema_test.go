package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-028515a8/maestro/contracts"
)

const root = "../.." // of the module

// A validator judges texts by the checked-in schema.
type validator struct {
	t      *testing.T
	schema *jsonschema.Schema
	byName map[string]*jsonschema.Resolved
}

func newValidator(t *testing.T) *validator {
	t.Helper()
	text := readFile(t, "contracts/schema/maestro.schema.json")
	v := &validator{t: t, byName: make(map[string]*jsonschema.Resolved)}
	if err := json.Unmarshal(text, &v.schema); err != nil {
		t.Fatal(err)
	}
	return v
}

// validate reports how value breaks the definition name, or the whole schema
// if name is empty.
func (v *validator) validate(name string, value any) error {
	v.t.Helper()
	resolved := v.byName[name]
	if resolved == nil {
		schema := v.schema.CloneSchemas()
		if name != "" {
			schema = &jsonschema.Schema{Ref: "#/$defs/" + name, Defs: schema.Defs}
		}
		var err error
		if resolved, err = schema.Resolve(nil); err != nil {
			v.t.Fatalf("%s: %v", name, err)
		}
		v.byName[name] = resolved
	}
	return resolved.Validate(value)
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// An example is one line of the examples that package contracts is tested with.
type example struct {
	*contracts.Type
	text  []byte
	value map[string]any
}

func examples(t *testing.T) []example {
	t.Helper()
	types := make(map[string]*contracts.Type)
	for _, typ := range contracts.Types() {
		types[typ.Wire] = typ
	}
	var list []example
	lines := bufio.NewScanner(strings.NewReader(string(readFile(t, "contracts/testdata/examples.jsonl"))))
	for lines.Scan() {
		e := example{text: slices.Clone(lines.Bytes())}
		if err := json.Unmarshal(e.text, &e.value); err != nil {
			t.Fatal(err)
		}
		e.Type = types[e.value["type"].(string)]
		list = append(list, e)
	}
	return list
}

// decode reads a text as the type of example e.
func (e *example) decode(d *contracts.Decoder, text []byte) error {
	var err error
	switch e.Group {
	case contracts.GroupEvent:
		_, err = d.Event(text)
	case contracts.GroupServerFrame:
		_, err = d.ServerFrame(text)
	default:
		_, err = d.ClientFrame(text)
	}
	return err
}

var familyOf = map[contracts.Group]string{
	contracts.GroupCommand:       "Command",
	contracts.GroupClientControl: "ClientFrame",
	contracts.GroupEvent:         "Event",
	contracts.GroupServerFrame:   "ServerFrame",
}

func TestEncodedMessagesMatchTheSchema(t *testing.T) { // R15
	v := newValidator(t)
	for _, e := range examples(t) {
		for _, name := range []string{e.Name, familyOf[e.Group], ""} {
			if err := v.validate(name, e.value); err != nil {
				t.Errorf("%s by %s: %v", e.text, name, err)
			}
		}
	}
	var snapshot any
	if err := json.Unmarshal(readFile(t, "contracts/testdata/snapshot.json"), &snapshot); err != nil {
		t.Fatal(err)
	}
	if err := v.validate("Snapshot", snapshot); err != nil {
		t.Errorf("snapshot: %v", err)
	}
}

// What is wrong by the schema is wrong for a strict decoder, and the reverse:
// each example is spoilt in every place in several ways, and both must judge
// the result alike.
func TestSchemaAndStrictDecoderAgree(t *testing.T) {
	v := newValidator(t)
	strict := &contracts.Decoder{Strict: true}
	spoilt := 0
	for _, e := range examples(t) {
		spoil(e.value, func() {
			spoilt++
			text, err := json.Marshal(e.value)
			if err != nil {
				t.Fatal(err)
			}
			bySchema := v.validate(e.Name, e.value)
			byDecoder := e.decode(strict, text)
			if (bySchema == nil) != (byDecoder == nil) {
				t.Errorf("%s:\n schema says %v\ndecoder says %v", text, bySchema, byDecoder)
			}
		})
	}
	if spoilt < 1000 {
		t.Errorf("got %d spoilt messages, want at least 1000", spoilt)
	}
}

// opaque keys hold values that the decoder of the message does not look into.
var opaque = []string{"message", "snapshot", "args", "event"}

// spoil changes an object in one place at a time and calls judge each time.
func spoil(object map[string]any, judge func()) {
	object["surplus"] = 1
	judge()
	delete(object, "surplus")
	for _, key := range slices.Sorted(maps.Keys(object)) {
		original := object[key]
		delete(object, key)
		judge()
		for _, other := range substitutes(original) {
			object[key] = other
			if !slices.Contains(opaque, key) {
				judge()
			}
		}
		object[key] = original
		if slices.Contains(opaque, key) {
			continue
		}
		switch inner := original.(type) {
		case map[string]any:
			spoil(inner, judge)
		case []any:
			for _, item := range inner {
				if object, ok := item.(map[string]any); ok {
					spoil(object, judge)
				}
			}
		}
	}
}

// substitutes are values to put in the place of v.
func substitutes(v any) []any {
	list := []any{nil, "", "surplus", strings.Repeat("x", 200), -1.0, 2.5, true, []any{}, []any{"surplus"}, map[string]any{}, map[string]any{"surplus": "x"}}
	if items, ok := v.([]any); ok && len(items) > 0 {
		list = append(list, append(slices.Clone(items), items[0]), append(slices.Clone(items), nil))
	}
	return list
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	outputs, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range outputs {
		if !bytes.Equal(readFile(t, path), content) {
			t.Errorf("%s is stale: run go run ./contracts/gen", path)
		}
	}
}
