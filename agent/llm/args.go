package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
)

// maxArgsDepth is how deep arguments may be nested to be shown as they are.
const maxArgsDepth = 64

// plainArgs returns the arguments of a call as an object that everybody reads the
// same way: no key is in it twice, or in two spellings.
func plainArgs(args json.RawMessage) (json.RawMessage, error) {
	empty := json.RawMessage("{}")
	if len(bytes.TrimSpace(args)) == 0 {
		return empty, nil
	}
	dec := json.NewDecoder(bytes.NewReader(bytes.ToValidUTF8(args, []byte("\ufffd"))))
	dec.UseNumber() // numbers keep their spelling
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		return empty, fmt.Errorf("want a JSON object: %w", err)
	}
	if object == nil {
		return empty, nil
	}
	if dec.More() {
		return empty, errors.New("want one JSON object, and there is more")
	}
	if depth(object) > maxArgsDepth {
		return empty, fmt.Errorf("want at most %d levels", maxArgsDepth)
	}
	spelled := map[string]string{}
	for key := range object {
		if other, ok := spelled[strings.ToLower(key)]; ok {
			return empty, fmt.Errorf("the keys %q and %q differ in case only", min(key, other), max(key, other))
		}
		spelled[strings.ToLower(key)] = key
	}
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return empty, err
	}
	return bytes.TrimSpace(plain.Bytes()), nil
}

// depth returns how deep a value is nested.
func depth(value any) int {
	deepest := 0
	switch v := value.(type) {
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, depth(e))
		}
	case []any:
		for _, e := range v {
			deepest = max(deepest, depth(e))
		}
	default:
		return 0
	}
	return deepest + 1
}

// lacking returns the first argument that a tool needs and a call does not have.
func lacking(t model.Tool, args json.RawMessage) string {
	var schema struct {
		Required []string `json:"required"`
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(t.Schema, &schema) != nil || json.Unmarshal(args, &object) != nil {
		return ""
	}
	for _, name := range schema.Required {
		if _, ok := object[name]; !ok {
			return name
		}
	}
	return ""
}
