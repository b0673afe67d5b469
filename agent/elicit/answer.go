package elicit

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// An Answer is what became of a question.
type Answer struct {
	Action  string                     `json:"action"`
	Content map[string]json.RawMessage `json:"content,omitempty"` // of an accepted form, as it was written
}

// Read reads what a client answered: the first text block is JSON, an action
// and, with accept, the content of the form. It returns nil and why if that is no
// answer to the question. What was filled in is never repeated in the reason.
func (q *Question) Read(blocks []contracts.ContentBlock) (answer *Answer, why string) {
	at := slices.IndexFunc(blocks, func(b contracts.ContentBlock) bool { return b.Type == "text" })
	if at < 0 {
		return nil, "the answer has no text"
	}
	var said map[string]json.RawMessage // keys count in this spelling only
	answer = &Answer{}
	var action string
	var content map[string]any
	if json.Unmarshal([]byte(blocks[at].Text), &said) != nil || !decoded(said["action"], &action) {
		return nil, "the answer is not understood"
	}
	switch action {
	case Decline, Cancel:
		return &Answer{Action: action}, ""
	case Accept:
	default:
		return nil, "the answer has no action that is known"
	}
	if q.Mode == ModeURL {
		return &Answer{Action: Accept}, ""
	}
	if !decoded(said["content"], &content) || !decoded(said["content"], &answer.Content) {
		return nil, "the answer is not understood"
	}
	if err := fits(q.RequestedSchema, content); err != nil {
		return nil, "the answer does not fit what was asked: " + err.Error()
	}
	answer.Action = Accept
	return answer, ""
}

// decoded reads a value that may be absent, and reports whether it is of the type
// of into.
func decoded(text json.RawMessage, into any) bool {
	return text == nil || json.Unmarshal(text, into) == nil
}

// fits says what is wrong with the content of a form, by the names of its fields.
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
			continue // the whole says whether it may be there
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

// label is the name of a field as one short line.
func label(text string) string {
	words := strings.FieldsFunc(cut(text, maxLabel), func(c rune) bool { return !unicode.IsGraphic(c) || unicode.IsSpace(c) })
	return strings.Join(words, " ")
}
