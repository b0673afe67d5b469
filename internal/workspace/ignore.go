package workspace

import (
	"context"
	"strings"
	"sync"

	gitignore "github.com/sabhiram/go-gitignore"
)

// The library go-gitignore only compiles one glob to one regular expression,
// because on its own it differs from git in about half of random cases (ADR 17).
// parseRule reads comments, escapes, negation, the slash at the end and
// anchoring, and gives the library one pattern that it cannot misread. This
// package decides order and nesting.

// A rule is one line of an ignore file.
type rule struct {
	negated  bool
	dirOnly  bool
	anchored bool // the rule matches the path below the file's directory, not only the name
	suffix   bool // text is the end of the name, not the whole name
	text     string
	glob     *glob // instead of text
}

// globMeta has the characters with which git starts a glob.
const globMeta = `*?[\`

// parseRule reads one line. If fold is set, its letters match both cases. ok is
// false if the line can match nothing.
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

// trimSpaces cuts spaces at the end, except those after a backslash.
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

// folded returns s with ASCII capitals in lower case, if fold is set. The
// length stays the same.
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

// matches reports whether the rule matches a path. base is the last name of the
// path; below is the path relative to the directory of the rule's file.
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

// A level is the rules of one file. parent has the rules of lower precedence.
type level struct {
	parent *level
	at     int  // the offset in a path at which the part below the file's directory begins
	fold   bool // case is ignored, in the whole repository
	budget *budget
	rules  []rule
}

// byteOrderMark may precede the first line of a file.
const byteOrderMark = "\xef\xbb\xbf"

// under returns the level for the rules of text below l, or l itself if text
// has no rules. It leaves out the lines that are not read when ctx ends, and
// the rules over the limit of a file or of a listing.
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

// ignored reports whether the rules exclude the path. Its last name begins at
// base. The last matching line of the nearest file decides.
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

// Limits for the rules of one listing. Real files have hundreds of rules. Real
// trees with thousands of ignore files have 100,000 rules, most of them equal.
const (
	maxFileRules = 20_000
	maxRules     = 400_000

	// maxCompiled limits the total text of the regular expressions of different
	// globs. A compiled expression takes some hundred times the memory of its
	// text.
	maxCompiled = 256 << 10
	// compiledCost is counted for every expression in addition to its text.
	compiledCost = 16
)

// A budget counts what the rules of a listing cost. The zero value is unused.
// Its methods may be called from any goroutine.
type budget struct {
	ctx context.Context // of the listing

	mu       sync.Mutex
	rules    int                             // read so far
	size     int                             // of the compiled text
	compiled map[string]*gitignore.GitIgnore // by text
	over     bool                            // a rule or an expression was left out
}

// rule counts one more rule of a file that has already so many. It reports
// false if the file or the listing has reached its limit.
func (b *budget) rule(already int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if already == maxFileRules || b.rules == maxRules {
		b.over = true
		return false
	}
	b.rules++
	return true
}

// matchNothing matches no path.
var matchNothing = gitignore.CompileIgnoreLines()

// compile returns the regular expression of a glob. If the budget is used up,
// it returns matchNothing.
func (b *budget) compile(g *glob) *gitignore.GitIgnore {
	t, ok := translate(g.pattern, g.anchored, g.anywhere, g.fold)
	if !ok {
		return matchNothing
	}
	text := t.out.String()
	b.mu.Lock()
	defer b.mu.Unlock()
	if compiled := b.compiled[text]; compiled != nil {
		return compiled
	}
	if b.size+len(text)+compiledCost > maxCompiled {
		b.over = true
		return matchNothing
	}
	if b.compiled == nil {
		b.compiled = make(map[string]*gitignore.GitIgnore)
	}
	b.size += len(text) + compiledCost
	compiled := gitignore.CompileIgnoreLines(text)
	b.compiled[text] = compiled
	return compiled
}

// spent reports whether a rule or an expression was left out.
func (b *budget) spent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
}
