package workspace

import (
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	gitignore "github.com/sabhiram/go-gitignore"
)

// A glob is a pattern as git understands it. What its letters stand for can be
// told of most texts without the regular expression, which takes hundreds of
// times the pattern's memory, so that is made for the first text that may match.
type glob struct {
	fixed string // how the text begins
	inner string // what is in it
	least int    // how many bytes it has at least

	pattern                  string
	anchored, anywhere, fold bool
	compiled                 atomic.Pointer[gitignore.GitIgnore] // nil until it was needed
}

// maxPathBytes is more than the length of any path that systems can open. A glob
// that only a longer one could match is none.
const maxPathBytes = 4096

// newline stands for the line feed in patterns and in texts: the library's dot
// does not match that.
const newline = '\u0100'

// newGlob reads a pattern; anywhere says that it may begin at any depth, and
// else it begins where the text does. It returns nil if the pattern can match
// nothing.
func newGlob(pattern string, anchored, anywhere, fold bool) *glob {
	t, ok := translate(pattern, anchored, anywhere, fold)
	if !ok {
		return nil
	}
	g := &glob{inner: t.inner, least: t.least, pattern: pattern, anchored: anchored, anywhere: anywhere, fold: fold}
	if !anywhere {
		g.fixed = t.fixed
	}
	return g
}

// translate rewrites a pattern for the library. It reports false if the pattern
// can match nothing.
func translate(pattern string, anchored, anywhere, fold bool) (*translation, bool) {
	t := &translation{pattern: pattern, fold: fold, slash: true}
	if !anywhere {
		t.out.WriteByte('/')
	}
	// Git compares the literal start of a path before it looks at the globs, and
	// then sees a "**" there as one at the beginning: "d/a**/b" matches "d/ab" and
	// "d/axx/y/b", where "d/?**/b" would need exactly one level.
	if anchored && !anywhere {
		t.start = strings.IndexAny(pattern, globMeta)
	}
	for t.at < len(pattern) {
		if !t.next(anchored) || t.least > maxPathBytes {
			return nil, false
		}
	}
	t.endLiteral()
	// The library appends (|/.*)$ to every pattern. An early $ turns that off,
	// so that a rule matches its own path only and descending is up to the
	// walk. It works because the library leaves $ as it is.
	t.out.WriteByte('$')
	return t, true
}

// matches reports whether all of s matches. The letters of s are small if those
// of the pattern stand for both. Beyond the budget a glob matches nothing.
func (g *glob) matches(b *budget, s string) bool {
	if len(s) < g.least || !strings.HasPrefix(s, g.fixed) || !strings.Contains(s, g.inner) || b.ended() {
		return false
	}
	compiled := g.compiled.Load() // what follows may take long
	if compiled == nil {
		compiled = b.compile(g)
		g.compiled.Store(compiled)
	}
	return compiled.MatchesPath(oneByteRunes(s))
}

// oneByteRunes returns s with a character for each byte, because git's globs
// know bytes only.
func oneByteRunes(s string) string {
	for i := range len(s) {
		if s[i] < utf8.RuneSelf && s[i] != '\n' {
			continue
		}
		runes := make([]rune, len(s))
		for i := range len(s) {
			if runes[i] = rune(s[i]); s[i] == '\n' {
				runes[i] = newline
			}
		}
		return string(runes)
	}
	return s
}

// anyDepth returns the length of the "**/" that s begins with, or 0. More stars
// are the same as two.
func anyDepth(s string) int {
	if n := stars(s); n > 1 && strings.HasPrefix(s[n:], "/") {
		return n + 1
	}
	return 0
}

// anything reports whether s begins with stars that also stand for slashes.
func anything(s string) bool {
	n := stars(s)
	return n > 1 && (len(s) == n || strings.HasPrefix(s[n:], `\/`))
}

// stars returns how many stars s begins with.
func stars(s string) int { return len(s) - len(strings.TrimLeft(s, "*")) }

// A translation rewrites a pattern of git's into one that the library cannot
// misread.
type translation struct {
	pattern string
	at      int // how far it is read
	start   int // where git begins to look at globs
	fold    bool
	out     strings.Builder
	slash   bool   // what comes next is a name: no path goes on with a slash
	literal []byte // since the last glob
	fixed   string // the literal at the beginning
	inner   string // the longest literal
	least   int
	begun   bool // fixed is set
}

// next rewrites what comes next. It reports false if nothing can match that.
func (t *translation) next(anchored bool) bool {
	c := t.pattern[t.at]
	t.at++
	switch c {
	case '*':
		t.endLiteral()
		t.star(anchored)
		return true
	case '?':
		t.endLiteral()
		t.least++
		t.slash = false
		t.out.WriteString("[^/]")
		return true
	case '[':
		t.endLiteral()
		t.least++
		t.slash = false
		return t.class()
	case '\\':
		if t.at == len(t.pattern) {
			return false
		}
		c = t.pattern[t.at]
		t.at++
		return t.add(c) && (!t.fold || c == lower(c)) // git makes the letters of texts small, and not this one
	}
	if t.fold {
		c = lower(c)
	}
	return t.add(c)
}

// star rewrites the stars of which one is read.
func (t *translation) star(anchored bool) {
	from := t.at - 1
	t.at = from + stars(t.pattern[from:])
	t.slash = false
	rest := t.pattern[t.at:]
	afterSlash := from == 0 || t.pattern[from-1] == '/'
	special := anchored && t.at-from > 1 && (from == t.start || afterSlash)
	switch {
	case special && strings.HasPrefix(rest, "/"):
		t.at++
		for n := anyDepth(t.pattern[t.at:]); n > 0; n = anyDepth(t.pattern[t.at:]) {
			t.at += n
		}
		if !anything(t.pattern[t.at:]) { // else those stars say it all
			t.slash = afterSlash
			t.out.WriteString("**/")
		}
	case special && anything("**"+rest):
		t.out.WriteString("**/*")
	default:
		t.out.WriteByte('*')
	}
}

// add adds a literal, so that neither the library nor the regular expression
// gives it a meaning. It reports false if no path has it there.
func (t *translation) add(c byte) bool {
	if c == '/' && t.slash {
		return false
	}
	t.slash = c == '/'
	t.least++
	t.literal = append(t.literal, c)
	if c == '/' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' {
		t.out.WriteByte(c)
		return true
	}
	fmt.Fprintf(&t.out, `\x%02x`, c)
	return true
}

// endLiteral notes the literal that ends here.
func (t *translation) endLiteral() {
	if len(t.literal) > len(t.inner) {
		t.inner = string(t.literal)
	}
	if !t.begun {
		t.begun, t.fixed = true, string(t.literal)
	}
	t.literal = t.literal[:0]
}
