package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// typeScriptFile makes the TypeScript declarations of everything on the wire.
func typeScriptFile(src *source) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n\n", notice)
	fmt.Fprintf(&b, "export type ProtocolVersion = %q;\n", contracts.ProtocolVersion)
	types := contracts.Types()
	writeSets(&b, src, types)
	for _, t := range types {
		writeInterface(&b, src, t)
	}
	comment(&b, src.types["ContentBlock"])
	b.WriteString("export type ContentBlock =\n" +
		"  | { type: \"text\"; text: string }\n" +
		"  | { type: \"image\"; data: string; mimeType: string };\n")
	for _, f := range families {
		comment(&b, f.doc)
		fmt.Fprintf(&b, "export type %s =", f.name)
		for _, t := range types {
			if slices.Contains(f.groups, t.Group) {
				fmt.Fprintf(&b, "\n  | %s", t.Name)
			}
		}
		b.WriteString(";\n")
	}
	return b.Bytes()
}

// writeSets declares the named sets of strings that any type uses.
func writeSets(b *bytes.Buffer, src *source, types []contracts.Type) {
	sets := make(map[string]contracts.Value)
	for _, t := range types {
		for _, f := range t.Fields {
			v := f.Value
			if v.Item != nil {
				v = *v.Item
			}
			if v.Kind == contracts.ValueString && v.Name != "" {
				sets[v.Name] = v
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		comment(b, src.types[name])
		fmt.Fprintf(b, "export type %s =", name)
		for _, value := range sets[name].Enum {
			fmt.Fprintf(b, "\n  | %q", value)
		}
		if name == openSet {
			for _, code := range contracts.Codes() {
				fmt.Fprintf(b, "\n  | %q", code)
			}
			b.WriteString("\n  | (string & {})")
		}
		b.WriteString(";\n")
	}
}

func writeInterface(b *bytes.Buffer, src *source, t contracts.Type) {
	comment(b, src.types[t.Name])
	fmt.Fprintf(b, "export interface %s {\n", t.Name)
	if t.Wire != "" {
		fmt.Fprintf(b, "  type: %q;\n", t.Wire)
	}
	for _, f := range t.Fields {
		if doc := src.fields[t.Name][f.GoName]; doc != "" {
			fmt.Fprintf(b, "  /** %s */\n", doc)
		}
		optional := ""
		if !f.Required {
			optional = "?"
		}
		null := ""
		if f.Nullable {
			null = " | null"
		}
		fmt.Fprintf(b, "  %s%s: %s%s;\n", property(f.Name), optional, typeScriptOf(f.Value), null)
	}
	b.WriteString("}\n")
}

// property is a key as it stands in an interface: in quotes if it is no name.
func property(key string) string {
	if strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return strconv.Quote(key)
	}
	return key
}

func typeScriptOf(v contracts.Value) string {
	switch v.Kind {
	case contracts.ValueString:
		if v.Name != "" {
			return v.Name
		}
		if v.Enum == nil {
			return "string"
		}
		quoted := make([]string, len(v.Enum))
		for i, value := range v.Enum {
			quoted[i] = fmt.Sprintf("%q", value)
		}
		return strings.Join(quoted, " | ")
	case contracts.ValueBoolean:
		return "boolean"
	case contracts.ValueInteger, contracts.ValueNatural, contracts.ValueNumber:
		return "number"
	case contracts.ValueArray:
		item := typeScriptOf(*v.Item)
		if strings.Contains(item, "|") {
			item = "(" + item + ")"
		}
		return item + "[]"
	case contracts.ValueStrings:
		return "Record<string, string>"
	case contracts.ValueBlock:
		return "ContentBlock"
	case contracts.ValueObject:
		return v.Name
	case contracts.ValueBody:
		return bodies[v.Name]
	}
	return "unknown"
}

// comment writes a doc comment, wrapped, after a blank line.
func comment(b *bytes.Buffer, doc string) {
	b.WriteString("\n")
	if doc == "" {
		return
	}
	b.WriteString("/**\n")
	line := " *"
	for word := range strings.FieldsSeq(doc) {
		if len(line)+1+len(word) > 80 {
			b.WriteString(line + "\n")
			line = " *"
		}
		line += " " + word
	}
	b.WriteString(line + "\n */\n")
}
