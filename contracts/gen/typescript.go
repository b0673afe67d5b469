package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/doc/comment"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-028515a8/maestro/contracts"
)

// typeScriptFile makes the TypeScript declarations of the definitions of a schema: sets
// of strings, messages and objects, and unions.
func typeScriptFile(root *jsonschema.Schema) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n\n", notice)
	fmt.Fprintf(&b, "export type ProtocolVersion = %q;\n", contracts.ProtocolVersion)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(root.Defs)), func(name string) bool { return root.Defs[name].Type != "string" })
	for _, t := range contracts.Types() {
		names = append(names, t.Name)
	}
	names = append(names, "ContentBlock")
	for _, f := range families {
		names = append(names, f.name)
	}
	for _, name := range names {
		declare(&b, name, root.Defs[name])
	}
	return b.Bytes()
}

func declare(b *bytes.Buffer, name string, s *jsonschema.Schema) {
	writeComment(b, s.Description)
	if s.Type != "object" {
		fmt.Fprintf(b, "export type %s =\n  | %s;\n", name, strings.Join(alternatives(s), "\n  | "))
		return
	}
	fmt.Fprintf(b, "export interface %s {\n", name)
	for _, key := range s.PropertyOrder {
		if doc := s.Properties[key].Description; doc != "" {
			fmt.Fprintf(b, "  /** %s */\n", doc)
		}
		fmt.Fprintf(b, "  %s;\n", member(s, key))
	}
	b.WriteString("}\n")
}

func member(s *jsonschema.Schema, key string) string {
	optional := "?"
	if slices.Contains(s.Required, key) {
		optional = ""
	}
	return property(key) + optional + ": " + typeScriptOf(s.Properties[key])
}

// property is a key as it stands in an interface: in quotes if it is no name.
func property(key string) string {
	if strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return strconv.Quote(key)
	}
	return key
}

func typeScriptOf(s *jsonschema.Schema) string {
	switch {
	case s.Ref != "":
		return path.Base(s.Ref)
	case s.Const != nil:
		return fmt.Sprintf("%q", *s.Const)
	case len(s.Types) > 0: // with null
		other := *s
		other.Type, other.Types = s.Types[0], nil
		return typeScriptOf(&other) + " | null"
	case s.Items != nil:
		item := typeScriptOf(s.Items)
		if strings.Contains(item, "|") {
			item = "(" + item + ")"
		}
		return item + "[]"
	case s.PropertyOrder != nil:
		var members []string
		for _, key := range s.PropertyOrder {
			members = append(members, member(s, key))
		}
		return "{ " + strings.Join(members, "; ") + " }"
	case s.Type == "object":
		return "Record<string, string>"
	}
	return strings.Join(alternatives(s), " | ")
}

// alternatives returns the types of a union, or the only type of another schema. The
// examples of an open set are among the strings that it allows.
func alternatives(s *jsonschema.Schema) (list []string) {
	for _, one := range slices.Concat(s.OneOf, s.AnyOf) {
		list = append(list, typeScriptOf(one))
	}
	for _, value := range slices.Concat(s.Enum, s.Examples) {
		list = append(list, fmt.Sprintf("%q", value))
	}
	if s.Examples != nil {
		list = append(list, "(string & {})")
	}
	if list == nil {
		list = []string{cmp.Or(map[string]string{"": "unknown", "integer": "number"}[s.Type], s.Type)}
	}
	return list
}

// writeComment writes a doc comment, wrapped, after a blank line.
func writeComment(b *bytes.Buffer, doc string) {
	b.WriteString("\n")
	if doc == "" {
		return
	}
	text := (&comment.Printer{TextPrefix: " * ", TextWidth: 77}).Text(new(comment.Parser).Parse(doc))
	fmt.Fprintf(b, "/**\n%s */\n", text)
}
