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

// The arguments of a tool are a struct. The tags of a field say what its value may
// be, for the schema and for the check:
//
//	json:"name"            the argument; it is required unless the tag has omitempty
//	about:"..."            a description for the model
//	default:"..."          the value if the argument is not given
//	enum:"a,b"             the strings that are allowed
//	min:"1" max:"4"        bounds of a number, of the UTF-16 units of a string or of the items of a list
//
// The fields are strings, ints, bools, structs, pointers to structs and lists.

// A field is a field of such a struct with its tags.
type field struct {
	name     string
	required bool
	min, max int // a max of zero is none
	enum     []string
	tag      reflect.StructTag
	index    int
}

func fieldsOf(t reflect.Type) []field {
	var all []field
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		f := field{tag: tag, index: i}
		name, optional, _ := strings.Cut(tag.Get("json"), ",")
		f.name, f.required = name, optional == ""
		f.min, _ = strconv.Atoi(tag.Get("min"))
		f.max, _ = strconv.Atoi(tag.Get("max"))
		if enum := tag.Get("enum"); enum != "" {
			f.enum = strings.Split(enum, ",")
		}
		all = append(all, f)
	}
	return all
}

// SchemaOf returns the JSON schema of the arguments of type A.
func SchemaOf[A any]() json.RawMessage {
	schema, err := json.Marshal(schemaOf(reflect.TypeFor[A](), field{}))
	if err != nil {
		panic(err) // never: the schema consists of texts and numbers
	}
	return schema
}

// schemaOf returns the schema of a type, with the tags of its field.
func schemaOf(t reflect.Type, f field) map[string]any {
	schema := map[string]any{}
	set := func(name string, value any, given bool) {
		if given {
			schema[name] = value
		}
	}
	set("description", f.tag.Get("about"), f.tag.Get("about") != "")
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), f)
	case reflect.Bool:
		schema["type"] = "boolean"
	case reflect.Int:
		schema["type"], schema["minimum"] = "integer", f.min
		set("maximum", f.max, f.max > 0)
	case reflect.String:
		schema["type"] = "string"
		set("enum", f.enum, f.enum != nil)
		set("minLength", f.min, f.min > 0)
		set("maxLength", f.max, f.max > 0)
	case reflect.Slice:
		schema["type"], schema["items"] = "array", schemaOf(t.Elem(), field{})
		schema["minItems"], schema["maxItems"] = f.min, f.max
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for _, member := range fieldsOf(t) {
			properties[member.name] = schemaOf(t.Field(member.index).Type, member)
			if member.required {
				required = append(required, member.name)
			}
		}
		schema["type"], schema["properties"], schema["required"], schema["additionalProperties"] = "object", properties, required, false
	}
	return schema
}

// Decode reads the arguments of a tool into a. The error tells the model what to do
// better.
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
	wrong := func(format string, args ...any) error {
		return refusal("The argument " + f.name + " " + fmt.Sprintf(format, args...) + ".")
	}
	within := func(n int, least, most string) error {
		switch {
		case n < f.min:
			return wrong(least, f.min)
		case f.max > 0 && n > f.max:
			return wrong(most, f.max)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return set(v.Elem(), f, raw)
	case reflect.Bool:
		if json.Unmarshal(raw, v.Addr().Interface()) != nil {
			return wrong("must be true or false, not %s", kind(raw))
		}
	case reflect.Int:
		n, ok := integer(string(raw))
		if !ok {
			return wrong("must be a whole number, not %s", kind(raw))
		}
		v.SetInt(int64(n))
		return within(n, "must be at least %d", "must be at most %d")
	case reflect.String:
		if json.Unmarshal(raw, v.Addr().Interface()) != nil {
			return wrong("must be a string, not %s", kind(raw))
		}
		n := 0
		for _, r := range v.String() {
			n += utf16.RuneLen(r) // as browsers count
		}
		switch {
		case f.enum != nil && !slices.Contains(f.enum, v.String()):
			return wrong("must be one of %s", strings.Join(f.enum, ", "))
		case n == 0 && f.min > 0:
			return wrong("is empty")
		}
		return within(n, "is shorter than %d characters", "is longer than %d characters")
	case reflect.Slice:
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return wrong("must be an array, not %s", kind(raw))
		}
		v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
		if err := within(len(items), "has fewer than %d items", "has more than %d items"); err != nil {
			return err
		}
		for i, item := range items {
			if err := set(v.Index(i), field{name: fmt.Sprintf("%s[%d]", f.name, i)}, item); err != nil {
				return err
			}
		}
	case reflect.Struct:
		return setObject(v, f, raw)
	}
	return nil
}

// setObject decodes an object into a struct.
func setObject(v reflect.Value, f field, raw json.RawMessage) error {
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil {
		return refusal("The argument " + f.name + " must be an object, not " + kind(raw) + ".")
	}
	path := ""
	if f.name != "" {
		path = f.name + "."
	}
	fields := fieldsOf(v.Type())
	for name := range given {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			return refusal(fmt.Sprintf("Unknown argument %s. %s", quote(path+name), usage(v.Type())))
		}
	}
	for _, member := range fields {
		value, to := given[member.name], v.Field(member.index)
		missing := value == nil || string(value) == "null"
		member.name = path + member.name
		if standard := member.tag.Get("default"); missing && standard != "" {
			value, missing = json.RawMessage(standard), false
			if to.Kind() == reflect.String {
				value = json.RawMessage(strconv.Quote(standard))
			}
		}
		switch {
		case missing && member.required:
			return refusal(fmt.Sprintf("The argument %s is missing. %s", member.name, usage(v.Type())))
		case missing:
			continue
		}
		if err := set(to, member, value); err != nil {
			return err
		}
	}
	return nil
}

// usage names the arguments that there are.
func usage(t reflect.Type) string {
	var required, optional []string
	for _, f := range fieldsOf(t) {
		if f.required {
			required = append(required, f.name)
		} else {
			optional = append(optional, f.name)
		}
	}
	text := "Required: " + strings.Join(required, ", ") + "."
	if len(optional) > 0 {
		text += " Optional: " + strings.Join(optional, ", ") + "."
	}
	return text
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

// kind says what a JSON value is.
func kind(value json.RawMessage) string {
	switch value[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f', 'n':
		return string(value)
	}
	return "the number " + brief(string(value))
}

// quote returns a text of the model for a message.
func quote(text string) string { return strconv.Quote(brief(text)) }
