package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
)

// moreKey is the key under which agents add titles, diffs and the options of a
// question to arguments. A model must not use it.
const moreKey = "_acp"

// maxArgsDepth bounds the nesting of arguments.
const maxArgsDepth = 64

// plainArgs returns the arguments of a call as an object that every reader reads the
// same way: it has no key twice or in two spellings, and no spelling of moreKey.
func plainArgs(args json.RawMessage) (json.RawMessage, error) {
	empty := json.RawMessage("{}")
	if len(bytes.TrimSpace(args)) == 0 {
		return empty, nil
	}
	args = bytes.ToValidUTF8(args, []byte("\ufffd"))
	var members map[string]json.RawMessage
	if err := json.Unmarshal(args, &members); err != nil {
		return empty, fmt.Errorf("want one JSON object: %w", err)
	}
	object := objectOf(args)
	if object == nil { // null
		return empty, nil
	}
	if depth(args) > maxArgsDepth {
		return empty, fmt.Errorf("want at most %d levels", maxArgsDepth)
	}
	spelled := map[string]string{}
	for key := range object {
		if other, ok := spelled[strings.ToLower(key)]; ok {
			return empty, fmt.Errorf("the keys %q and %q differ in case only", min(key, other), max(key, other))
		}
		spelled[strings.ToLower(key)] = key
	}
	if key, ok := spelled[moreKey]; ok {
		return empty, fmt.Errorf("the key %q is not for tools", key)
	}
	return encode(object), nil
}

// objectOf returns arguments as an object with numbers as spelled, or nil.
func objectOf(args json.RawMessage) map[string]any {
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	var object map[string]any
	if dec.Decode(&object) != nil {
		return nil
	}
	return object
}

// encode returns what was decoded, or a text, as JSON without HTML escapes.
func encode(value any) json.RawMessage {
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // such values can be encoded
	return bytes.TrimSpace(plain.Bytes())
}

const (
	// maxArgsBytes bounds the arguments that clients see; a question has room for
	// something beside them. If arguments are longer, each text is cut to
	// maxArgBytes. If that is not enough, only the beginning of all is shown.
	maxArgsBytes = contracts.MaxValueBytes - 16<<10
	maxArgBytes  = 8 << 10

	// omittedKey is the key of the number of bytes that are not shown.
	omittedKey = "_omitted_bytes"
)

// shownArgs returns the arguments of a call as clients may see them: without what
// looks like a credential and bounded. It also returns how many bytes are left out
// of that, and whether a credential is hidden.
func shownArgs(args json.RawMessage) (shown json.RawMessage, omitted int, hides bool) {
	masked := mask.Args(args)
	hides = !bytes.Equal(masked, args)
	if len(masked) <= maxArgsBytes {
		return masked, 0, hides
	}
	if object := objectOf(masked); object != nil {
		shorten(object)
		omitted = len(masked) - len(encode(object))
		object[omittedKey] = omitted
		if shown = encode(object); len(shown) <= maxArgsBytes {
			return shown, omitted, hides
		}
	}
	head := abridge.Head(string(masked), maxArgBytes)
	omitted = len(masked) - len(head)
	return encode(map[string]any{omittedKey: omitted, "head": head}), omitted, hides
}

// shorten returns a value with its texts cut. It changes objects and lists in place.
func shorten(value any) any {
	switch v := value.(type) {
	case string:
		return bounded(v, maxArgBytes)
	case map[string]any:
		for k, e := range v {
			v[k] = shorten(e)
		}
	case []any:
		for i, e := range v {
			v[i] = shorten(e)
		}
	}
	return value
}

// depth returns how many objects and lists are nested in JSON.
func depth(args json.RawMessage) int {
	dec := json.NewDecoder(bytes.NewReader(args))
	open, deepest := 0, 0
	for {
		token, err := dec.Token()
		switch delim, _ := token.(json.Delim); {
		case err != nil:
			return deepest
		case delim == '{' || delim == '[':
			open++
		case delim != 0:
			open--
		}
		deepest = max(deepest, open)
	}
}

// lacking returns the first required argument that a call lacks; "" if there is none.
func lacking(t model.Tool, args json.RawMessage) string {
	var schema struct {
		Required []string `json:"required"`
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(t.Schema, &schema) != nil || json.Unmarshal(args, &object) != nil {
		return ""
	}
	for _, name := range schema.Required {
		if object[name] == nil {
			return name
		}
	}
	return ""
}
