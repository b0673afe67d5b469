package proc

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestWordsAreSplitAsQuoted(t *testing.T) {
	for _, tt := range []struct {
		line string
		want []string
	}{
		{`ls`, []string{"ls"}},
		{"  ls \t -l\n", []string{"ls", "-l"}},
		{`echo 'a  b' "c  d"`, []string{"echo", "a  b", "c  d"}},
		{`echo 'a\b'`, []string{"echo", `a\b`}},
		{`echo "a\"b" "c\d"`, []string{"echo", `a"b`, "cd"}},
		{`echo a\ b \'`, []string{"echo", "a b", "'"}},
		{`echo a'b'"c"d`, []string{"echo", "abcd"}},
		{`echo '' ""`, []string{"echo", "", ""}},
		{`echo "it's" 'say "hi"'`, []string{"echo", "it's", `say "hi"`}},
		{`echo $HOME *.go`, []string{"echo", "$HOME", "*.go"}},
		{`échö ☃`, []string{"échö", "☃"}},
	} {
		got, err := SplitWords(tt.line)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("SplitWords(%q): got %q, %v; want %q", tt.line, got, err, tt.want)
		}
	}
}

func TestUnfinishedLinesAreRefused(t *testing.T) {
	for _, tt := range []struct {
		line string
		want error
	}{
		{``, ErrNoExecutable},
		{" \t", ErrNoExecutable},
		{`echo \`, ErrDanglingEscape},
		{`echo "a\`, ErrDanglingEscape},
		{`echo 'a`, ErrOpenQuote},
		{`echo "a'`, ErrOpenQuote},
		{`echo 'a\`, ErrOpenQuote},
	} {
		if _, err := SplitWords(tt.line); !errors.Is(err, tt.want) {
			t.Errorf("SplitWords(%q): got error %v, want %v", tt.line, err, tt.want)
		}
	}
}

// Words come back as they are once each is quoted, whatever is in them.
func FuzzSplitWords(f *testing.F) {
	for _, line := range []string{`a 'b c' "d\"e"`, `a\`, `'`, "a\u00a0b", "", `\''x'""`} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := SplitWords(line)
		if err != nil {
			if !slices.Contains([]error{ErrDanglingEscape, ErrOpenQuote, ErrNoExecutable}, err) {
				t.Fatalf("got error %v, want one that users know", err)
			}
			return
		}
		var quoted []string
		for _, word := range words {
			quoted = append(quoted, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
		}
		again, err := SplitWords(strings.Join(quoted, " "))
		if err != nil || !slices.Equal(again, words) {
			t.Fatalf("got %q, %v; want %q", again, err, words)
		}
	})
}
