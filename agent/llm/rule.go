package llm

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/tool"
)

// A decision is what a rule says about a call.
type decision string

const (
	undecided decision = ""
	allow     decision = "allow" // run it
	ask       decision = "ask"   // let a client decide
	deny      decision = "deny"  // never run it
)

// strictness orders decisions. A line is decided by the strictest of its
// commands, as is a call by equally specific rules.
func (d decision) strictness() int { return slices.Index([]decision{allow, undecided, ask, deny}, d) }

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
// Of the rules that match a call the most specific one decides: one with a
// pattern before one without, the longer pattern before the shorter, and a
// tool's name before a pattern of names. Among equals deny wins over ask, and
// ask over allow. Of commands, a rule that is exactly the line comes first: with
// bash(make) allowed and bash(make:*) denied, make runs and make all does not.
//
// Each command that a line runs is judged by itself: the line is allowed if all of
// them are, and denied if one of them is. If the line does more than run commands,
// such as write files, or its meaning is not certain, it is at best asked about,
// unless the whole tool is allowed and nothing else is said about it. A command that
// variables, globs or braces may make one that is denied or asked about is asked
// about, too. Rules that deny or ask also look behind sudo, env, sh -c and the like.
// Paths are judged as written and with symbolic links resolved.
//
// Of tools that are not ours every text in the arguments is judged, as is a key
// with a slash or a blank, and the strictest verdict counts. Each that stands under the key of a command or a path
// must be allowed, and words that a command begins with allow nothing. What is
// denied or asked about under read is so under grep; a search of more than that
// leaves it out.
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

// maxRuleBytes bounds a rule.
const maxRuleBytes = 4096

// A rule is one line of a policy.
type rule struct {
	text     string
	decision decision
	session  bool // remembered, which comes before what the operator allows or asks

	tool    string   // may have *
	pattern string   // "" for every call
	words   []string // of a prefix; nil for an exact line or a path

	// paths are what the pattern means for a tool that has paths, nil if it is none
	// of a path.
	paths []*regexp.Regexp

	// command is what an exact line that is allowed runs, if that is one command of
	// which the shell decides nothing; nil if the line is more, or less certain.
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
	switch r.words = strings.Fields(prefix); {
	case r.pattern == "":
		return rule{}, fmt.Errorf("rule %q: the pattern is empty", text)
	case r.pattern == "*" || r.pattern == "**" || open && len(r.words) == 0:
		r.pattern, r.words = "", nil // every call
	case !open:
		r.words = nil
		if d == allow {
			r.command = commandIn(r.pattern)
		}
		r.paths = pathsIn(r.pattern, d)
	}
	return r, nil
}

// pathsIn returns the expressions for the paths that a pattern means: it, all below
// if it ends in a slash or keeps from a path without *, and dir for dir/**. If the
// pattern is none of paths there are none.
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

// commandIn returns the command that a line is, nil if there is more to the line.
func commandIn(line string) simpleCommand {
	r := readLine(line, 0)
	if !r.clear || !r.plain || len(r.commands) != 1 || r.commands[0].fed {
		return nil
	}
	command := r.commands[0].simple
	if slices.ContainsFunc(command, func(w word) bool { return !w.fixed }) {
		return nil
	}
	return command
}

// about reports whether the rule is about a tool.
func (r rule) about(tool string) bool { return matchText(r.tool, tool) }

// compare orders rules that match the same call by what they weigh.
func (r rule) compare(o rule) int {
	return cmp.Or(
		compareBool(r.session, o.session),
		cmp.Compare(len(r.pattern), len(o.pattern)),
		compareBool(r.words == nil, o.words == nil), // an exact line is more than its prefix
		compareBool(!strings.Contains(r.tool, "*"), !strings.Contains(o.tool, "*")),
		cmp.Compare(len(r.tool), len(o.tool)),
		cmp.Compare(r.decision.strictness(), o.decision.strictness()),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// heaviest returns the rule that decides, of those that matches picks.
func heaviest(rules []rule, matches func(rule) bool) (rule, bool) {
	var best rule
	found := false
	for _, r := range rules {
		if matches(r) && (!found || r.compare(best) > 0) {
			best, found = r, true
		}
	}
	return best, found
}

// decide returns what the rules say about a call, and the rule that says it. Of
// its texts the one decides that is judged most strictly.
func (p Rules) decide(s subject) (decision, rule) {
	verdict, by := decide(p.about(s.tool, s.tool), s)
	if s.tool == grepTool { // which shows what it finds
		if d, r := decide(p.about(grepTool, readTool), s); (d == ask || d == deny) && d.strictness() > verdict.strictness() {
			return d, r
		}
	}
	return verdict, by
}

// about returns the rules about one tool that are true of calls of another, with
// what was remembered of the latter. A prefix of a command allows nothing but
// lines for our shell: how others read theirs is not known.
func (p Rules) about(called, tool string) []rule {
	return slices.DeleteFunc(slices.Clone(p.rules), func(r rule) bool {
		return !r.about(tool) && !(r.session && r.about(called)) || r.decision == allow && r.words != nil && tool != bashTool
	})
}

// restrict reports whether there are rules that may keep files from a search.
func (p Rules) restrict(tool string) bool {
	return slices.ContainsFunc(p.rules, func(r rule) bool {
		return r.decision != allow && (r.about(tool) || tool == grepTool && r.about(readTool))
	})
}

// decide is [Rules.decide] by the rules about one tool.
func decide(rules []rule, s subject) (decision, rule) {
	if len(rules) == 0 {
		return undecided, rule{}
	}
	texts := s.texts
	if !slices.ContainsFunc(texts, func(t text) bool { return t.named }) {
		texts = append(slices.Clone(texts), text{named: true}) // which only rules without a pattern match
	}
	verdict, by := allow, rule{}
	for _, t := range texts {
		d, r := t.decide(rules)
		if restricts := d == ask || d == deny; !t.named && !restricts {
			continue
		}
		if d == verdict && by.text == "" || d.strictness() > verdict.strictness() {
			verdict, by = d, r
		}
	}
	if !s.more || !patterned(rules) {
		return verdict, by
	}
	for _, r := range rules { // any may be about what is not judged
		if r.decision.strictness() > verdict.strictness() {
			verdict, by = r.decision, r
		}
	}
	if verdict.strictness() < ask.strictness() {
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
		if r.pattern == "" || r.words == nil && r.covers(t.paths) {
			return true
		}
		return r.decision != allow && !r.globs() && slices.ContainsFunc(commands, r.runs) // of prose a form with * would match too much
	})
	return best.decision, best
}

// covers reports whether the rule is about a file: one that allows must match
// it however it is looked at.
func (r rule) covers(paths []place) bool {
	matches := func(p place) bool { return r.matchesPlace(p) }
	if r.decision == allow {
		return len(paths) > 0 && !slices.ContainsFunc(paths, func(p place) bool { return !matches(p) })
	}
	return slices.ContainsFunc(paths, matches)
}

func (r rule) matchesPlace(p place) bool {
	name := p.rel
	if strings.HasPrefix(r.pattern, "/") {
		name = p.abs
	}
	literal := path.Clean(r.pattern) // in which brackets are a part of the name
	matches := func(re *regexp.Regexp) bool { return re.MatchString(name) }
	return name != "" && (name == literal || r.decision != allow && strings.HasPrefix(name, literal+"/") || slices.ContainsFunc(r.paths, matches))
}

// decideCommand decides about a command line. rules are about its tool.
func decideCommand(rules []rule, line string) (decision, rule) {
	line = strings.Trim(line, blanks)
	if r, ok := heaviest(rules, func(r rule) bool { return r.pattern == line && r.words == nil }); ok {
		return r.decision, r
	}
	parsed := parseLine(line)
	verdict, by := allow, rule{}
	for i, command := range parsed.commands {
		r, _ := heaviest(rules, func(r rule) bool { return r.runs(command) })
		overruled := func(o rule) bool {
			return o.mayRun(command) && (o.compare(r) > 0 || o.decision == deny && !o.session && r.session)
		}
		if r.decision.strictness() < ask.strictness() && slices.ContainsFunc(rules, overruled) {
			r = rule{decision: ask}
		}
		if i == 0 || r.decision.strictness() > verdict.strictness() {
			verdict, by = r.decision, r
		}
	}
	if len(parsed.commands) == 0 || !parsed.clear && patterned(rules) && verdict.strictness() < ask.strictness() {
		return ask, rule{}
	}
	return verdict, by
}

// runs reports whether the rule is about one command of a line. One that allows
// must match it to the letter; the others also match what it runs in turn.
func (r rule) runs(command judged) bool {
	switch {
	case r.pattern == "":
		return true
	case r.decision == allow:
		return r.begins(command.simple, false) && !(command.fed && r.words == nil)
	}
	return slices.ContainsFunc(command.inner, func(c simpleCommand) bool { return r.begins(c, true) })
}

// mayRun reports whether a rule that denies or asks may be about one command of
// a line, by what the shell makes of it.
func (r rule) mayRun(command judged) bool {
	return r.decision != allow && r.pattern != "" && slices.ContainsFunc(command.inner, r.mayBegin)
}

// begins reports whether a command begins with the rule's words, or has exactly
// them if the rule is no prefix. An exact line that is allowed is read as the shell
// reads it: what is a comment or an operator in it is no word. Loosely, a program is the same wherever it lies,
// and a word may be more than it says.
func (r rule) begins(command simpleCommand, loosely bool) bool {
	switch {
	case r.decision == allow && r.words == nil:
		return r.command != nil && slices.Equal(r.command, command)
	case r.globs():
		return r.spans(command)
	}
	words := r.wanted()
	if len(command) < len(words) || r.words == nil && len(command) > len(words) {
		return false
	}
	for i, want := range words {
		if !command[i].is(want, i == 0 && loosely) || !loosely && !command[i].fixed {
			return false
		}
	}
	return true
}

// mayBegin is begins, loosely, for a command of which the shell decides a part:
// from there on it may be anything.
func (r rule) mayBegin(command simpleCommand) bool {
	if r.globs() {
		return r.maySpan(command)
	}
	words := r.wanted()
	for i, w := range command {
		switch {
		case !w.fixed:
			return i >= len(words) || strings.HasPrefix(words[i], w.sets)
		case i >= len(words) || !w.is(words[i], i == 0):
			return false
		}
	}
	return false
}

// globs reports whether the rule's pattern is the form of a command, in which * is
// any text. What is allowed is never said so: it would be more than one means.
func (r rule) globs() bool {
	return r.decision != allow && r.words == nil && strings.Contains(r.pattern, "*")
}

// spans reports whether a command has the form of the pattern. One that ends in a
// blank and * is also about the command without more words.
func (r rule) spans(command simpleCommand) bool {
	form := strings.Join(strings.Fields(r.pattern), " ")
	return slices.ContainsFunc(command.lines(), func(line string) bool {
		return matchText(form, line) || matchText(form, line+" ")
	})
}

// maySpan is spans for a command of which the shell decides a part.
func (r rule) maySpan(command simpleCommand) bool {
	known := slices.IndexFunc(command, func(w word) bool { return !w.fixed })
	if known < 0 {
		return false
	}
	head, _, _ := strings.Cut(strings.Join(strings.Fields(r.pattern), " "), "*")
	return slices.ContainsFunc(command[:known].lines(), func(line string) bool {
		if known > 0 {
			line += " "
		}
		line += command[known].sets
		return strings.HasPrefix(line, head) || strings.HasPrefix(head, line)
	})
}

// lines returns the command as texts: as it is, and with its program wherever that
// lies.
func (c simpleCommand) lines() []string {
	if len(c) == 0 {
		return []string{""}
	}
	var rest strings.Builder
	for _, w := range c[1:] {
		rest.WriteString(" " + w.text)
	}
	return []string{c[0].text + rest.String(), program(c[0].text) + rest.String()}
}

// wanted returns the words of the rule's pattern.
func (r rule) wanted() []string {
	if r.words != nil {
		return r.words
	}
	return strings.Fields(r.pattern)
}

// is reports whether the word says the same as another, if it is the first of a
// command, wherever the program lies.
func (w word) is(want string, first bool) bool {
	if first {
		return program(w.text) == program(want)
	}
	return w.text == want
}

// matchText reports whether text has the form of pattern, in which * is any
// text.
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

// judge returns what is to be done about a call, and why.
func (r *run) judge(c *call) (decision, string) {
	switch d, by := r.policy().decide(subjectOf(r.opts.Workspace, c.Tool, c.Args)); {
	case d == deny && by.session:
		return deny, "It was denied for the session by " + by.text
	case d == deny:
		return deny, "The rule " + by.text + " denies it"
	case d == ask && by.text != "":
		return ask, "The rule " + by.text + " asks"
	case d == ask, d == undecided && c.gated():
		return ask, "Approval required"
	}
	return allow, ""
}

// A policy is the operator's rules, and these with what clients had remembered.
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

// decide returns what is said about a call. What the operator denies nobody
// allows.
func (p policy) decide(s subject) (decision, rule) {
	if d, by := p.operator.decide(s); d == deny {
		return d, by
	}
	return p.session.decide(s)
}

// leaves returns which files a call that searches leaves out, nil if none: those
// that could not be looked at by themselves without a question. If the search was
// asked about, so were they, and what is denied remains.
func (r *run) leaves(c *call) func(path string) bool {
	if !searches(c.Tool) {
		return nil
	}
	p := r.policy()
	if !p.session.restrict(c.Tool) {
		return nil
	}
	most := allow // that is not left out
	if d, _ := p.decide(subjectOf(r.opts.Workspace, c.Tool, c.Args)); d == ask {
		most = ask
	}
	return func(path string) bool {
		d, _ := p.decide(subject{tool: c.Tool, texts: []text{{paths: placesOf(r.opts.Workspace, path), named: true}}})
		return d != undecided && d.strictness() > most.strictness()
	}
}
