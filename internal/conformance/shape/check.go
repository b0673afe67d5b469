// Package shape checks JSON texts against the closed shapes of the wire, which are
// in the JSON Schema of the protocol, and words each problem as the protocol does.
//
// It shares no code with the decoders that servers and clients of ours use, so
// that a defect in one is not excused by the same defect in the other.
package shape

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Problem is one place where a value departs from its shape.
type Problem struct {
	Pointer string // JSON pointer; empty is the whole text
	Text    string // such as "Required property"
	Rule    string // that asks for it, if the published schemas do not; else empty
}

// String returns the problem as the protocol words it: pointer, space, text.
func (p Problem) String() string {
	if p.Pointer == "" {
		return "$ " + p.Text
	}
	return p.Pointer + " " + p.Text
}

// Join renders problems as one line.
func Join(problems []Problem) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}

// Event checks a message from a server of a profile. A type that is not of the
// protocol is a problem too.
func Event(v any, p contracts.Profile) []Problem { return check("Event", v, p, false) }

// Frame checks a frame of a networked transport from a server of a profile: an
// envelope, with the message or snapshot in it, or a ws.* control frame.
func Frame(v any, p contracts.Profile) []Problem { return check("ServerFrame", v, p, false) }

// Body checks the JSON of an HTTP answer from a server of a profile against a
// definition of the schema, such as ConnectionAnswer, or one of this package.
func Body(name string, v any, p contracts.Profile) []Problem { return check(name, v, p, false) }

// OpenBody is Body for answers that may hold more than is known.
func OpenBody(name string, v any, p contracts.Profile) []Problem { return check(name, v, p, true) }

// checker walks a value beside its definition.
type checker struct {
	published bool // by the published schemas alone
	open      bool // unknown keys, and null in optional keys, are fine (D13)
	closes    bool // with the snapshots in what is open
	problems  []Problem
}

func check(name string, v any, p contracts.Profile, open bool) []Problem {
	c := &checker{published: p == contracts.ProfilePublic, closes: !open}
	c.open = open || c.published && slices.Contains(unclosed, name)
	c.named(name, v, "")
	return c.problems
}

func (c *checker) add(pointer, format string, args ...any) {
	c.problems = append(c.problems, Problem{Pointer: pointer, Text: fmt.Sprintf(format, args...)})
}

// addOptional is add for what the published schemas do not ask for, if it is by them
// that is judged.
func (c *checker) addOptional(rule, pointer, text string) {
	c.add(pointer, "%s", text)
	if c.published {
		c.problems[len(c.problems)-1].Rule = rule
	}
}

// named checks a value against a definition.
func (c *checker) named(name string, v any, pointer string) {
	s := definitions()[name]
	if s == nil {
		panic("shape: no definition " + name)
	}
	if name == "Snapshot" && c.open && c.closes {
		c.open = false
		defer func() { c.open = true }()
	}
	c.value(s, name, v, pointer)
}

// value checks a value against a schema, which is the definition name unless that is empty.
func (c *checker) value(s *jsonschema.Schema, name string, v any, pointer string) {
	switch {
	case s.Ref != "":
		c.named(strings.TrimPrefix(s.Ref, "#/$defs/"), v, pointer)
	case s.OneOf != nil:
		c.union(s.OneOf, name, v, pointer)
	case v == nil && (s.AnyOf != nil || slices.Contains(s.Types, "null")):
	case s.AnyOf != nil: // something or null
		c.value(s.AnyOf[0], "", v, pointer)
	case s.Const != nil:
		c.oneOf([]any{*s.Const}, v, pointer)
	case s.Types != nil: // a type or null
		c.typed(s, s.Types[0], name, v, pointer)
	default:
		c.typed(s, s.Type, name, v, pointer)
	}
}

// unknownType says that the type key names no member of a union.
var unknownType = map[string]string{"Event": "Expected known message type", "ServerFrame": "Expected known frame type"}

// union checks an object against the member of a union that its type key names.
func (c *checker) union(members []*jsonschema.Schema, name string, v any, pointer string) {
	m, _ := v.(map[string]any)
	for _, s := range members {
		member := name
		if s.Ref != "" {
			member = strings.TrimPrefix(s.Ref, "#/$defs/")
			s = definitions()[member]
		}
		if m["type"] == *s.Properties["type"].Const {
			c.value(s, member, v, pointer)
			return
		}
	}
	text, ok := unknownType[name]
	if !ok {
		text = "Expected union value"
	}
	c.add(pointer+"/type", "%s", text)
}

// typed checks a value that must have a type of a schema; empty is any.
func (c *checker) typed(s *jsonschema.Schema, kind, name string, v any, pointer string) {
	var ok bool
	switch kind {
	case "object":
		var m map[string]any
		if m, ok = v.(map[string]any); ok {
			c.object(s, name, m, pointer)
		}
	case "array":
		var items []any
		if items, ok = v.([]any); ok {
			c.list(s, items, pointer)
		}
	case "string":
		if _, ok = v.(string); ok && s.Enum != nil {
			c.oneOf(s.Enum, v, pointer)
		}
	case "boolean":
		_, ok = v.(bool)
	case "number":
		_, ok = v.(json.Number)
	case "integer":
		kind = "number"
		var n json.Number
		if n, ok = v.(json.Number); ok {
			c.integer(s, n, pointer)
		}
	default:
		ok = true
	}
	if !ok {
		c.add(pointer, "Expected %s", kind)
	}
}

func (c *checker) oneOf(set []any, v any, pointer string) {
	if !slices.ContainsFunc(set, func(allowed any) bool { return fmt.Sprint(allowed) == fmt.Sprint(v) }) {
		c.add(pointer, "Expected union value")
	}
}

func (c *checker) integer(s *jsonschema.Schema, n json.Number, pointer string) {
	switch {
	case strings.ContainsAny(n.String(), ".eE"):
		c.addOptional("R41", pointer, "Expected integer without fraction or exponent")
	case s.Minimum != nil && strings.HasPrefix(n.String(), "-"):
		c.add(pointer, "Expected non-negative integer")
	}
}

func (c *checker) list(s *jsonschema.Schema, items []any, pointer string) {
	seen := map[string]bool{}
	for i, item := range items {
		c.value(s.Items, "", item, fmt.Sprintf("%s/%d", pointer, i))
		text, isText := item.(string)
		if s.UniqueItems && seen[text] {
			c.add(pointer, "Expected array elements to be unique")
			return
		}
		seen[text] = isText
	}
}

// object checks the keys of an object, those that are required first.
func (c *checker) object(s *jsonschema.Schema, name string, m map[string]any, pointer string) {
	isNewer := func(key string) bool { return c.published && slices.Contains(newer[name], key) }
	for _, key := range s.Required {
		if _, present := m[key]; present || isNewer(key) {
			continue
		}
		at := pointer + "/" + escape(key)
		if rule := optional[name][key]; rule != "" {
			c.addOptional(rule, at, "Required property")
		} else {
			c.add(at, "Required property")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		item, at := m[key], pointer+"/"+escape(key)
		known := s.Properties[key]
		if isNewer(key) {
			known = nil
		}
		switch {
		case known != nil && item == nil && c.open && !slices.Contains(s.Required, key):
		case known != nil:
			c.value(known, "", item, at)
		case s.AdditionalProperties.Not == nil: // a map
			c.value(s.AdditionalProperties, "", item, at)
		case c.open:
		case slices.Contains(exact, name):
			c.add(at, "Unexpected property")
		default:
			c.addOptional(AdditiveRule, at, "Unexpected property")
		}
	}
}

var steps = strings.NewReplacer("~", "~0", "/", "~1")

// escape encodes a key as one step of a JSON pointer.
func escape(key string) string { return steps.Replace(key) }
