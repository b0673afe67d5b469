package tool

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// diffContext is how many unchanged lines are shown around a change.
	diffContext = 3

	// Bounds on a diff that is shown.
	maxDiffLines = 200
	maxDiffLine  = 300
)

// diff returns what the changes do to a text, as a unified diff.
func diff(name, text string, changes []change) string {
	lines := slices.Collect(strings.Lines(text))
	regions := regionsOf(lines, text, changes)
	d := diffText{lines: lines}
	d.line("--- a/" + name + "\n")
	d.line("+++ b/" + name + "\n")
	for len(regions) > 0 {
		n := 1
		for n < len(regions) && regions[n].from-regions[n-1].to <= 2*diffContext {
			n++
		}
		d.hunk(regions[:n])
		regions = regions[n:]
	}
	if d.left > 0 {
		fmt.Fprintf(&d.b, "[%s of the diff left out]\n", count(d.left, "more line"))
	}
	return d.b.String()
}

// A region is lines from one number up to another, counted from 0, in whose place
// others come.
type region struct {
	from, to int
	lines    []string
}

// regionsOf returns the lines that the changes touch, in order.
func regionsOf(lines []string, text string, changes []change) []region {
	starts := make([]int, 1, len(lines)+1) // of the lines, and the end of the text
	for _, l := range lines {
		starts = append(starts, starts[len(starts)-1]+len(l))
	}
	lineAt := func(at int) int {
		n, begins := slices.BinarySearch(starts, at)
		if !begins || n > 0 && n == len(lines) && !strings.HasSuffix(text, "\n") {
			n--
		}
		return n
	}
	var regions []region
	for i := 0; i < len(changes); {
		from := lineAt(changes[i].start)
		to, done := from, starts[from]
		var b strings.Builder
		for ; i < len(changes) && (to == from || changes[i].start < starts[to]); i++ {
			b.WriteString(text[done:changes[i].start])
			b.WriteString(changes[i].text)
			done = changes[i].end
			to = min(lineAt(done)+1, len(lines))
		}
		b.WriteString(text[done:starts[to]])
		regions = append(regions, trimmed(lines, region{from, to, slices.Collect(strings.Lines(b.String()))}))
	}
	return regions
}

// trimmed returns the region without the lines at its ends that stay the same.
func trimmed(lines []string, r region) region {
	for r.from < r.to && len(r.lines) > 0 && lines[r.from] == r.lines[0] {
		r.from++
		r.lines = r.lines[1:]
	}
	for r.from < r.to && len(r.lines) > 0 && lines[r.to-1] == r.lines[len(r.lines)-1] {
		r.to--
		r.lines = r.lines[:len(r.lines)-1]
	}
	return r
}

// A diffText is a diff that is being written.
type diffText struct {
	lines []string // of the old text
	grown int      // by how many lines the text has grown so far

	b    strings.Builder
	n    int // lines in b
	left int // lines that had no room
}

// hunk writes regions that are near to each other, with the lines around them.
func (d *diffText) hunk(regions []region) {
	from := max(0, regions[0].from-diffContext)
	to := min(len(d.lines), regions[len(regions)-1].to+diffContext)
	grown := 0
	for _, r := range regions {
		grown += len(r.lines) - (r.to - r.from)
	}
	d.line(fmt.Sprintf("@@ -%s +%s @@\n", span(from, to-from), span(from+d.grown, to-from+grown)))
	d.grown += grown
	at := from
	for _, r := range regions {
		d.all(" ", d.lines[at:r.from])
		d.all("-", d.lines[r.from:r.to])
		d.all("+", r.lines)
		at = r.to
	}
	d.all(" ", d.lines[at:to])
}

// span returns where lines begin and how many they are, as diffs say it.
func span(from, n int) string {
	if n > 0 {
		from++ // none are said to come after a line
	}
	return fmt.Sprintf("%d,%d", from, n)
}

func (d *diffText) all(sign string, lines []string) {
	for _, l := range lines {
		d.line(sign + l)
	}
}

// line writes a line if there is room.
func (d *diffText) line(text string) {
	if d.n >= maxDiffLines {
		d.left++
		return
	}
	d.n++
	whole, ended := strings.CutSuffix(text, "\n")
	d.b.WriteString(cutLine(valid(whole), maxDiffLine) + "\n")
	if !ended {
		d.b.WriteString("\\ No newline at end of file\n")
	}
}
