package llm

import "slices"

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
