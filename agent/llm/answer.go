package llm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

// A reaction is what comes of an answer to an approval.
type reaction struct {
	verdict contracts.Verdict // denied, where the answer cannot be read
	no      string            // what the model is told if the call does not run; "" if it does
	status  string            // what clients are told; may be empty
}

// react acts on what an answer says beside yes or no. A yes that means something
// which cannot be read is none: it may have been meant for another call, or with a
// condition.
func (r *run) react(c *call, out contracts.Outcome) reaction {
	re := reaction{verdict: out.Verdict}
	w, reason, err := out.Note()
	if err == nil && w.OptionID != "" {
		err = errors.New("there are no options to choose from")
	}
	if err != nil && out.Verdict == contracts.VerdictApproved {
		return reaction{
			verdict: contracts.VerdictDenied,
			no:      "Not run: the person's answer could not be read. If the call is still wanted, make it again, so that they are asked again.",
			status:  "Not run: the answer is not understood: " + shownError(err) + `. Want a plain yes, or one such as {"remember":"session"}`,
		}
	}
	if err == nil {
		re.status, err = r.heed(c, out, w)
	}
	if err != nil {
		re.status = "Not remembered: " + shownError(err)
	}
	if out.Verdict == contracts.VerdictApproved {
		return re
	}
	re.no = "Not run: the request was " + string(out.Verdict) + " by " + string(out.By) + "."
	if reason != "" {
		re.no += " Reason: " + reason
	}
	return re
}

// heed remembers the answer to an approval if the client wants that, and says what.
// What cannot be remembered is an error fit to be shown.
func (r *run) heed(c *call, out contracts.Outcome, w contracts.AnswerNote) (string, error) {
	switch {
	case w.Remember == "" && w.Rule == "":
		return "", nil
	case w.Remember == "":
		return "", errors.New(`an answer is remembered with "remember":"session"`)
	}
	if _, omitted := c.show(); omitted > 0 || c.hides {
		return "", errors.New("nobody was shown all of the arguments")
	}
	d := deny
	if out.Verdict == contracts.VerdictApproved {
		d = allow
	}
	text := cmp.Or(w.Rule, ruleFor(c))
	if text == "" {
		return "", fmt.Errorf(`such a call can be remembered only by a rule that the answer names, as in {"remember":"session","rule":%q}`, c.Tool)
	}
	read := parseRule
	if w.Rule != "" {
		read = checkedRule
	}
	parsed, err := read(text, d)
	if err != nil {
		return "", err
	}
	s := subjectOf(r.opts.Workspace, c.Tool, c.Args)
	if got, _ := (Rules{[]rule{parsed}}).decide(s); got != d {
		if leads := s.leads(); leads != "" {
			return "", fmt.Errorf("the rule %s does not match this call, whose path leads to %s", text, leads)
		}
		return "", fmt.Errorf("the rule %s does not match this call", text)
	}
	kept := remembered{d, parsed.text}
	return "Remembered for the session: " + kept.String(), r.journal.add(record{Rule: &kept})
}

// ruleFor returns the rule that means exactly what a call does, or "" where it
// would be read as a pattern, or where only the answer can say what is meant: the
// tools of others are more than a line or a path.
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

// ordinary makes the characters that patterns of paths know ordinary ones.
var ordinary = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "{", `\{`)

// The prompts that are about what is remembered. They are answered without the
// model, which does not learn of them.
const (
	rulesPrompt  = "/rules"
	forgetPrompt = "/forget"
)

// ruled answers a prompt that is about what is remembered; ok is false if it is
// about something else.
func (r *run) ruled(work contracts.Work) (text string, ok bool, err error) {
	word, rule, _ := strings.Cut(strings.TrimSpace(work.Content), " ")
	rule = strings.TrimSpace(rule)
	switch {
	case len(work.Attachments) > 0:
		return "", false, nil
	case word == rulesPrompt && rule == "":
		return r.rulesTold(), true, nil
	case word != forgetPrompt:
		return "", false, nil
	}
	at := r.indexOf(rule)
	if at < 0 {
		return "There is no rule to forget that reads: " + rule + "\n\n" + r.rulesTold(), true, nil
	}
	was := r.journal.rules[at]
	if err := r.journal.add(record{Rule: &remembered{Rule: was.Rule}}); err != nil {
		return "", true, r.failed(err)
	}
	return "Forgotten: " + was.String(), true, nil
}

// indexOf returns which remembered rule is meant, -1 if none: one as it was given,
// or as it is shown, alone or in the list, whatever its blanks became there.
func (r *run) indexOf(rule string) int {
	if at := slices.IndexFunc(r.journal.rules, func(m remembered) bool { return m.Rule == rule }); at >= 0 {
		return at
	}
	rule = folded(strings.TrimPrefix(rule, "- "))
	return slices.IndexFunc(r.journal.rules, func(m remembered) bool {
		return slices.Contains([]string{folded(m.Rule), folded(m.shown()), folded(m.String())}, rule)
	})
}

func folded(text string) string { return strings.Join(strings.Fields(text), " ") }

// rulesTold lists what is remembered.
func (r *run) rulesTold() string {
	if len(r.journal.rules) == 0 {
		return "No answer is remembered for the session."
	}
	text := "Remembered for the session; " + forgetPrompt + " RULE takes one back:\n"
	for _, m := range r.journal.rules {
		text += "\n- " + strings.ReplaceAll(m.String(), "\n", "\n  ")
	}
	return text
}
