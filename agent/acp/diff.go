package acp

import (
	"fmt"
	"strings"
)

const (
	// diffContext is how many lines around a change are shown.
	diffContext = 3

	// maxDiffCells bounds the work of comparing two texts, in pairs of lines.
	// What is more different is shown as one removal and one addition.
	maxDiffCells = 4 << 20
)

// An edit is one line of a comparison: ' ' in both, '-' in the old one only, '+'
// in the new one only.
type edit struct {
	op   byte
	line string
}

// unified returns the change of a file in the unified form, "" if there is none.
func unified(path string, created bool, old, new string) string {
	from := "a/" + strings.TrimPrefix(path, "/")
	if created {
		from = "/dev/null"
	}
	edits := compare(lines(old), lines(new))
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ b/%s\n", from, strings.TrimPrefix(path, "/"))
	header := out.Len()
	oldLine, newLine := 1, 1
	for at := 0; at < len(edits); {
		if edits[at].op == ' ' {
			at, oldLine, newLine = at+1, oldLine+1, newLine+1
			continue
		}
		start := max(0, at-diffContext)
		end := hunkEnd(edits, at)
		oldLine, newLine = oldLine-(at-start), newLine-(at-start)
		oldCount, newCount := count(edits[start:end])
		fmt.Fprintf(&out, "@@ -%s +%s @@\n", span(oldLine, oldCount), span(newLine, newCount))
		for _, e := range edits[start:end] {
			out.WriteByte(e.op)
			out.WriteString(e.line)
			if !strings.HasSuffix(e.line, "\n") {
				out.WriteString("\n\\ No newline at end of file\n")
			}
		}
		at, oldLine, newLine = end, oldLine+oldCount, newLine+newCount
	}
	if out.Len() == header {
		return ""
	}
	return out.String()
}

// hunkEnd returns where the hunk ends that has a change at from: after the lines
// around its last change. Changes with no more than the lines around both between
// them are in one hunk.
func hunkEnd(edits []edit, from int) int {
	last := from
	for at := from; at < len(edits) && at-last <= 2*diffContext; at++ {
		if edits[at].op != ' ' {
			last = at
		}
	}
	return min(len(edits), last+1+diffContext)
}

func count(edits []edit) (old, new int) {
	for _, e := range edits {
		if e.op != '+' {
			old++
		}
		if e.op != '-' {
			new++
		}
	}
	return old, new
}

// span is the place of a hunk; one without lines is after the line before it.
func span(line, count int) string {
	if count == 0 {
		line--
	}
	return fmt.Sprintf("%d,%d", line, count)
}

// lines cuts text after each line feed.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	all := strings.SplitAfter(text, "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}

// compare returns the edits that make new of old.
func compare(old, new []string) []edit {
	var edits []edit
	for len(old) > 0 && len(new) > 0 && old[0] == new[0] {
		edits = append(edits, edit{' ', old[0]})
		old, new = old[1:], new[1:]
	}
	tail := 0
	for tail < min(len(old), len(new)) && old[len(old)-1-tail] == new[len(new)-1-tail] {
		tail++
	}
	same := old[len(old)-tail:]
	edits = append(edits, align(old[:len(old)-tail], new[:len(new)-tail])...)
	for _, line := range same {
		edits = append(edits, edit{' ', line})
	}
	return edits
}

// align compares by the longest common subsequence of lines.
func align(old, new []string) (edits []edit) {
	common := make([][]int32, 0)
	if len(old)*len(new) <= maxDiffCells {
		common = lengths(old, new)
	}
	i, j := 0, 0
	for i < len(old) && j < len(new) && len(common) > 0 {
		switch {
		case old[i] == new[j]:
			edits = append(edits, edit{' ', old[i]})
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			edits = append(edits, edit{'-', old[i]})
			i++
		default:
			edits = append(edits, edit{'+', new[j]})
			j++
		}
	}
	for ; i < len(old); i++ {
		edits = append(edits, edit{'-', old[i]})
	}
	for ; j < len(new); j++ {
		edits = append(edits, edit{'+', new[j]})
	}
	return edits
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
