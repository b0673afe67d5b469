package hecate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/internal/abridge"
	"github.com/seed-028515a8/maestro/internal/dialect"
)

// An object is the data of an event. Its members keep their order.
type object []member

// A member's value is a string, a clean text, a list of clean texts, a number, a bool,
// nil, or decoded JSON.
type member struct {
	key   string
	value any
}

// A clean text is redacted already.
type clean struct {
	Text   string `json:"text"`
	Hidden bool   `json:"hidden,omitempty"` // it lost something
}

// clean returns a text without secrets, at most limit bytes of it and a mark.
func (s *Session) clean(text string, limit int) clean {
	c := clean{Text: text}
	if s.Options.Redact != nil {
		c.Text, c.Hidden = s.Options.Redact(text)
	}
	return c.cut(limit)
}

func (c clean) cut(limit int) clean {
	c.Text = abridge.Bytes(c.Text, limit)
	return c
}

// or returns the text, or if it is empty the first of others that is not.
func (c clean) or(others ...clean) clean {
	for _, other := range others {
		if c.Text == "" {
			c = other
		}
	}
	return c
}

// plain returns a text that cannot hold a secret.
func plain(text string) clean { return clean{Text: text} }

// mark stands for a value that is hidden because of its key.
const mark = "***"

// maxPaths bounds the paths that redacted_paths names.
const maxPaths = 32

// add appends a member unless its value is "".
func (o object) add(key, value string) object {
	if value == "" {
		return o
	}
	return append(o, member{key, value})
}

// A redactor redacts the data of one event.
type redactor struct {
	redact func(text string) (string, bool)
	paths  []string // of what it has changed
}

// encode returns the object as redacted JSON, with its redacted_paths if there are any.
func (s *Session) encode(data object) json.RawMessage {
	r := redactor{redact: s.Options.Redact}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range data {
		if i > 0 {
			b.WriteByte(',')
		}
		key := s.Vocabulary.member(m.key)
		fmt.Fprintf(&b, "%q:", key)
		b.Write(dialect.Encode(r.value(key, "", m.value)))
	}
	if len(r.paths) > 0 {
		b.WriteString(`,"redacted_paths":`)
		b.Write(dialect.Encode(r.paths))
	}
	b.WriteByte('}')
	return b.Bytes()
}

// value returns v without secrets. path is where v is, and key the member of an object
// that holds it.
func (r *redactor) value(path, key string, v any) any {
	switch v := v.(type) {
	case clean:
		r.note(path, v.Hidden)
		return v.Text
	case string:
		return r.text(path, key, v)
	case []clean:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = r.value(join(path, strconv.Itoa(i)), key, e)
		}
		return list
	case map[string]any:
		return r.members(path, v)
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = r.value(join(path, strconv.Itoa(i)), key, e)
		}
		return list
	}
	return v
}

func (r *redactor) members(path string, all map[string]any) map[string]any {
	shown := make(map[string]any, len(all))
	for key, value := range all {
		name := r.text(path, "", key)
		at := join(path, name)
		switch value := value.(type) {
		case map[string]any:
			if namesOnly(key) {
				shown[name] = r.hideValues(at, value)
				continue
			}
		case []any:
			if namesOnly(key) {
				shown[name] = r.hideAssignments(at, value)
				continue
			}
		}
		shown[name] = r.value(at, key, value)
	}
	slices.Sort(r.paths) // a map has no order, and the bytes must not depend on it
	return shown
}

// namesOnly reports whether the member holds variables or headers, of which only the
// names may be shown.
func namesOnly(key string) bool {
	switch strings.ToLower(key) {
	case "env", "environment", "env_vars", "headers", "http_headers":
		return true
	}
	return false
}

func (r *redactor) hideValues(path string, all map[string]any) map[string]any {
	shown := make(map[string]any, len(all))
	for key := range all {
		name := r.text(path, "", key)
		shown[name] = mark
		r.note(join(path, name), true)
	}
	return shown
}

// hideAssignments hides the values in a list of variables such as NAME=value.
func (r *redactor) hideAssignments(path string, all []any) []any {
	shown := make([]any, len(all))
	for i, e := range all {
		text, _ := e.(string)
		at := strings.IndexAny(text, "=:")
		shown[i] = r.text(path, "", text[:max(at, 0)]) + text[max(at, 0):at+1] + mark
		r.note(join(path, strconv.Itoa(i)), true)
	}
	return shown
}

// text returns a string without secrets. A value that is a secret because of its key is
// hidden as a whole.
func (r *redactor) text(path, key, text string) string {
	if r.redact == nil || text == "" {
		return text
	}
	shown, changed := r.redact(text)
	if !changed && key != "" {
		if _, changed = r.redact(`"` + key + `": "` + text + `"`); changed {
			shown = mark
		}
	}
	r.note(path, changed)
	return shown
}

func (r *redactor) note(path string, changed bool) {
	if changed && len(r.paths) < maxPaths && !slices.Contains(r.paths, path) {
		r.paths = append(r.paths, path)
	}
}

func join(path, name string) string { return path + "." + name }
