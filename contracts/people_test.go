package contracts

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestAddingPeopleIsEncodingThem(t *testing.T) {
	want := exampleSnapshot(t)
	snapshot, err := (&Decoder{Strict: true}).Snapshot(want)
	if err != nil {
		t.Fatal(err)
	}
	people := snapshot.State.People
	snapshot.State.People = nil
	without, err := EncodeSnapshot(snapshot, 0)
	if err != nil || strings.Contains(string(without), "Ann Lee") {
		t.Fatalf("without people: got %s and %v", without, err)
	}
	got, err := AddPeople(without, people)
	if err != nil || string(got) != string(want) {
		t.Errorf("got %s and %v, want %s", got, err, want)
	}
	got, err = AddPeople(without, &People{})
	if err != nil || !strings.HasSuffix(string(got), `,"people":{"prompts":[],"answers":[],"requests":[],"controller":null}}}`) {
		t.Errorf("nobody: got %s and %v", got, err)
	}
}

func TestLabelsAreCleaned(t *testing.T) {
	for _, tt := range []struct {
		text  string
		limit int
		want  string
	}{
		{"Ann Lee", 256, "Ann Lee"},
		{"  Zoë\n", 256, "Zoë"},
		{"a\x1b[31mb\x00", 256, "a[31mb"},
		{"owner\u202e\u2066", 256, "owner"},
		{"two\u2028lines\r\n", 256, "twolines"},
		{"a\xffb", 256, "a\ufffdb"},
		{"ééé", 4, "éé"}, {"ab  cd", 4, "ab"}, {"", 4, ""}, {"\u200f", 4, ""},
	} {
		if got := CleanLabel(tt.text, tt.limit); got != tt.want {
			t.Errorf("CleanLabel(%q, %d): got %q, want %q", tt.text, tt.limit, got, tt.want)
		}
	}
}

func FuzzCleanLabel(f *testing.F) {
	f.Add("Ann\u202e\n", 4)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = min(max(limit, utf8.UTFMax), MaxLabelBytes)
		got := CleanLabel(text, limit)
		bad := func(r rune) bool {
			return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
		}
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsFunc(got, bad) || CleanLabel(got, limit) != got {
			t.Errorf("CleanLabel(%q, %d): got %q", text, limit, got)
		}
	})
}
