package main

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// A table is rendered as Markdown, padded so that it can be read as it is.
type table struct {
	title string
	notes []string // paragraphs above the table
	head  []string
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// String renders the table. Cells beyond the head are cut, missing ones are
// empty, and a bar inside a cell is escaped.
func (t *table) String() string {
	width := make([]int, len(t.head))
	lines := append([][]string{t.head}, t.rows...)
	cells := make([][]string, len(lines))
	for i, line := range lines {
		cells[i] = make([]string, len(t.head))
		for j := range min(len(line), len(t.head)) {
			cells[i][j] = strings.ReplaceAll(line[j], "|", `\|`)
		}
		for j, cell := range cells[i] {
			width[j] = max(width[j], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", t.title)
	for _, note := range t.notes {
		fmt.Fprintf(&b, "%s\n\n", note)
	}
	for i, line := range cells {
		b.WriteString("|")
		for j, cell := range line {
			fmt.Fprintf(&b, " %s%s |", cell, strings.Repeat(" ", width[j]-utf8.RuneCountInString(cell)))
		}
		b.WriteString("\n")
		if i == 0 {
			for _, w := range width {
				b.WriteString("|" + strings.Repeat("-", w+2))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// number shows three significant digits, and a dash for a value that is missing.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1 || a == 0:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// middle shows the median of a series.
func middle(s series) string { return number(s.summarize().median) }

// spread shows the median of a series with its extremes.
func spread(s series) string {
	sum := s.summarize()
	if math.IsNaN(sum.median) {
		return "-"
	}
	return fmt.Sprintf("%s (%s..%s)", number(sum.median), number(sum.low), number(sum.high))
}
