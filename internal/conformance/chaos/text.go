package chaos

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// A text is one JSON text and what surrounds it on an event stream.
type text struct {
	before, json, after []byte

	top     map[string]any // parsed; nil if it is no object
	changed bool           // top differs from json
}

// parseText takes a line, a WebSocket text or an HTTP body apart.
func parseText(data []byte) *text {
	t := &text{json: data}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&t.top) != nil {
		t.top = nil
	}
	return t
}

// parseEvent takes an event of a stream apart, with its blank line.
func parseEvent(data []byte) *text {
	before, rest, found := bytes.Cut(data, []byte(dataField))
	if !found || bytes.Contains(rest, []byte(dataField)) {
		return &text{before: data}
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	t := parseText(line)
	t.before, t.after = data[:len(before)+len(dataField)], rest[len(line):]
	return t
}

// dataField begins the line of an event that holds the JSON text.
const dataField = "data: "

// bytes returns the text as it is now.
func (t *text) bytes() []byte {
	if t.changed {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(t.top) // it was decoded from JSON
		t.json, t.changed = bytes.TrimSuffix(b.Bytes(), []byte("\n")), false
	}
	return bytes.Join([][]byte{t.before, t.json, t.after}, nil)
}

// kind is what the subject of a fault names: the type of a message, or that of the
// envelope. It is comment for a text without a type, such as a comment on a stream or
// a blank line.
func (t *text) kind() string {
	if kind, ok := t.message()["type"].(string); ok && kind != "" {
		return kind
	}
	return "comment"
}

// message is the message in an envelope, or the whole.
func (t *text) message() map[string]any {
	if m, ok := t.top["message"].(map[string]any); ok {
		return m
	}
	return t.top
}

// find returns the object or list that holds a value, and the last part of its key. With
// make, missing objects are made on the way.
func (t *text) find(key string, make bool) (in any, last string) {
	in = t.message()
	if rest, fromTop := strings.CutPrefix(key, "/"); fromTop {
		in, key = t.top, rest
	}
	keys := strings.Split(key, ".")
	for _, k := range keys[:len(keys)-1] {
		next, there := child(in, k)
		if object, ok := in.(map[string]any); ok && make && !there {
			next = map[string]any{}
			object[k] = next
		}
		in = next
	}
	return in, keys[len(keys)-1]
}

// child returns a value of an object or a list.
func child(in any, key string) (any, bool) {
	switch in := in.(type) {
	case map[string]any:
		v, there := in[key]
		return v, there
	case []any:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(in) {
			return in[i], true
		}
	}
	return nil, false
}

// at returns a value by its key.
func (t *text) at(key string) (any, bool) { return child(t.find(key, false)) }

// alter does what a fault does to the inside of a text.
func (t *text) alter(action, arg string) {
	if action == "sub" {
		t.before, t.json, t.after = substitute(arg, t.bytes()), nil, nil
		return
	}
	if t.top == nil {
		return
	}
	key, with, _ := strings.Cut(arg, "=")
	in, last := t.find(key, action == "set")
	old, there := child(in, last)
	object, isObject := in.(map[string]any)
	t.changed = t.changed || there || isObject && action == "set"
	switch {
	case action == "set" && isObject:
		object[last] = valueOf(with, old)
	case action == "set" && there:
		i, _ := strconv.Atoi(last) // child has found it
		in.([]any)[i] = valueOf(with, old)
	case isObject && there:
		delete(object, last)
		if action == "rename" {
			object[with] = old
		}
	}
}

// valueOf reads the value of a set that replaces an old one.
func valueOf(arg string, old any) any {
	if number, ok := old.(json.Number); ok && (strings.HasPrefix(arg, "+") || strings.HasPrefix(arg, "-")) {
		by, err := strconv.ParseInt(arg, 10, 64)
		if n, wrong := number.Int64(); err == nil && wrong == nil {
			return json.Number(strconv.FormatInt(n+by, 10))
		}
	}
	d := json.NewDecoder(strings.NewReader(arg))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil || d.More() {
		return arg
	}
	return value
}

// shown is a value as a pattern sees it.
func shown(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	data, _ := json.Marshal(value) // it was decoded from JSON
	return string(data)
}

// substitute replaces what a regular expression matches.
func substitute(arg string, in []byte) []byte {
	old, replacement, _ := strings.Cut(arg, "=>")
	return regexp.MustCompile(old).ReplaceAll(in, []byte(replacement)) // Parse has compiled it
}
