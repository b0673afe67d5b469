package llm

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
)

// A decision is what a rule says about a call.
type decision string

const (
	undecided decision = ""
	allow     decision = "allow" // run it
	ask       decision = "ask"   // let a client decide
	deny      decision = "deny"  // never run it
)

// strictness orders decisions. The strictest decision about one of its commands
// decides a line, and that of equally specific rules a call.
func (d decision) strictness() int { return slices.Index([]decision{allow, undecided, ask, deny}, d) }

func (d decision) restricts() bool { return d == ask || d == deny }

// Rules decide which calls run, which are asked about and which are denied. The
// zero value has none: calls that change something are asked about. They may be
// used from any goroutine.
type Rules struct{ rules []rule }

// ParseRules returns the rules that strings name:
//
//	bash                 every call of a tool
//	mcp__files__*        every call of the tools whose names match; * is any text
//	bash(git status:*)   commands that begin with these words
//	bash(make check)     exactly this command line
//	bash(rm*)            commands of this form; * is any text, and nothing is allowed so
//	edit(src/**)         paths below the workspace root, as [tool.CompilePath] reads them
//	read(secret)         this path and, denied or asked about, all below it
//	read(secret/)        all below a directory, and itself
//	read(/etc/**)        absolute paths
//
// Of the rules that match a call the most specific one decides. Among equals deny wins
// over ask, and ask over allow. Each command of a line is judged by itself. A line that
// does more than run commands, or whose meaning is not certain, is at best asked about,
// unless the whole tool is allowed and no other rule is about it. Paths are judged as
// written and with symbolic links resolved. Of other tools every text in the arguments
// is judged, and the strictest decision counts. docs/agents.md has the details.
//
// A rule that can never match, by how it is written, is an error.
func ParseRules(allowed, asked, denied []string) (Rules, error) {
	var rules Rules
	for _, group := range []struct {
		texts    []string
		decision decision
	}{{allowed, allow}, {asked, ask}, {denied, deny}} {
		for _, text := range group.texts {
			r, err := checkedRule(text, group.decision)
			if err != nil {
				return Rules{}, err
			}
			rules.rules = append(rules.rules, r)
		}
	}
	return rules, nil
}

// blanks are what a shell skips around a line. It does not skip a carriage return.
const blanks = " \t\n"

const maxRuleBytes = 4096

// A rule is one line of a policy.
type rule struct {
	text     string
	decision decision
	session  bool // remembered; it outweighs what the operator allows or asks

	tool    string   // may have *
	pattern string   // "" for every call
	prefix  bool     // the pattern ends in :*
	words   []string // of the pattern, without :*

	// paths are the expressions of the pattern for tools that have paths; nil if it
	// is no pattern of paths.
	paths []*regexp.Regexp

	// command is the one command of an exact line that is allowed; nil if the line
	// is more than one command or the shell decides a part of it.
	command simpleCommand
}

func parseRule(text string, d decision) (rule, error) {
	text = strings.TrimSpace(text)
	r := rule{text: text, decision: d}
	name, rest, patterned := strings.Cut(text, "(")
	r.tool = strings.TrimSpace(name)
	switch {
	case len(text) > maxRuleBytes:
		return rule{}, fmt.Errorf("rule of %d bytes, want at most %d", len(text), maxRuleBytes)
	case r.tool == "" || strings.ContainsAny(r.tool, " \t\n)"):
		return rule{}, fmt.Errorf("rule %q: want TOOL or TOOL(PATTERN)", text)
	case !patterned:
		return r, nil
	case !strings.HasSuffix(rest, ")"):
		return rule{}, fmt.Errorf("rule %q: the bracket is not closed", text)
	}
	r.pattern = strings.Trim(strings.TrimSuffix(rest, ")"), blanks)
	prefix, open := strings.CutSuffix(r.pattern, ":*")
	r.prefix, r.words = open, strings.Fields(prefix)
	switch {
	case r.pattern == "":
		return rule{}, fmt.Errorf("rule %q: the pattern is empty", text)
	case r.pattern == "*" || r.pattern == "**" || open && len(r.words) == 0:
		r.pattern, r.prefix = "", false // every call
	case !open:
		if d == allow {
			r.command = commandIn(r.pattern)
		}
		r.paths = pathsIn(r.pattern, d)
	}
	return r, nil
}

// pathsIn returns the expressions for the paths of a pattern, nil if it is no pattern
// of paths. A pattern that ends in a slash, or that restricts a path without *, also
// matches all below, and dir/** also matches dir.
func pathsIn(pattern string, d decision) []*regexp.Regexp {
	clean := path.Clean(pattern)
	all := []string{clean}
	if strings.HasSuffix(pattern, "/") || d != allow && !strings.Contains(pattern, "*") {
		all = append(all, path.Join(clean, "**"))
	} else if dir, ok := strings.CutSuffix(clean, "/**"); ok {
		all = append(all, dir)
	}
	var paths []*regexp.Regexp
	for _, text := range all {
		re, err := tool.CompilePath(text)
		if err != nil {
			return nil
		}
		paths = append(paths, re)
	}
	return paths
}

// commandIn returns the command of a line, nil if there is more to the line.
func commandIn(line string) simpleCommand {
	r := readLine(line, 0)
	if !r.clear || !r.plain || len(r.commands) != 1 || r.commands[0].fed || !r.commands[0].simple.fixed() {
		return nil
	}
	return r.commands[0].simple
}

func (r rule) about(tool string) bool { return matchText(r.tool, tool) }

// weight orders rules that match the same call.
func (r rule) weight() []int {
	number := map[bool]int{false: 0, true: 1}
	return []int{
		number[r.session], len(r.pattern), number[!r.prefix], // an exact line weighs more than its prefix
		number[!strings.Contains(r.tool, "*")], len(r.tool), r.decision.strictness(),
	}
}

func (r rule) outweighs(o rule) bool { return slices.Compare(r.weight(), o.weight()) > 0 }

// heaviest returns the rule that decides among those that match.
func heaviest(rules []rule, matches func(rule) bool) (best rule, found bool) {
	for _, r := range rules {
		if matches(r) && (!found || r.outweighs(best)) {
			best, found = r, true
		}
	}
	return best, found
}

// judge returns what is to be done about a call, and why.
func (r *run) judge(c *call) (decision, string) {
	switch d, by := r.policy().decide(subjectOf(r.opts.Workspace, c.Tool, c.Args)); {
	case d == deny && by.session:
		return deny, "It was denied for the session by " + by.text
	case d == deny:
		return deny, "The rule " + by.text + " denies it"
	case d == ask && by.text != "":
		return ask, "The rule " + by.text + " asks"
	case d == ask, d == undecided && c.tool != nil && c.tool.Gated:
		return ask, "Approval required"
	}
	return allow, ""
}

// A policy is the operator's rules, and these with the remembered rules.
type policy struct{ operator, session Rules }

func (r *run) policy() policy {
	p := policy{r.opts.Rules, Rules{slices.Clone(r.opts.Rules.rules)}}
	for _, m := range r.journal.rules {
		rule, err := parseRule(m.Rule, m.Decision)
		if err != nil {
			continue // of another version
		}
		rule.session = true
		p.session.rules = append(p.session.rules, rule)
	}
	return p
}

// decide returns what the policy says about a call. A remembered rule never
// overrides an operator's rule that denies.
func (p policy) decide(s subject) (decision, rule) {
	if d, by := p.operator.decide(s); d == deny {
		return d, by
	}
	return p.session.decide(s)
}

// leaves returns which files a search leaves out, nil if none: files that could not
// be read by themselves without a question. If the search itself was asked about,
// it leaves out only denied files.
func (r *run) leaves(c *call) func(path string) bool {
	p := r.policy()
	if !searches(c.Tool) || !p.session.restrict(c.Tool) {
		return nil
	}
	asked, _ := p.decide(subjectOf(r.opts.Workspace, c.Tool, c.Args))
	return func(path string) bool {
		d, _ := p.decide(subject{tool: c.Tool, texts: []text{{paths: placesOf(r.opts.Workspace, path), named: true}}})
		return d == deny || d == ask && asked != ask
	}
}

// decide returns what the rules say about a call, and the rule that says it.
func (p Rules) decide(s subject) (decision, rule) {
	verdict, by := decide(p.about(s.tool, s.tool), s)
	if s.tool == grepTool { // which shows what it finds
		if d, r := decide(p.about(grepTool, readTool), s); d.restricts() && d.strictness() > verdict.strictness() {
			return d, r
		}
	}
	return verdict, by
}

// about returns the rules about a tool that hold for a called tool, and the
// remembered rules about the called tool. A prefix of a command allows only lines
// for our shell: how other tools read theirs is not known.
func (p Rules) about(called, tool string) []rule {
	return slices.DeleteFunc(slices.Clone(p.rules), func(r rule) bool {
		return !r.about(tool) && !(r.session && r.about(called)) || r.decision == allow && r.prefix && tool != bashTool
	})
}

// restrict reports whether a rule may keep files from a search.
func (p Rules) restrict(tool string) bool {
	return slices.ContainsFunc(p.rules, func(r rule) bool {
		return r.decision != allow && (r.about(tool) || tool == grepTool && r.about(readTool))
	})
}

// decide returns what the rules about one tool say about a call. Of its texts the
// one with the strictest decision counts.
func decide(rules []rule, s subject) (decision, rule) {
	if len(rules) == 0 {
		return undecided, rule{}
	}
	texts := s.texts
	if !slices.ContainsFunc(texts, func(t text) bool { return t.named }) {
		texts = append(slices.Clone(texts), text{named: true}) // only rules without a pattern match it
	}
	verdict, by := allow, rule{}
	for _, t := range texts {
		d, r := t.decide(rules)
		if (t.named || d.restricts()) && (d == verdict && by.text == "" || d.strictness() > verdict.strictness()) {
			verdict, by = d, r
		}
	}
	if !s.more || !patterned(rules) {
		return verdict, by
	}
	for _, r := range rules { // any of them may be about a text that is not judged
		if r.decision.strictness() > verdict.strictness() {
			verdict, by = r.decision, r
		}
	}
	if !verdict.restricts() {
		return ask, rule{}
	}
	return verdict, by
}

// patterned reports whether rules look at more than the name of a tool.
func patterned(rules []rule) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return r.pattern != "" })
}

// decide returns what rules say about one text.
func (t text) decide(rules []rule) (decision, rule) {
	if t.line != nil && t.named {
		return decideCommand(rules, *t.line)
	}
	var commands []judged
	if t.line != nil {
		commands = parseLine(*t.line).commands
	}
	best, _ := heaviest(rules, func(r rule) bool {
		return r.pattern == "" || !r.prefix && r.covers(t.paths) ||
			r.decision != allow && !r.globs() && slices.ContainsFunc(commands, r.runs) // a form with * would match too much prose
	})
	return best.decision, best
}

// covers reports whether the rule is about a file. To allow, it must match all places.
func (r rule) covers(paths []place) bool {
	if r.decision == allow {
		return len(paths) > 0 && !slices.ContainsFunc(paths, func(p place) bool { return !r.matchesPlace(p) })
	}
	return slices.ContainsFunc(paths, r.matchesPlace)
}

func (r rule) matchesPlace(p place) bool {
	name := p.rel
	if strings.HasPrefix(r.pattern, "/") {
		name = p.abs
	}
	literal := path.Clean(r.pattern) // its brackets are part of the name
	return name != "" && (name == literal || r.decision != allow && strings.HasPrefix(name, literal+"/") ||
		slices.ContainsFunc(r.paths, func(re *regexp.Regexp) bool { return re.MatchString(name) }))
}

// decideCommand returns what the rules of its tool say about a command line.
func decideCommand(rules []rule, line string) (decision, rule) {
	line = strings.Trim(line, blanks)
	if r, ok := heaviest(rules, func(r rule) bool { return r.pattern == line && !r.prefix }); ok {
		return r.decision, r
	}
	parsed := parseLine(line)
	verdict, by := allow, rule{}
	for i, command := range parsed.commands {
		r, _ := heaviest(rules, func(r rule) bool { return r.runs(command) })
		overruled := func(o rule) bool {
			return o.mayRun(command) && (o.outweighs(r) || o.decision == deny && !o.session && r.session)
		}
		if !r.decision.restricts() && slices.ContainsFunc(rules, overruled) {
			r = rule{decision: ask}
		}
		if i == 0 || r.decision.strictness() > verdict.strictness() {
			verdict, by = r.decision, r
		}
	}
	if len(parsed.commands) == 0 || !parsed.clear && patterned(rules) && !verdict.restricts() {
		return ask, rule{}
	}
	return verdict, by
}

// runs reports whether the rule is about one command of a line. A rule that allows
// must match the command to the letter. The others also match what it runs in turn.
func (r rule) runs(command judged) bool {
	switch {
	case r.pattern == "":
		return true
	case r.decision == allow && r.prefix:
		return len(command.simple) >= len(r.words) && command.simple[:len(r.words)].fixed() && r.begins(command.simple, false)
	case r.decision == allow: // the rule's line is read as the shell reads it: a comment in it is no word
		return r.command != nil && !command.fed && slices.Equal(r.command, command.simple)
	}
	return slices.ContainsFunc(command.inner, func(c simpleCommand) bool {
		if r.globs() {
			return r.spans(c)
		}
		return (r.prefix || len(c) <= len(r.words)) && r.begins(c, true)
	})
}

// begins reports whether a command begins with the rule's words. Anywhere says that
// the program may lie in any directory.
func (r rule) begins(command simpleCommand, anywhere bool) bool {
	if len(command) < len(r.words) {
		return false
	}
	for i, want := range r.words {
		if !command[i].is(want, i == 0 && anywhere) {
			return false
		}
	}
	return true
}

// mayRun reports whether a rule that restricts may be about one command of a line,
// by what the shell makes of it: from a word on that the shell decides the command
// may be anything.
func (r rule) mayRun(command judged) bool {
	return r.decision != allow && r.pattern != "" && slices.ContainsFunc(command.inner, func(c simpleCommand) bool {
		known := slices.IndexFunc(c, func(w word) bool { return !w.fixed })
		switch {
		case known < 0:
			return false
		case r.globs():
			return r.maySpan(c[:known], c[known].sets)
		case known >= len(r.words):
			return known == len(r.words) && r.begins(c, true)
		}
		for i, w := range c[:known] {
			if !w.is(r.words[i], i == 0) {
				return false
			}
		}
		return strings.HasPrefix(r.words[known], c[known].sets)
	})
}

// globs reports whether the rule's pattern is the form of a command, in which * is
// any text. Rules that allow have none: it would match more than is meant.
func (r rule) globs() bool {
	return r.decision != allow && !r.prefix && strings.Contains(r.pattern, "*")
}

// spans reports whether a command has the form of the pattern. One that ends in a
// blank and * also matches the command without more words.
func (r rule) spans(command simpleCommand) bool {
	form := strings.Join(r.words, " ")
	return slices.ContainsFunc(command.lines(), func(line string) bool {
		return matchText(form, line) || matchText(form, line+" ")
	})
}

// maySpan is spans for a command that begins with known words and goes on with a
// word of which only the beginning is known.
func (r rule) maySpan(known simpleCommand, begin string) bool {
	head, _, _ := strings.Cut(strings.Join(r.words, " "), "*")
	return slices.ContainsFunc(known.lines(), func(line string) bool {
		if len(known) > 0 {
			line += " "
		}
		line += begin
		return strings.HasPrefix(line, head) || strings.HasPrefix(head, line)
	})
}

// matchText reports whether text has the form of pattern. * is any text.
func matchText(pattern, text string) bool {
	first, rest, starred := strings.Cut(pattern, "*")
	if !starred {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	pieces := strings.Split(rest, "*")
	last := pieces[len(pieces)-1]
	for _, piece := range pieces[:len(pieces)-1] {
		_, after, found := strings.Cut(text, piece)
		if !found {
			return false
		}
		text = after
	}
	return strings.HasSuffix(text, last)
}
