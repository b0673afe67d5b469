package conformance

import (
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/conformance/shape"
	"github.com/seed-028515a8/maestro/contracts"
)

// An Advice names a rule of this project that a server breaks and that the published
// protocol does not have. It is no failure.
type Advice struct {
	Rule string `json:"rule"` // such as A46, or the section 1.11
	Text string `json:"text"` // what to do, and why
	Seen string `json:"seen"` // what was expected and what came

	rule string // its whole code
	ends bool   // it ended the scenario
}

// keepNew drops the advice of a result that an earlier result gave, whose rules are in
// given. A scenario that ended with an advice keeps it.
func (r *Result) keepNew(given map[string]bool) {
	r.Advice = slices.DeleteFunc(r.Advice, func(a Advice) bool {
		again := given[a.rule]
		given[a.rule] = true
		return again && !a.ends
	})
	if r.Outcome == Passed && len(r.Advice) > 0 {
		r.Outcome = Advised
	}
}

// numberOfRule returns the part of a code that reports show: the number.
func numberOfRule(rule string) string {
	number, _, _ := strings.Cut(rule, ":")
	return number
}

// published reports whether the server is judged by the published protocol alone.
func (s *Session) published() bool { return s.config.Profile == contracts.ProfilePublic }

// isOptional reports whether breaking a rule is met with advice.
func (s *Session) isOptional(rule string) bool { return s.published() && adviceFor(rule) != "" }

// adviceFor says what to do about a rule that the published protocol does not have, and
// why. It returns nothing for another rule.
func adviceFor(code string) string {
	if at, ok := findRule(code); ok && rules[at].Why != "" {
		return rules[at].Text + " " + rules[at].Why
	}
	return ""
}

// checkShape fails if there are problems that the published schemas have too, and
// advises about the others.
func (s *Session) checkShape(rule, what string, problems []shape.Problem, shown string) {
	var wrong []shape.Problem
	for _, p := range problems {
		if p.Rule == "" {
			wrong = append(wrong, p)
			continue
		}
		s.advise(p.Rule, "%s: %s in %s", what, p, shown)
	}
	if len(wrong) > 0 {
		s.fail(rule, "%s departs from its shape: %s in %s", what, shape.Join(wrong), shown)
	}
}
