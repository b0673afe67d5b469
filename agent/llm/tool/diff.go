package tool

import (
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/agent/diff"
)

// Bounds on a diff that is shown.
const (
	maxDiffLines = 200
	maxDiffLine  = 300
)

// unified returns what the changes do to a text, as a unified diff.
func unified(name, text string, changes []change) string {
	lines := diff.Lines(text)
	return diff.Change{
		From: "a/" + name, To: "b/" + name, Old: lines, Regions: regionsOf(lines, text, changes), MaxLines: maxDiffLines,
		Line: func(line string) string { return cutLine(valid(line), maxDiffLine) },
	}.Unified()
}

// regionsOf returns the lines that the changes touch, in order.
func regionsOf(lines []string, text string, changes []change) []diff.Region {
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
	var regions []diff.Region
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
		regions = append(regions, diff.Trim(lines, diff.Region{From: from, To: to, Lines: diff.Lines(b.String())}))
	}
	return regions
}
