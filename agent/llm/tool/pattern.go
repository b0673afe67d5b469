package tool

import (
	"regexp"
	"strings"
	"unicode/utf8"
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

// CompilePath returns the expression for a pattern of slash-separated paths: * and ?
// and classes as [a-z] stay within a component, a component ** stands for any number
// of them, {a,b} for either, and a backslash makes the next character an ordinary
// one. The error is a refusal.
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
		case c == '[':
			var class string
			class, n = classAt(rest)
			b.WriteString(class)
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

// classAt returns the regular expression for the class that pattern begins with,
// and its length. A bracket that is not closed stands for itself.
func classAt(pattern string) (string, int) {
	at := 1
	var b strings.Builder
	b.WriteByte('[')
	if strings.HasPrefix(pattern[at:], "!") || strings.HasPrefix(pattern[at:], "^") {
		b.WriteString("^/")
		at++
	}
	for first := at; at < len(pattern); {
		switch c := pattern[at]; {
		case c == ']' && at > first:
			b.WriteByte(']')
			return b.String(), at + 1
		case c == '/':
			return `\[`, 1
		case c == '\\' && at+1 < len(pattern):
			at++
			fallthrough
		case c != '-':
			_, n := utf8.DecodeRuneInString(pattern[at:])
			b.WriteString(regexp.QuoteMeta(pattern[at : at+n]))
			at += n
		default:
			b.WriteByte('-')
			at++
		}
	}
	return `\[`, 1
}
