package tool

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestUniqueTextIsReplaced(t *testing.T) {
	for _, tt := range []struct{ name, file, before, after, want string }{
		{"in a line", "one two three\n", "two", "2", "one 2 three\n"},
		{"lines", "a\nb\nc\n", "a\nb\n", "x\n", "x\nc\n"},
		{"deleted", "a\nb\nc\n", "b\n", "", "a\nc\n"},
		{"all", "a", "a", "", ""},
		{"with CRLF", "a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"},
		{"given with CRLF", "a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\nc\r\n"},
		{"CRLF given for LF", "a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"},
		{"new line in CRLF", "a\r\nb\r\n", "b", "b\nc", "a\r\nb\r\nc\r\n"},
		{"LF among CRLF", "a\r\nb\nc\r\nd\r\n", "b\nc", "b\nx\nc", "a\r\nb\nx\nc\r\nd\r\n"},
		{"CRLF among LF", "a\nb\r\nc\nd\n", "b", "x", "a\nx\r\nc\nd\n"},
		{"from a CRLF on", "a\r\nb", "\nb", "\nc", "a\r\nc"},
		{"lone return", "a\rb\n", "\r", "-", "a-b\n"},
		{"with a mark", "\uFEFFa\n", "a", "b", "\uFEFFb\n"},
		{"other bytes", "\xe4 a \xff\n", "a", "b", "\xe4 b \xff\n"},
		{"dollars", "a\n", "a", "$1 \\1 $$", "$1 \\1 $$\n"},
	} {
		b := on(t, map[string]string{"file": tt.file})
		b.does("read", args{"path": "file"})
		if got := b.does("edit", args{"path": "file", "old_string": tt.before, "new_string": tt.after}); !strings.HasPrefix(got, "Edited file: 1 replacement.\n\n--- a/file\n+++ b/file\n@@ ") {
			t.Errorf("%s: got %q, want a diff", tt.name, got)
		}
		b.holds("file", tt.want)
	}
}

func TestNewFileIsMadeOfEmptyText(t *testing.T) {
	b := on(t, map[string]string{"full": "x"})
	b.does("edit", args{"path": "dir/new", "old_string": "", "new_string": "a\r\nb\n"})
	b.holds("dir/new", "a\r\nb\n")
	b.does("read", args{"path": "full"})
	b.refuses("edit", args{"path": "full", "old_string": "", "new_string": "y"}, "not empty", "write")
	b.refuses("edit", args{"path": "none", "old_string": "a", "new_string": "y"}, "There is no file none.")
	b.holds("full", "x")
}

func TestEditSaysWhyItCannotBeDone(t *testing.T) {
	b := on(t, map[string]string{
		"file": "one\n\ttwo  three\n\tfour\none\naaa\none one\n", "crlf": "a\r\n", "many": strings.Repeat("x\n", 30), "binary": "a\x00b",
	})
	for _, name := range []string{"file", "crlf", "many"} {
		b.does("read", args{"path": name})
	}
	b.remember(file{"binary", "binary"}, []byte("a\x00b"))
	for _, tt := range []struct {
		path, before, after string
		want                []string
	}{
		{"file", "one", "x", []string{"occurs more than once in file, first on line 1.", "replace_all"}},
		{"file", "aa", "x", []string{"occurs more than once in file, first on line 5."}},
		{"file", "none", "x", []string{"does not occur in file.", "read the file again"}},
		{"file", "two three\n    four", "x", []string{"does not occur in file.", "the same to the last space"}},
		{"file", "     1\tone\n     2\t\ttwo", "x", []string{"line numbers"}},
		{"file", "same", "same", []string{"old_string and new_string are the same"}},
		{"crlf", "a\n", "a\r\n", []string{"changes nothing", "line endings"}},
		{"binary", "a", "b", []string{"binary"}},
	} {
		before, err := os.ReadFile(b.Workspace.At(tt.path))
		must(t, err)
		b.refuses("edit", args{"path": tt.path, "old_string": tt.before, "new_string": tt.after}, tt.want...)
		b.holds(tt.path, string(before))
	}
	must(t, os.WriteFile(b.Workspace.At("many"), []byte(strings.Repeat("x\n", 1<<16)), 0o600))
	b.does("read", args{"path": "many"})
	b.refuses("edit", args{"path": "many", "old_string": "x", "new_string": strings.Repeat("y", 1<<10), "replace_all": true}, "larger than 32 MiB")
}

// Random files are edited as [strings.Replace] does it, and the diff says what was
// done.
func TestEditsAreWhatReplaceDoes(t *testing.T) {
	const seed = 7
	b := on(t, nil)
	edited := 0
	for n := range 1000 {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		text := randomText(r, 60)
		before, after := randomText(r, 3), randomText(r, 4)
		if all := []rune(text); r.IntN(3) > 0 { // of what is there
			at := r.IntN(len(all) + 1)
			before = string(all[at:min(len(all), at+1+r.IntN(6))])
		}
		crlf, all := r.IntN(3) == 0 && strings.Contains(text, "\n"), r.IntN(2) == 0
		mark := []string{"", byteOrderMark}[r.IntN(2)]
		if before == "" || before == after {
			continue
		}
		raw := func(text string) string {
			if crlf {
				text = strings.ReplaceAll(text, "\n", "\r\n")
			}
			return mark + text
		}
		put(t, b.Workspace.At("file"), raw(text))
		if text == "" && mark == "" {
			continue
		}
		b.does("read", args{"path": "file"})
		res := b.call("edit", args{"path": "file", "old_string": before, "new_string": after, "replace_all": all})
		times := strings.Count(text, before)
		unique := times == 1 && strings.Index(text, before) == strings.LastIndex(text, before)
		want, ok := text, times > 0 && (all || unique)
		if ok {
			edited++
			want = strings.Replace(text, before, after, times)
		}
		if res.IsError == ok {
			t.Fatalf("seed %d, case %d: got error %v of %q -> %q in %q: %s", seed, n, res.IsError, before, after, text, res.Text)
		}
		b.holds("file", raw(want))
		if t.Failed() {
			t.Fatalf("seed %d, case %d: %q -> %q in %q", seed, n, before, after, text)
		}
		if !ok {
			continue
		}
		_, patch, _ := strings.Cut(res.Text, "\n\n")
		if got, err := patched(text, patch); err != nil || got != want {
			t.Fatalf("seed %d, case %d: got %q, %v of the diff of %q -> %q in %q; want %q\n%s", seed, n, got, err, before, after, text, want, patch)
		}
	}
	if edited < 200 {
		t.Errorf("got %d edits, want many", edited)
	}
}

// randomText returns up to n short pieces, with lines that repeat.
func randomText(r *rand.Rand, n int) string {
	var b strings.Builder
	for range r.IntN(n + 1) {
		b.WriteString([]string{"a", "b", "aa", "\n", "\n", "ab\n", "ä", " ", "\t", "x\n"}[r.IntN(10)])
	}
	return b.String()
}

// patched returns a text after a unified diff, in which every line that it
// repeats must be as in the text.
func patched(text, patch string) (string, error) {
	old := slices.Collect(strings.Lines(text))
	var b strings.Builder
	at, grown := 0, 0
	lines := slices.Collect(strings.Lines(patch))
	for i, l := range lines {
		body := l[1:]
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], `\`) {
			body = strings.TrimSuffix(body, "\n")
		}
		switch {
		case i < 2, l[0] == '\\':
		case l[0] == '@':
			from, into, err := spans(l)
			if err != nil || from < at || from > len(old) || into != from+grown {
				return "", fmt.Errorf("line %q at %d, grown %d: %v", l, at, grown, err)
			}
			b.WriteString(strings.Join(old[at:from], ""))
			at = from
		case l[0] == '+':
			b.WriteString(body)
			grown++
		default:
			if at >= len(old) || old[at] != body {
				return "", fmt.Errorf("line %q is not %d", l, at)
			}
			if l[0] == ' ' {
				b.WriteString(body)
			} else {
				grown--
			}
			at++
		}
	}
	return b.String() + strings.Join(old[at:], ""), nil
}

// spans returns where the lines of a hunk begin, counted from 0, before and after.
func spans(header string) (from, into int, err error) {
	var places [2]int
	for i, part := range strings.Fields(header)[1:3] {
		start, n, _ := strings.Cut(part[1:], ",")
		if places[i], err = strconv.Atoi(start); err != nil {
			return 0, 0, err
		}
		if n != "0" {
			places[i]--
		}
	}
	return places[0], places[1], nil
}

// Git takes a diff for what it is.
func TestDiffsAreUnderstoodByGit(t *testing.T) {
	var text strings.Builder
	for i := range 60 {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	b := on(t, map[string]string{"file": text.String() + "end"})
	b.does("read", args{"path": "file"})
	got := b.does("edit", args{"path": "file", "old_string": "9\n", "new_string": "nine\nand one\n", "replace_all": true})
	_, patch, _ := strings.Cut(got, "\n\n")
	want, err := os.ReadFile(b.Workspace.At("file"))
	must(t, err)
	put(t, b.Workspace.At("file"), text.String()+"end")
	cmd := exec.Command("git", "apply", "-")
	cmd.Dir, cmd.Stdin = b.Workspace.Root(), strings.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("got %v, %s of\n%s", err, out, patch)
	}
	b.holds("file", string(want))
	if n := strings.Count(patch, "\n@@ "); n != 6 {
		t.Errorf("got %d hunks, want 6:\n%s", n, patch)
	}
}

func TestDiffsAreBounded(t *testing.T) {
	b := on(t, map[string]string{"file": strings.Repeat("x\n", 1000) + strings.Repeat("w", 1000) + "\n"})
	b.does("read", args{"path": "file"})
	got := b.does("edit", args{"path": "file", "old_string": "x", "new_string": "y", "replace_all": true})
	if n := strings.Count(got, "\n"); n > maxDiffLines+5 || !strings.Contains(got, "lines of the diff left out]") {
		t.Errorf("got %d lines, want the diff cut:\n%s", n, got)
	}
	got = b.does("edit", args{"path": "file", "old_string": strings.Repeat("w", 1000), "new_string": strings.Repeat("v", 1000)})
	if len(got) > 2*maxDiffLine+200 {
		t.Errorf("got %d bytes, want the lines of the diff cut", len(got))
	}
}

// Of edits of one file at once none is lost.
func TestEditsAtOnceAreAllMade(t *testing.T) {
	var text, want strings.Builder
	for i := range 40 {
		fmt.Fprintf(&text, "<old %d>\n", i)
		fmt.Fprintf(&want, "<new %d>\n", i)
	}
	b := on(t, map[string]string{"file": text.String()})
	b.does("read", args{"path": "file"})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			b.does("edit", args{"path": "file", "old_string": fmt.Sprintf("old %d>", i), "new_string": fmt.Sprintf("new %d>", i)})
		})
	}
	all.Wait()
	b.holds("file", want.String())
}
