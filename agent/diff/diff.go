// Package diff shows changes of texts in the unified form.
package diff

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

const (
	// context is how many unchanged lines are shown around a change.
	context = 3

	// maxEdits bounds the lines that are taken away and added between two texts.
	// What differs in more is one region. Comparing takes time and memory for the
	// square of it, and for the lines of the texts.
	maxEdits = 2000
)

// A Region is lines of a text from one number up to another, counted from 0, in
// whose place others come. Lines end with their line feeds.
type Region struct {
	From, To int
	Lines    []string
}

// A Change is how a text becomes another.
type Change struct {
	// From and To are the names of the texts, such as a/main.go and b/main.go.
	From, To string

	// Old is the lines of the first text, and Regions what becomes of them, in
	// order and apart from each other.
	Old     []string
	Regions []Region

	// MaxLines bounds the lines that are shown; how many more there are is said.
	// Zero means all.
	MaxLines int

	// Line makes a line, without its line feed, fit to be shown. Nil leaves it as it
	// is.
	Line func(line string) string
}

// Lines cuts text after each line feed.
func Lines(text string) []string { return slices.Collect(strings.Lines(text)) }

// Unified returns the change in the unified form, "" if there is none.
func (c Change) Unified() string {
	if len(c.Regions) == 0 {
		return ""
	}
	p := printer{Change: c}
	p.line("--- " + c.From + "\n")
	p.line("+++ " + c.To + "\n")
	for rest := c.Regions; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].From-rest[n-1].To <= 2*context {
			n++
		}
		p.hunk(rest[:n])
		rest = rest[n:]
	}
	if p.left == 1 {
		p.b.WriteString("[1 more line of the diff left out]\n")
	} else if p.left > 0 {
		fmt.Fprintf(&p.b, "[%d more lines of the diff left out]\n", p.left)
	}
	return p.b.String()
}

// A printer is a diff that is being written.
type printer struct {
	Change
	grown int // by how many lines the text has grown so far

	b    strings.Builder
	n    int // lines in b
	left int // lines that had no room
}

// hunk writes regions that are near to each other, with the lines around them.
func (p *printer) hunk(regions []Region) {
	from := max(0, regions[0].From-context)
	to := min(len(p.Old), regions[len(regions)-1].To+context)
	grown := 0
	for _, r := range regions {
		grown += len(r.Lines) - (r.To - r.From)
	}
	p.line(fmt.Sprintf("@@ -%s +%s @@\n", span(from, to-from), span(from+p.grown, to-from+grown)))
	p.grown += grown
	at := from
	for _, r := range regions {
		p.all(" ", p.Old[at:r.From])
		p.all("-", p.Old[r.From:r.To])
		p.all("+", r.Lines)
		at = r.To
	}
	p.all(" ", p.Old[at:to])
}

// span returns where lines begin and how many they are, as diffs say it.
func span(from, n int) string {
	if n > 0 {
		from++ // none are said to come after a line
	}
	return fmt.Sprintf("%d,%d", from, n)
}

func (p *printer) all(sign string, lines []string) {
	for _, l := range lines {
		p.line(sign + l)
	}
}

// line writes a line if there is room.
func (p *printer) line(text string) {
	if p.MaxLines > 0 && p.n >= p.MaxLines {
		p.left++
		return
	}
	p.n++
	whole, ended := strings.CutSuffix(text, "\n")
	if p.Line != nil {
		whole = p.Line(whole)
	}
	p.b.WriteString(whole + "\n")
	if !ended {
		p.b.WriteString("\\ No newline at end of file\n")
	}
}

// Compare returns what makes new of old.
func Compare(old, new []string) []Region {
	r := Region{0, len(old), new}
	for r.From < r.To && len(r.Lines) > 0 && old[r.From] == r.Lines[0] {
		r.From++
		r.Lines = r.Lines[1:]
	}
	for r.From < r.To && len(r.Lines) > 0 && old[r.To-1] == r.Lines[len(r.Lines)-1] {
		r.To--
		r.Lines = r.Lines[:len(r.Lines)-1]
	}
	if r.From == r.To && len(r.Lines) == 0 {
		return nil
	}
	return align(old, r)
}

// unreached is a line that no edits lead to.
const unreached = math.MinInt32 / 2

// align takes a region apart by the fewest edits, as Myers has it: An O(ND) Difference
// Algorithm and Its Variations. reach[d][d+k] is how many lines of a can be had with d
// edits if k more of them are had than of b.
func align(old []string, whole Region) []Region {
	a, b := old[whole.From:whole.To], whole.Lines
	var reach [][]int32
	from := func(d, k int) (x int, added bool) { // by the last of d edits
		taken, kept := int32(unreached), int32(unreached)
		if k > -d {
			taken = reach[d-1][d-1+k-1] + 1
		}
		if k < d {
			kept = reach[d-1][d-1+k+1]
		}
		return int(max(taken, kept)), kept >= taken
	}
	for d := 0; d <= maxEdits; d++ {
		reach = append(reach, make([]int32, 2*d+1))
		for k := -d; k <= d; k += 2 {
			x := 0
			if d > 0 {
				x, _ = from(d, k)
			}
			if x < 0 || x > len(a) || x-k > len(b) {
				reach[d][d+k] = unreached
				continue
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			reach[d][d+k] = int32(x)
			if x == len(a) && x-k == len(b) {
				return regions(whole, d, from)
			}
		}
	}
	return []Region{whole}
}

// regions follows d edits back and joins those with nothing between them.
func regions(whole Region, d int, from func(d, k int) (int, bool)) []Region {
	var all []Region
	next := -1 // the first of the lines of the region that was found last
	for k := whole.To - whole.From - len(whole.Lines); d > 0; d-- {
		x, added := from(d, k)
		r, begin, end := Region{From: whole.From + x, To: whole.From + x}, x-k, x-k
		if added {
			begin--
			k++
		} else {
			r.From--
			k--
		}
		if n := len(all) - 1; n >= 0 && all[n].From == r.To && next == end {
			r.To, end = all[n].To, next+len(all[n].Lines)
			all = all[:n]
		}
		r.Lines = whole.Lines[begin:end]
		all, next = append(all, r), begin
	}
	slices.Reverse(all)
	return all
}
