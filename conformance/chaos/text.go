package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
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
	t.parse()
	return t
}

// parseEvent takes an event of a stream apart, with its blank line.
func parseEvent(data []byte) *text {
	t := &text{before: data}
	const field = "data: "
	if i := bytes.Index(data, []byte(field)); i >= 0 && bytes.Count(data, []byte(field)) == 1 {
		i += len(field)
		n := bytes.IndexByte(data[i:], '\n')
		t.before, t.json, t.after = data[:i], data[i:i+n], data[i+n:]
		t.parse()
	}
	return t
}

func (t *text) parse() {
	d := json.NewDecoder(bytes.NewReader(t.json))
	d.UseNumber()
	if d.Decode(&t.top) != nil {
		t.top = nil
	}
}

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

// find returns the object or list that holds a value, and the last key. With make,
// missing objects are made on the way.
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

// set puts a value in place of another one, or of none.
func (t *text) set(key string, value any) {
	if t.top == nil {
		return
	}
	in, last := t.find(key, true)
	switch in := in.(type) {
	case map[string]any:
		in[last] = value
		t.changed = true
	case []any:
		if i, err := strconv.Atoi(last); err == nil && i >= 0 && i < len(in) {
			in[i] = value
			t.changed = true
		}
	}
}

// remove takes a value away and returns it.
func (t *text) remove(key string) (value any, there bool) {
	in, last := t.find(key, false)
	object, ok := in.(map[string]any)
	if !ok {
		return nil, false
	}
	if value, there = object[last]; there {
		delete(object, last)
		t.changed = true
	}
	return value, there
}

// alter does what a fault does to the inside of a text.
func (t *text) alter(f *Fault) {
	key, arg, _ := strings.Cut(f.Arg, "=")
	switch f.Action {
	case "set":
		t.set(key, valueOf(arg, func() any { v, _ := t.at(key); return v }))
	case "delete":
		t.remove(f.Arg)
	case "rename":
		if value, there := t.remove(key); there {
			prefix, _ := path.Split(strings.ReplaceAll(key, ".", "/"))
			t.set(strings.ReplaceAll(strings.TrimPrefix(prefix, "/"), "/", ".")+arg, value)
		}
	case "sub":
		t.before, t.json, t.after = substitute(f.Arg, t.bytes()), nil, nil
	}
}

// valueOf reads the value of a set. old returns what the value replaces.
func valueOf(arg string, old func() any) any {
	if strings.HasPrefix(arg, "+") || strings.HasPrefix(arg, "-") {
		by, err := strconv.ParseInt(arg, 10, 64)
		if number, ok := old().(json.Number); ok && err == nil {
			if n, err := number.Int64(); err == nil {
				return json.Number(strconv.FormatInt(n+by, 10))
			}
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

// checkArg reports an argument of the wrong form.
func (f *Fault) checkArg() error {
	var err error
	form := actions[f.Point][f.Action]
	switch {
	case form == "DURATION":
		_, err = time.ParseDuration(f.Arg)
	case strings.HasPrefix(form, "STATUS"):
		status, _, _ := strings.Cut(f.Arg, " ")
		_, err = strconv.Atoi(status)
	case form == "OLD=>NEW":
		old, _, found := strings.Cut(f.Arg, "=>")
		if _, err = regexp.Compile(old); !found {
			err = fmt.Errorf("want %s", form)
		}
	case strings.Contains(form, "=") && !strings.Contains(f.Arg, "="):
		err = fmt.Errorf("want %s", form)
	}
	if err != nil {
		return fmt.Errorf("fault %q: %w", f, err)
	}
	return nil
}
