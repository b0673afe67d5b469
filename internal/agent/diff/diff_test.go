package diff

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A diff says how one text becomes the other, whatever they are.
func TestDiffsApply(t *testing.T) {
	line := rapid.SampledFrom([]string{"a", "b", "c", "", " x", "-", "@@", "\\"})
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SliceOfN(line, 0, 60).Draw(t, "lines")
		after := slices.Clone(before)
		for range rapid.IntRange(0, 4).Draw(t, "edits") {
			at := rapid.IntRange(0, len(after)).Draw(t, "at")
			end := rapid.IntRange(at, min(at+2, len(after))).Draw(t, "end")
			after = slices.Replace(after, at, end, rapid.SliceOfN(line, 0, 2).Draw(t, "with")...)
		}
		end := rapid.SampledFrom([]string{"", "\n"})
		old, new := strings.Join(before, "\n")+end.Draw(t, "end"), strings.Join(after, "\n")+end.Draw(t, "end")
		out := strings.Join(Unified("a/f", "b/f", old, new), "")
		if (out == "") != (old == new) {
			t.Fatalf("%q to %q: got %q", old, new, out)
		}
		if got, err := applied(old, out); err != nil || got != new {
			t.Fatalf("%q to %q: got %q, %v by\n%s", old, new, got, err, out)
		}
	})
}

// applied makes the new text of the old one, as patch does.
func applied(old, diff string) (string, error) {
	var b strings.Builder
	at, lines := 0, Lines(old)
	rest := strings.Split(strings.ReplaceAll(diff, "\n\\ No newline at end of file\n", "\x00\n"), "\n")
	for _, l := range rest[min(2, len(rest)):] {
		if l == "" {
			continue // the end
		}
		text := strings.TrimSuffix(l[1:]+"\n", "\x00\n")
		var from, n, to, m int
		switch _, err := fmt.Sscanf(l, "@@ -%d,%d +%d,%d @@", &from, &n, &to, &m); {
		case err == nil:
			if n > 0 {
				from--
			}
			b.WriteString(strings.Join(lines[at:from], ""))
			at = from
			if had := len(Lines(b.String())); m > 0 && had != to-1 || m == 0 && had != to {
				return "", fmt.Errorf("%s after %d lines", l, had)
			}
		case l[0] == '+':
			b.WriteString(text)
		case at >= len(lines) || lines[at] != text || l[0] != '-' && l[0] != ' ':
			return "", fmt.Errorf("%q does not match line %d", l, at)
		default:
			if l[0] == ' ' {
				b.WriteString(text)
			}
			at++
		}
	}
	return b.String() + strings.Join(lines[at:], ""), nil
}

func TestDiffsAreSmall(t *testing.T) {
	got := Compare(Lines("a\nb\nc\nd\n"), Lines("b\nx\nd\ne\n"))
	want := []Region{{0, 1, nil}, {2, 3, []string{"x\n"}}, {4, 4, []string{"e\n"}}}
	if !slices.EqualFunc(got, want, func(a, b Region) bool {
		return a.From == b.From && a.To == b.To && slices.Equal(a.Lines, b.Lines)
	}) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Changes that are far from each other are shown as what they are.
func TestManyChangesInALongTextAreFound(t *testing.T) {
	var old, new []string
	for i := range 20_000 {
		old = append(old, fmt.Sprint(i))
		new = append(new, fmt.Sprint(i))
		if i%25 == 3 {
			new[i] = "changed"
		}
	}
	if got := Compare(old, new); len(got) != 800 || got[799].From != 19_978 {
		t.Errorf("got %d regions, want 800", len(got))
	}
}

func TestDiffsAreBounded(t *testing.T) {
	old, new := Lines(strings.Repeat("a\nb\n", 3000)), Lines(strings.Repeat("c\nd\n", 3000))
	if got := Compare(old, new); len(got) != 1 || got[0].To != 6000 || len(got[0].Lines) != 6000 {
		t.Errorf("got %d regions, want one of what is too different", len(got))
	}
}
