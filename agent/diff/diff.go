// Package diff shows changes of texts in the unified form.
package diff

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// context is how many unchanged lines are shown around a change.
	context = 3

	// maxCells bounds the work of comparing two texts, in pairs of lines. What is
	// more different is one region.
	maxCells = 4 << 20
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
	r := Trim(old, Region{0, len(old), new})
	switch {
	case r.From == r.To && len(r.Lines) == 0:
		return nil
	case (r.To-r.From)*len(r.Lines) > maxCells:
		return []Region{r}
	}
	return align(old, r)
}

// Trim returns the region without the lines at its ends that stay the same.
func Trim(old []string, r Region) Region {
	for r.From < r.To && len(r.Lines) > 0 && old[r.From] == r.Lines[0] {
		r.From++
		r.Lines = r.Lines[1:]
	}
	for r.From < r.To && len(r.Lines) > 0 && old[r.To-1] == r.Lines[len(r.Lines)-1] {
		r.To--
		r.Lines = r.Lines[:len(r.Lines)-1]
	}
	return r
}

// align takes a region apart by the longest common subsequence of lines.
func align(old []string, whole Region) []Region {
	a, b := old[whole.From:whole.To], whole.Lines
	common := lengths(a, b)
	var regions []Region
	for i, j := 0, 0; i < len(a) || j < len(b); {
		fromA, fromB := i, j
		for i < len(a) && j < len(b) && a[i] != b[j] {
			if common[i+1][j] >= common[i][j+1] {
				i++
			} else {
				j++
			}
		}
		if i == len(a) || j == len(b) {
			i, j = len(a), len(b)
		}
		if i > fromA || j > fromB {
			regions = append(regions, Region{whole.From + fromA, whole.From + i, b[fromB:j]})
		}
		for i < len(a) && j < len(b) && a[i] == b[j] {
			i, j = i+1, j+1
		}
	}
	return regions
}

// lengths returns for each pair of suffixes how many lines they have in common.
func lengths(old, new []string) [][]int32 {
	common := make([][]int32, len(old)+1)
	for i := range common {
		common[i] = make([]int32, len(new)+1)
	}
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(new) - 1; j >= 0; j-- {
			if old[i] == new[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return common
}
