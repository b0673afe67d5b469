package show

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestHostileTextIsMadeHarmless(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"plain", "Grüße, 世界 👩‍💻\n\tindented", "Grüße, 世界 👩‍💻\n\tindented"},
		{"colour", "\x1b[31mred\x1b[0m", "red"},
		{"cursor and erase", "a\x1b[2J\x1b[1;1Hb", "ab"},
		{"title, ended by BEL", "a\x1b]0;owned\ab", "ab"},
		{"title, ended by ST", "a\x1b]0;owned\x1b\\b", "ab"},
		{"clipboard", "\x1b]52;c;cm0gLXJm\x1b\\ok", "ok"},
		{"device query", "\x1bP$qm\x1b\\\x1b[6n\x1bcok", "ok"},
		{"eight-bit controls", "a\u009b31mb\u009d0;t\u009cc\u0085d", "abcd"},
		{"charset", "\x1b(0lqk\x1b(B", "lqk"},
		{"cut short", "a\x1b[31", "a"},
		{"newline ends a sequence", "a\x1b]0;t\nb", "a\nb"},
		{"no hiding behind a string", "\x1b]0;" + strings.Repeat("h", 300) + "seen", strings.Repeat("h", 46) + "seen"},
		{"backspace and bell", "passw0rd\b\b\b\aord", "passw0rdord"},
		{"progress", "10%\r20%\r\ndone\r\n", "10%\n20%\ndone\n"},
		{"reordering", "safe\u202etxt.exe\u2066", "safe\ufffdtxt.exe\ufffd"},
		{"line separators", "a\u2028b\u2029c", "a\nb\nc"},
		{"invisible tags", "a\U000E0041b", "ab"},
		{"not UTF-8", "a\xffb", "a\ufffdb"},
	} {
		if got := Clean(test.text); got != test.want {
			t.Errorf("%s: Clean(%q): got %q, want %q", test.name, test.text, got, test.want)
		}
	}
}

func TestOneLineIsOneBoundedLine(t *testing.T) {
	if got, want := OneLine("a\n  b\x1b[31m\tc", 10), "a b c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := OneLine("abcdef", 4), "abc…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzClean checks that nothing a terminal acts on is left, that pieces give
// what the whole gives, and that cleaning twice changes nothing.
func FuzzClean(f *testing.F) {
	for _, seed := range []string{
		"", "plain\n\ttext", "\x1b[31mred\x1b[0m", "\x1b]0;t\a", "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
		"\u009b1m", "\x1bPq\x1b", "\u202e", "\r\r\n", "\x1b\x1b[", "\xff\x1b", "\x1b]" + strings.Repeat("x", 300),
	} {
		f.Add(seed, len(seed)/2)
	}
	f.Fuzz(func(t *testing.T, text string, cut int) {
		got := Clean(text)
		if !utf8.ValidString(got) {
			t.Fatalf("Clean(%q) = %q, which is not UTF-8", text, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
				t.Fatalf("Clean(%q) = %q keeps %U", text, got, r)
			}
		}
		if again := Clean(got); again != got {
			t.Fatalf("cleaning %q twice: got %q, want %q", text, again, got)
		}
		text = strings.ToValidUTF8(text, "\ufffd") // a wire text is never cut inside a character
		cut = max(0, min(cut, len(text)))
		for cut < len(text) && !utf8.RuneStart(text[cut]) {
			cut++
		}
		var c Cleaner
		if pieces := c.Clean(text[:cut]) + c.Clean(text[cut:]); pieces != Clean(text) {
			t.Fatalf("%q cut at %d: got %q, want %q", text, cut, pieces, Clean(text))
		}
	})
}
