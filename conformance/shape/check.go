package shape

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

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

// checker walks a value beside a Go type.
type checker struct {
	published bool // by the published schemas alone
	open      bool // unknown keys, and null in optional keys, are fine (D13)
	closes    bool // with the snapshots in what is open
	problems  []Problem
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

var (
	rawType        = reflect.TypeFor[json.RawMessage]()
	nullStringType = reflect.TypeFor[contracts.NullString]()
	blockType      = reflect.TypeFor[contracts.ContentBlock]()
	snapshotType   = reflect.TypeFor[contracts.Snapshot]()
)

// check compares v with t.
func (c *checker) check(v any, t reflect.Type, pointer string) {
	switch t {
	case rawType:
		return
	case nullStringType:
		if _, ok := v.(string); !ok && v != nil {
			c.add(pointer, "Expected string or null")
		}
		return
	case blockType:
		c.block(v, pointer)
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		c.check(v, t.Elem(), pointer)
	case reflect.Struct:
		c.object(v, t, pointer, "")
	case reflect.Slice:
		c.list(v, t, pointer)
	case reflect.Map:
		c.record(v, t, pointer)
	default:
		c.scalar(v, t, pointer)
	}
}

func (c *checker) scalar(v any, t reflect.Type, pointer string) {
	switch t.Kind() {
	case reflect.String:
		s, ok := v.(string)
		if !ok {
			c.add(pointer, "Expected string")
		} else if set, closed := vocabulary[t]; closed && !slices.Contains(set, s) {
			c.add(pointer, "Expected union value")
		}
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			c.add(pointer, "Expected boolean")
		}
	case reflect.Float64:
		if _, ok := v.(json.Number); !ok {
			c.add(pointer, "Expected number")
		}
	default:
		c.integer(v, t, pointer)
	}
}

func (c *checker) integer(v any, t reflect.Type, pointer string) {
	n, ok := v.(json.Number)
	switch {
	case !ok:
		c.add(pointer, "Expected number")
	case strings.ContainsAny(n.String(), ".eE"):
		c.addOptional("R41", pointer, "Expected integer without fraction or exponent")
	case t.Kind() == reflect.Uint64 && strings.HasPrefix(n.String(), "-"):
		c.add(pointer, "Expected non-negative integer")
	}
}

func (c *checker) list(v any, t reflect.Type, pointer string) {
	items, ok := v.([]any)
	if !ok {
		c.add(pointer, "Expected array")
		return
	}
	for i, item := range items {
		c.check(item, t.Elem(), fmt.Sprintf("%s/%d", pointer, i))
	}
}

func (c *checker) record(v any, t reflect.Type, pointer string) {
	m, ok := v.(map[string]any)
	if !ok {
		c.add(pointer, "Expected object")
		return
	}
	for k, item := range m {
		c.check(item, t.Elem(), pointer+"/"+escape(k))
	}
}

// object checks a closed object. typeName is the value its type key must have,
// or empty if it has no such key.
func (c *checker) object(v any, t reflect.Type, pointer, typeName string) {
	m, ok := v.(map[string]any)
	if !ok {
		c.add(pointer, "Expected object")
		return
	}
	known := map[string]bool{"type": typeName != ""}
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		if c.published && slices.Contains(newer[t], name) {
			continue
		}
		known[name] = true
		if _, present := m[name]; !present && optional[t][name] != "" {
			c.addOptional(optional[t][name], pointer+"/"+escape(name), "Required property")
			continue
		}
		c.field(m, f, name, option != "", pointer+"/"+escape(name))
	}
	if c.open {
		return
	}
	for k := range m {
		switch {
		case known[k]:
		case exact[t]:
			c.add(pointer+"/"+escape(k), "Unexpected property")
		default:
			c.addOptional(AdditiveRule, pointer+"/"+escape(k), "Unexpected property")
		}
	}
}

func (c *checker) field(m map[string]any, f reflect.StructField, name string, optional bool, pointer string) {
	v, present := m[name]
	switch {
	case !present:
		if !optional {
			c.add(pointer, "Required property")
		}
	case v == nil && f.Type.Kind() == reflect.Pointer && !optional: // required and nullable
	case v == nil && optional && c.open:
	default:
		c.check(v, f.Type, pointer)
		c.tagged(v, f.Tag.Get("wire"), pointer)
	}
}

// tagged checks what the type alone does not say.
func (c *checker) tagged(v any, tag, pointer string) {
	switch words, isSet := strings.CutPrefix(tag, "oneof="); {
	case tag == "unique":
		c.unique(v, pointer)
	case strings.HasPrefix(tag, "body=snapshot"):
		c.snapshot(v, pointer)
	case isSet:
		if s, ok := v.(string); ok && !slices.Contains(strings.Split(words, "|"), s) {
			c.add(pointer, "Expected union value")
		}
	}
}

func (c *checker) unique(v any, pointer string) {
	items, _ := v.([]any)
	seen := map[string]bool{}
	for _, item := range items {
		s, ok := item.(string)
		if ok && seen[s] {
			c.add(pointer, "Expected array elements to be unique")
			return
		}
		seen[s] = ok
	}
}

// block checks a content block, whose keys depend on its type.
func (c *checker) block(v any, pointer string) {
	m, ok := v.(map[string]any)
	if !ok {
		c.add(pointer, "Expected object")
		return
	}
	kind, _ := m["type"].(string)
	keys := map[string][]string{"text": {"text"}, "image": {"data", "mimeType"}}[kind]
	if keys == nil {
		c.add(pointer+"/type", "Expected union value")
		return
	}
	for _, k := range keys {
		if _, ok := m[k].(string); !ok {
			c.add(pointer+"/"+k, "Expected string")
		}
	}
	for k := range m {
		if k != "type" && !slices.Contains(keys, k) && !c.open {
			c.add(pointer+"/"+escape(k), "Unexpected property")
		}
	}
}

var steps = strings.NewReplacer("~", "~0", "/", "~1")

// escape encodes a key as one step of a JSON pointer.
func escape(key string) string { return steps.Replace(key) }
