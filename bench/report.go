package main

import (
	"fmt"
	"math"
	"strings"
)

// A target is a promise about speed and what was measured of it.
type target struct {
	what   string
	limit  float64 // the median must not exceed it; infinite: it is only told
	unit   string  // of limit and got, e.g. "x" or "KB"
	versus string  // the peer that ran beside it; (abs) for a budget of its own
	got    series
	void   string // why there is no result
}

// verdict is in words, because a table of them is read by people.
func (t target) verdict(quick bool) string {
	switch median := t.got.summarize().median; {
	case t.void != "":
		return "void: " + t.void
	case math.IsNaN(median):
		return "not measured"
	case quick:
		return "smoke run"
	case math.IsInf(t.limit, 1):
		return "for information"
	case median <= t.limit:
		return "met"
	default:
		return "missed"
	}
}

// bound is the limit as the report shows it.
func (t target) bound() string {
	if math.IsInf(t.limit, 1) {
		return "none"
	}
	return "<= " + number(t.limit) + " " + t.unit
}

// A report is the result of a run.
type report struct {
	quick   bool
	about   []string // how, where and with what it was run
	targets []target
	tables  []table
}

// String renders the report as Markdown.
func (r *report) String() string {
	var b strings.Builder
	b.WriteString("# Benchmarks\n\n")
	for _, line := range r.about {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	b.WriteString("\n")
	sum := table{
		title: "Targets",
		notes: []string{"Each value is the median of the repetitions, with the smallest and the largest. A value in x is a ratio, " +
			"formed inside each repetition between servers that ran one after the other; (abs) marks a budget without a peer. " +
			"Smaller is better."},
		head: []string{"what", "measured", "target", "against", "verdict"},
	}
	for _, t := range r.targets {
		sum.add(t.what, spread(t.got)+" "+t.unit, t.bound(), t.versus, t.verdict(r.quick))
	}
	b.WriteString(sum.String())
	for _, t := range r.tables {
		b.WriteString("\n")
		b.WriteString(t.String())
	}
	return b.String()
}

// show adds a table to the report.
func (r *report) show(t table) { r.tables = append(r.tables, t) }

// judge adds targets to the report.
func (r *report) judge(targets ...target) { r.targets = append(r.targets, targets...) }
