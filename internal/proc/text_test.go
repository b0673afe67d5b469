package proc

import (
	"strings"
	"testing"
)

func TestCutCharactersAreDecodedWhole(t *testing.T) {
	for _, tt := range []struct{ bytes, want string }{
		{"aé☃𝄞z", "aé☃𝄞z"},
		{"a\xffb", "a\uFFFDb"},
		{"a\xe2\x98", "a\uFFFD\uFFFD"},
		{"\xe2\x98b", "\uFFFD\uFFFDb"},
		{"\x80\x80\x80\x80", strings.Repeat("\uFFFD", 4)},
		{"", ""},
	} {
		for size := 1; size <= max(1, len(tt.bytes)); size++ {
			var dec Text
			var got strings.Builder
			rest := tt.bytes
			for len(rest) > size {
				got.WriteString(dec.Decode([]byte(rest[:size]), false))
				rest = rest[size:]
			}
			got.WriteString(dec.Decode([]byte(rest), true))
			if got.String() != tt.want {
				t.Errorf("%q in pieces of %d: got %q, want %q", tt.bytes, size, got.String(), tt.want)
			}
		}
	}
}
