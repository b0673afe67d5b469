package hecate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/internal/dialect"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// schemaVersion is the version of the protocol.
const schemaVersion = "1"

// An Event is one entry of a run's log.
type Event struct {
	EventID    string          // evt_ and a ULID; unique
	RunID      string          // run_ and a ULID
	TaskID     string          // task_ and a ULID; empty if the run belongs to no task
	SessionID  string          // chat_ and a ULID; empty if the run belongs to no session
	Sequence   uint64          // position in the run, from 0
	OccurredAt time.Time       // informative
	Type       string          // lower case words with dots
	Data       json.RawMessage // an object; empty means {}
	Raw        json.RawMessage // the text that Parse has read, with all its members; not encoded
}

// Append appends the event as it is stored: compact JSON whose members have the order of
// the fields, without escapes for HTML.
func (e Event) Append(b []byte) []byte {
	b = append(b, `{"schema_version":"`+schemaVersion+`"`...)
	for _, m := range [...]struct{ key, value string }{
		{"event_id", e.EventID}, {"run_id", e.RunID}, {"task_id", e.TaskID}, {"session_id", e.SessionID},
	} {
		if m.value != "" {
			b = append(b, `,"`+m.key+`":`...)
			b = append(b, dialect.Encode(m.value)...)
		}
	}
	b = append(b, `,"sequence":`...)
	b = strconv.AppendUint(b, e.Sequence, 10)
	b = append(b, `,"occurred_at":"`...)
	b = e.OccurredAt.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","type":`...)
	b = append(b, dialect.Encode(e.Type)...)
	b = append(b, `,"data":`...)
	if len(e.Data) == 0 {
		b = append(b, "{}"...)
	}
	return append(append(b, e.Data...), '}')
}

// MarshalJSON returns the bytes of [Event.Append]. [json.Marshal] then escapes them for
// HTML, so servers call Append.
func (e Event) MarshalJSON() ([]byte, error) { return e.Append(nil), nil }

// typePattern is the form of an event's type.
var typePattern = lazyregexp.New(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$`)

// Parse reads an event. It accepts types and members that it does not know. It refuses a
// text that is not an object, has another schema version, or has a member of the envelope
// that is missing or malformed.
func Parse(text []byte) (Event, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return Event{}, fmt.Errorf("read event: %w", err)
	}
	r := envelope{members: all}
	if version := r.text("schema_version", true); r.err == nil && version != schemaVersion {
		return Event{}, fmt.Errorf("read event: schema version %q is not supported; this reader supports version %q", version, schemaVersion)
	}
	e := Event{
		EventID: r.id("event_id", "evt", true), RunID: r.id("run_id", "run", true),
		TaskID: r.id("task_id", "task", false), SessionID: r.id("session_id", "chat", false),
		Sequence: r.sequence(), OccurredAt: r.time(), Type: r.text("type", true), Data: all["data"],
		Raw: bytes.Clone(text),
	}
	r.check(typePattern().MatchString(e.Type), "type")
	r.check(bytes.HasPrefix(bytes.TrimSpace(e.Data), []byte("{")), "data")
	if r.err != nil {
		return Event{}, fmt.Errorf("read event: %w", r.err)
	}
	return e, nil
}

// An envelope has the members of an event. err names the first bad one.
type envelope struct {
	members map[string]json.RawMessage
	err     error
}

func (r *envelope) check(ok bool, key string) {
	if !ok && r.err == nil {
		r.err = errors.New(key + " is missing or malformed")
	}
}

func (r *envelope) text(key string, required bool) (text string) {
	if value, present := r.members[key]; present || required {
		r.check(len(value) > 0 && value[0] == '"' && json.Unmarshal(value, &text) == nil, key)
	}
	return text
}

func (r *envelope) id(key, prefix string, required bool) string {
	text := r.text(key, required)
	r.check(ValidID(prefix, text) || text == "" && !required && r.members[key] == nil, key)
	return text
}

func (r *envelope) sequence() uint64 {
	n, err := strconv.ParseUint(string(r.members["sequence"]), 10, 64)
	r.check(err == nil, "sequence")
	return n
}

func (r *envelope) time() time.Time {
	at, err := time.Parse(time.RFC3339Nano, r.text("occurred_at", true))
	r.check(err == nil, "occurred_at")
	return at
}

// A Vocabulary says how types and members name the rounds of a model.
type Vocabulary string

// The vocabularies. Readers take their names for synonyms.
const (
	VocabularyTurn      Vocabulary = "turn"       // turn.started, turn_index, turns; the default
	VocabularyModelCall Vocabulary = "model_call" // model.call.started, model_call_index, model_call_count
)

// renamed maps the members of the turn vocabulary to those of the other one.
var renamed = map[string]string{"turn_index": "model_call_index", "turns": "model_call_count"}

// eventType returns the name of a type of the turn vocabulary.
func (v Vocabulary) eventType(name string) string {
	if rest, ok := strings.CutPrefix(name, "turn."); ok && v == VocabularyModelCall {
		return "model.call." + rest
	}
	return name
}

// member returns the name of a member of the turn vocabulary.
func (v Vocabulary) member(name string) string {
	if other, ok := renamed[name]; ok && v == VocabularyModelCall {
		return other
	}
	return name
}

// Kind returns the event's type in the turn vocabulary.
func (e *Event) Kind() string {
	if rest, ok := strings.CutPrefix(e.Type, "model.call."); ok {
		return "turn." + rest
	}
	return e.Type
}

// Count returns the member of the event's data that the turn vocabulary calls turn_index
// or turns. It returns false if the data has no such number.
func (e *Event) Count(name string) (n int64, ok bool) {
	var data map[string]json.RawMessage
	_ = json.Unmarshal(e.Data, &data) // data without members has no number
	value, present := data[name]
	if !present {
		value = data[renamed[name]]
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, err == nil
}
