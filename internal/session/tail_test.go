package session

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestLastWholeCutsAtCodePoints(t *testing.T) {
	tests := []struct {
		text  string
		limit int
		want  string
	}{
		{"", 4, ""},
		{"abcd", 4, "abcd"},
		{"abcde", 4, "bcde"},
		{"a€b", 4, "€b"},
		{"a€b", 3, "b"},
		{"a€b", 0, ""},
		{"😀", 3, ""},
		{"😀😀", 7, "😀"},
		{"x\x80\x80\x80\x80\x80y", 6, "y"}, // not UTF-8: nothing is split twice
	}
	for _, tt := range tests {
		if got := lastBytes(tt.text, tt.limit); got != tt.want {
			t.Errorf("lastWhole(%q, %d): got %q, want %q", tt.text, tt.limit, got, tt.want)
		}
	}
}

// TestTailIsTheEndOfEverythingWritten: a tail shows what a single cut of the
// whole text would leave, is bounded, and goes on from its own text as it
// would have without a restart.
func TestTailIsTheEndOfEverythingWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := bound{chars: rapid.IntRange(1, 12).Draw(t, "characters"), bytes: rapid.IntRange(1, 24).Draw(t, "bytes")}
		pieces := rapid.SliceOf(rapid.StringOf(rapid.SampledFrom([]rune("ab£€😀")))).Draw(t, "pieces")
		restart := rapid.IntRange(0, len(pieces)).Draw(t, "restart")
		var whole, restarted tail
		var all strings.Builder
		for i, p := range pieces {
			if i == restart {
				restarted.write(whole.text(limit), limit)
			}
			all.WriteString(p)
			whole.write(p, limit)
			if i >= restart {
				restarted.write(p, limit)
			}
			want := lastBytes(all.String(), limit.bytes)
			if chars := []rune(want); len(chars) > limit.chars {
				want = string(chars[len(chars)-limit.chars:])
			}
			if got := whole.text(limit); got != want || !utf8.ValidString(got) {
				t.Fatalf("after %d pieces: got %q, want %q", i+1, got, want)
			}
			if i >= restart {
				if got := restarted.text(limit); got != want {
					t.Fatalf("after %d pieces, restarted at %d: got %q, want %q", i+1, restart, got, want)
				}
			}
			if len(whole.buf) > 2*limit.bytes {
				t.Fatalf("kept %d bytes for a limit of %d", len(whole.buf), limit.bytes)
			}
		}
	})
}

func TestHugePieceIsNotKept(t *testing.T) {
	var text tail
	text.write(strings.Repeat("x", 1<<20)+"end", bound{16, 16})
	if got, want := text.text(bound{16, 16}), strings.Repeat("x", 13)+"end"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if cap(text.buf) > 64 {
		t.Errorf("kept %d bytes for a limit of 16", cap(text.buf))
	}
}

// BenchmarkTailWrite shows that appending does not depend on how much was
// appended before.
func BenchmarkTailWrite(b *testing.B) {
	var text tail
	piece := strings.Repeat("x", 32)
	b.SetBytes(int64(len(piece)))
	for b.Loop() {
		text.write(piece, bound{1 << 20, 1 << 20})
	}
}
