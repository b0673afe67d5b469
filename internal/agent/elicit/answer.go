package elicit

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-028515a8/maestro/contracts"
)

// Actions of an answer.
const (
	Accept  = "accept"
	Decline = "decline"
	Cancel  = "cancel"
)

// An Answer is the answer to a question.
type Answer struct {
	Action  string                     `json:"action"`
	Content map[string]json.RawMessage `json:"content,omitempty"` // of an accepted form, as the client wrote it
	Values  map[string]any             `json:"-"`                 // the same, decoded
}

// Read reads a client's answer. Its first text block is JSON: an action and,
// with accept, the content of the form. If the text is no answer to the
// question, Read returns nil and the reason. The reason never repeats the
// content.
func (q *Question) Read(blocks []contracts.ContentBlock) (answer *Answer, why string) {
	at := slices.IndexFunc(blocks, func(b contracts.ContentBlock) bool { return b.Type == "text" })
	if at < 0 {
		return nil, "the answer has no text"
	}
	var said map[string]json.RawMessage // keys must match by case
	answer = &Answer{}
	if json.Unmarshal([]byte(blocks[at].Text), &said) != nil || !decoded(said["action"], &answer.Action) {
		return nil, "the answer is not understood"
	}
	switch {
	case !slices.Contains([]string{Accept, Decline, Cancel}, answer.Action):
		return nil, "the answer has no action that is known"
	case answer.Action != Accept, q.Mode == ModeURL:
		return answer, ""
	}
	if !decoded(said["content"], &answer.Values) || !decoded(said["content"], &answer.Content) {
		return nil, "the answer is not understood"
	}
	if answer.Values == nil {
		answer.Values = map[string]any{}
	}
	if err := fits(q.RequestedSchema, answer.Values); err != nil {
		return nil, "the answer does not fit what was asked: " + err.Error()
	}
	return answer, ""
}

// decoded decodes a value that may be absent, and reports whether it fits the
// type of into.
func decoded(text json.RawMessage, into any) bool {
	return text == nil || json.Unmarshal(text, into) == nil
}

// fits returns an error for content that does not fit a form, with the names of
// its fields only.
func fits(text json.RawMessage, content map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(content)) {
		if !plain(content[name]) {
			return fmt.Errorf("%q is no text, number, choice or list of texts", label(name))
		}
	}
	if len(text) == 0 {
		return nil
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		return errors.New("the form is not understood")
	}
	for _, name := range schema.Required {
		if _, ok := content[name]; !ok {
			return fmt.Errorf("%q is missing", label(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(content)) {
		field := schema.Properties[name]
		if field == nil {
			continue // the check of the whole schema decides whether it is allowed
		}
		if f, err := newField(field.CloneSchemas()); err != nil || !f.Takes(content[name]) {
			return fmt.Errorf("%q is not as it should be", label(name))
		}
	}
	if whole, err := schema.Resolve(nil); err != nil || whole.Validate(content) != nil {
		return errors.New("the fields do not go together")
	}
	return nil
}

// maxLabel bounds the name of a field in a reason, in bytes.
const maxLabel = 80

// label returns the name of a field as one short line.
func label(text string) string {
	words := strings.FieldsFunc(cut(text, maxLabel), func(c rune) bool { return !unicode.IsGraphic(c) || unicode.IsSpace(c) })
	return strings.Join(words, " ")
}

// A Field checks values for one field of a form.
type Field struct {
	schema *jsonschema.Resolved
	format string
}

// NewField parses the schema of a field. A schema with references, or one that
// is not valid, is an error.
func NewField(text json.RawMessage) (*Field, error) {
	var whole any
	var schema jsonschema.Schema
	if err := errors.Join(json.Unmarshal(text, &whole), json.Unmarshal(text, &schema)); err != nil {
		return nil, err
	}
	if refers(whole) {
		return nil, errors.New("the field refers to another")
	}
	return newField(&schema)
}

// newField makes a field of a checked schema.
func newField(schema *jsonschema.Schema) (*Field, error) {
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, err
	}
	return &Field{resolved, schema.Format}, nil
}

// Takes reports whether a decoded JSON value is allowed in the field.
func (f *Field) Takes(value any) bool {
	text, isText := value.(string)
	return plain(value) && f.schema.Validate(value) == nil && (!isText || formatted(f.format, text))
}

// plain reports whether value may be in the content of a form.
func plain(value any) bool {
	switch v := value.(type) {
	case string, float64, bool:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { _, ok := e.(string); return !ok })
	}
	return false
}

// formatted reports whether a text has the format date, date-time, email or
// uri. Other formats are not checked, because in schemas they are annotations.
func formatted(format, text string) bool {
	switch format {
	case "date":
		_, err := time.Parse(time.DateOnly, text)
		return err == nil
	case "date-time":
		_, err := time.Parse(time.RFC3339, text)
		return err == nil
	case "email":
		a, err := mail.ParseAddress(text)
		return err == nil && a.Address == strings.TrimSpace(text)
	case "uri":
		u, err := url.Parse(text)
		return err == nil && u.IsAbs()
	}
	return true
}
