package tool

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPatternsMeanPaths(t *testing.T) {
	for _, tt := range []struct {
		pattern   string
		yes, nope []string
	}{
		{"*.go", []string{"a.go", "x/y/a.go", ".go"}, []string{"a.gox", "a.go/b", "ago"}},
		{"/*.go", []string{"a.go"}, []string{"x/a.go"}},
		{"./a", []string{"a", "x/a"}, []string{"b"}},
		{"src/*.go", []string{"src/a.go"}, []string{"a.go", "src/x/a.go", "x/src/a.go"}},
		{"src/**/*.go", []string{"src/a.go", "src/x/a.go", "src/x/y/a.go"}, []string{"src.go", "srca.go", "x/src/a.go"}},
		{"**/a", []string{"a", "x/a", "x/y/a"}, []string{"xa", "a/x"}},
		{"src/**", []string{"src/a", "src/x/a"}, []string{"src", "srcx/a"}},
		{"**", []string{"a", "x/a"}, nil},
		{"a**b/c", []string{"ab/c", "axxb/c"}, []string{"a/b/c"}},
		{"?.{ts,tsx}", []string{"a.ts", "x/b.tsx"}, []string{"aa.ts", "a.t", "a.tsxx"}},
		{"{src,test}/*.{a,b}", []string{"src/x.a", "test/x.b"}, []string{"x.a", "src/x.c"}},
		{"{a,b/{c,d}}", []string{"a", "b/c", "b/d"}, []string{"b", "c"}},
		{"x/{**/a,b}", []string{"x/a", "x/y/a", "x/b"}, []string{"x/y/b"}},
		{"[a-c].x", []string{"a.x", "c.x"}, []string{"d.x", "-.x"}},
		{"[!a-c]x", []string{"dx"}, []string{"ax", "x/x"}},
		{"[]a]x", []string{"]x", "ax"}, []string{"bx"}},
		{"[a", []string{"[a"}, []string{"a"}},
		{`\*\{.[]`, []string{"*{.[]"}, []string{"a{.[]"}},
		{"a.b+(c)|$^", []string{"a.b+(c)|$^"}, []string{"axb"}},
		{"ä?", []string{"äö", "x/äx"}, []string{"ä"}},
		{"a,b}", []string{"a,b}"}, nil},
		{"!*.go", []string{"a.c", "x/b.c"}, []string{"a.go", "x/a.go"}},
	} {
		p, err := compileNames(tt.pattern)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		for _, name := range tt.yes {
			if !p(name) {
				t.Errorf("got that %s does not mean %s, want that it does", tt.pattern, name)
			}
		}
		for _, name := range tt.nope {
			if p(name) {
				t.Errorf("got that %s means %s, want that it does not", tt.pattern, name)
			}
		}
	}
	for _, pattern := range []string{"", "{a", "a/{b,{c}", "[z-a]", "./"} {
		if _, err := compileNames(pattern); err == nil {
			t.Errorf("%s: got no refusal, want one", pattern)
		}
	}
}

// Without ** and braces patterns mean what they mean to [path.Match].
func TestRandomPatternsMeanWhatTheyMeanToPathMatch(t *testing.T) {
	const seed = 11
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(pieces ...string) string {
		var b strings.Builder
		for range 1 + r.IntN(5) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	matched := 0
	for range 10_000 {
		pattern := "x/" + pick("a", "b", "*", "?", "/", "[ab]", "[^a]", "[b-d]", `\*`, ".", "ä", "-")
		name := "x/" + pick("a", "b", "c", "/", ".", "ä", "*", "-")
		if strings.Contains(pattern, "**") || strings.Contains(pattern, "//") || strings.HasSuffix(pattern, "/") {
			continue
		}
		want, err := path.Match(pattern, name)
		must(t, err)
		want = want && strings.Count(pattern, "/") == strings.Count(name, "/") // there a class may be a slash
		p, err := compileNames(pattern)
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		if got := p(name); got != want {
			t.Fatalf("seed %d: got %v for %s and %s, want %v", seed, got, pattern, name, want)
		}
		if want {
			matched++
		}
	}
	if matched < 100 {
		t.Errorf("got %d matches, want many", matched)
	}
}

func TestFilesAreFoundNewestFirst(t *testing.T) {
	b := on(t, map[string]string{"a.go": "", "x/b.go": "", "x/y/c.go": "", "x/d.txt": "", ".hidden.go": "", ".gitignore": "ignored\n", "ignored/e.go": "", ".git/f.go": ""})
	now := time.Now()
	for i, name := range []string{"x/b.go", "a.go", "x/y/c.go", ".hidden.go"} {
		at := now.Add(-time.Duration(i) * time.Hour)
		must(t, os.Chtimes(b.Workspace.At(name), at, at))
	}
	for _, tt := range []struct {
		args args
		want string
	}{
		{args{"pattern": "*.go"}, "x/b.go\na.go\nx/y/c.go\n.hidden.go\n"},
		{args{"pattern": "**/*.go", "path": "x"}, "x/b.go\nx/y/c.go\n"},
		{args{"pattern": "*.go", "path": b.Workspace.At("x")}, "x/b.go\nx/y/c.go\n"},
		{args{"pattern": b.Workspace.At("x") + "/*.go"}, "x/b.go\n"},
		{args{"pattern": "*.go", "path": ""}, "x/b.go\na.go\nx/y/c.go\n.hidden.go\n"},
		{args{"pattern": "*.c"}, "No files found.\n"},
		{args{"pattern": "*", "path": "ignored"}, "No files found.\n[There are no files there but those that git ignores. Bash can look at them.]\n"},
	} {
		if got := b.does("glob", tt.args); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.args, got, tt.want)
		}
	}
	b.refuses("glob", args{"pattern": "*", "path": "a.go"}, "a.go is not a directory.")
	b.refuses("glob", args{"pattern": "*", "path": "none"}, "There is no file none.")
	b.refuses("glob", args{"pattern": "{a"}, "{ without a }")
}

func TestFoundFilesAreBounded(t *testing.T) {
	files := map[string]string{}
	for i := range maxFound + 30 {
		files[fmt.Sprintf("f%03d", i)] = ""
	}
	b := on(t, files)
	got := slices.Collect(strings.Lines(b.does("glob", args{"pattern": "f*"})))
	if len(got) != maxFound+1 || got[maxFound] != "[30 older files left out]\n" {
		t.Errorf("got %d lines, last %q; want %d files and what is left out", len(got), got[len(got)-1], maxFound)
	}
}
