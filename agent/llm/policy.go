package llm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
)

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

// A wish is what an answer to an approval may carry in its reason, or in a text
// of its content.
type wish struct {
	Remember string `json:"remember"`
	Rule     string `json:"rule"`
	Reason   string `json:"reason"`
}

// wishOf returns what a client wants beside its verdict, and its reason without
// that.
func wishOf(out contracts.Outcome) (w wish, reason string) {
	if json.Unmarshal([]byte(out.Reason), &w) == nil && strings.HasPrefix(strings.TrimSpace(out.Reason), "{") {
		return w, w.Reason
	}
	for _, block := range out.Content {
		if block.Type == "text" && json.Unmarshal([]byte(block.Text), &w) == nil {
			return w, out.Reason
		}
	}
	return wish{}, out.Reason
}

// heed remembers the answer to an approval if the client wants that. What cannot
// be remembered is an error fit to be shown.
func (r *run) heed(c *call, out contracts.Outcome, w wish) error {
	if w.Remember == "" || out.By != contracts.ResolvedByUser {
		return nil
	}
	if w.Remember != "session" {
		return fmt.Errorf("an answer can be remembered for the session, not for %q", w.Remember)
	}
	if _, omitted := c.show(); omitted > 0 {
		return errors.New("nobody was shown all of the arguments")
	}
	d := deny
	if out.Verdict == contracts.VerdictApproved {
		d = allow
	}
	text := cmp.Or(w.Rule, ruleFor(c))
	if text == "" {
		return fmt.Errorf(`such a call can be remembered only by a rule that the answer names, as in {"remember":"session","rule":%q}`, c.Tool)
	}
	parsed, err := parseRule(text, d)
	if err != nil {
		return err
	}
	s := subjectOf(r.opts.Workspace, c.Tool, c.Args)
	if got, _ := (Rules{[]rule{parsed}}).decide(s); got != d {
		return fmt.Errorf("the rule %s does not match this call", text)
	}
	return r.journal.add(record{Rule: &remembered{d, parsed.text}})
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
		ok = about != "*" && about != "**" && !strings.HasSuffix(about, ":*")
	} else if strings.ContainsAny(about, "*~") || strings.HasSuffix(about, "/") {
		ok = false
	}
	if !ok || about == "" {
		return ""
	}
	return c.Tool + "(" + about + ")"
}
