package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// The arguments of a tool are a struct of strings, ints, bools, structs and lists. The
// tags of a field say what its value may be, for the schema and for the check:
//
//	json:"name"            the argument; it is required unless the tag has an option
//	about:"..."            a description for the model
//	default:"..."          the value if the argument is not given
//	enum:"a,b"             the strings that are allowed
//	min:"1" max:"4"        bounds of a number, of the UTF-16 units of a string or of the items of a list

// A field is a field of such a struct with its tags.
type field struct {
	name     string
	required bool
	min, max int // a max of zero is none
	enum     []string
	tag      reflect.StructTag
}

func fieldsOf(t reflect.Type) []field {
	all := make([]field, t.NumField())
	for i := range all {
		f := field{tag: t.Field(i).Tag}
		name, option, _ := strings.Cut(f.tag.Get("json"), ",")
		f.name, f.required = name, option == ""
		f.min, _ = strconv.Atoi(f.tag.Get("min"))
		f.max, _ = strconv.Atoi(f.tag.Get("max"))
		if enum := f.tag.Get("enum"); enum != "" {
			f.enum = strings.Split(enum, ",")
		}
		all[i] = f
	}
	return all
}

// types has the names of types and of their bounds in schemas and refusals.
var types = map[reflect.Kind]struct{ schema, min, max, name, less, more string }{
	reflect.Bool:   {schema: "boolean", name: "true or false"},
	reflect.Int:    {"integer", "minimum", "maximum", "a whole number", "must be at least %d", "must be at most %d"},
	reflect.String: {"string", "minLength", "maxLength", "a string", "is shorter than %d characters", "is longer than %d characters"},
	reflect.Slice:  {"array", "minItems", "maxItems", "an array", "has fewer than %d items", "has more than %d items"},
	reflect.Struct: {schema: "object", name: "an object"},
}

// SchemaOf returns the JSON schema of the arguments of type A.
func SchemaOf[A any]() json.RawMessage {
	schema, _ := json.Marshal(schemaOf(reflect.TypeFor[A](), field{})) // texts and numbers can be encoded
	return schema
}

// schemaOf returns the schema of a type, with the tags of its field.
func schemaOf(t reflect.Type, f field) map[string]any {
	names := types[t.Kind()]
	schema := map[string]any{"type": names.schema}
	if about := f.tag.Get("about"); about != "" {
		schema["description"] = about
	}
	if f.enum != nil {
		schema["enum"] = f.enum
	}
	if f.min > 0 || t.Kind() == reflect.Int {
		schema[names.min] = f.min
	}
	if f.max > 0 {
		schema[names.max] = f.max
	}
	switch t.Kind() {
	case reflect.Slice:
		schema["items"] = schemaOf(t.Elem(), field{})
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for i, member := range fieldsOf(t) {
			properties[member.name] = schemaOf(t.Field(i).Type, member)
			if member.required {
				required = append(required, member.name)
			}
		}
		schema["properties"], schema["required"], schema["additionalProperties"] = properties, required, false
	}
	return schema
}

// Decode reads arguments into a. The error tells the model what to do better.
func Decode[A any](raw json.RawMessage, a *A) error {
	v := reflect.ValueOf(a).Elem()
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	if !json.Valid(raw) || raw[0] != '{' {
		return refusal("The arguments must be one JSON object. " + usage(v.Type()))
	}
	if err := set(v, field{}, raw); err != nil {
		return err
	}
	if checked, ok := any(a).(interface{ check() error }); ok {
		return checked.check()
	}
	return nil
}

// set decodes valid JSON into v. f.name is the path of the argument.
func set(v reflect.Value, f field, raw json.RawMessage) error {
	var items []json.RawMessage
	var members map[string]json.RawMessage
	n, ok := 0, true // n is what the bounds are of
	switch v.Kind() {
	case reflect.Int:
		n, ok = integer(string(raw))
		v.SetInt(int64(n))
	case reflect.Slice:
		ok = json.Unmarshal(raw, &items) == nil
		n = len(items)
	case reflect.Struct:
		ok = json.Unmarshal(raw, &members) == nil
	case reflect.Bool, reflect.String:
		ok = json.Unmarshal(raw, v.Addr().Interface()) == nil
	}
	if v.Kind() == reflect.String {
		n = len(utf16.Encode([]rune(v.String()))) // as browsers count
	}
	problem, names := "", types[v.Kind()]
	switch {
	case !ok:
		problem = "must be " + names.name
	case f.enum != nil && !slices.Contains(f.enum, v.String()):
		problem = "must be one of " + strings.Join(f.enum, ", ")
	case n < f.min && n == 0 && v.Kind() == reflect.String:
		problem = "is empty"
	case n < f.min:
		problem = fmt.Sprintf(names.less, f.min)
	case f.max > 0 && n > f.max:
		problem = fmt.Sprintf(names.more, f.max)
	case v.Kind() == reflect.Struct:
		return setMembers(v, f.name, members)
	}
	if problem != "" {
		return refusal("The argument " + f.name + " " + problem + ".")
	}
	if v.Kind() == reflect.Slice {
		v.Set(reflect.MakeSlice(v.Type(), n, n))
	}
	for i, item := range items {
		if err := set(v.Index(i), field{name: fmt.Sprintf("%s[%d]", f.name, i)}, item); err != nil {
			return err
		}
	}
	return nil
}

// setMembers decodes the members of an object into a struct.
func setMembers(v reflect.Value, path string, given map[string]json.RawMessage) error {
	if path != "" {
		path += "."
	}
	fields := fieldsOf(v.Type())
	for name := range given {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			return refusal(fmt.Sprintf("Unknown argument %s. %s", quote(path+name), usage(v.Type())))
		}
	}
	for i, f := range fields {
		value := given[f.name]
		if standard := f.tag.Get("default"); value == nil || string(value) == "null" {
			value = json.RawMessage(standard)
			if standard != "" && v.Field(i).Kind() == reflect.String {
				value = json.RawMessage(strconv.Quote(standard))
			}
		}
		f.name = path + f.name
		switch {
		case len(value) > 0:
			if err := set(v.Field(i), f, value); err != nil {
				return err
			}
		case f.required:
			return refusal(fmt.Sprintf("The argument %s is missing. %s", f.name, usage(v.Type())))
		}
	}
	return nil
}

func usage(t reflect.Type) string {
	var names []string
	for _, f := range fieldsOf(t) {
		if !f.required {
			f.name += " (optional)"
		}
		names = append(names, f.name)
	}
	return "The arguments are " + strings.Join(names, ", ") + "."
}

// integer reads a whole number, also one that is spelled 2.0 or 2e3.
func integer(text string) (int, bool) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, true
	}
	const exact = 1 << 53 // above it not every whole number is a float
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < -exact || f > exact || f != float64(int64(f)) {
		return 0, false
	}
	return int(f), true
}

// quote returns a text of the model for a message.
func quote(text string) string { return strconv.Quote(brief(text)) }
