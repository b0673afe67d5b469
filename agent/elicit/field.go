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
