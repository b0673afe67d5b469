package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func testSource(t *testing.T) *source {
	t.Helper()
	src, err := readSource(filepath.Join(root, "contracts"))
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func TestEveryTableHasOnePlace(t *testing.T) {
	page := string(readFile(t, "docs/messages.md"))
	src := testSource(t)
	for change, spoilt := range map[string]string{
		"":                  page,
		"a place missing":   strings.Replace(page, "<!-- generated: codes -->", "", 1),
		"a place repeated":  page + "<!-- generated: codes -->\n<!-- end -->\n",
		"an unknown place":  page + "<!-- generated: colours -->\n<!-- end -->\n",
		"a place not ended": page[:strings.LastIndex(page, "<!-- end -->")],
	} {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "docs"), 0o700); err != nil {
			t.Fatal(err)
		}
		for path, text := range map[string]string{"docs/protocol.md": string(readFile(t, "docs/protocol.md")), "docs/messages.md": spoilt} {
			if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := fillPages(root, src, schemaOf(src)); (err != nil) != (change != "") {
			t.Errorf("%q: got %v, want an error exactly if there is a change", change, err)
		}
	}
}

// Every name that the TypeScript declarations use is declared there, once.
func TestTypeScriptIsComplete(t *testing.T) {
	text := string(typeScriptFile(schemaOf(testSource(t))))
	text = regexp.MustCompile(`(?s)/\*\*.*?\*/|//[^\n]*|"[^"\n]*"`).ReplaceAllString(text, "")
	declared := map[string]int{"Record": 1}
	for _, m := range regexp.MustCompile(`export (?:interface|type) (\w+)`).FindAllStringSubmatch(text, -1) {
		declared[m[1]]++
	}
	for _, name := range regexp.MustCompile(`\b[A-Z]\w*`).FindAllString(text, -1) {
		if declared[name] != 1 {
			t.Errorf("%s is declared %d times, want once", name, declared[name])
		}
	}
}

func TestLimitsAreReadable(t *testing.T) {
	got := make(map[string]string)
	for _, c := range testSource(t).constants {
		got[c.name] = c.value
	}
	for name, want := range map[string]string{
		"MaxLineBytes": "10485760 (10 MiB)", "MaxTextBytes": "65536 (64 KiB)",
		"MaxAttachmentText": "200000", "MaxDepth": "128", "DefaultLeaseTTL": "45 s",
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
}
