package hecate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// An event is one envelope. Members that are missing or have the wrong type are zero, and
// problems says so.
type event struct {
	raw      []byte // as received
	id       string
	run      string
	task     string
	session  string
	sequence int64
	kind     string
	data     map[string]any // numbers are json.Number
	problems []finding
}

// A finding says which rule something breaks and how.
type finding struct{ rule, text string }

// The forms of the members of an envelope.
const ulid = "_[0-7][0-9A-HJKMNP-TV-Z]{25}$"

var (
	idForms = map[string]func() *regexp.Regexp{
		"event_id":   lazyregexp.New("^evt" + ulid),
		"run_id":     lazyregexp.New("^run" + ulid),
		"task_id":    lazyregexp.New("^task" + ulid),
		"session_id": lazyregexp.New("^chat" + ulid),
	}
	typeForm = lazyregexp.New(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$`)
	members  = []string{"schema_version", "event_id", "run_id", "task_id", "session_id", "sequence", "occurred_at", "type", "data"}
)

// parseEvent reads an envelope as far as it can be read.
func parseEvent(raw []byte) *event {
	e := &event{raw: raw}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil || fields == nil {
		e.breaks("E1", "the envelope is no JSON object")
		return e
	}
	for name := range fields {
		if !slices.Contains(members, name) {
			e.breaks("E1", "the envelope has the member %q, which version 1 does not have", name)
		}
	}
	e.id, e.run = e.ident(fields, "event_id"), e.ident(fields, "run_id")
	e.task, e.session = e.ident(fields, "task_id"), e.ident(fields, "session_id")
	if version := fields["schema_version"]; version != "1" {
		e.breaks("E1", `schema_version is %s, want "1"`, show(version))
	}
	e.readSequence(fields)
	if e.kind, _ = fields["type"].(string); !typeForm().MatchString(e.kind) {
		e.breaks("E1", "type is %s, want dotted names in lower case", show(fields["type"]))
	}
	at, _ := fields["occurred_at"].(string)
	if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
		e.breaks("E1", "occurred_at is %s, want a time of RFC 3339", show(fields["occurred_at"]))
	}
	var isObject bool
	if e.data, isObject = fields["data"].(map[string]any); !isObject {
		e.breaks("E45", "data is %s, want an object, {} if there is nothing to say", show(fields["data"]))
	}
	return e
}

func (e *event) breaks(rule, format string, args ...any) {
	e.problems = append(e.problems, finding{rule, fmt.Sprintf(format, args...)})
}

// ident reads an id. The task and the session of an event are optional.
func (e *event) ident(fields map[string]any, name string) string {
	v, there := fields[name]
	if !there && (name == "task_id" || name == "session_id") {
		return ""
	}
	id, ok := v.(string)
	if !ok {
		e.breaks("E1", "%s is %s, want a string", name, show(v))
	} else if form := idForms[name](); !form.MatchString(id) {
		e.breaks("E2", "%s is %q, want %s", name, id, form)
	}
	return id
}

func (e *event) readSequence(fields map[string]any) {
	text, _ := fields["sequence"].(json.Number)
	var err error
	if e.sequence, err = strconv.ParseInt(text.String(), 10, 64); err != nil || e.sequence < 0 {
		e.sequence = -1
		e.breaks("E1", "sequence is %s, want an integer from 0", show(fields["sequence"]))
	}
}

// str returns a string of data, empty if there is none.
func (e *event) str(name string) string {
	s, _ := e.data[name].(string)
	return s
}

// num returns an integer of data.
func (e *event) num(name string) (int64, bool) {
	text, ok := e.data[name].(json.Number)
	if !ok {
		return 0, false
	}
	n, err := text.Int64()
	return n, err == nil
}

// has reports whether data has a member that is neither null nor an empty string.
func (e *event) has(name string) bool {
	v, there := e.data[name]
	return there && v != nil && v != ""
}

func (e *event) String() string {
	return fmt.Sprintf("event %d of %s (%s)", e.sequence, e.run, e.kind)
}

// ends reports whether the event is the end of its run.
func (e *event) ends() bool {
	return slices.Contains([]string{"run.finished", "run.failed", "run.cancelled"}, e.kind)
}

// endsTool reports whether the event is the end of a tool call.
func (e *event) endsTool() bool {
	return slices.Contains([]string{"tool.completed", "tool.failed", "tool.cancelled", "tool.timed_out"}, e.kind)
}

// round returns the number of the model round that the event belongs to. The published text
// calls rounds turns; other servers call them model calls.
func (e *event) round() string {
	for _, name := range []string{"turn_index", "model_call_index"} {
		if n, ok := e.num(name); ok {
			return strconv.FormatInt(n, 10)
		}
	}
	return ""
}

// isRound reports whether the event is turn.WHAT under either name.
func (e *event) isRound(what string) bool {
	return e.kind == "turn."+what || e.kind == "model.call."+what
}

// show renders a value for a message.
func show(v any) string {
	if v == nil {
		return "absent or null"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return short(text)
}

// maxShown bounds one text in a report, in bytes.
const maxShown = 400

// short renders a text on one line, cut to maxShown bytes.
func short(text []byte) string { return conformance.Abridge(text, maxShown) }
