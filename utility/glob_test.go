package utility

import (
	"strings"
	"testing"
)

func TestGlobs(t *testing.T) {
	for _, tt := range []struct{ pattern, yes, no string }{
		{"*.go", "a.go .go", "a/b.go a.goo"},
		{"**/*.go", "a.go a/b.go a/b/.c.go", "a.txt a.go/b"},
		{"**", "a a/b", ""},
		{"a/**", "a/b a/b/c a", "ab/c b/a/c"},
		{"a/**/b", "a/b a/x/b a/x/y/b", "a/xb b a"},
		{"**/a/**/b/*", "a/b/c x/a/b/c a/x/b/y a/b/b/c", "a/b a/c b/c"},
		{"src/*/x?", "src/a/xy src/b/x1", "src/x1 src/a/b/x1 src/a/x"},
		{"[ab].c", "a.c b.c", "c.c ab.c"},
		{"[!ab].c", "c.c", "a.c"},
		{"[^ab].c", "c.c", "a.c"},
		{"a**b", "ab axxb", "a/b"},
		{"{a,b}", "{a,b}", "a b"},
		{"#x", "#x", "x"},
		{"a[", "a[", "a ab"},
		{"A.go", "A.go", "a.go"},
		{"**/**/x", "x a/x a/b/x", "xx"},
	} {
		g := newGlob(tt.pattern)
		for path := range strings.FieldsSeq(tt.yes) {
			// a/** is about a itself only when it excludes.
			if names := strings.Split(path, "/"); !g.match(names) && !g.around(names) {
				t.Errorf("%s: got no match of %s, want one", tt.pattern, path)
			}
		}
		for path := range strings.FieldsSeq(tt.no) {
			if g.match(strings.Split(path, "/")) {
				t.Errorf("%s: got a match of %s, want none", tt.pattern, path)
			}
		}
	}
}

// Many stars must not cost a time that doubles with each.
func TestManyStarsAreCheap(t *testing.T) {
	g := newGlob(strings.Repeat("**/a/", 200) + "b")
	if g.match(strings.Split(strings.Repeat("a/", 2000)+"c", "/")) {
		t.Error("got a match, want none")
	}
}

func TestFiltersExcludeFirst(t *testing.T) {
	f := newFilter([]string{"**/*.go", "docs/**"}, []string{"**/testdata/**", "x.go"})
	for path, want := range map[string]bool{
		"a.go": true, "b/c.go": true, "docs/a/b": true, "a.txt": false, "x.go": false, "b/x.go": true,
		"testdata/a.go": false, "b/testdata/a.go": false, "node_modules/a.go": false, ".git/a.go": false,
		"build/a.go": false, "builder/a.go": true, "a.log": false, "docs/a.log": false,
	} {
		if got := f.admits(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
	for path, want := range map[string]bool{
		"node_modules": true, "a/.git": true, "testdata": true, "b/testdata/c": true, "docs": false, "b": false,
	} {
		if got := f.prunes(path); got != want {
			t.Errorf("%s pruned: got %v, want %v", path, got, want)
		}
	}
	if !newFilter(nil, nil).admits("any/thing") {
		t.Error("without patterns: got nothing, want everything")
	}
}
