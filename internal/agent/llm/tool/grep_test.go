package tool

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
)

func TestTextIsFound(t *testing.T) {
	b := on(t, map[string]string{
		"a.go": "package a\n\nfunc A() {}\n// func\n", "x/b.go": "func B() {}\r\nend\r\n", "x/c.txt": "FUNC\n", "binary": "func\x00",
		".gitignore": "ignored\n", "ignored/d.go": "func D()\n", "latin": "\xe4 func\n",
	})
	must(t, os.Symlink("a.go", b.Workspace.At("link.go")))
	for _, tt := range []struct {
		args args
		want string
	}{
		{args{"pattern": "func"}, "a.go\nlatin\nx/b.go\n"},
		{args{"pattern": `func \w+\(`, "output_mode": "content"}, "a.go:3:func A() {}\nx/b.go:1:func B() {}\n"},
		{args{"pattern": "func", "output_mode": "count"}, "a.go: 2\nlatin: 1\nx/b.go: 1\n"},
		{args{"pattern": "func", "output_mode": "content", "path": "latin"}, "latin:1:\uFFFD func\n"},
		{args{"pattern": "FUNC", "ignore_case": true, "path": "x"}, "x/b.go\nx/c.txt\n"},
		{args{"pattern": "func", "glob": "*.go", "path": "x"}, "x/b.go\n"},
		{args{"pattern": "func", "glob": "!*.go"}, "latin\n"},
		{args{"pattern": "func", "glob": "x/**"}, "x/b.go\n"},
		{args{"pattern": "^end$", "output_mode": "content"}, "x/b.go:2:end\n"},
		{args{"pattern": "}$", "output_mode": "content", "path": "x/b.go"}, "x/b.go:1:func B() {}\n"},
		{args{"pattern": "func", "path": "ignored/d.go"}, "ignored/d.go\n"},
		{args{"pattern": "func", "path": "link.go"}, "a.go\n"},
		{args{"pattern": "func", "path": "ignored"}, "No matches.\n[There are no files there but those that git ignores. Bash can look at them.]\n"},
		{args{"pattern": "nothing"}, "No matches.\n"},
		{args{"pattern": "a\nb"}, "No matches.\n"},
		{args{"pattern": "func", "limit": 2}, "a.go\nlatin\n[There are more matches. Look for something narrower, or set limit.]\n"},
		{args{"pattern": "func", "limit": 1, "output_mode": "content", "path": "a.go"}, "a.go:3:func A() {}\n[There are more matches. Look for something narrower, or set limit.]\n"},
		{args{"pattern": "A", "output_mode": "content", "context": 1, "path": "a.go"}, "a.go-2-\na.go:3:func A() {}\na.go-4-// func\n"},
	} {
		if got := b.does("grep", tt.args); got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.args, got, tt.want)
		}
	}
	b.refuses("grep", args{"pattern": "a(?=b)"}, "RE2 syntax", "lookahead")
	b.refuses("grep", args{"pattern": "(" + strings.Repeat("x", 500)}, "missing closing )")
	b.refuses("grep", args{"pattern": "a", "path": "none"}, "There is no file none.")
	b.refuses("grep", args{"pattern": "a", "glob": "{a"}, "{ without a }")
	b.refuses("grep", args{"pattern": "", "path": "x"}, "empty")
}

func TestLongLinesAndLargeFilesAreCut(t *testing.T) {
	b := on(t, map[string]string{
		"wide": strings.Repeat("ä", 5000) + "needle" + strings.Repeat("ö", 5000) + "\n", "large": "needle",
		"many": strings.Repeat("needle "+strings.Repeat("x", 400)+"\n", 1000),
	})
	got := b.does("grep", args{"pattern": "needle", "path": "wide", "output_mode": "content"})
	if len(got) > maxMatchLine+100 || !strings.HasPrefix(got, "wide:1:[") || !strings.Contains(got, "äneedleö") || strings.Contains(got, "\uFFFD") {
		t.Errorf("got %q, want the part with the match", got)
	}
	got = b.does("grep", args{"pattern": "needle", "path": "many", "output_mode": "content", "limit": 1000})
	if len(got) > maxMatchText+100 || !strings.HasSuffix(got, "x\n[There are more matches. Look for something narrower, or set limit.]\n") {
		t.Errorf("got %d bytes, …%q; want at most %d", len(got), got[len(got)-100:], maxMatchText)
	}
	must(t, os.Truncate(b.Workspace.At("large"), maxFileBytes+1))
	if got, want := b.does("grep", args{"pattern": "needle"}), "many\nwide\n[1 file of more than 32 MiB not looked at]\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Random searches find what looking at every line finds, always the same.
func TestRandomSearchesFindWhatIsThere(t *testing.T) {
	const seed = 5
	for n := range 15 {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		files := map[string]string{}
		for i := range 40 {
			files[fmt.Sprintf("%c/%02d", 'a'+i%5, i)] = randomLines(r)
		}
		b := on(t, files)
		for range 30 {
			a := args{
				"pattern": randomExpression(r), "context": r.IntN(4), "limit": 1 + r.IntN(60), "ignore_case": r.IntN(3) == 0,
				"output_mode": []string{modeFiles, modeContent, modeCount}[r.IntN(3)],
			}
			if got, want := b.does("grep", a), plainly(t, files, a); got != want {
				t.Fatalf("seed %d, round %d: %v: got\n%s\nwant\n%s", seed, n, a, got, want)
			}
		}
	}
}

func randomLines(r *rand.Rand) string {
	var b strings.Builder
	end := []string{"\n", "\n", "\r\n"}[r.IntN(3)]
	for range r.IntN(30) {
		for range r.IntN(4) {
			b.WriteString([]string{"foo", "bar", "Foo", "b", "ä", " ", "\xff", ".", "\u212a", "\u017f"}[r.IntN(10)])
		}
		b.WriteString(end)
	}
	if r.IntN(2) == 0 {
		return b.String() + "foo"
	}
	return b.String()
}

func randomExpression(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(3) {
		b.WriteString([]string{"foo", "ba", "(?:foo)?", "(b|f)", "^", "$", `\b`, "[a-f]+", "(?i:FOO)", "x*", "(foo)+", "(?:ba){1,2}", ".", "ä", `\s`, "\uFFFD", "(foo|foobar)", "kB", "sf"}[r.IntN(19)])
	}
	return b.String()
}

// plainly is a search that looks at every line of every file.
func plainly(t *testing.T, files map[string]string, a args) string {
	expr := a["pattern"].(string)
	if a["ignore_case"].(bool) {
		expr = "(?i)" + expr
	}
	re := regexp.MustCompile(expr)
	around, limit, mode := a["context"].(int), a["limit"].(int), a["output_mode"].(string)
	var b strings.Builder
	told, more := 0, false
	for _, name := range slices.Sorted(maps.Keys(files)) {
		lines := slices.Collect(strings.Lines(files[name]))
		var matches []int
		for i, l := range lines {
			lines[i] = strings.TrimSuffix(strings.TrimSuffix(l, "\n"), "\r")
			if re.MatchString(lines[i]) {
				matches = append(matches, i)
			}
		}
		switch {
		case len(matches) == 0:
			continue
		case told == limit:
			more = true
			continue
		case mode == modeFiles:
			told++
			b.WriteString(name + "\n")
			continue
		case mode == modeCount:
			told++
			fmt.Fprintf(&b, "%s: %d\n", name, len(matches))
			continue
		}
		if around > 0 && told > 0 {
			b.WriteString("--\n")
		}
		beyond := len(lines)
		if room := limit - told; len(matches) > room {
			beyond, matches, more = matches[room], matches[:room], true
		}
		told += len(matches)
		last := -1
		for i := range beyond {
			near := slices.ContainsFunc(matches, func(m int) bool { return m-around <= i && i <= m+around })
			if !near {
				continue
			}
			if around > 0 && last >= 0 && last < i-1 {
				b.WriteString("--\n")
			}
			last = i
			sign := "-"
			if slices.Contains(matches, i) {
				sign = ":"
			}
			fmt.Fprintf(&b, "%s%s%d%s%s\n", name, sign, i+1, sign, valid(lines[i]))
		}
	}
	if told == 0 {
		return "No matches.\n"
	}
	if more {
		b.WriteString("[There are more matches. Look for something narrower, or set limit.]\n")
	}
	return b.String()
}

// What is said to be in every match is.
func TestRequiredTextIsInEveryMatch(t *testing.T) {
	for expr, want := range map[string]literal{
		"foo": {"foo", false}, `\bfoo\b`: {"foo", false}, "a.*needle": {"needle", false}, "(foo)+": {"foo", false}, "foo?": {"fo", false},
		"(foo|bar)": {}, "x{2,}yy": {"yy", false}, "foo|foobar": {"foo", false}, "": {}, ".": {}, "\uFFFDa": {}, "(?:ba){2}": {"ba", false},
		"[a]bc": {"abc", false}, "(?i)fOO1": {"foo1", true}, "(?i:ab)c": {"ab", true}, "(?i)unaskedfor": {"edfor", true}, "(?i)ks": {"", true},
		"(?i)Äpfel": {"pfel", true}, "(?i)abcÄd": {"abc", true},
	} {
		re, err := syntax.Parse(expr, syntax.Perl)
		must(t, err)
		if got := required(re.Simplify()); got != want {
			t.Errorf("%s: got %+v, want %+v", expr, got, want)
		}
	}
}

func TestEndedSearchStops(t *testing.T) {
	b := on(t, map[string]string{"a": strings.Repeat("a\n", 1_000_000)})
	ctx, cancel := context.WithCancel(t.Context())
	s, err := newSearch(b.Workspace, &grepArgs{Pattern: "[^a]", Mode: modeFiles, Limit: 1})
	must(t, err)
	data := []byte(strings.Repeat("a\n", 10*linesPerLook) + "b")
	cancel()
	if _, n := s.matches(ctx, data); n != 0 {
		t.Error("got a match beyond where the search was to end, want none")
	}
	if all := s.files(ctx, []string{"a"}); all[0] != nil {
		t.Errorf("got %+v, want nothing", all[0])
	}
	if _, n := s.matches(t.Context(), data); n != 1 {
		t.Error("got no match, want one: the search was not stopped")
	}
}

func TestSearchedPathsAreToldFromTheWorkspace(t *testing.T) {
	b := on(t, map[string]string{"x/y/z": "a"})
	for _, dir := range []string{"x", "x/y", "x/y/z", ".", "x/../x"} {
		if got := b.does("grep", args{"pattern": "a", "path": dir}); got != "x/y/z\n" {
			t.Errorf("%s: got %q, want the path from the root", path.Clean(dir), got)
		}
	}
}
