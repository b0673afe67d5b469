package llm

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// shellSigns are what no word of a command has once its line is taken apart, or
// has without meaning it.
const shellSigns = "|;&<>()`$\"'\\\n"

// slip says why a rule can never match, "" if it may: an operator who takes it for
// a protection must not find out from what was run.
func (r rule) slip() string {
	if why := slipOfName(r.tool); why != "" || r.pattern == "" {
		return why
	}
	key, own := ownSubjects[r.tool]
	clean := path.Clean(r.pattern)
	switch {
	case r.tool == bashTool:
		return r.slipOfCommand()
	case own && key == "":
		return "calls of " + r.tool + " have no command and no path; name the tool alone"
	case own && r.words != nil:
		return "a path does not end in :*; want one as in " + r.tool + "(src/**)"
	case own && (strings.HasPrefix(clean, "~") || clean == ".." || strings.HasPrefix(clean, "../")):
		return "want a path below the workspace root, or an absolute one"
	case r.words != nil && r.decision == allow && !r.about(bashTool):
		return ":* allows only commands of bash; name the tool alone, or the whole line"
	}
	return ""
}

// slipOfName is slip for the name of a tool.
func slipOfName(name string) string {
	if badInNames.MatchString(strings.ReplaceAll(name, "*", "")) {
		return "no tool has the name " + name + "; commands are named as in bash(git status:*)"
	}
	own := slices.Sorted(maps.Keys(ownSubjects))
	if slices.ContainsFunc(own, func(tool string) bool { return matchText(name, tool) }) {
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
	return ""
}

// slipOfCommand is slip for a pattern of commands.
func (r rule) slipOfCommand() string {
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

// serverPrefix begins the names of the tools of MCP servers.
const serverPrefix = "mcp__"

// Strangers returns the rules that name a tool which is neither ours nor a
// server's. They count for a client's tool of that name, or for none.
func (p Rules) Strangers() []string {
	var texts []string
	for _, r := range p.rules {
		_, own := ownSubjects[r.tool]
		if !own && !strings.Contains(r.tool, "*") && !strings.HasPrefix(r.tool, serverPrefix) {
			texts = append(texts, r.text)
		}
	}
	return texts
}
