package main

import (
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-028515a8/maestro/contracts"
)

// families are the unions of messages that others refer to, by the groups they
// consist of.
var families = []struct {
	name   string
	groups []contracts.Group
	doc    string
}{
	{"Command", []contracts.Group{contracts.GroupCommand}, "A bare message from a client."},
	{"Event", []contracts.Group{contracts.GroupEvent}, "A bare message from the server."},
	{"ClientFrame", []contracts.Group{contracts.GroupCommand, contracts.GroupClientControl}, "What a client sends on a networked transport."},
	{"ServerFrame", []contracts.Group{contracts.GroupServerFrame}, "What the server sends on a networked transport."},
}

// schemaOf makes the JSON Schema (draft 2020-12) of everything on the wire.
// It is closed: it describes exactly what this version sends.
func schemaOf(src *source) *jsonschema.Schema {
	root := &jsonschema.Schema{
		Schema:      "https://json-schema.org/draft/2020-12/schema",
		Comment:     notice,
		Title:       "Maestro headless protocol " + contracts.ProtocolVersion,
		Description: "Refer to one of the definitions; the schema itself allows any message or frame of either side.",
		AnyOf:       []*jsonschema.Schema{ref("ClientFrame"), ref("Event"), ref("ServerFrame")},
		Defs:        make(map[string]*jsonschema.Schema),
	}
	types := contracts.Types()
	for _, t := range types {
		root.Defs[t.Name] = objectSchema(src, t, root.Defs)
	}
	for _, f := range families {
		union := &jsonschema.Schema{Description: f.doc}
		for _, t := range types {
			if slices.Contains(f.groups, t.Group) {
				union.OneOf = append(union.OneOf, ref(t.Name))
			}
		}
		root.Defs[f.name] = union
	}
	root.Defs["ContentBlock"] = blockSchema(src)
	return root
}

func ref(name string) *jsonschema.Schema {
	return &jsonschema.Schema{Ref: "#/$defs/" + name}
}

// closedObject returns an empty schema that allows no other properties.
func closedObject(doc string) *jsonschema.Schema {
	return &jsonschema.Schema{
		Description: doc, Type: "object",
		Properties:           make(map[string]*jsonschema.Schema),
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
}

func addProperty(s *jsonschema.Schema, name string, value *jsonschema.Schema, required bool) {
	s.Properties[name] = value
	s.PropertyOrder = append(s.PropertyOrder, name)
	if required {
		s.Required = append(s.Required, name)
	}
}

func literal(value string) *jsonschema.Schema {
	return &jsonschema.Schema{Const: jsonschema.Ptr[any](value)}
}

func objectSchema(src *source, t *contracts.Type, defs map[string]*jsonschema.Schema) *jsonschema.Schema {
	s := closedObject(src.types[t.Name])
	if t.Wire != "" {
		addProperty(s, "type", literal(t.Wire), true)
	}
	for _, f := range t.Fields {
		value := valueSchema(src, f.Value, defs)
		if f.Nullable {
			value = nullable(value)
		}
		value.Description = src.fields[t.Name+"."+f.GoName]
		addProperty(s, f.Name, value, f.Required)
	}
	return s
}

func nullable(s *jsonschema.Schema) *jsonschema.Schema {
	if s.Type == "" {
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "null"}}}
	}
	s.Types, s.Type = []string{s.Type, "null"}, ""
	return s
}

func valueSchema(src *source, v contracts.Value, defs map[string]*jsonschema.Schema) *jsonschema.Schema {
	switch v.Kind {
	case contracts.KindString, contracts.KindNullString:
		return stringSchema(src, v, defs)
	case contracts.KindUint:
		return &jsonschema.Schema{Type: "integer", Minimum: jsonschema.Ptr(0.0)}
	case contracts.KindList:
		return &jsonschema.Schema{Type: "array", Items: valueSchema(src, *v.Item, defs), UniqueItems: v.Unique}
	case contracts.KindMap:
		return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "string"}}
	case contracts.KindBlock:
		return ref("ContentBlock")
	case contracts.KindObject:
		return ref(v.Object.Name)
	case contracts.KindRaw:
		if v.Body == "" {
			return &jsonschema.Schema{} // any JSON
		}
		return ref(strings.ToUpper(v.Body[:1]) + v.Body[1:]) // Event, Command, Init or Snapshot
	}
	return &jsonschema.Schema{Type: v.Kind.String()}
}

// stringSchema describes a string. Closed sets that have a name become definitions,
// and so do codes, which are an open set. A length in bytes is never less than one in
// characters, so the bound is right if not exact.
func stringSchema(src *source, v contracts.Value, defs map[string]*jsonschema.Schema) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	if v.MaxBytes > 0 {
		s.MinLength, s.MaxLength = jsonschema.Ptr(1), jsonschema.Ptr(v.MaxBytes)
	}
	for _, allowed := range v.Enum {
		s.Enum = append(s.Enum, allowed)
	}
	if v.EnumName == "" {
		return s
	}
	if v.EnumName == openSet {
		for _, code := range contracts.Codes() {
			s.Examples = append(s.Examples, code)
		}
	}
	s.Description = src.types[v.EnumName]
	defs[v.EnumName] = s
	return ref(v.EnumName)
}

// openSet is the named string type whose values a newer server may add to.
const openSet = "Code"

func blockSchema(src *source) *jsonschema.Schema {
	text := closedObject("")
	addProperty(text, "type", literal("text"), true)
	addProperty(text, "text", &jsonschema.Schema{Type: "string"}, true)
	image := closedObject("")
	addProperty(image, "type", literal("image"), true)
	addProperty(image, "data", &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}, true)
	addProperty(image, "mimeType", &jsonschema.Schema{Type: "string"}, true)
	return &jsonschema.Schema{
		Description: src.types["ContentBlock"],
		OneOf:       []*jsonschema.Schema{text, image},
	}
}
