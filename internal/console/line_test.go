package console

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// entered feeds keys in pieces of at most so many bytes and returns the lines
// that were entered, and the other events.
func entered(l *Line, keys string, piece int) (lines []string, others []Event) {
	for len(keys) > 0 {
		n := min(piece, len(keys))
		l.Feed([]byte(keys[:n]))
		keys = keys[n:]
		for event, text, _, more := l.Next(); more; event, text, _, more = l.Next() {
			if event == Entered {
				lines = append(lines, text)
			} else {
				others = append(others, event)
			}
		}
	}
	return lines, others
}

func TestKeysEditTheLine(t *testing.T) {
	for _, test := range []struct{ about, keys, want string }{
		{"text", "Grüße, 世界", "Grüße, 世界"},
		{"backspace", "abc\x7f\x08d", "ad"},
		{"backspace takes a whole character", "xe\u0301\x7f", "x"},
		{"backspace takes a whole picture", "x👩\u200d💻\x7f", "x"},
		{"arrows", "ac\x1b[Db\x1b[C\x1bOCd", "abcd"},
		{"start and end", "b\x01a\x05c\x1b[Hx\x1b[F\x1b[1~y\x1b[4~z", "yxabcz"},
		{"delete", "abc\x1b[D\x1b[D\x1b[3~\x04", "a"},
		{"a word before", "one two  \x17three", "one three"},
		{"words", "one two\x1bb\x1bbx\x1bfy\x1b[1;5Dz\x1b[1;3Cw", "zxoneyw two"},
		{"up to the start", "abc\x1b[D\x15x", "xc"},
		{"up to the end", "abc\x01\x1b[C\x0b", "a"},
		{"unknown keys", "a\x1b[15~\x1bOP\x1b[200;5u\x1bzb\x00\tc", "abc"},
		{"several lines", "one\x1b\rtwo", "one\ntwo"},
		{"paste", "say " + pasteBegin + "a\r\nb\rc\td\x1b[31m\x00" + pasteEnd + "!", "say a\nb\nc\td[31m!"},
		{"paste whose end was lost", pasteBegin + "a\x03b", "b"},
		{"Ctrl-C", "abc\x03d", "d"},
		{"broken UTF-8", "a\xffb", "a\ufffdb"},
		{"sequence that is none", "\x1b[\x01b", "b"},
		{"8-bit control", "a\u009bb", "ab"},
		{"end of a sequence that is too long", "\x1b[" + strings.Repeat("1", 40) + "x", strings.Repeat("1", 9) + "x"},
	} {
		for _, piece := range []int{1 << 20, 3} {
			if piece == 3 && strings.Contains(test.about, "lost") {
				continue
			}
			var l Line
			if lines, others := entered(&l, test.keys+"\r", piece); len(lines) != 1 || lines[0] != test.want || others != nil {
				t.Errorf("%s, by %d bytes: got %q, %v, want %q", test.about, piece, lines, others, test.want)
			}
		}
	}
}

func TestLinesAndOtherEvents(t *testing.T) {
	var l Line
	lines, others := entered(&l, "one\r\ntwo\nthree\r\x03\x04x\x04\x1a\x0c", 5)
	if !slices.Equal(lines, []string{"one", "two", "three"}) || !slices.Equal(others, []Event{Interrupt, End, Stop, Clear}) {
		t.Errorf("got %q and %v", lines, others)
	}
	if textOf(l.cells) != "x" {
		t.Errorf("got %q left, want x", textOf(l.cells))
	}
}

// TestLongPasteIsOneCharacter pastes more than a terminal in line mode takes.
func TestLongPasteIsOneCharacter(t *testing.T) {
	for _, test := range []struct{ text, shown string }{
		{strings.Repeat("x", 5000), "[5000 characters pasted]"},
		{strings.Repeat("line\n", 40), "[40 lines pasted]"},
		{strings.Repeat("世", 2000), "[2000 characters pasted]"},
	} {
		var l Line
		typing(&l, "a"+pasteBegin+test.text+pasteEnd+"b\x1b[D\x1b[D")
		if l.at != 1 || shownOf(l.cells) != "a"+test.shown+"b" {
			t.Errorf("got %q with the cursor at %d, want the paste to be one character", shownOf(l.cells), l.at)
		}
		if lines, _ := entered(&l, "\r", 1); len(lines) != 1 || lines[0] != "a"+test.text+"b" {
			t.Errorf("got %d bytes, want %d", len(strings.Join(lines, "")), len(test.text)+2)
		}
	}
}

func TestLineIsBounded(t *testing.T) {
	long := strings.Repeat("x", MaxLine/2+1)
	var l Line
	lines, others := entered(&l, pasteBegin+long+pasteEnd+pasteBegin+long+pasteEnd+pasteBegin+long+long+pasteEnd+"y\r", 4096)
	if !slices.Equal(others, []Event{Refused, Refused}) || len(lines) != 1 || lines[0] != long+"y" {
		t.Errorf("got %v and %d lines, want two pastes refused and the rest entered", others, len(lines))
	}
	if lines, _ := entered(&l, "\x1b[A\r", 100); len(lines) != 1 || lines[0] != (long + long)[:MaxLine] {
		t.Errorf("got %d bytes with Up, want what fits of the last paste", len(strings.Join(lines, "")))
	}
	if lines, _ := entered(&l, "\x1b[A\x1b[A\r", 100); len(lines) != 1 || lines[0] != long {
		t.Errorf("got %d bytes with Up twice, want the paste that did not fit into the line", len(strings.Join(lines, "")))
	}
	if len(l.keys.pasted) > 0 || l.bytes != 0 {
		t.Errorf("got %d bytes of a paste and %d of the line kept", len(l.keys.pasted), l.bytes)
	}
}

func TestHistory(t *testing.T) {
	var l Line
	for _, text := range []string{"one", "two", "two", "", "a\nb"} {
		l.Remember(text)
	}
	const older, newer = "\x1b[A", "\x0e"
	for _, test := range []struct{ keys, want string }{
		{older, "a\nb"},
		{older + older, "two"},
		{older + older + older, "one"},
		{older + older + older + older, "one"},
		{"draft" + older + newer, "draft"},
		{"draft" + older + older + newer + newer + newer, "draft"},
		{older + older + "!", "two!"},
		{older + older + "!" + newer, "two!"},
	} {
		if lines, _ := entered(&l, test.keys+"\r", 100); len(lines) != 1 || lines[0] != test.want {
			t.Errorf("%q: got %q, want %q", test.keys, lines, test.want)
		}
	}
	for i := range 2 * maxHistory {
		l.Remember(fmt.Sprint(i))
	}
	if len(l.history) != maxHistory {
		t.Errorf("got %d lines kept, want %d", len(l.history), maxHistory)
	}
	for i := range 6 {
		l.Remember(fmt.Sprint(i) + strings.Repeat("x", MaxLine-1))
	}
	if len(l.history) != 4 || l.kept != 4*MaxLine {
		t.Errorf("got %d long lines of %d bytes kept, want 4 of %d", len(l.history), l.kept, 4*MaxLine)
	}
}

// TestQuestionsSetTheLineAside has questions come while a line is being typed.
func TestQuestionsSetTheLineAside(t *testing.T) {
	var l Line
	typing(&l, "fix the te")
	if !l.For("q1") || len(l.cells) > 0 {
		t.Error("got the line, want it set aside")
	}
	typing(&l, "st")
	l.Return("st")
	if l.For("q2") || len(l.cells) > 0 {
		t.Error("got what was typed for the question before")
	}
	typing(&l, "y")
	if l.For("q2") || textOf(l.cells) != "y" {
		t.Error("got a change, want none")
	}
	if l.For("") || textOf(l.cells) != "fix the test" || l.at != 12 {
		t.Errorf("got %q with the cursor at %d, want the line back", textOf(l.cells), l.at)
	}
	l.Return("not this")
	typing(&l, "\x03")
	if l.For("q3") {
		t.Error("an empty line was set aside")
	}
	l.For("")
	l.Return("once more")
	if textOf(l.cells) != "once more" {
		t.Errorf("got %q, want the text that was returned", textOf(l.cells))
	}
}

// TestLineMatchesAPlainText compares editing with that of a slice of characters.
func TestLineMatchesAPlainText(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var l Line
		var model []string
		at := 0
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch key := rapid.SampledFrom([]string{"a", "世", "b c", "\x7f", "\x04", "\x1b[D", "\x1b[C", "\x01", "\x05", "\x15", "\x0b"}).Draw(rt, "key"); key {
			case "\x7f":
				if typing(&l, key); at > 0 {
					at--
					model = slices.Delete(model, at, at+1)
				}
			case "\x04":
				if len(model) == 0 {
					continue // the end of the input
				}
				if typing(&l, key); at < len(model) {
					model = slices.Delete(model, at, at+1)
				}
			case "\x1b[D", "\x1b[C", "\x01", "\x05":
				typing(&l, key)
				at = map[string]int{"\x1b[D": max(at-1, 0), "\x1b[C": min(at+1, len(model)), "\x01": 0, "\x05": len(model)}[key]
			case "\x15":
				typing(&l, key)
				model, at = slices.Clone(model[at:]), 0
			case "\x0b":
				typing(&l, key)
				model = slices.Clone(model[:at])
			default:
				typing(&l, key)
				for _, r := range key {
					model = slices.Insert(model, at, string(r))
					at++
				}
			}
			want := strings.Join(model, "")
			if got := textOf(l.cells); got != want || l.at != at || l.bytes != len(want) {
				rt.Fatalf("got %q, cursor %d, %d bytes; want %q, %d", got, l.at, l.bytes, want, at)
			}
		}
	})
}

// FuzzKeys checks that no input makes the line keep what it should not, or get
// stuck: after Ctrl-C twice it is empty and takes text.
func FuzzKeys(f *testing.F) {
	for _, seed := range []string{"text\r", "\x1b", "\x1b[", "\x1b[200~", pasteBegin + "x" + pasteEnd, "\x1bO", "\xe4\xb8", "\x1b\x1b[A", "\x1b\r", "e\u0301\u200d"} {
		f.Add(seed, 1)
	}
	f.Fuzz(func(t *testing.T, keys string, piece int) {
		var l Line
		lines, _ := entered(&l, keys, max(1, piece))
		for _, text := range append(lines, textOf(l.cells)) {
			if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) {
				t.Fatalf("%q: got %q", keys, text)
			}
		}
		shown := shownOf(l.cells)
		if strings.ContainsFunc(shown, func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e }) {
			t.Fatalf("%q: shown as %q", keys, shown)
		}
		if len(l.keys.waiting) > len(pasteBegin)+maxSequence && !l.keys.pasting {
			t.Fatalf("%q: %d bytes wait", keys, len(l.keys.waiting))
		}
		entered(&l, "~\x03\x03", 3) // ends what is unfinished
		if lines, _ := entered(&l, "ok\r", 3); len(lines) != 1 || lines[0] != "ok" {
			t.Fatalf("%q: then got %q, want ok", keys, lines)
		}
	})
}
