package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An arg is one argument of a tool: where its value goes, and what it may be.
type arg struct {
	name     string
	to       any // *string, *int or *bool, left as it is if the argument is not given
	required bool
	about    string // for the model

	min, max int      // of an int, or of the bytes of a string; a max of zero is none
	oneOf    []string // of a string; nil allows all
}

// An argSchema is an argument as a schema has it.
type argSchema struct {
	Type        string   `json:"type"`
	Enum        []string `json:"enum,omitempty"`
	MinLength   int      `json:"minLength,omitempty"`
	MaxLength   int      `json:"maxLength,omitempty"`
	Minimum     *int     `json:"minimum,omitempty"`
	Maximum     int      `json:"maximum,omitempty"`
	Description string   `json:"description"`
}

// schemaOf returns the JSON schema of an object with these arguments.
func schemaOf(known []arg) json.RawMessage {
	properties, required := map[string]argSchema{}, []string{}
	for _, a := range known {
		p := argSchema{Type: "boolean", Description: a.about}
		switch a.to.(type) {
		case *string:
			p.Type, p.Enum, p.MinLength, p.MaxLength = "string", a.oneOf, a.min, a.max
		case *int:
			p.Type, p.Minimum, p.Maximum = "integer", &a.min, a.max
		}
		properties[a.name] = p
		if a.required {
			required = append(required, a.name)
		}
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false})
	if err != nil {
		panic(err) // never: it is made of texts and numbers
	}
	return schema
}

// decode reads the arguments of a tool. The error is a refusal that says what to
// do better.
func decode(raw json.RawMessage, known ...arg) error {
	given := map[string]json.RawMessage{}
	if text := bytes.TrimSpace(raw); len(text) > 0 {
		if err := json.Unmarshal(text, &given); err != nil || text[0] != '{' {
			return refusal("The arguments must be one JSON object. " + usage(known))
		}
	}
	for name := range given {
		if !slices.ContainsFunc(known, func(a arg) bool { return a.name == name }) {
			return refusal(fmt.Sprintf("Unknown argument %s. %s", quote(name), usage(known)))
		}
	}
	for _, a := range known {
		value, ok := given[a.name]
		if !ok || string(value) == "null" {
			if a.required {
				return refusal(fmt.Sprintf("The argument %s is missing. %s", a.name, usage(known)))
			}
			continue
		}
		if problem := a.set(value); problem != "" {
			return refusal(fmt.Sprintf("The argument %s %s.", a.name, problem))
		}
	}
	return nil
}

// usage names the arguments that there are.
func usage(known []arg) string {
	var required, optional []string
	for _, a := range known {
		if a.required {
			required = append(required, a.name)
		} else {
			optional = append(optional, a.name)
		}
	}
	text := "Required: " + strings.Join(required, ", ") + "."
	if len(optional) > 0 {
		text += " Optional: " + strings.Join(optional, ", ") + "."
	}
	return text
}

// set takes a value over, or says what is wrong with it.
func (a arg) set(value json.RawMessage) (problem string) {
	switch to := a.to.(type) {
	case *string:
		if json.Unmarshal(value, to) != nil {
			return "must be a string, not " + kind(value)
		}
		switch {
		case a.oneOf != nil && !slices.Contains(a.oneOf, *to):
			return "must be one of " + strings.Join(a.oneOf, ", ")
		case len(*to) < a.min:
			return "is empty"
		case a.max > 0 && len(*to) > a.max:
			return fmt.Sprintf("is longer than %d bytes", a.max)
		}
	case *bool:
		if json.Unmarshal(value, to) != nil {
			return "must be true or false, not " + kind(value)
		}
	case *int:
		n, ok := integer(string(value))
		switch {
		case !ok:
			return "must be a whole number, not " + kind(value)
		case n < a.min:
			return fmt.Sprintf("must be at least %d", a.min)
		case a.max > 0 && n > a.max:
			return fmt.Sprintf("must be at most %d", a.max)
		}
		*to = n
	}
	return ""
}

// integer reads a whole number, also one that is spelled 2.0 or 2e3.
func integer(text string) (int, bool) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, true
	}
	const exact = 1 << 53 // from there on not every whole number is a float
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < -exact || f > exact || f != float64(int64(f)) {
		return 0, false
	}
	return int(f), true
}

// kind says what a JSON value is.
func kind(value json.RawMessage) string {
	switch value[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return string(value)
	}
	return "the number " + brief(string(value))
}

// quote returns text from the model for a message.
func quote(text string) string { return strconv.Quote(brief(text)) }
