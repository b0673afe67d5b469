package chord

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// A Scope says how long a [Rule] holds, and where.
type Scope string

// Scopes.
const (
	ScopeSession Scope = "session"     // until the connection ends or the client opens another session
	ScopeProject Scope = "project"     // in the workspace
	ScopeUser    Scope = "user_global" // for the user of the server
)

// A Rule allows the calls of a tool whose argument matches Pattern. In a pattern * stands
// for any text and ? for one character. In the argument of a command line neither stands
// for a character that could begin another command.
type Rule struct {
	Tool    string `json:"tool"`
	Pattern string `json:"pattern"`
	Scope   Scope  `json:"scope"`
}

// String returns the rule for people.
func (r Rule) String() string {
	return fmt.Sprintf("%s allow %q · %s", r.Tool, r.Pattern, r.Scope)
}

// A RuleStore keeps the rules of the scopes project and user_global for other
// connections. It is called by one goroutine at a time and must not block for long.
type RuleStore interface {
	Load() []Rule           // what was added before; nothing if it cannot be read
	Add(rule Rule) error    // keeps a rule
	Remove(rule Rule) error // removes a rule; it is no error if the rule is not there
}

const (
	maxRules   = 256  // of one connection
	maxPattern = 1024 // bytes
)

// parseScope returns the scope that a client names. Only with a pattern it may name none.
func parseScope(name string) (Scope, bool) {
	switch strings.ToLower(name) {
	case "", "session":
		return ScopeSession, true
	case "project":
		return ScopeProject, true
	case "user_global", "user-global", "userglobal":
		return ScopeUser, true
	}
	return "", false
}

// rule returns the rule that an answer to r asks for, nil if it asks for none.
func (t *Translator) rule(cmd *Command, r *request) (*Rule, error) {
	pattern := strings.TrimSpace(strings.TrimPrefix(cmd.RulePattern, r.tool+":"))
	scope, ok := parseScope(cmd.RuleScope)
	switch {
	case !ok:
		return nil, fmt.Errorf("invalid rule_scope %q (expected session|project|user_global)", abridge.Bytes(cmd.RuleScope, 256))
	case pattern == "" && cmd.RuleScope == "" && cmd.RulePattern == "":
		return nil, nil
	case pattern == "":
		return nil, fmt.Errorf("confirm rule intent requires non-empty rule_pattern")
	case cmd.Action == actionDeny:
		return nil, fmt.Errorf("a rule needs the action allow")
	case len(pattern) > maxPattern:
		return nil, fmt.Errorf("rule_pattern has more than %d bytes", maxPattern)
	case len(t.rules) == maxRules:
		return nil, fmt.Errorf("there are %d rules already", maxRules)
	case scope != ScopeSession && t.options.Rules == nil:
		return nil, fmt.Errorf("rules of the scope %s are not kept here", scope)
	}
	return &Rule{Tool: r.tool, Pattern: pattern, Scope: scope}, nil
}

// allowedByRule reports whether a rule allows a call without asking.
func (t *Translator) allowedByRule(r *request) bool {
	return slices.ContainsFunc(slices.Concat(t.rules, t.stored), func(rule Rule) bool {
		return rule.Tool == r.tool && matches(rule.Pattern, r.subject, r.command)
	})
}

// notInCommand are the characters that begin another command or write to a file.
const notInCommand = ";&|<>`$()\n\r"

// matches reports whether a pattern matches a whole text.
func matches(pattern, text string, command bool) bool {
	p, s := []rune(pattern), []rune(text)
	free := func(r rune) bool { return !command || !strings.ContainsRune(notInCommand, r) }
	star, mark := -1, 0 // the last star, and where the text goes on after what it stands for
	i, k := 0, 0
	for k < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, k
			i++
		case i < len(p) && (p[i] == s[k] || p[i] == '?' && free(s[k])):
			i++
			k++
		case star >= 0 && free(s[mark]):
			mark++
			i, k = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}
