package workspace

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	gitignore "github.com/sabhiram/go-gitignore"
)

// go-gitignore is no more here than the compiler from one glob to one regular
// expression. On its own it disagrees with git in about half of random cases: a
// pattern with a slash in the middle is not anchored, "?" is a literal, "[!a]" is
// no negation, characters that mean something in regular expressions keep that
// meaning, a negation is lost between nested files. So parseRule reads the line
// itself (comments, escapes, negation, directories only, anchoring) and hands
// the library one pattern that it cannot misread; order and nesting are decided
// here.

// A rule is one line of an ignore file. Exactly one of base, ext and glob is
// set; the first two are fast and cover most lines.
type rule struct {
	negated bool
	dirOnly bool
	base    string               // the name is this
	ext     string               // the name ends in this
	glob    *gitignore.GitIgnore // the path below the file's directory matches
}

// globMeta is what git takes for the start of a glob.
const globMeta = `*?[\`

// maxRuleBytes bounds a line of an ignore file; a longer one does not count. No
// path that systems allow is longer.
const maxRuleBytes = 4096

// parseRule reads one line. It reports false for a line that can match nothing.
func parseRule(line string) (r rule, ok bool) {
	line = strings.TrimSuffix(line, "\r")
	if line == "" || line[0] == '#' || len(line) > maxRuleBytes {
		return r, false
	}
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	line, r.negated = strings.CutPrefix(line, "!")
	line, r.dirOnly = strings.CutSuffix(line, "/")
	if line == "" {
		return r, false
	}
	anchored := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if !anchored && !strings.ContainsAny(line, globMeta) {
		r.base = line
		return r, true
	}
	if ext, found := strings.CutPrefix(line, "*."); !anchored && found && !strings.ContainsAny(ext, globMeta) {
		r.ext = "." + ext
		return r, true
	}
	pattern, ok := translate(line, anchored)
	if !ok {
		return r, false
	}
	r.glob = gitignore.CompileIgnoreLines(pattern)
	return r, true
}

// matches reports whether the rule is about the path whose last name is base
// and which is below in the directory of the rule's file.
func (r *rule) matches(base, below string, isDir bool) bool {
	switch {
	case r.dirOnly && !isDir:
		return false
	case r.base != "":
		return base == r.base
	case r.ext != "":
		return strings.HasSuffix(base, r.ext)
	}
	return r.glob.MatchesPath(oneByteRunes(below))
}

// oneByteRunes returns s with a character for each byte, because git's globs
// know bytes only.
func oneByteRunes(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			runes := make([]rune, len(s))
			for i := range len(s) {
				runes[i] = rune(s[i])
			}
			return string(runes)
		}
	}
	return s
}

// translate rewrites a git pattern into one that the library cannot misread. It
// reports false if the pattern can match nothing.
func translate(line string, anchored bool) (string, bool) {
	for anchored && strings.HasPrefix(line, "**/") { // any depth: no anchor
		line = line[len("**/"):]
		anchored = strings.HasPrefix(line, "**/")
	}
	line, below := strings.CutSuffix(line, "/**")
	// Git compares the literal start of a pattern before it looks at the globs,
	// and then sees "**/" at the beginning of what is left: "a**/b" matches
	// "ab" and "axx/y/b", where "?**/b" would need exactly one level.
	literals := -1
	if anchored {
		literals = strings.IndexAny(line, globMeta)
	}
	var b strings.Builder
	if anchored {
		b.WriteByte('/')
	}
	for i := 0; i < len(line); {
		n, ok := translateOne(&b, line, i, literals)
		if !ok {
			return "", false
		}
		i += n
	}
	if below {
		b.WriteString("/**/*")
	}
	// The library appends (|/.*)$ to every pattern. An early $ turns that off,
	// so that a rule matches its own path only and descending is up to the
	// walk. It works because the library leaves $ as it is.
	b.WriteByte('$')
	return b.String(), true
}

// translateOne rewrites what begins at i and returns its length.
func translateOne(b *strings.Builder, line string, i, literals int) (int, bool) {
	switch c := line[i]; c {
	case '*':
		n := 1
		if i > 0 && (i == literals || line[i-1] == '/') && strings.HasPrefix(line[i:], "**/") {
			b.WriteString("**/")
			for n = 3; strings.HasPrefix(line[i+n:], "**/"); {
				n += 3
			}
			return n, true
		}
		for i+n < len(line) && line[i+n] == '*' { // "a**b" is "a*b"
			n++
		}
		b.WriteByte('*')
		return n, true
	case '?':
		b.WriteString("[^/]")
		return 1, true
	case '[':
		set, n, ok := translateClass(line[i:])
		b.WriteString(set)
		return n, ok
	case '\\':
		if i+1 == len(line) {
			return 0, false
		}
		writeLiteral(b, line[i+1])
		return 2, true
	default:
		writeLiteral(b, c)
		return 1, true
	}
}

// writeLiteral writes c so that neither the library nor the regular expression
// gives it a meaning.
func writeLiteral(b *strings.Builder, c byte) {
	if c == '/' || c == '_' || c == '-' || isAlnum(c) {
		b.WriteByte(c)
		return
	}
	fmt.Fprintf(b, `\x%02x`, c)
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// A level is one directory's rules, linked to those above it.
type level struct {
	parent *level
	dir    string // slash-separated, from the top of the tree; "" is the top
	rules  []rule
}

// under returns the level below l for dir with the rules of text, or l itself
// if there are none. Lines that are not read by the end of ctx do not count.
func (l *level) under(ctx context.Context, dir, text string) *level {
	var rules []rule
	for line := range strings.SplitSeq(text, "\n") {
		if ctx.Err() != nil {
			break
		}
		if r, ok := parseRule(line); ok {
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return l
	}
	return &level{parent: l, dir: dir, rules: rules}
}

// ignored reports whether path is excluded. The last matching line of the
// nearest file decides.
func (l *level) ignored(path string, isDir bool) bool {
	base := path[strings.LastIndexByte(path, '/')+1:]
	for ; l != nil; l = l.parent {
		below := path
		if l.dir != "" {
			below = path[len(l.dir)+1:]
		}
		for i := len(l.rules) - 1; i >= 0; i-- {
			if r := &l.rules[i]; r.matches(base, below, isDir) {
				return !r.negated
			}
		}
	}
	return false
}
