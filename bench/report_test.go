package main

import (
	"math"
	"strings"
	"testing"
)

func TestTableIsAlignedMarkdown(t *testing.T) {
	tab := table{title: "Sizes", notes: []string{"In bytes."}, head: []string{"what", "size"}}
	tab.add("a|b", "1")
	tab.add("größer", "22", "cut")
	tab.add("short")
	want := `## Sizes

In bytes.

| what   | size |
|--------|------|
| a\|b   | 1    |
| größer | 22   |
| short  |      |
`
	if got := tab.String(); got != want {
		t.Errorf("table: got\n%s\nwant\n%s", got, want)
	}
}

func TestNumbersKeepThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 0.0351: "0.035", 1.284: "1.28", 12.84: "12.8", 1284.4: "1284", -0.5: "-0.500",
		math.Inf(1): "-",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v): got %q, want %q", v, got, want)
		}
	}
	if got := spread(series{0.5, 0.25, 1}); got != "0.500 (0.250..1.00)" {
		t.Errorf("spread: got %q, want median and extremes", got)
	}
	if got := spread(series{0.5, math.NaN()}); got != "-" {
		t.Errorf("spread with a repetition missing: got %q, want a dash", got)
	}
}

func TestVerdictComparesTheMedian(t *testing.T) {
	for _, tt := range []struct {
		name  string
		in    target
		quick bool
		want  string
	}{
		{"at the limit", target{limit: 2, got: series{1, 2, 9}}, false, "met"},
		{"above", target{limit: 2, got: series{1, 2.1, 3}}, false, "missed"},
		{"repetition missing", target{limit: 2, got: series{1, math.NaN()}}, false, "not measured"},
		{"not run", target{limit: 2}, false, "not measured"},
		{"void", target{limit: 2, got: series{1}, void: "lost a message"}, false, "void: lost a message"},
		{"only told", target{limit: math.Inf(1), got: series{3}}, false, "for information"},
		{"only told and void", target{limit: math.Inf(1), void: "lost a message"}, false, "void: lost a message"},
		{"quick", target{limit: 2, got: series{1}}, true, "smoke run"},
	} {
		if got := tt.in.verdict(tt.quick); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestReportShowsTargetsBeforeTables(t *testing.T) {
	r := report{
		about:   []string{"run by a test"},
		targets: []target{{what: "cost", limit: 0.06, unit: "x", versus: "naive", got: series{0.03, 0.04, 0.05}}},
		tables:  []table{{title: "Details", head: []string{"a"}}},
	}
	r.targets = append(r.targets, target{what: "ratio", limit: math.Inf(1), unit: "x", versus: "peer", got: series{1}})
	got := r.String()
	told := "| ratio | 1.00 (1.00..1.00) x    | none       | peer    | for information |"
	if !strings.Contains(got, told) {
		t.Errorf("report lacks the row %q:\n%s", told, got)
	}
	row := "| cost  | 0.040 (0.030..0.050) x | <= 0.060 x | naive   | met             |"
	if !strings.Contains(got, row) {
		t.Errorf("report lacks the row %q:\n%s", row, got)
	}
	about, targets, details := strings.Index(got, "- run by a test"), strings.Index(got, "## Targets"), strings.Index(got, "## Details")
	if about < 0 || targets < about || details < targets {
		t.Errorf("positions of about, targets, details: got %d, %d, %d; want rising", about, targets, details)
	}
}
