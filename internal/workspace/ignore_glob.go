package workspace

import (
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	gitignore "github.com/sabhiram/go-gitignore"
)

// A glob is a pattern with the meaning that git gives it. The literal parts of
// the pattern exclude most texts without the regular expression. A regular
// expression takes hundreds of times the memory of its pattern, so it is
// compiled only for the first text that may match.
type glob struct {
	fixed string // the beginning of the text
	inner string // a part of the text
	least int    // the least length of the text in bytes

	pattern                  string
	anchored, anywhere, fold bool
	compiled                 atomic.Pointer[gitignore.GitIgnore] // nil before the first use
}

// maxPathBytes is more than the longest path that a system can open. A glob
// that needs a longer text can match nothing.
const maxPathBytes = 4096

// newline replaces the line feed in patterns and texts, because the dot of the
// library does not match a line feed.
const newline = '\u0100'

// newGlob reads a pattern. If anywhere is set, the match may begin at any
// depth; otherwise it begins at the start of the text. newGlob returns nil if
// the pattern can match nothing.
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
	// Git compares the literal start of a pattern first. It then handles a "**"
	// right after that start like one at the beginning of a pattern: "d/a**/b"
	// matches "d/ab" and "d/axx/y/b", but "d/?**/b" needs exactly one level.
	if anchored && !anywhere {
		t.start = strings.IndexAny(pattern, globMeta)
	}
	for t.at < len(pattern) {
		if !t.next(anchored) || t.least > maxPathBytes {
			return nil, false
		}
	}
	t.endLiteral()
	// The library appends (|/.*)$ to every pattern. The $ written here disables
	// that, so a rule matches only its own path, and the walk decides whether to
	// descend. This relies on the library leaving $ unchanged.
	t.out.WriteByte('$')
	return t, true
}

// matches reports whether the whole of s matches. If the pattern ignores case,
// the caller passes s in lower case. When the budget is used up, a glob matches
// nothing.
func (g *glob) matches(b *budget, s string) bool {
	if len(s) < g.least || !strings.HasPrefix(s, g.fixed) || !strings.Contains(s, g.inner) || b.ctx.Err() != nil {
		return false
	}
	compiled := g.compiled.Load() // the rest may take long
	if compiled == nil {
		compiled = b.compile(g)
		g.compiled.Store(compiled)
	}
	return compiled.MatchesPath(oneByteRunes(s))
}

// oneByteRunes returns s with one character for each byte, because git's globs
// work on bytes.
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

// anyDepth returns the length of the "**/" that s begins with, or 0. More than
// two stars count as two.
func anyDepth(s string) int {
	if n := stars(s); n > 1 && strings.HasPrefix(s[n:], "/") {
		return n + 1
	}
	return 0
}

// anything reports whether s begins with stars that also match slashes.
func anything(s string) bool {
	n := stars(s)
	return n > 1 && (len(s) == n || strings.HasPrefix(s[n:], `\/`))
}

// stars returns how many stars s begins with.
func stars(s string) int { return len(s) - len(strings.TrimLeft(s, "*")) }

// A translation rewrites a git pattern into one that the library cannot
// misread.
type translation struct {
	pattern string
	at      int // offset of the next byte to read
	start   int // offset of the first glob, as git sees it
	fold    bool
	out     strings.Builder
	slash   bool   // a slash cannot come next, because no path has it there
	literal []byte // bytes since the last glob
	fixed   string // the literal at the beginning
	inner   string // the longest literal
	least   int
	begun   bool // fixed is set
}

// next rewrites the next element. It reports false if the pattern can match
// nothing.
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
		return t.add(c) && (!t.fold || c == lower(c)) // git lowers the letters of the text, but not an escaped letter
	}
	if t.fold {
		c = lower(c)
	}
	return t.add(c)
}

// star rewrites a run of stars after its first one was read.
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
		if !anything(t.pattern[t.at:]) { // otherwise the stars that follow match the same
			t.slash = afterSlash
			t.out.WriteString("**/")
		}
	case special && anything("**"+rest):
		t.out.WriteString("**/*")
	default:
		t.out.WriteByte('*')
	}
}

// add adds a literal byte, escaped for the library and for the regular
// expression. It reports false if no path can have the byte there.
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

// endLiteral stores the literal that ends here.
func (t *translation) endLiteral() {
	if len(t.literal) > len(t.inner) {
		t.inner = string(t.literal)
	}
	if !t.begun {
		t.begun, t.fixed = true, string(t.literal)
	}
	t.literal = t.literal[:0]
}

// namedClasses has the character classes that git knows. A value is a list of
// ranges, two bytes each.
var namedClasses = map[string]string{
	"alnum": "09AZaz", "alpha": "AZaz", "blank": "  \t\t", "cntrl": "\x01\x1f\x7f\x7f", "digit": "09", "graph": "!~", "lower": "az",
	"print": " ~", "punct": "!/:@[`{~", "space": "  \t\n\r\r", "upper": "AZ", "xdigit": "09AFaf",
}

// A class is the state of the parser of a bracket expression.
type class struct {
	rest string // not yet read
	fold bool
	set  [256]bool
}

// class rewrites a bracket expression after its "[" was read. It reports false
// if the pattern can match nothing: the bracket is not closed, the named class
// does not exist, or the set is empty.
func (t *translation) class() bool {
	c := class{rest: t.pattern[t.at:], fold: t.fold}
	negated := strings.HasPrefix(c.rest, "!") || strings.HasPrefix(c.rest, "^")
	if negated {
		c.rest = c.rest[1:]
	}
	for first := true; first || !strings.HasPrefix(c.rest, "]"); first = false {
		if !c.member() {
			return false
		}
	}
	t.at = len(t.pattern) - len(c.rest) + 1
	return t.writeSet(&c.set, negated)
}

// writeSet writes the bytes of set, or the other bytes if negated is set. No
// set matches a slash. writeSet reports false if it wrote no bytes.
func (t *translation) writeSet(set *[256]bool, negated bool) bool {
	set['/'] = negated
	t.out.WriteByte('[')
	empty := true
	for low := 1; low < len(set); low++ {
		if set[low] == negated {
			continue
		}
		high := low
		for high+1 < len(set) && set[high+1] != negated {
			high++
		}
		fmt.Fprintf(&t.out, `\x{%x}-\x{%x}`, low, high)
		if low <= '\n' && '\n' <= high {
			fmt.Fprintf(&t.out, `\x{%x}`, newline)
		}
		low, empty = high, false
	}
	t.out.WriteByte(']')
	return !empty
}

// member reads one character, range or named class.
func (c *class) member() bool {
	if named, ok := strings.CutPrefix(c.rest, "[:"); ok {
		if name, after, ok := strings.Cut(named, "]"); ok && strings.HasSuffix(name, ":") {
			c.rest = after
			return c.named(strings.TrimSuffix(name, ":"))
		}
	}
	low, ok := c.char()
	if !ok {
		return false
	}
	c.set[low] = true // a range counts its first character even if it runs backwards
	if strings.HasPrefix(c.rest, "-") && len(c.rest) > 1 && c.rest[1] != ']' {
		c.rest = c.rest[1:]
		high, ok := c.char()
		c.add(low, high, c.fold)
		return ok
	}
	return true
}

// named adds a named class.
func (c *class) named(name string) bool {
	ranges, known := namedClasses[name]
	for i := 0; i < len(ranges); i += 2 {
		c.add(ranges[i], ranges[i+1], c.fold && name == "upper")
	}
	return known
}

// char reads one character. A backslash may precede it.
func (c *class) char() (byte, bool) {
	c.rest = strings.TrimPrefix(c.rest, `\`)
	if c.rest == "" {
		return 0, false
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b, true
}

// add adds the characters from low to high. If fold is set, it also adds the
// lower case of the capitals among them. A single capital then matches no text,
// as in git.
func (c *class) add(low, high byte, fold bool) {
	for b := int(low); b <= int(high); b++ {
		c.set[b] = true
		if fold {
			c.set[lower(byte(b))] = true
		}
	}
}
