package contracts

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSplitText(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  []string
	}{
		{"", 8, nil},
		{"short", 8, []string{"short"}},
		{"12345678", 8, []string{"12345678"}},
		{"123456789", 8, []string{"12345678", "9"}},
		{"1234567é9", 8, []string{"1234567", "é9"}},
		{"日本語", 4, []string{"日", "本", "語"}},
		{"🙂🙂", 1, []string{"🙂", "🙂"}},
		{"🙂🙂", -1, []string{"🙂", "🙂"}},
		{strings.Repeat("\x80", 9), 4, []string{"\x80", "\x80", "\x80", "\x80", "\x80", "\x80\x80\x80\x80"}},
	} {
		if got := SplitText(test.text, test.limit); !slices.Equal(got, test.want) {
			t.Errorf("%q, %d: got %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}

func TestTailText(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 4, ""},
		{"abc", 4, "abc"},
		{"abcdef", 4, "cdef"},
		{"aéé", 3, "é"},
		{"🙂🙂", 7, "🙂"},
		{"🙂", 3, ""},
		{"abc", 0, ""},
		{"abc", -1, ""},
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80"},
	} {
		if got := TailText(test.text, test.limit); got != test.want {
			t.Errorf("%q, %d: got %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a🙂日é", 5)
	f.Add("\x80\x80\xff🙂", 4)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		pieces := SplitText(text, limit)
		if got := strings.Join(pieces, ""); got != text {
			t.Errorf("pieces join to %q, want %q", got, text)
		}
		tail := TailText(text, limit)
		if !strings.HasSuffix(text, tail) || len(tail) > max(limit, 0) {
			t.Errorf("got tail %q of %q, want at most %d bytes of its end", tail, text, limit)
		}
		for _, piece := range append(pieces, tail) {
			if len(piece) > max(limit, utf8.UTFMax) {
				t.Errorf("got a piece of %d bytes, want at most %d", len(piece), limit)
			}
			if utf8.ValidString(text) && !utf8.ValidString(piece) {
				t.Errorf("got %q, which cuts a code point of %q", piece, text)
			}
		}
	})
}
