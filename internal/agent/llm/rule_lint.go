package llm

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/agent/llm/tool"
	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// shellSigns are characters that no word of a parsed command has unless it is quoted.
const shellSigns = "|;&<>()`$\"'\\\n"

// checkedRule is [parseRule] that refuses a rule which can never match.
func checkedRule(text string, d decision) (rule, error) {
	r, err := parseRule(text, d)
	if err != nil {
		return rule{}, err
	}
	if why := cmp.Or(lintName(r.tool), r.lintPattern()); why != "" {
		return rule{}, fmt.Errorf("rule %q: %s", r.text, why)
	}
	return r, nil
}

// lintName says why no tool has a name, "" if one may: the operator of a rule that
// denies must learn before a call runs that the rule never matches.
func lintName(name string) string {
	if badInNames().MatchString(strings.ReplaceAll(name, "*", "")) {
		return "no tool has the name " + name + "; commands are named as in bash(git status:*)"
	}
	lower := strings.ToLower(name)
	if ownTool(name) != "" {
		return ""
	} else if own := ownTool(lower); own != "" {
		return "there is no tool " + name + "; its name is " + own
	}
	rest, ofServer := strings.CutPrefix(name, serverPrefix)
	server, tool, _ := strings.Cut(rest, nameDivider)
	switch {
	case strings.HasPrefix(lower, serverPrefix) && !ofServer:
		return "the names of servers' tools begin with " + serverPrefix
	case ofServer && tool == "" && !strings.Contains(name, "*"):
		return "that is no tool; for all of a server write " + serverPrefix + server + nameDivider + "*"
	}
	return ""
}

// ownTool returns the first tool of ours that a name with * as any text matches, or "".
func ownTool(name string) string {
	for _, tool := range slices.Sorted(maps.Keys(ownSubjects)) {
		if matchText(name, tool) {
			return tool
		}
	}
	return ""
}

// lintPattern says why the pattern of a rule can never match, "" if it may.
func (r rule) lintPattern() string {
	key, own := ownSubjects[r.tool]
	switch {
	case r.pattern == "":
		return ""
	case strings.HasSuffix(r.pattern, ": *"):
		return ":* is written without a blank, as in bash(git status:*)"
	case r.tool == bashTool:
		return r.lintCommand()
	case own && key == "":
		return "calls of " + r.tool + " have no command and no path; name the tool alone"
	case own && r.prefix:
		return "a path does not end in :*; want one as in " + r.tool + "(src/**)"
	case own:
		return lintPath(r.pattern)
	case r.prefix && r.decision == allow && !r.about(bashTool):
		return ":* allows only commands of bash; name the tool alone, or the whole line"
	}
	return ""
}

func (r rule) lintCommand() string {
	starred := strings.Contains(strings.Join(r.words, " "), "*")
	switch {
	case starred && strings.Contains(r.pattern, ":*"):
		return ":* belongs at the end of a pattern that has no other *"
	case starred && r.decision == allow:
		return "what is allowed has no * but in :* at the end, as in bash(git status:*)"
	case (starred || r.prefix) && strings.ContainsAny(r.pattern, shellSigns):
		return "a pattern with * is about one command, without quotes and operators"
	}
	return ""
}

// lintPath is lintPattern for a pattern of paths of a tool of ours.
func lintPath(pattern string) string {
	clean := path.Clean(pattern)
	if strings.HasPrefix(clean, "~") || clean == ".." || strings.HasPrefix(clean, "../") {
		return "want a path below the workspace root, or an absolute one"
	}
	if _, err := tool.CompilePath(clean); err != nil {
		return "the brackets of the path do not fit together; a backslash makes one a part of a name"
	}
	for _, s := range foreignSigns {
		if s.sign().MatchString(pattern) {
			return s.why
		}
	}
	return ""
}

// foreignSigns are signs that mean something in path patterns of other programs.
var foreignSigns = []struct {
	sign func() *regexp.Regexp
	why  string
}{
	{lazyregexp.New(`,\s|\|`), "a rule has one path; write one for each, or read(**/*.{key,pem})"},
	{lazyregexp.New(`^!`), "a pattern has no !; write one rule for all paths and a longer one for those that differ"},
	{lazyregexp.New(`\$(\{|[A-Z][A-Z_])`), "a path has no variables; write it out"},
	{lazyregexp.New(`://`), "want a path, not an address; for file:///x write /x"},
}

// The names of the tools of MCP servers are mcp__SERVER__TOOL.
const (
	serverPrefix = "mcp__"
	nameDivider  = "__"
)

// A Doubt is a rule, as it was written, that may match nothing, and why.
type Doubt struct{ Rule, Why string }

// Doubts returns the rules that may match nothing because of the MCP servers and
// files that there are. A rule that can never match by how it is written is an error
// of [ParseRules].
func (p Rules) Doubts(servers []string) []Doubt {
	var doubts []Doubt
	for _, r := range p.rules {
		if why := cmp.Or(doubtOfName(r.tool, servers), r.doubtOfPath()); why != "" {
			doubts = append(doubts, Doubt{r.text, why})
		}
	}
	return doubts
}

// doubtOfName says why no tool may have a name, "" if one may.
func doubtOfName(name string, servers []string) string {
	head, _, starred := strings.Cut(name, "*")
	mayBegin := func(begin string) bool {
		return strings.HasPrefix(head, begin) || starred && strings.HasPrefix(begin, head)
	}
	switch {
	case ownTool(name) != "":
		return ""
	case !mayBegin(serverPrefix):
		return "only a client may have such a tool"
	case strings.HasPrefix(serverPrefix, head): // the tool of any server
		return ""
	case slices.ContainsFunc(servers, func(server string) bool {
		return mayBegin(serverPrefix + badInNames().ReplaceAllString(server, "_") + nameDivider)
	}):
		return ""
	}
	return "no server of that name is configured"
}

// doubtOfPath says why no file may match, "" if one may or the rule is about
// commands or the tools of others.
func (r rule) doubtOfPath() string {
	below, absolute := strings.CutPrefix(r.pattern, "/")
	top, _, _ := strings.Cut(below, "/")
	if ownSubjects[r.tool] != pathKey || !absolute || strings.Contains(top, "*") {
		return ""
	}
	if _, err := os.Lstat("/" + top); errors.Is(err, fs.ErrNotExist) {
		return "there is no /" + top + "; a path below the workspace begins without a slash"
	}
	return ""
}
