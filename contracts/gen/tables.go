package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/seed-028515a8/maestro/contracts"
)

// A section of the protocol reference between
//
//	<!-- generated: NAME -->
//	<!-- end -->
//
// is replaced by the table of that name.
const (
	beginMark = "<!-- generated: "
	endMark   = "<!-- end -->"
)

// pages are the files of the protocol reference.
var pages = []string{"docs/protocol.md", "docs/messages.md"}

// fillPages returns the pages of the protocol reference with all their tables made
// anew. Every table must have one place.
func fillPages(root string, src *source, schema *jsonschema.Schema) (map[string][]byte, error) {
	tables := map[string]string{
		"commands":        typeTables(src, contracts.GroupCommand),
		"client controls": typeTables(src, contracts.GroupClientControl),
		"events":          typeTables(src, contracts.GroupEvent),
		"server frames":   typeTables(src, contracts.GroupServerFrame),
		"objects":         typeTables(src, contracts.GroupObject),
		"sets":            setTable(schema),
		"codes":           codeTable(),
		"limits":          limitTable(src),
	}
	outputs := make(map[string][]byte)
	for _, path := range pages {
		page, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return nil, err
		}
		if outputs[path], err = fillTables(page, tables); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	for name := range tables {
		return nil, fmt.Errorf("no place for table %q", name)
	}
	return outputs, nil
}

// fillTables returns a page with its tables made anew, and removes them from tables.
func fillTables(page []byte, tables map[string]string) ([]byte, error) {
	var out bytes.Buffer
	rest := string(page)
	for {
		before, after, found := strings.Cut(rest, beginMark)
		out.WriteString(before)
		if !found {
			break
		}
		name, after, _ := strings.Cut(after, " -->")
		_, after, ended := strings.Cut(after, endMark)
		table, known := tables[name]
		if !known || !ended {
			return nil, fmt.Errorf("table %q is unknown, repeated or not ended", name)
		}
		delete(tables, name)
		fmt.Fprintf(&out, "%s%s -->\n<!-- %s -->\n\n%s\n\n%s", beginMark, name, notice, strings.TrimSpace(table), endMark)
		rest = after
	}
	return out.Bytes(), nil
}

// typeTables makes a heading and a table for each type of a group.
func typeTables(src *source, group contracts.Group) string {
	var b strings.Builder
	for _, t := range contracts.Types() {
		if t.Group != group {
			continue
		}
		heading := "`" + t.Wire + "`"
		if t.Wire == "" {
			heading = t.Name
		}
		fmt.Fprintf(&b, "#### %s\n\n%s\n\n", heading, wireProse(src, t))
		writeFields(&b, src, t)
	}
	return b.String()
}

// wireProse returns the doc comment of a type in the words of the wire: without
// the Go name, which is not the heading of a message, and with the keys of
// fields for their Go names.
func wireProse(src *source, t *contracts.Type) string {
	doc := src.types[t.Name]
	if t.Wire != "" {
		doc = strings.TrimPrefix(doc, t.Name+" ")
		doc = strings.TrimPrefix(doc, "is ")
		doc = strings.ToUpper(doc[:1]) + doc[1:]
	}
	for _, f := range t.Fields {
		name := regexp.MustCompile(`\b` + f.GoName + `\b`)
		doc = name.ReplaceAllString(doc, "`"+f.Name+"`")
	}
	return doc
}

func writeFields(b *strings.Builder, src *source, t *contracts.Type) {
	if len(t.Fields) == 0 {
		b.WriteString("No fields.\n\n")
		return
	}
	b.WriteString("| Field | Type | | Notes |\n| --- | --- | --- | --- |\n")
	for _, f := range t.Fields {
		presence := "optional"
		if f.Required {
			presence = "required"
		}
		kind := typeName(f.Value)
		if f.Nullable {
			kind += " or null"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.Name, kind, presence, notes(src, t, f))
	}
	b.WriteString("\n")
}

// notes says what the type column cannot.
func notes(src *source, t *contracts.Type, f contracts.Field) string {
	var parts []string
	if doc := src.fields[t.Name+"."+f.GoName]; doc != "" {
		parts = append(parts, doc)
	}
	if f.Value.MaxBytes > 0 {
		parts = append(parts, fmt.Sprintf("1 to %d bytes", f.Value.MaxBytes))
	}
	if f.Value.Unique {
		parts = append(parts, "no duplicates")
	}
	if f.Lenient {
		parts = append(parts, "old servers leave it out")
	}
	return strings.Join(parts, "; ")
}

func typeName(v contracts.Value) string {
	switch {
	case v.Item != nil:
		return "array of " + typeName(*v.Item)
	case v.Object != nil:
		return linkTo(v.Object.Name)
	case v.EnumName != "":
		return linkTo(v.EnumName)
	case v.Kind == contracts.KindBlock:
		return linkTo("ContentBlock")
	case v.Body != "":
		return "encoded " + v.Body
	case v.Enum != nil:
		return "`" + strings.Join(v.Enum, "`, `") + "`"
	}
	return v.Kind.String()
}

func linkTo(name string) string { return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name)) }

// setTable lists the closed sets of strings that have a name.
func setTable(schema *jsonschema.Schema) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(schema.Defs)) {
		if set := schema.Defs[name]; set.Type == "string" && set.Enum != nil {
			values := strings.ReplaceAll(strings.Join(alternatives(set), ", "), `"`, "`")
			fmt.Fprintf(&b, "#### %s\n\n%s One of %s.\n\n", name, set.Description, values)
		}
	}
	return b.String()
}

func codeTable() string {
	var b strings.Builder
	b.WriteString("| Code | HTTP status | Close code | Retryable |\n| --- | --- | --- | --- |\n")
	for _, c := range contracts.Codes() {
		retryable := "no"
		if c.Retryable() {
			retryable = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %d | %d | %s |\n", c, c.HTTPStatus(), c.CloseCode(), retryable)
	}
	return b.String()
}

func limitTable(src *source) string {
	var b strings.Builder
	b.WriteString("| Limit | Default | Notes |\n| --- | --- | --- |\n")
	for _, c := range src.constants {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.name, c.value, c.comment)
	}
	return b.String()
}
