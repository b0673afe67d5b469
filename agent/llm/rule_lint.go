package llm

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// shellSigns are what no word of a command has once its line is taken apart, or
// has without meaning it.
const shellSigns = "|;&<>()`$\"'\\\n"

// checkedRule is [parseRule] for what a person wrote: a rule that can never match
// is an error.
func checkedRule(text string, d decision) (rule, error) {
	r, err := parseRule(text, d)
	if err != nil {
		return rule{}, err
	}
	if why := r.lint(); why != "" {
		return rule{}, fmt.Errorf("rule %q: %s", r.text, why)
	}
	return r, nil
}

// lint says why a rule can never match, "" if it may: an operator who takes it for
// a protection must not find out from what was run.
func (r rule) lint() string {
	if why := lintName(r.tool); why != "" || r.pattern == "" {
		return why
	}
	key, own := ownSubjects[r.tool]
	switch {
	case strings.HasSuffix(r.pattern, ": *"):
		return ":* is written without a blank, as in bash(git status:*)"
	case r.tool == bashTool:
		return r.lintCommand()
	case own && key == "":
		return "calls of " + r.tool + " have no command and no path; name the tool alone"
	case own && r.words != nil:
		return "a path does not end in :*; want one as in " + r.tool + "(src/**)"
	case own:
		return lintPath(r.pattern)
	case r.words != nil && r.decision == allow && !r.about(bashTool):
		return ":* allows only commands of bash; name the tool alone, or the whole line"
	}
	return ""
}

// lintName is lint for the name of a tool.
func lintName(name string) string {
	if badInNames().MatchString(strings.ReplaceAll(name, "*", "")) {
		return "no tool has the name " + name + "; commands are named as in bash(git status:*)"
	}
	own := slices.Sorted(maps.Keys(ownSubjects))
	if slices.ContainsFunc(own, func(t string) bool { return matchText(name, t) }) {
		return ""
	}
	lower := strings.ToLower(name)
	for _, tool := range own {
		if matchText(lower, tool) {
			return "there is no tool " + name + "; its name is " + tool
		}
	}
	if strings.HasPrefix(lower, serverPrefix) && !strings.HasPrefix(name, serverPrefix) {
		return "the names of servers' tools begin with " + serverPrefix
	}
	rest, ofServer := strings.CutPrefix(name, serverPrefix)
	server, tool, _ := strings.Cut(rest, nameDivider)
	if ofServer && tool == "" && !strings.Contains(name, "*") {
		return "that is no tool; for all of a server write " + serverPrefix + server + nameDivider + "*"
	}
	return ""
}

// lintPath is lint for a pattern of paths for a tool of ours.
func lintPath(pattern string) string {
	clean := path.Clean(pattern)
	if strings.HasPrefix(clean, "~") || clean == ".." || strings.HasPrefix(clean, "../") {
		return "want a path below the workspace root, or an absolute one"
	}
	if _, err := tool.CompilePath(clean); err != nil {
		return "the brackets of the path do not fit together; a backslash makes one a part of a name"
	}
	return lintSigns(pattern)
}

var (
	choices   = lazyregexp.New(`,\s|\|`)
	variables = lazyregexp.New(`\$(\{|[A-Z][A-Z_])`)
)

// lintSigns is lint for what means something in the paths of other programs.
func lintSigns(pattern string) string {
	switch {
	case choices().MatchString(pattern):
		return "a rule has one path; write one for each, or read(**/*.{key,pem})"
	case strings.HasPrefix(pattern, "!"):
		return "a pattern has no !; write one rule for all paths and a longer one for those that differ"
	case variables().MatchString(pattern):
		return "a path has no variables; write it out"
	case strings.Contains(pattern, "://"):
		return "want a path, not an address; for file:///x write /x"
	}
	return ""
}

// lintCommand is lint for a pattern of commands.
func (r rule) lintCommand() string {
	starred := strings.Contains(r.pattern, "*")
	if r.words != nil {
		starred = strings.Contains(strings.Join(r.words, " "), "*")
	}
	switch {
	case starred && strings.Contains(r.pattern, ":*"):
		return ":* belongs at the end of a pattern that has no other *"
	case starred && r.decision == allow:
		return "what is allowed has no * but in :* at the end, as in bash(git status:*)"
	case (starred || r.words != nil) && strings.ContainsAny(r.pattern, shellSigns):
		return "a pattern with * is about one command, without quotes and operators"
	}
	return ""
}

// The names of the tools of MCP servers are mcp__SERVER__TOOL.
const (
	serverPrefix = "mcp__"
	nameDivider  = "__"
)

// A Doubt is a rule, as it was written, that may match nothing, and why.
type Doubt struct{ Rule, Why string }

// Doubts returns the rules that may match nothing: not by how they are written
// alone, which is an error of [ParseRules], but by which MCP servers and files
// there are.
func (p Rules) Doubts(servers []string) []Doubt {
	var doubts []Doubt
	for _, r := range p.rules {
		if why := cmp.Or(doubtOfName(r.tool, servers), r.doubtOfPath()); why != "" {
			doubts = append(doubts, Doubt{r.text, why})
		}
	}
	return doubts
}

// doubtOfName says why no tool may have a name, "" if one does or may.
func doubtOfName(name string, servers []string) string {
	for tool := range ownSubjects {
		if matchText(name, tool) {
			return ""
		}
	}
	head, _, starred := strings.Cut(name, "*")
	mayBegin := func(begin string) bool {
		return strings.HasPrefix(head, begin) || starred && strings.HasPrefix(begin, head)
	}
	switch {
	case !mayBegin(serverPrefix):
		return "only a client may have such a tool"
	case strings.HasPrefix(serverPrefix, head): // any server's
		return ""
	}
	for _, server := range servers {
		if mayBegin(serverPrefix + badInNames().ReplaceAllString(server, "_") + nameDivider) {
			return ""
		}
	}
	return "no server of that name is configured"
}

// doubtOfPath says why no file may match, "" if one may or the rule is about
// commands. The tools of others may take either.
func (r rule) doubtOfPath() string {
	_, own := ownSubjects[r.tool]
	if r.tool == bashTool || r.words != nil || !own && strings.ContainsAny(r.pattern, blanks) {
		return ""
	}
	if why := lintSigns(r.pattern); why != "" {
		return why
	}
	below, absolute := strings.CutPrefix(r.pattern, "/")
	top, _, _ := strings.Cut(below, "/")
	if !own || !absolute || strings.Contains(top, "*") {
		return ""
	}
	if _, err := os.Lstat("/" + top); errors.Is(err, fs.ErrNotExist) {
		return "there is no /" + top + "; a path below the workspace begins without a slash"
	}
	return ""
}
