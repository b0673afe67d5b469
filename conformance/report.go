package conformance

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/conformance/shape"
)

// An Outcome is how a scenario ended.
type Outcome string

const (
	Passed  Outcome = "pass"
	Advised Outcome = "advice" // passed by the published protocol, with advice
	Failed  Outcome = "fail"
	Skipped Outcome = "skip"
)

// A Report is the judgement on one server.
type Report struct {
	Target   string
	Duration time.Duration
	Results  []Result // in the order of Scenarios

	Incomplete bool // the run was cancelled: results may be skipped that would be judged
	Left       int  // sessions at the server that scenarios made and could not end
}

// A Result is the judgement of one scenario.
type Result struct {
	Name     string        `json:"name"`
	Title    string        `json:"title"`
	Rules    []string      `json:"rules"`
	Outcome  Outcome       `json:"outcome"`
	Reason   string        `json:"reason,omitempty"` // why it was skipped
	Failure  *Failure      `json:"failure,omitempty"`
	Advice   []Advice      `json:"advice,omitempty"` // with any outcome; without what another scenario gave, unless it ended this one
	Duration time.Duration `json:"-"`
}

// A Failure says what the server did wrong.
type Failure struct {
	Rule     string   `json:"rule"`     // the rule that was broken
	Message  string   `json:"message"`  // what was expected and what came
	Exchange []string `json:"exchange"` // the frames that show it: time, peer, direction, text
}

// Count returns how many scenarios ended so.
func (r *Report) Count(o Outcome) int {
	n := 0
	for i := range r.Results {
		if r.Results[i].Outcome == o {
			n++
		}
	}
	return n
}

// OK reports whether the run is complete, nothing failed and something passed, with
// advice or without: a run in which every scenario was skipped has judged nothing.
func (r *Report) OK() bool {
	return !r.Incomplete && r.Count(Failed) == 0 && r.Count(Passed)+r.Count(Advised) > 0
}

// A Printer writes a report for people, each part as soon as it is given.
type Printer struct {
	w     io.Writer
	suite *Suite
	given map[string]string // rule of an advice to the first scenario that gave it
	err   error             // the first one of w
}

// NewPrinter returns a printer that writes to w and has the texts of rules from the suite.
func NewPrinter(w io.Writer, suite *Suite) *Printer {
	return &Printer{w: w, suite: suite, given: map[string]string{}}
}

func (p *Printer) write(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, text)
	}
}

// Result writes one line about a scenario, a failure with its exchange, and its advice.
// For advice that an earlier scenario gave, it writes the name of that scenario.
func (p *Printer) Result(res *Result) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-6s  %-44s  %s", res.Outcome, res.Name, strings.Join(res.Rules, " "))
	switch {
	case res.Outcome == Skipped:
		fmt.Fprintf(&b, "  (%s)", res.Reason)
	case res.Duration >= time.Second:
		fmt.Fprintf(&b, "  %.1fs", res.Duration.Seconds())
	}
	b.WriteByte('\n')
	if f := res.Failure; f != nil {
		fmt.Fprintf(&b, "        %s: %s\n", f.Rule, f.Message)
		for _, line := range f.Exchange {
			fmt.Fprintf(&b, "          %s\n", line)
		}
	}
	for _, a := range res.Advice {
		if first, again := p.given[a.rule]; again {
			fmt.Fprintf(&b, "        %s: see %s\n", a.Rule, first)
			continue
		}
		p.given[a.rule] = res.Name
		fmt.Fprintf(&b, "        %s: %s\n          %s\n", a.Rule, a.Text, a.Seen)
	}
	p.write(b.String())
}

// Sum writes the broken rules with the scenarios that failed, how many sessions are left,
// and one line that counts all. It returns the first error of writing.
func (p *Printer) Sum(r *Report) error {
	var b strings.Builder
	p.broken(&b, r)
	if r.Left > 0 {
		fmt.Fprintf(&b, "sessions that could not be ended and may be left at the server: %d\n", r.Left)
	}
	fmt.Fprintf(&b, "%s: ", r.Target)
	if r.Incomplete {
		b.WriteString("incomplete: ")
	}
	fmt.Fprintf(&b, "%d passed, ", r.Count(Passed))
	if n := r.Count(Advised); n > 0 {
		fmt.Fprintf(&b, "%d passed with advice, ", n)
	}
	fmt.Fprintf(&b, "%d failed, %d skipped in %.1fs\n", r.Count(Failed), r.Count(Skipped), r.Duration.Seconds())
	p.write(b.String())
	return p.err
}

// Bounds of what Sum writes about one rule.
const (
	maxAlso    = 8   // scenarios that failed after the first one
	maxMessage = 240 // bytes of the first failure
)

// broken writes each broken rule, the one with the most failures first: what it demands,
// its first failure, and the names of other scenarios that failed.
func (p *Printer) broken(b *strings.Builder, r *Report) {
	failed := map[string][]*Result{}
	for i := range r.Results {
		if f := r.Results[i].Failure; f != nil {
			failed[f.Rule] = append(failed[f.Rule], &r.Results[i])
		}
	}
	if len(failed) == 0 {
		return
	}
	codes := slices.SortedFunc(maps.Keys(failed), func(x, y string) int {
		return cmp.Or(len(failed[y])-len(failed[x]), compareCodes(x, y))
	})
	b.WriteString("failed, by rule:\n")
	for _, code := range codes {
		text := ""
		if at, ok := findRule(p.suite.Rules, code); ok {
			text = ": " + p.suite.Rules[at].Text
		}
		first, also := failed[code][0], failed[code][1:]
		fmt.Fprintf(b, "  %s (%d)%s\n      %s: %s\n", code, len(also)+1, text, first.Name, abridge([]byte(first.Failure.Message), maxMessage))
		if len(also) == 0 {
			continue
		}
		b.WriteString("      also")
		for _, res := range also[:min(len(also), maxAlso)] {
			b.WriteString(" " + res.Name)
		}
		if more := len(also) - maxAlso; more > 0 {
			fmt.Fprintf(b, " and %d more", more)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "For more about a rule: %s --explain %s\n", p.suite.command(), codes[0])
}

// WriteJSON writes the report as one JSON object. Durations are milliseconds.
func (r *Report) WriteJSON(w io.Writer) error {
	type result struct {
		*Result
		DurationMS int64 `json:"duration_ms"`
	}
	results := make([]result, len(r.Results))
	for i := range r.Results {
		results[i] = result{&r.Results[i], r.Results[i].Duration.Milliseconds()}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Target     string   `json:"target"`
		Incomplete bool     `json:"incomplete,omitempty"`
		Left       int      `json:"sessions_left,omitempty"`
		DurationMS int64    `json:"duration_ms"`
		Passed     int      `json:"passed"`
		Advised    int      `json:"advised"`
		Failed     int      `json:"failed"`
		Skipped    int      `json:"skipped"`
		Results    []result `json:"results"`
	}{r.Target, r.Incomplete, r.Left, r.Duration.Milliseconds(), r.Count(Passed), r.Count(Advised), r.Count(Failed), r.Count(Skipped), results})
}

// WriteJUnit writes the report in the XML that build servers read. JUnit has no
// outcome for advice: a scenario with advice passes, and the advice is its output.
func (r *Report) WriteJUnit(w io.Writer) error {
	type message struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	type testcase struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		Time    string   `xml:"time,attr"`
		Failure *message `xml:"failure"`
		Skipped *message `xml:"skipped"`
		Output  string   `xml:"system-out,omitempty"`
	}
	type property struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	cases := make([]testcase, len(r.Results))
	for i := range r.Results {
		res := &r.Results[i]
		group, name, _ := strings.Cut(res.Name, "/")
		cases[i] = testcase{Class: "conformance." + group, Name: name, Time: seconds(res.Duration)}
		switch {
		case res.Failure != nil:
			cases[i].Failure = &message{res.Failure.Rule + ": " + res.Failure.Message, strings.Join(res.Failure.Exchange, "\n")}
		case res.Outcome == Skipped:
			cases[i].Skipped = &message{Message: res.Reason}
		}
		for _, a := range res.Advice {
			cases[i].Output += fmt.Sprintf("advice %s: %s\n%s\n", a.Rule, a.Text, a.Seen)
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	err := e.Encode(struct {
		XMLName    xml.Name   `xml:"testsuite"`
		Name       string     `xml:"name,attr"`
		Tests      int        `xml:"tests,attr"`
		Failures   int        `xml:"failures,attr"`
		Skipped    int        `xml:"skipped,attr"`
		Time       string     `xml:"time,attr"`
		Properties []property `xml:"properties>property"`
		Cases      []testcase `xml:"testcase"`
	}{Name: "conformance of " + r.Target, Tests: len(cases), Failures: r.Count(Failed),
		Skipped: r.Count(Skipped), Time: seconds(r.Duration), Cases: cases,
		Properties: []property{{"advised", strconv.Itoa(r.Count(Advised))}, {"incomplete", strconv.FormatBool(r.Incomplete)}}})
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// WriteList writes scenarios with their rules, for --list.
func WriteList(w io.Writer, scenarios []Scenario) error {
	var b strings.Builder
	for _, s := range scenarios {
		fmt.Fprintf(&b, "%-44s  %-24s  %s\n", s.Name, strings.Join(s.Rules, " "), s.Title)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

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
	if at, ok := findRule(rules(), code); ok && rules()[at].Why != "" {
		return rules()[at].Text + " " + rules()[at].Why
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
