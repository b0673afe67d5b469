package tool

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// compileNames returns a function that matches slash-separated relative paths with a
// pattern. A pattern without a slash matches the last component at any depth. A
// pattern that begins with ! matches all other paths. The error is a refusal.
func compileNames(pattern string) (match func(path string) bool, err error) {
	rest, inverse := strings.CutPrefix(pattern, "!")
	rest = strings.TrimPrefix(rest, "./")
	switch {
	case rest == "":
		return nil, refusal("The pattern is empty.")
	case !strings.Contains(rest, "/"):
		rest = "**/" + rest
	}
	re, err := CompilePath(strings.TrimPrefix(rest, "/"))
	return func(path string) bool { return re.MatchString(path) != inverse }, err
}

var (
	// A class such as [a-z] or [!a]. A bracket that begins none stands for itself.
	class   = lazyregexp.New(`^\[(?:[!^](?:\]|\\[^/]|[^]\\/])|\]|\\[^/]|[^]\\/!^])(?:\\[^/]|[^]\\/])*\]`)
	escapes = lazyregexp.New(`(?s)\\(.)`)
)

// CompilePath returns the expression for a pattern of slash-separated paths: *, ? and
// classes such as [a-z] stay within a component, a component ** stands for any number
// of components, {a,b} for either, and a backslash escapes the next character. The
// error is a refusal.
func CompilePath(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	open := 0 // braces
	for rest := pattern; rest != ""; {
		done := pattern[:len(pattern)-len(rest)]
		begins := done == "" || strings.ContainsRune("/{,", rune(done[len(done)-1]))
		n := 1
		switch c := rest[0]; {
		case begins && strings.HasPrefix(rest, "**/"):
			b.WriteString(`(?:[^/]+/)*`)
			n = 3
		case begins && rest == "**":
			b.WriteString(`.+`)
			n = 2
		case c == '*':
			n = len(rest) - len(strings.TrimLeft(rest, "*"))
			b.WriteString(`[^/]*`)
		case c == '?':
			b.WriteString(`[^/]`)
		case c == '{':
			open++
			b.WriteString(`(?:`)
		case c == '}' && open > 0:
			open--
			b.WriteString(`)`)
		case c == ',' && open > 0:
			b.WriteString(`|`)
		case class().MatchString(rest):
			n = len(class().FindString(rest))
			set := rest[1 : n-1]
			if b.WriteString("["); set[0] == '!' || set[0] == '^' {
				b.WriteString("^/")
				set = set[1:]
			}
			b.WriteString(regexp.QuoteMeta(escapes().ReplaceAllString(set, "$1")) + "]")
		case c == '\\' && len(rest) > 1:
			rest = rest[1:]
			fallthrough
		default:
			_, n = utf8.DecodeRuneInString(rest)
			b.WriteString(regexp.QuoteMeta(rest[:n]))
		}
		rest = rest[n:]
	}
	if open > 0 {
		return nil, refusal("The pattern " + quote(pattern) + " has a { without a }.")
	}
	re, err := regexp.Compile(b.String() + `\z`)
	if err != nil {
		return nil, refusal("The pattern " + quote(pattern) + " is not valid.")
	}
	return re, nil
}
