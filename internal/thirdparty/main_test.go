package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLicensesAreCurrent(t *testing.T) {
	parts, err := components("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../THIRD_PARTY_LICENSES")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, notices(parts)) {
		t.Error("THIRD_PARTY_LICENSES is not current: run make gen")
	}
}

func TestClassify(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	apache := read("../../LICENSE")
	all := read("../../THIRD_PARTY_LICENSES")
	section := func(name string) string {
		_, text, _ := strings.Cut(all, "\n"+name)
		_, text, _ = strings.Cut(text, "\n\n")
		text, _, _ = strings.Cut(text, strings.Repeat("=", 80))
		return text
	}
	mit, bsd := section("github.com/BurntSushi/toml "), section("github.com/google/uuid ")
	for _, tt := range []struct {
		name, text string
		want       []string
		refused    bool
	}{
		{"Apache", apache, []string{"Apache-2.0"}, false},
		{"MIT", mit, []string{"MIT"}, false},
		{"BSD", bsd, []string{"BSD-3-Clause"}, false},
		{"Apache and BSD in one file", apache + bsd, []string{"Apache-2.0", "BSD-3-Clause"}, false},
		{"GPL", "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007", nil, true},
		{"AGPL in lines", "GNU AFFERO\n GENERAL PUBLIC LICENSE", nil, true},
		{"GPL behind MIT", mit + "\nAlternatively, the GNU General Public License", nil, true},
		{"unknown", "You may use this software if you buy the author a beer.", nil, false},
	} {
		got, err := classify(tt.text)
		if !slices.Equal(got, tt.want) || (err != nil) != tt.refused {
			t.Errorf("%s: got %v and %v, want %v and an error: %v", tt.name, got, err, tt.want, tt.refused)
		}
	}
}

func TestPackagesOfThePage(t *testing.T) {
	line := "\n" + strings.Repeat("-", 80) + "\n\n"
	for _, tt := range []struct {
		name, file string
		want       int
		refused    bool
	}{
		{"two", "a 1.0.0 (MIT)\n\ntext\n" + line + "@b/c 2.0.0 ((MPL-2.0 OR Apache-2.0))\n\ntext\n", 2, false},
		{"GPL", "a 1.0.0 (GPL-3.0-only)\n\ntext\n", 0, true},
		{"all of two licenses", "a 1.0.0 (MIT AND GPL-3.0-only)\n\ntext\n", 0, true},
		{"no license", "a 1.0.0 (undefined)\n\ntext\n", 0, true},
		{"no text", "a 1.0.0 (MIT)\n\n", 0, true},
		{"no head", "text\n", 0, true},
	} {
		path := filepath.Join(t.TempDir(), "licenses.txt")
		if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := pagePackages(path)
		if len(got) != tt.want || (err != nil) != tt.refused {
			t.Errorf("%s: got %d packages and %v, want %d and an error: %v", tt.name, len(got), err, tt.want, tt.refused)
		}
	}
}
