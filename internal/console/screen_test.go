package console

import (
	"io"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// live is a screen of a size with its terminal.
func live(width, height int) (*Screen, *Line, *emulator) {
	line, e := &Line{}, newEmulator(width, height)
	return NewScreen(e, false, line, func() (int, int) { return e.width, e.height }), line, e
}

// typing feeds keys, none of which ends the line.
func typing(l *Line, keys string) {
	l.Feed([]byte(keys))
	for _, _, _, more := l.Next(); more; _, _, _, more = l.Next() {
	}
}

// wantRows compares what a terminal shows.
func wantRows(t *testing.T, e *emulator, want ...string) {
	t.Helper()
	if got := e.all(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if e.odd != "" {
		t.Errorf("the terminal does not understand %s", e.odd)
	}
}

func TestWhatIsTypedStaysBelowWhatIsPrinted(t *testing.T) {
	s, line, e := live(40, 10)
	s.SetPrompt(Prompt{State: "working", Mark: "> "})
	typing(line, "fix the te")
	s.Write(Plain, "  ", "Once upon ", false)
	s.Flush()
	wantRows(t, e, "  Once upon", "working > fix the te")
	typing(line, "st")
	s.Write(Plain, "  ", "a time\nthere ", false)
	s.Flush()
	wantRows(t, e, "  Once upon a time", "  there", "working > fix the test")
	s.Line(Plain, "-- news")
	s.SetPrompt(Prompt{Mark: "> "})
	s.Flush()
	wantRows(t, e, "  Once upon a time", "  there", "-- news", "> fix the test")
	line.Feed([]byte("\r"))
	_, text, shown, _ := line.Next()
	s.Enter(shown)
	s.Flush()
	wantRows(t, e, "  Once upon a time", "  there", "-- news", "> fix the test", ">")
	if text != "fix the test" || e.x != 2 || e.y != 4 {
		t.Errorf("got %q entered and the cursor at %d, %d", text, e.y, e.x)
	}
}

func TestLongLinesAreBrokenBetweenWords(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{"the quick brown fox jumps over", []string{"  the quick brown", "  fox jumps over"}},
		{"- the quick brown fox jumps", []string{"  - the quick brown", "    fox jumps"}},
		{"12. the quick brown fox", []string{"  12. the quick", "      brown fox"}},
		{"the quick brown foxes", []string{"  the quick brown", "  foxes"}},
		{"the quick brown fo xx", []string{"  the quick brown fo", "  xx"}},
		{"see http://example.com/a/b", []string{"  see", "  http://example.com", "/a/b"}},
		{"世界世界世界世界世界世界", []string{"  世界世界世界世界世", "  界世界"}},
		{"\ttab", []string{"        tab"}},
	} {
		for _, pieces := range [][]string{{test.text}, strings.SplitAfter(test.text, "")} {
			s, _, e := live(20, 10)
			for _, p := range pieces {
				s.Write(Plain, "  ", p, false)
				s.Flush()
			}
			wantRows(t, e, append(slices.Clone(test.want), "")...)
		}
	}
}

// TestVerbatimLinesAreBrokenByTheTerminal has a command that is to be copied.
func TestVerbatimLinesAreBrokenByTheTerminal(t *testing.T) {
	s, _, e := live(20, 10)
	for _, p := range []string{"docker run -e A=1 ", "-e B=2 ", "image\nnext"} {
		s.Write(Plain, "  ", p, true)
		s.Flush()
	}
	wantRows(t, e, "  docker run -e A=1", "-e B=2 image", "  next", "")
	if !e.rows[0].soft || e.rows[1].soft {
		t.Error("the terminal does not know which rows belong together")
	}
}

// TestLineIsShownAroundTheCursor types more than the screen has room for.
func TestLineIsShownAroundTheCursor(t *testing.T) {
	s, line, e := live(12, 5)
	s.SetPrompt(Prompt{Mark: "> "})
	typing(line, "aaaaaaaaabbbbbbbbbcccccccccddddddddd")
	s.Flush()
	wantRows(t, e, "  ccccccccc", "  ddddddddd", "")
	typing(line, "\x01")
	s.Flush()
	wantRows(t, e, "> aaaaaaaaa", "  bbbbbbbbb", "  ccccccccc")
	if e.y != 0 || e.x != 2 {
		t.Errorf("got the cursor at %d, %d, want it at the first character", e.y, e.x)
	}
}

func TestWideCharactersTakeTwoColumns(t *testing.T) {
	s, line, e := live(9, 10)
	s.SetPrompt(Prompt{Mark: "> "})
	typing(line, "世界世界e\u0301x")
	s.Flush()
	wantRows(t, e, "> 世界世", "  界e\u0301x")
	for _, want := range []struct{ y, x int }{{1, 5}, {1, 4}, {1, 2}, {0, 6}, {0, 4}} {
		typing(line, "\x1b[D")
		s.Flush()
		if e.y != want.y || e.x != want.x {
			t.Errorf("got the cursor at %d, %d, want %d, %d", e.y, e.x, want.y, want.x)
		}
		typing(line, "\x1b[D\x1b[C")
	}
	typing(line, "\x7f")
	s.Flush()
	wantRows(t, e, "> 界世界", "  e\u0301x")
}

func TestOwnLinesAreBrokenUnlessTheyAreBlocks(t *testing.T) {
	s, _, e := live(12, 10)
	s.Line(Plain, "-- one two three\n   four")
	s.Block(Plain, "$ one two three four")
	s.Flush()
	wantRows(t, e, "-- one two", "   three", "   four", "$ one two th", "ree four", "")
}

func TestHiddenLineComesBack(t *testing.T) {
	s, line, e := live(20, 10)
	s.SetPrompt(Prompt{Mark: "> "})
	typing(line, "half")
	s.Write(Plain, "", "open", false)
	s.Flush()
	s.Hide()
	wantRows(t, e, "open", "")
	_, _ = io.WriteString(e, "$ fg\r\n")
	s.Flush()
	wantRows(t, e, "open", "$ fg", "> half")
}

func TestTextIsWrittenAsItIsWithoutALine(t *testing.T) {
	var out strings.Builder
	s := NewScreen(&out, false, nil, nil)
	s.Write(Plain, "  ", "a\n\n\tb ", false)
	s.Write(Plain, "  ", "c", false)
	s.Line(Plain, "-- news\n  more")
	s.Write(Plain, " | ", "\n", false)
	s.Flush()
	s.Hide()
	if want := "  a\n\n  \tb c\n-- news\n  more\n |\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestColourOnlyWhereItIsWanted(t *testing.T) {
	var out strings.Builder
	s := NewScreen(&out, true, nil, nil)
	s.Line(Red, "x")
	s.Line(Plain, "y")
	if want := "\x1b[31mx\x1b[0m\ny\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestNothingIsLostOnTheTerminal prints and types at random, on a terminal of
// changing size: all that was printed is there once, in its order, and the line
// is below it.
func TestNothingIsLostOnTheTerminal(t *testing.T) {
	words := rapid.SampledFrom([]string{"a", "word", " ", "  ", "longerthanarow", "世界", "e\u0301", "👩\u200d💻", "- item", "\n", "\n\n", "x\ny", "\t"})
	keys := rapid.SampledFrom([]string{"k", "世", "\x7f", "\x1b[D", "\x1b[C", "\x01", "\x05", "\x17", "some words", "\x1b\r", pasteBegin + "p\nq" + pasteEnd})
	rapid.Check(t, func(rt *rapid.T) {
		width, height := rapid.IntRange(6, 30).Draw(rt, "width"), rapid.IntRange(4, 12).Draw(rt, "height")
		s, line, e := live(width, height)
		s.SetPrompt(Prompt{State: "st", Mark: "> "})
		var printed strings.Builder
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0, 1, 2, 3:
				piece := words.Draw(rt, "piece")
				s.Write(Plain, "  ", piece, rapid.Bool().Draw(rt, "verbatim"))
				printed.WriteString(piece)
			case 4:
				s.Line(Plain, "-- news")
				printed.WriteString("-- news")
			case 5, 6, 7:
				typing(line, keys.Draw(rt, "key"))
			case 8:
				s.Flush() // sizes change between, not within, what is written
				width = rapid.IntRange(6, 30).Draw(rt, "width")
				height = 50 // else rows that are to be written again may scroll away
				e.resize(width, height)
			}
			if rapid.Bool().Draw(rt, "flush") {
				s.Flush()
				check(rt, s, e, printed.String())
			}
		}
		s.Flush()
		check(rt, s, e, printed.String())
	})
}

func check(rt *rapid.T, s *Screen, e *emulator, printed string) {
	rt.Helper()
	rows, at, column := s.layout()
	begin := e.y - at
	all := e.all()
	if begin < 0 || e.x != column || len(all) > begin+len(rows) || len(all) <= begin+at {
		rt.Fatalf("got the cursor at %d, %d of\n%s\nwant it at row %d of %d, column %d", e.y, e.x, strings.Join(all, "\n"), at, len(rows), column)
	}
	for i, r := range rows[:len(all)-begin] {
		if got, want := all[begin+i], strings.TrimRight(r.text, " "); got != want {
			rt.Fatalf("row %d of the line: got %q, want %q; all:\n%s", i, got, want, strings.Join(all, "\n"))
		}
	}
	if got, want := dense(strings.Join(all[:begin], "")), dense(printed); got != want {
		rt.Fatalf("got\n%s\nwant\n%s\nall:\n%s", got, want, strings.Join(all, "\n"))
	}
}

// dense returns a text without space.
func dense(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)
}
