package tool

import "github.com/seed-028515a8/maestro/agent/diff"

// Bounds on a diff that is shown.
const (
	maxDiffLines = 200
	maxDiffLine  = 300
)

// unified returns how a text becomes another, as a unified diff.
func unified(name, before, after string) string {
	lines := diff.Lines(before)
	return diff.Change{
		From: "a/" + name, To: "b/" + name, Old: lines, Regions: diff.Compare(lines, diff.Lines(after)), MaxLines: maxDiffLines,
		Line: func(line string) string { return cutLine(valid(line), maxDiffLine) },
	}.Unified()
}
