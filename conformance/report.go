package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// An Outcome is how a scenario ended.
type Outcome string

const (
	Passed  Outcome = "pass"
	Failed  Outcome = "fail"
	Skipped Outcome = "skip"
)

// A Report is the judgement on one server.
type Report struct {
	Target   string
	Duration time.Duration
	Results  []Result // in the order of Scenarios
}

// A Result is the judgement of one scenario.
type Result struct {
	Name     string
	Title    string
	Rules    []string
	Outcome  Outcome
	Reason   string // why it was skipped
	Failure  *Failure
	Duration time.Duration
}

// A Failure says what the server did wrong.
type Failure struct {
	Rule     string   // the rule that was broken
	Message  string   // what was expected and what came
	Exchange []string // the frames that show it: time, peer, direction, text
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

// OK reports whether nothing failed and something passed: a run in which every
// scenario was skipped has judged nothing.
func (r *Report) OK() bool { return r.Count(Failed) == 0 && r.Count(Passed) > 0 }

// WriteText writes the report for people: one line per scenario, failures with
// their exchange, and a sum.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for i := range r.Results {
		res := &r.Results[i]
		fmt.Fprintf(&b, "%-4s  %-44s  %s", res.Outcome, res.Name, strings.Join(res.Rules, " "))
		switch {
		case res.Outcome == Skipped:
			fmt.Fprintf(&b, "  (%s)", res.Reason)
		case res.Duration >= time.Second:
			fmt.Fprintf(&b, "  %.1fs", res.Duration.Seconds())
		}
		b.WriteByte('\n')
		if res.Failure != nil {
			res.Failure.write(&b)
		}
	}
	fmt.Fprintf(&b, "%s: %d passed, %d failed, %d skipped in %.1fs\n", r.Target,
		r.Count(Passed), r.Count(Failed), r.Count(Skipped), r.Duration.Seconds())
	_, err := io.WriteString(w, b.String())
	return err
}

func (f *Failure) write(b *strings.Builder) {
	fmt.Fprintf(b, "      %s: %s\n", f.Rule, f.Message)
	for _, line := range f.Exchange {
		fmt.Fprintf(b, "        %s\n", line)
	}
}

// WriteJSON writes the report as one JSON object. Durations are milliseconds.
func (r *Report) WriteJSON(w io.Writer) error {
	type failure struct {
		Rule     string   `json:"rule"`
		Message  string   `json:"message"`
		Exchange []string `json:"exchange"`
	}
	type result struct {
		Name       string   `json:"name"`
		Title      string   `json:"title"`
		Rules      []string `json:"rules"`
		Outcome    Outcome  `json:"outcome"`
		Reason     string   `json:"reason,omitempty"`
		DurationMS int64    `json:"duration_ms"`
		Failure    *failure `json:"failure,omitempty"`
	}
	results := make([]result, len(r.Results))
	for i := range r.Results {
		res := &r.Results[i]
		results[i] = result{Name: res.Name, Title: res.Title, Rules: res.Rules, Outcome: res.Outcome,
			Reason: res.Reason, DurationMS: res.Duration.Milliseconds()}
		if res.Failure != nil {
			results[i].Failure = &failure{res.Failure.Rule, res.Failure.Message, res.Failure.Exchange}
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Target     string   `json:"target"`
		DurationMS int64    `json:"duration_ms"`
		Passed     int      `json:"passed"`
		Failed     int      `json:"failed"`
		Skipped    int      `json:"skipped"`
		Results    []result `json:"results"`
	}{r.Target, r.Duration.Milliseconds(), r.Count(Passed), r.Count(Failed), r.Count(Skipped), results})
}

// WriteJUnit writes the report in the XML that build servers read.
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
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	err := e.Encode(struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Time     string     `xml:"time,attr"`
		Cases    []testcase `xml:"testcase"`
	}{Name: "conformance of " + r.Target, Tests: len(cases), Failures: r.Count(Failed),
		Skipped: r.Count(Skipped), Time: seconds(r.Duration), Cases: cases})
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// WriteList writes the scenarios with their rules, for --list.
func WriteList(w io.Writer) error {
	var b strings.Builder
	for _, s := range Scenarios() {
		fmt.Fprintf(&b, "%-44s  %-24s  %s\n", s.Name, strings.Join(s.Rules, " "), s.Title)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
