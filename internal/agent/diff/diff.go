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

	// maxEdits bounds the lines that two texts differ in. If they differ in more, the
	// difference is one region. The time and memory of a comparison grow with the
	// square of the lines that differ, and with the lines of the texts.
	maxEdits = 2000
)

// A Region is a run of lines of a text, counted from 0, that other lines replace.
// Lines end with their line feeds.
type Region struct {
	From, To int
	Lines    []string
}

// Lines cuts text after each line feed.
func Lines(text string) []string { return slices.Collect(strings.Lines(text)) }

// Unified returns the change of a text in the unified form as lines, none if there is
// no change. from and to are the names of the texts, such as a/main.go and b/main.go.
func Unified(from, to, before, after string) []string {
	old := Lines(before)
	rest := Compare(old, Lines(after))
	if len(rest) == 0 {
		return nil
	}
	lines := []string{"--- " + from + "\n", "+++ " + to + "\n"}
	for grown := 0; len(rest) > 0; { // grown is by how many lines the text has grown so far
		n := 1
		for n < len(rest) && rest[n].From-rest[n-1].To <= 2*context {
			n++
		}
		hunk := rest[:n]
		rest = rest[n:]
		at, end := max(0, hunk[0].From-context), min(len(old), hunk[n-1].To+context)
		more := 0
		for _, r := range hunk {
			more += len(r.Lines) - (r.To - r.From)
		}
		lines = append(lines, fmt.Sprintf("@@ -%s +%s @@\n", span(at, end-at), span(at+grown, end-at+more)))
		grown += more
		for _, r := range hunk {
			lines = signed(lines, " ", old[at:r.From])
			lines = signed(lines, "-", old[r.From:r.To])
			lines = signed(lines, "+", r.Lines)
			at = r.To
		}
		lines = signed(lines, " ", old[at:end])
	}
	return lines
}

// span returns where lines begin and how many they are, in the form of diffs.
func span(from, n int) string {
	if n > 0 {
		from++ // no lines come after a line
	}
	return fmt.Sprintf("%d,%d", from, n)
}

func signed(to []string, sign string, lines []string) []string {
	for _, l := range lines {
		if to = append(to, sign+l); !strings.HasSuffix(l, "\n") {
			to[len(to)-1] += "\n\\ No newline at end of file\n"
		}
	}
	return to
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
