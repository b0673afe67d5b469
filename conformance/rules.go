package conformance

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Rule is a demand on a server that scenarios, reports and comments cite by its code.
type Rule struct {
	Code    string // R36, A43, D7, a section such as 9.5, or a part of one of these such as R46:gated
	Text    string // what the server must do, in one sentence
	Why     string // what goes wrong otherwise; only for rules that the published protocol does not have
	Checked string // by what, if no scenario cites the rule
}

// star marks a rule that the published protocol does not have.
func (r Rule) star() string {
	if r.Why != "" {
		return " *"
	}
	return ""
}

// citing returns the scenarios that cite the rule, or the rule that it is a part of.
func (u *Suite) citing(r Rule) []Scenario {
	return slices.DeleteFunc(slices.Clone(u.Scenarios), func(s Scenario) bool { return !slices.Contains(s.Rules, numberOfRule(r.Code)) })
}

// checkedBy says what checks a rule that no scenario cites.
func (u *Suite) checkedBy(r Rule) string {
	if at, ok := findRule(u.Rules, numberOfRule(r.Code)); ok && r.Checked == "" {
		return u.Rules[at].Checked
	}
	return r.Checked
}

// Explain writes what each rule demands and the scenarios that check it, as WriteList does.
// It looks for the rules in all of the suites, and names the protocol unless it is Maestro's.
// For an unknown code it returns an [*UnknownRuleError] and writes nothing.
func Explain(w io.Writer, codes []string, suites ...*Suite) error {
	var parts []string
	for _, code := range codes {
		before := len(parts)
		for _, u := range suites {
			if at, ok := findRule(u.Rules, code); ok {
				parts = append(parts, u.explain(at))
			}
		}
		if len(parts) == before {
			return unknownRule(code, suites)
		}
	}
	_, err := io.WriteString(w, strings.Join(parts, "\n"))
	return err
}

// explain returns what the rule at a position and its parts demand, and the scenarios
// that check it.
func (u *Suite) explain(at int) string {
	var b strings.Builder
	r := u.Rules[at]
	for _, part := range u.Rules[at:] {
		if part.Code != r.Code && !strings.HasPrefix(part.Code, r.Code+":") {
			break
		}
		b.WriteString(part.Code + part.star())
		if u.Protocol != maestro {
			fmt.Fprintf(&b, " (%s)", u.Protocol)
		}
		fmt.Fprintf(&b, ": %s\n", part.Text)
		if part.Why != "" {
			fmt.Fprintf(&b, "    * not in the published protocol. %s\n", part.Why)
		}
	}
	list := u.citing(r)
	if len(list) == 0 {
		fmt.Fprintf(&b, "checked by %s\n", u.checkedBy(r))
	}
	_ = WriteList(&b, list) // a Builder never fails
	return b.String()
}

func unknownRule(code string, suites []*Suite) error {
	var all []Rule
	for _, u := range suites {
		all = append(all, u.Rules...)
	}
	slices.SortFunc(all, func(a, b Rule) int { return compareCodes(a.Code, b.Code) })
	at, _ := findRule(all, code)
	return &UnknownRuleError{Code: code, Nearest: all[max(at-1, 0):min(at+1, len(all))]}
}

// An UnknownRuleError says that there is no rule with a code.
type UnknownRuleError struct {
	Code    string
	Nearest []Rule // those between which it would be
}

func (e *UnknownRuleError) Error() string {
	near := make([]string, len(e.Nearest))
	for i, r := range e.Nearest {
		near[i] = r.Code
	}
	return fmt.Sprintf("no rule %q; the nearest: %s", e.Code, strings.Join(near, ", "))
}

// findRule returns the position of a rule in the list, or where it would be.
func findRule(list []Rule, code string) (int, bool) {
	return slices.BinarySearchFunc(list, code, func(r Rule, code string) int { return compareCodes(r.Code, code) })
}

// compareCodes orders codes by group, by number, and parts after their whole.
func compareCodes(a, b string) int {
	numberA, partA, _ := strings.Cut(a, ":")
	numberB, partB, _ := strings.Cut(b, ":")
	groupA, numbersA := splitCode(numberA)
	groupB, numbersB := splitCode(numberB)
	return cmp.Or(cmp.Compare(groupA, groupB), slices.Compare(numbersA, numbersB), cmp.Compare(numberA, numberB), cmp.Compare(partA, partB))
}

// splitCode returns the index of a code's group in ruleGroups, and its numbers.
func splitCode(code string) (int, []int) {
	group := slices.IndexFunc(ruleGroups, func(g ruleGroup) bool { return strings.HasPrefix(code, g.letter) })
	var numbers []int
	for n := range strings.SplitSeq(strings.TrimPrefix(code, ruleGroups[group].letter), ".") {
		number, _ := strconv.Atoi(n)
		numbers = append(numbers, number)
	}
	return group, numbers
}

// A ruleGroup holds the rules whose codes begin with a letter.
type ruleGroup struct{ letter, title, about string }

var ruleGroups = []ruleGroup{
	{"R", "Messages", "What a server reads and sends, on any transport."},
	{"A", "Attaching", "How clients connect, follow, control and leave, and what a hosted runner does."},
	{"D", "Architecture", "Decisions that bind more than one package. Some of them can be seen from outside."},
	{"H", "Heddle", "What a server of the Heddle headless dialect does: requests and responses as lines of JSON on standard input and output."},
	{"C", "Chord", "What a server of the Chord headless dialect does: commands and envelopes as lines of JSON on standard input and output."},
	{"E", "Hecate", "What a server of Hecate event streams does."},
	{"P", "ACP", "What the ACP edge of a server does: the Agent Client Protocol on a WebSocket."},
	{"", "Sections", "Topics of the protocol and their parts, for what the rules above do not say."},
}

// WriteRules writes the page about the rules: every rule with what checks it, and every scenario.
func (u *Suite) WriteRules(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n<!-- Code generated by contracts/gen from package conformance. DO NOT EDIT. -->\n\n%s\n", u.Title, u.About)
	for i, g := range ruleGroups {
		var rows strings.Builder
		for _, r := range u.Rules {
			if group, _ := splitCode(r.Code); group == i {
				fmt.Fprintf(&rows, "| %s%s | %s | %s |\n", r.Code, r.star(), strings.ReplaceAll(r.Text, "|", `\|`), u.checks(r))
			}
		}
		if rows.Len() > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| Code | The server must | Checked by |\n| --- | --- | --- |\n%s", g.title, g.about, rows.String())
		}
	}
	fmt.Fprintf(&b, "\n## Scenarios\n\nThis is the output of `%s --list`.\n\n```text\n", u.command())
	if err := WriteList(&b, u.Scenarios); err != nil {
		return err
	}
	b.WriteString("```\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// checks names what checks a rule, for a table. A part refers to its rule.
func (u *Suite) checks(r Rule) string {
	if whole := numberOfRule(r.Code); whole != r.Code {
		return "see " + whole
	}
	var names []string
	for _, s := range u.citing(r) {
		names = append(names, "`"+s.Name+"`")
	}
	return cmp.Or(strings.Join(names, " "), u.checkedBy(r))
}

// rulesText lists every rule that scenarios, reports or comments cite; its first lines
// describe its form.
//
//go:embed rules.txt
var rulesText string

// rules are the rules of rulesText, in the order of compareCodes.
var rules = sync.OnceValue(func() []Rule { return ParseRules(rulesText) })

// ParseRules reads a list of rules in the form that the first lines of rules.txt describe.
func ParseRules(text string) []Rule {
	var list []Rule
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if why, ok := strings.CutPrefix(line, "\tWhy: "); ok {
			list[len(list)-1].Why = why
		} else if by, ok := strings.CutPrefix(line, "\tChecked by: "); ok {
			list[len(list)-1].Checked = by
		} else {
			code, text, _ := strings.Cut(line, " ")
			list = append(list, Rule{Code: code, Text: text})
		}
	}
	return list
}
