package elicit

import (
	"encoding/json"
	"errors"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// A Field is what a field of a form takes.
type Field struct {
	schema *jsonschema.Resolved
	format string
}

// NewField reads the schema of a field. One that refers to others, or that cannot
// be understood, is an error.
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

// newField takes over a schema that was looked at.
func newField(schema *jsonschema.Schema) (*Field, error) {
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, err
	}
	return &Field{resolved, schema.Format}, nil
}

// Takes reports whether a value, as it is decoded from JSON, may stand in the field.
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

// formatted reports whether a text has the form that a field wants: date,
// date-time, email or uri. Others are not looked at; schemas only note them.
func formatted(format, text string) bool {
	var err error
	switch format {
	case "date":
		_, err = time.Parse(time.DateOnly, text)
	case "date-time":
		_, err = time.Parse(time.RFC3339, text)
	case "email":
		var a *mail.Address
		if a, err = mail.ParseAddress(text); err == nil && a.Address != strings.TrimSpace(text) {
			err = errors.New("more than an address")
		}
	case "uri":
		var u *url.URL
		if u, err = url.Parse(text); err == nil && !u.IsAbs() {
			err = errors.New("no address")
		}
	}
	return err == nil
}
