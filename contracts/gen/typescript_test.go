package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
)

// TestDeclarationsCompile compiles the checked-in declarations strictly, with a
// value of every type and a switch over every union that leaves nothing out.
func TestDeclarationsCompile(t *testing.T) {
	ts, err := filepath.Abs(filepath.Join(root, "contracts", "ts"))
	if err != nil {
		t.Fatal(err)
	}
	tsc := filepath.Join(ts, "node_modules", "typescript", "bin", "tsc")
	if _, err := os.Stat(tsc); err != nil {
		t.Fatalf("%v: run make others", err)
	}
	use := filepath.Join(t.TempDir(), "use.ts")
	text := usesOfTypes(filepath.Join(ts, "maestro"))
	if err := os.WriteFile(use, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("node", tsc, "--strict", "--noEmit", "--target", "es2022", use, filepath.Join(ts, "maestro.d.ts")).CombinedOutput()
	if err != nil {
		t.Errorf("tsc: %v\n%s", err, out)
	}
}

// usesOfTypes is a program that uses all types of the declarations at path.
func usesOfTypes(path string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "import type * as m from %q;\n", path)
	types := contracts.Types()
	for _, t := range types {
		fmt.Fprintf(&b, "export const a%s: m.%s = %s;\n", t.Name, t.Name, sampleOf(t, types))
	}
	for _, f := range families {
		fmt.Fprintf(&b, "export function in%s(x: m.%s): string {\n  switch (x.type) {\n", f.name, f.name)
		for _, t := range types {
			if slices.Contains(f.groups, t.Group) {
				fmt.Fprintf(&b, "    case %q: { const one: m.%s = x; return one.type; }\n", t.Wire, t.Name)
			}
		}
		b.WriteString("    default: { const none: never = x; return none; }\n  }\n}\n")
	}
	return b.Bytes()
}

// sampleOf is a value of a type with every field set.
func sampleOf(t *contracts.Type, types []*contracts.Type) string {
	var fields []string
	if t.Wire != "" {
		fields = append(fields, fmt.Sprintf("type: %q", t.Wire))
	}
	for _, f := range t.Fields {
		fields = append(fields, fmt.Sprintf("%q: %s", f.Name, valueOf(f.Value, types)))
	}
	return "{ " + strings.Join(fields, ", ") + " }"
}

func valueOf(v contracts.Value, types []*contracts.Type) string {
	switch v.Kind {
	case contracts.KindString, contracts.KindNullString:
		if v.Enum != nil {
			return fmt.Sprintf("%q", v.Enum[len(v.Enum)-1])
		}
		return `"x"`
	case contracts.KindBool:
		return "true"
	case contracts.KindInt, contracts.KindUint, contracts.KindFloat:
		return "1"
	case contracts.KindList:
		return "[" + valueOf(*v.Item, types) + "]"
	case contracts.KindMap:
		return `{ "k": "v" }`
	case contracts.KindBlock:
		return `{ type: "image", data: "", mimeType: "image/png" }`
	case contracts.KindObject:
		return sampleOf(v.Object, types)
	}
	sample := map[string]string{"event": "Status", "command": "Prompt", "init": "Init", "snapshot": "Snapshot"}[v.Body]
	if i := slices.IndexFunc(types, func(t *contracts.Type) bool { return t.Name == sample }); i >= 0 {
		return sampleOf(types[i], types)
	}
	return "{}"
}
