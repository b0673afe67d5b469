package abridge

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTextsAreShortened(t *testing.T) {
	for _, tt := range []struct {
		name string
		by   func(string, int) string
		text string
		most int
		want string
	}{
		{"Head", Head, "abc", 3, "abc"}, {"Head", Head, "abc", 2, "ab"}, {"Head", Head, "aé", 2, "a"}, {"Head", Head, "😀", 3, ""},
		{"Head", Head, "abc", 0, ""}, {"Head", Head, "abc", -1, ""}, {"Head", Head, "", 0, ""}, {"Head", Head, "a\x80\x80\x80\x80\x80", 5, "a\x80"},
		{"Bytes", Bytes, "abc", 3, "abc"}, {"Bytes", Bytes, "aéc", 2, "a…"},
		{"Chars", Chars, "éé", 2, "éé"}, {"Chars", Chars, "ééé", 2, "éé…"}, {"Chars", Chars, "", 0, ""},
		{"Line", Line, "éé", 2, "éé"}, {"Line", Line, "éé\n", 2, "éé…"}, {"Line", Line, "ééé\nx", 2, "éé…"}, {"Line", Line, "\nx", 2, "…"},
	} {
		if got := tt.by(tt.text, tt.most); got != tt.want {
			t.Errorf("%s(%q, %d): got %q, want %q", tt.name, tt.text, tt.most, got, tt.want)
		}
	}
}

func TestNoCharacterIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, limit := rapid.String().Draw(t, "text"), rapid.IntRange(0, 20).Draw(t, "limit")
		got := Head(text, limit)
		if !utf8.ValidString(got) || !strings.HasPrefix(text, got) || len(got) > limit || len(text) > limit && len(got) < limit-utf8.UTFMax+1 {
			t.Errorf("Head(%q, %d): got %q", text, limit, got)
		}
	})
}
