package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/elicit"
	"github.com/seed-028515a8/maestro/internal/show"
)

// A form is an elicitation that a person fills in field by field. A form without
// fields is answered with a JSON object, or without one.
type form struct {
	fields []formField
	filled map[string]json.RawMessage // by name, of the fields before at
	at     int                        // the next field
}

// A formField is a field of a form. The server that sent the form checks the values
// again.
type formField struct {
	*jsonschema.Schema
	name     string
	required bool
	choices  []formChoice // empty if any text is allowed
	takes    *elicit.Field
}

// A formChoice is an allowed value with its title.
type formChoice struct{ Value, Title string }

// choicesOf returns the values that a schema lists, in any of the ways that forms
// have.
func choicesOf(s *jsonschema.Schema) (choices []formChoice) {
	for _, one := range slices.Concat(s.OneOf, s.AnyOf) {
		choice := formChoice{Title: one.Title}
		if one.Const != nil {
			choice.Value, _ = (*one.Const).(string)
		}
		choices = append(choices, choice)
	}
	titles, _ := s.Extra["enumNames"].([]any)
	for i, value := range s.Enum {
		choice := formChoice{}
		if choice.Value, _ = value.(string); choice.Value == "" {
			choice.Value = string(show.JSON(value))
		}
		if i < len(titles) {
			choice.Title, _ = titles[i].(string)
		}
		choices = append(choices, choice)
	}
	return choices
}

// newForm reads a schema. The form has no fields if the schema is not that of a
// form.
func newForm(schema json.RawMessage) *form {
	var s struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	var byName map[string]json.RawMessage
	if json.Unmarshal(schema, &s) != nil || json.Unmarshal(s.Properties, &byName) != nil {
		return &form{}
	}
	f := &form{filled: map[string]json.RawMessage{}}
	for _, name := range namesIn(s.Properties) {
		field := formField{Schema: &jsonschema.Schema{}, name: name, required: slices.Contains(s.Required, name)}
		var err error
		if field.takes, err = elicit.NewField(byName[name]); err != nil || json.Unmarshal(byName[name], field.Schema) != nil || field.Types != nil {
			return &form{}
		}
		switch {
		case field.Type != "array":
			field.choices = choicesOf(field.Schema)
		case field.Items != nil:
			field.choices = choicesOf(field.Items)
		}
		if show.Compact(field.Default) == "null" {
			field.Default = nil
		}
		f.fields = append(f.fields, field)
	}
	return f
}

// namesIn returns the names in a valid object, in their order.
func namesIn(object json.RawMessage) (names []string) {
	d := json.NewDecoder(bytes.NewReader(object))
	_, _ = d.Token() // the brace
	for d.More() {
		token, _ := d.Token()
		if name, _ := token.(string); !slices.Contains(names, name) {
			names = append(names, name)
		}
		_ = d.Decode(new(json.RawMessage))
	}
	return names
}

// text returns a line for each field.
func (f *form) text() []string {
	var shown []string
	for i := range f.fields {
		shown = append(shown, f.fields[i].text())
	}
	return shown
}

// text returns a line about the field: its name, its type, its choices and its title.
func (f *formField) text() string {
	var choices []string
	for i, c := range f.choices {
		name := show.InLine(c.Value, show.MaxArgs)
		if c.Title != "" && c.Title != c.Value {
			name = show.InLine(c.Title, show.MaxArgs) + " (" + name + ")"
		}
		choices = append(choices, fmt.Sprintf("%d = %s", i+1, name))
	}
	about := []string{strings.TrimSpace(f.kind() + " " + strings.Join(choices, ", "))}
	if f.Default != nil {
		about = append(about, "default "+f.preset())
	}
	if f.required {
		about = append(about, "required")
	}
	text := show.InLine(f.name, show.MaxArgs) + ": " + strings.Join(about, ", ")
	for _, more := range []string{f.Title, f.Description} {
		if more != "" && more != f.name {
			text += " - " + show.InLine(more, show.MaxArgs)
		}
	}
	return text
}

// formats describes the formats of texts, each with an example at the end.
var formats = map[string]string{
	"date":      "a date such as 2000-02-28",
	"date-time": "a date and time such as 2000-02-28T13:30:00Z",
	"email":     "an address such as ada@example.com",
	"uri":       "an address such as https://example.com",
}

// kind describes the allowed values of a field, with their bounds.
func (f *formField) kind() string {
	words := map[string]string{"string": "text", "integer": "whole number", "boolean": "yes or no", "array": "texts, separated by commas"}
	kind := cmp.Or(words[f.Type], show.InLine(f.Type, 20), "value")
	switch {
	case len(f.choices) > 0 && f.Type == "array":
		return cmp.Or(f.bounds(), "any") + ", separated by commas, of"
	case len(f.choices) > 0:
		return "one of"
	case formats[f.Format] != "":
		kind = formats[f.Format]
	case f.Format != "":
		kind += " (" + show.InLine(f.Format, 40) + ")"
	}
	if f.Pattern != "" {
		kind += ", matching " + show.InLine(f.Pattern, show.MaxArgs)
	}
	if bounds := f.bounds(); bounds != "" {
		kind += ", " + bounds
	}
	return kind
}

// bounds returns the bounds of a value in words, or nothing.
func (f *formField) bounds() string {
	switch f.Type {
	case "string":
		return span(f.MinLength, f.MaxLength, " characters")
	case "array":
		return span(f.MinItems, f.MaxItems, "")
	}
	return span(f.Minimum, f.Maximum, "")
}

func span[T any](least, most *T, unit string) string {
	switch {
	case least != nil && most != nil:
		return fmt.Sprintf("%v to %v%s", *least, *most, unit)
	case least != nil:
		return fmt.Sprintf("at least %v%s", *least, unit)
	case most != nil:
		return fmt.Sprintf("at most %v%s", *most, unit)
	}
	return ""
}

// preset returns the default in the form in which a person types it.
func (f *formField) preset() string {
	if text, ok := show.Text(f.Default); ok && text != "" {
		return show.InLine(text, show.MaxArgs)
	}
	var list []string
	if json.Unmarshal(f.Default, &list) == nil && !slices.ContainsFunc(list, untypable) && len(list) > 0 {
		return show.InLine(strings.Join(list, ", "), show.MaxArgs)
	}
	return show.InLine(show.Compact(f.Default), show.MaxArgs)
}

// untypable reports whether a text in a typed list would be read differently.
func untypable(text string) bool {
	return text == "" || text != strings.TrimSpace(text) || strings.ContainsAny(text, `,"`)
}

// prompt returns the prompt for the next field.
func (f *form) prompt() string {
	if f.at >= len(f.fields) {
		return "answer: "
	}
	field := &f.fields[f.at]
	text := show.InLine(field.name, 40)
	if len(f.fields) > 1 {
		text += fmt.Sprintf(" (%d of %d)", f.at+1, len(f.fields))
	}
	if field.Default != nil {
		text += " [" + show.InLine(field.preset(), 40) + "]"
	}
	return text + ": "
}

// answer reads a line: the value of the next field, or the answer to the whole form.
func (f *form) answer(r *contracts.ServerRequestResponse, line string) error {
	line = strings.TrimSpace(line)
	object, whole := strings.CutPrefix(line, elicit.Accept+" ")
	object = strings.TrimSpace(object)
	if whole = whole && strings.HasPrefix(object, "{"); !whole {
		object, whole = line, strings.HasPrefix(line, "{")
	}
	done := elicit.Answer{Action: line}
	switch {
	case line == elicit.Decline || line == elicit.Cancel:
	case whole:
		done.Action = elicit.Accept
		if json.Unmarshal([]byte(object), &done.Content) != nil {
			return errors.New("text after a brace must be a JSON object")
		}
	case line == elicit.Accept:
		done.Content = f.rest()
	case len(f.fields) == 0:
		return errors.New("want accept, decline, cancel or a JSON object")
	default:
		if err := f.take(line); err != nil {
			return err
		}
		done.Action, done.Content = elicit.Accept, f.filled
	}
	if done.Action == elicit.Accept {
		if err := f.check(done.Content); err != nil {
			if f.at == len(f.fields) {
				f.restart()
			}
			return err
		}
	}
	text, err := json.Marshal(done)
	r.Content = textBlock(string(text))
	f.restart()
	return err
}

// restart empties the form, for the case that the answer is refused.
func (f *form) restart() { f.filled, f.at = map[string]json.RawMessage{}, 0 }

// take fills in the next field. It returns errMore if another field follows.
func (f *form) take(line string) error {
	field := &f.fields[f.at]
	value, err := field.read(line)
	if err != nil {
		return fmt.Errorf("%s: %w", show.InLine(field.name, 40), err)
	}
	if value != nil {
		f.filled[field.name] = value
	}
	if f.at++; f.at < len(f.fields) {
		return errMore
	}
	return nil
}

// rest returns the filled fields, and the defaults of the others.
func (f *form) rest() map[string]json.RawMessage {
	content := map[string]json.RawMessage{}
	for i := range f.fields {
		name := f.fields[i].name
		if value, ok := f.filled[name]; ok {
			content[name] = value
		} else if i >= f.at && f.fields[i].Default != nil {
			content[name] = f.fields[i].Default
		}
	}
	return content
}

// check returns an error if the content does not fit the form.
func (f *form) check(content map[string]json.RawMessage) error {
	for i := range f.fields {
		field := &f.fields[i]
		value, ok := content[field.name]
		var err error
		if ok {
			err = field.check(value)
		} else if field.required {
			err = errRequired
		}
		if err != nil {
			return fmt.Errorf("%s: %w", show.InLine(field.name, 40), err)
		}
	}
	return nil
}

var errRequired = errors.New("it is required")

// read returns the value of a line, nil to leave the field out.
func (f *formField) read(line string) (json.RawMessage, error) {
	switch {
	case line != "":
	case f.Default != nil:
		return f.Default, nil
	case f.required:
		return nil, errRequired
	default:
		return nil, nil
	}
	value, err := f.parse(line)
	if err != nil {
		return nil, err
	}
	return value, f.check(value)
}

func (f *formField) parse(line string) (json.RawMessage, error) {
	switch f.Type {
	case "string":
		text, err := f.pick(line)
		return show.JSON(text), err
	case "array":
		list := []string{}
		for part := range strings.SplitSeq(line, ",") {
			text, err := f.pick(strings.TrimSpace(part))
			if err != nil {
				return nil, err
			}
			list = append(list, text)
		}
		return show.JSON(list), nil
	case "boolean":
		switch strings.ToLower(line) {
		case "y", "yes", "true":
			return json.RawMessage("true"), nil
		case "n", "no", "false":
			return json.RawMessage("false"), nil
		}
	}
	if json.Valid([]byte(line)) {
		return json.RawMessage(line), nil
	}
	if f.Type != "" {
		return nil, f.awaited()
	}
	return show.JSON(line), nil
}

// pick returns the text of a line: a choice by number or name, the text in quotes, or
// the line itself.
func (f *formField) pick(line string) (string, error) {
	if text, quoted := show.Text(json.RawMessage(line)); quoted {
		return text, nil
	}
	if len(f.choices) == 0 {
		return line, nil
	}
	if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(f.choices) {
		return f.choices[n-1].Value, nil
	}
	for _, c := range f.choices {
		if strings.EqualFold(line, c.Value) || strings.EqualFold(line, c.Title) {
			return c.Value, nil
		}
	}
	return "", f.awaited()
}

// awaited returns an error that describes the allowed values.
func (f *formField) awaited() error {
	switch n, bounds := len(f.choices), f.bounds(); {
	case n == 0:
		return fmt.Errorf("want %s", f.kind())
	case f.Type == "array" && bounds != "":
		return fmt.Errorf("want %s of the choices from 1 to %d", bounds, n)
	default:
		return fmt.Errorf("want a choice from 1 to %d", n)
	}
}

// check returns an error for a value that is not allowed.
func (f *formField) check(raw json.RawMessage) error {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return err
	}
	if !f.takes.Takes(value) {
		return f.awaited()
	}
	return nil
}
