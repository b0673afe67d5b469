package llm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// heed remembers the answer to an approval if the client wants that, and says which
// rule it made. An error says why the answer cannot be remembered, fit to be shown.
func (r *run) heed(c *call, approved bool, note contracts.AnswerNote) (string, error) {
	switch {
	case note.Remember == "" && note.Rule == "":
		return "", nil
	case note.Remember == "":
		return "", errors.New(`an answer is remembered with "remember":"session"`)
	case c.omitted > 0 || c.hides:
		return "", errors.New("nobody was shown all of the arguments")
	}
	d, read := deny, parseRule
	if approved {
		d = allow
	}
	if note.Rule != "" {
		read = checkedRule
	}
	text := cmp.Or(note.Rule, ruleFor(c))
	if text == "" {
		return "", fmt.Errorf(`such a call can be remembered only by a rule that the answer names, as in {"remember":"session","rule":%q}`, c.Tool)
	}
	parsed, err := read(text, d)
	if err != nil {
		return "", err
	}
	s := subjectOf(r.opts.Workspace, c.Tool, c.Args)
	if got, _ := (Rules{[]rule{parsed}}).decide(s); got != d {
		where := s.leads()
		if where != "" {
			where = ", whose path leads to " + where
		}
		return "", fmt.Errorf("the rule %s does not match this call%s", text, where)
	}
	kept := remembered{d, parsed.text}
	return "Remembered for the session: " + kept.String(), r.journal.add(record{Rule: &kept})
}

// ruleFor returns the rule that means exactly a call of ours, or "" if the rule would
// be read as a pattern. There is none for the tools of others, whose calls are more
// than a line or a path.
func ruleFor(c *call) string {
	key := ownSubjects[c.Tool]
	if key == "" {
		return ""
	}
	about, ok := argument(c.Args, key)
	if !ok && searches(c.Tool) {
		about, ok = ".", true
	}
	if key == commandKey {
		about = strings.Trim(about, blanks)
		ok = about != "*" && about != "**" && !strings.HasSuffix(about, ":*") && !strings.HasSuffix(about, `\`)
	} else {
		ok = ok && !strings.Contains(about, "~") && !strings.HasSuffix(about, "/")
		about = ordinary.Replace(about)
	}
	if !ok || about == "" {
		return ""
	}
	return c.Tool + "(" + about + ")"
}

// ordinary escapes the special characters of path patterns.
var ordinary = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "{", `\{`)

// ruled answers the prompts /rules and /forget RULE about remembered rules without the
// model. It returns "" for other prompts.
func (r *run) ruled(work contracts.Work) (string, error) {
	word, rule, _ := strings.Cut(strings.TrimSpace(work.Content), " ")
	rule = strings.TrimSpace(rule)
	switch {
	case len(work.Attachments) == 0 && word == "/rules" && rule == "":
		return r.rulesTold(), nil
	case len(work.Attachments) > 0 || word != "/forget":
		return "", nil
	}
	at := r.indexOf(rule)
	if at < 0 {
		return "There is no rule to forget that reads: " + rule + "\n\n" + r.rulesTold(), nil
	}
	was := r.journal.rules[at]
	return "Forgotten: " + was.String(), r.add(record{Rule: &remembered{Rule: was.Rule}})
}

// indexOf returns the index of a remembered rule, -1 if there is none. The rule may be
// written as it was given or as it is shown, alone or in the list, with any blanks.
func (r *run) indexOf(rule string) int {
	rule = folded(strings.TrimPrefix(rule, "- "))
	return slices.IndexFunc(r.journal.rules, func(m remembered) bool {
		return slices.Contains([]string{folded(m.Rule), folded(m.shown()), folded(m.String())}, rule)
	})
}

func folded(text string) string { return strings.Join(strings.Fields(text), " ") }

func (r *run) rulesTold() string {
	if len(r.journal.rules) == 0 {
		return "No answer is remembered for the session."
	}
	text := "Remembered for the session; /forget RULE takes one back:\n"
	for _, m := range r.journal.rules {
		text += "\n- " + strings.ReplaceAll(m.String(), "\n", "\n  ")
	}
	return text
}
