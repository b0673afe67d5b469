package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/agent/mask"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// moreKey is where clients look for what agents add to arguments: titles, diffs and
// the options of a question. A model must not say these.
const moreKey = "_acp"

// maxArgsDepth is how deep arguments may be nested to be shown as they are.
const maxArgsDepth = 64

// plainArgs returns the arguments of a call as an object that everybody reads the
// same way: no key is in it twice, or in two spellings, and none is moreKey in any.
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
	if _, err := dec.Token(); err != io.EOF {
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
	if key, ok := spelled[moreKey]; ok {
		return empty, fmt.Errorf("the key %q is not for tools", key)
	}
	return encode(object)
}

// objectOf returns arguments as an object in which numbers keep their spelling, nil
// if they are none.
func objectOf(args json.RawMessage) map[string]any {
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	var object map[string]any
	if dec.Decode(&object) != nil {
		return nil
	}
	return object
}

// encode returns a value as JSON in which nothing is longer than it has to be.
func encode(value any) (json.RawMessage, error) {
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return bytes.TrimSpace(plain.Bytes()), err
}

const (
	// maxArgsBytes bounds the arguments that clients are shown; a question has room
	// for something beside them. Of arguments that are longer every text is cut to
	// maxArgBytes, and if that is not enough all of them are.
	maxArgsBytes = contracts.MaxValueBytes - 16<<10
	maxArgBytes  = 8 << 10

	// omittedKey stands for what is not shown.
	omittedKey = "_omitted_bytes"
)

// shownArgs returns the arguments of a call as clients may see them, without what
// looks like a credential and bounded, and how many bytes are left out of that.
func shownArgs(args json.RawMessage) (shown json.RawMessage, omitted int) {
	shown = mask.Args(args)
	if len(shown) <= maxArgsBytes {
		return shown, 0
	}
	all := len(shown)
	if object := objectOf(shown); object != nil {
		shorten(object)
		cut, err := encode(object)
		object[omittedKey] = all - len(cut)
		said, more := encode(object)
		if err == nil && more == nil && len(said) <= maxArgsBytes {
			return said, all - len(cut)
		}
	}
	head := abridge.Head(string(shown), maxArgBytes)
	said, err := encode(map[string]any{omittedKey: all - len(head), "head": head})
	if err != nil {
		return json.RawMessage("{}"), all // not reached: text can be encoded
	}
	return said, all - len(head)
}

// shorten returns a value in which texts are cut; objects and lists are changed in
// place.
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
