package main

import (
	"bytes"
	"cmp"
	"fmt"
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
	writeSets(&b, src)
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

// namedSets returns the named sets of strings that any type uses, in order of use.
func namedSets() (sets []contracts.Value) {
	for _, t := range contracts.Types() {
		for _, f := range t.Fields {
			v := f.Value
			if v.Item != nil {
				v = *v.Item
			}
			known := func(set contracts.Value) bool { return set.EnumName == v.EnumName }
			if v.EnumName != "" && !slices.ContainsFunc(sets, known) {
				sets = append(sets, v)
			}
		}
	}
	return sets
}

// writeSets declares the named sets of strings.
func writeSets(b *bytes.Buffer, src *source) {
	sets := namedSets()
	slices.SortFunc(sets, func(a, b contracts.Value) int { return cmp.Compare(a.EnumName, b.EnumName) })
	for _, set := range sets {
		comment(b, src.types[set.EnumName])
		fmt.Fprintf(b, "export type %s =", set.EnumName)
		for _, value := range set.Enum {
			fmt.Fprintf(b, "\n  | %q", value)
		}
		if set.EnumName == openSet {
			for _, code := range contracts.Codes() {
				fmt.Fprintf(b, "\n  | %q", code)
			}
			b.WriteString("\n  | (string & {})")
		}
		b.WriteString(";\n")
	}
}

func writeInterface(b *bytes.Buffer, src *source, t *contracts.Type) {
	comment(b, src.types[t.Name])
	fmt.Fprintf(b, "export interface %s {\n", t.Name)
	if t.Wire != "" {
		fmt.Fprintf(b, "  type: %q;\n", t.Wire)
	}
	for _, f := range t.Fields {
		if doc := src.fields[t.Name+"."+f.GoName]; doc != "" {
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
	case contracts.KindString, contracts.KindNullString:
		if v.EnumName != "" {
			return v.EnumName
		}
		if v.Enum == nil {
			return "string"
		}
		quoted := make([]string, len(v.Enum))
		for i, value := range v.Enum {
			quoted[i] = fmt.Sprintf("%q", value)
		}
		return strings.Join(quoted, " | ")
	case contracts.KindBool:
		return "boolean"
	case contracts.KindInt, contracts.KindUint, contracts.KindFloat:
		return "number"
	case contracts.KindList:
		item := typeScriptOf(*v.Item)
		if strings.Contains(item, "|") {
			item = "(" + item + ")"
		}
		return item + "[]"
	case contracts.KindMap:
		return "Record<string, string>"
	case contracts.KindBlock:
		return "ContentBlock"
	case contracts.KindObject:
		return v.Object.Name
	}
	return cmp.Or(bodies[v.Body], "unknown")
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
