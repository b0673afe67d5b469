package show

import (
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestAbridgingSaysHowMuchIsMissing(t *testing.T) {
	text := strings.Repeat("ä", 5000)
	want := []string{text[:2*headShown], "… 904 characters more: /show shows all …", text[:2*(MaxShown-headShown)]}
	if got := BothEnds([]string{text}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSummaryFoldsNothing(t *testing.T) {
	for args, want := range map[string]string{
		`{"command":"echo 'a  b'\necho 2"}`: "$ echo 'a  b'⏎echo 2",
		`{"path":"x  y"}`:                   `{"path":"x  y"}`,
		`{"a":1,"_acp":{"title":"Edit x.go","locations":[{"path":"x.go"},{"path":"y.go","line":2}],"options":[]}}`: "Edit x.go y.go:2",
		`{"a":1,"_acp":{"kind":"edit"}}`: `{"a":1}`,
		``:                               "",
	} {
		if got := Summary([]byte(args)); got != want {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}

// FuzzDetails checks that nothing a terminal acts on is left, and that no command
// is cut.
func FuzzDetails(f *testing.F) {
	for _, seed := range []string{"ls", "a\nb", "\x1b[2K", "\u202e\u2028\u00a0", "\xff", strings.Repeat("x\n", 100)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := JSON(map[string]string{"command": text, "old_string": text, "new_string": "", text: text})
		for _, shown := range []string{strings.Join(Details(args), "\n"), Summary(args)} {
			for _, r := range shown {
				if unseen(r) {
					t.Fatalf("%q: got %q, which keeps %U", text, shown, r)
				}
			}
		}
		for _, line := range Details(args) {
			if strings.ContainsFunc(line, func(r rune) bool { return r == '\n' || unicode.Is(unicode.Bidi_Control, r) }) {
				t.Fatalf("%q: got the line %q", text, line)
			}
		}
	})
}
