package workspace

import (
	"context"
	"strings"
)

// go-gitignore is no more here than the compiler from one glob to one regular
// expression. On its own it disagrees with git in about half of random cases: a
// pattern with a slash in the middle is not anchored, "?" is a literal, "[!a]" is
// no negation, characters that mean something in regular expressions keep that
// meaning, a negation is lost between nested files. So parseRule reads the line
// itself (comments, escapes, negation, directories only, anchoring) and hands
// the library one pattern that it cannot misread; order and nesting are decided
// here.

// A rule is one line of an ignore file.
type rule struct {
	negated  bool
	dirOnly  bool
	anchored bool // it is about the path below the file's directory, not the name alone
	suffix   bool // text is how it ends, not all of it
	text     string
	glob     *glob // instead of text
}

// globMeta is what git takes for the start of a glob.
const globMeta = `*?[\`

// parseRule reads one line, whose letters stand for both cases if fold is set.
// It reports false for a line that can match nothing.
func parseRule(line string, fold bool) (r rule, ok bool) {
	if strings.HasPrefix(line, "#") {
		return r, false
	}
	line = strings.TrimSuffix(line, "\r")
	line, _, _ = strings.Cut(line, "\x00") // git's lines are C strings
	line = trimSpaces(line)
	line, r.negated = strings.CutPrefix(line, "!")
	line, r.dirOnly = strings.CutSuffix(line, "/")
	r.anchored = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	anywhere := false
	for n := anyDepth(line); r.anchored && n > 0; n = anyDepth(line) {
		line, anywhere = line[n:], true
	}
	if anywhere && !strings.Contains(line, "/") {
		r.anchored, anywhere = false, false
	}
	if line == "" {
		return r, false
	}
	tail, starred := strings.CutPrefix(line, "*")
	switch {
	case !anywhere && !strings.ContainsAny(line, globMeta):
		r.text = folded(line, fold)
	case !r.anchored && starred && !strings.ContainsAny(tail, globMeta):
		r.suffix, r.text = true, folded(tail, fold)
	default:
		r.glob = newGlob(line, r.anchored, anywhere, fold)
		return r, r.glob != nil
	}
	return r, true
}

// trimSpaces cuts the spaces at the end that no backslash precedes.
func trimSpaces(s string) string {
	end := len(s)
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != ' ':
			end = len(s)
			if s[i] == '\\' {
				i++
			}
		case end == len(s):
			end = i
		}
	}
	return s[:end]
}

// folded returns s with the capitals among the ASCII letters made small, if fold
// is set. It is as long as s.
func folded(s string, fold bool) string {
	if !fold {
		return s
	}
	b := []byte(s)
	for i, c := range b {
		b[i] = lower(c)
	}
	return string(b)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// matches reports whether the rule is about the path whose last name is base
// and which is below in the directory of the rule's file.
func (r *rule) matches(b *budget, base, below string, isDir bool) bool {
	if r.dirOnly && !isDir {
		return false
	}
	if r.anchored {
		base = below
	}
	switch {
	case r.glob != nil:
		return r.glob.matches(b, base)
	case r.suffix:
		return strings.HasSuffix(base, r.text)
	}
	return base == r.text
}

// A level is the rules of one file, linked to those that count for less.
type level struct {
	parent *level
	at     int  // where in a path what is below the file's directory begins
	fold   bool // capitals and small letters are the same, in the whole repository
	budget *budget
	rules  []rule
}

// byteOrderMark may precede the first line of a file.
const byteOrderMark = "\xef\xbb\xbf"

// under returns the level below l for the rules of text, or l itself if there
// are none. Lines that are not read by the end of ctx do not count, nor do those
// beyond what a file and a listing may have.
func (l *level) under(ctx context.Context, at int, text string) *level {
	var rules []rule
	for line := range strings.SplitSeq(strings.TrimPrefix(text, byteOrderMark), "\n") {
		if ctx.Err() != nil {
			break
		}
		r, ok := parseRule(line, l.fold)
		if !ok {
			continue
		}
		if !l.budget.rule(len(rules)) {
			break
		}
		rules = append(rules, r)
	}
	if len(rules) == 0 {
		return l
	}
	return &level{parent: l, at: at, fold: l.fold, budget: l.budget, rules: rules}
}

// ignored reports whether the path is excluded whose last name begins at base.
// The last matching line of the nearest file decides.
func (l *level) ignored(path string, base int, isDir bool) bool {
	path = folded(path, l.fold)
	for name := path[base:]; l != nil; l = l.parent {
		for i := len(l.rules) - 1; i >= 0; i-- {
			if r := &l.rules[i]; r.matches(l.budget, name, path[l.at:], isDir) {
				return !r.negated
			}
		}
	}
	return false
}
