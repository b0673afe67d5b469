package proc

import (
	"slices"
	"unicode/utf8"
)

// A Text decodes a process's output. An incomplete character at the end of a
// piece waits for the next piece; every byte that is not UTF-8 becomes U+FFFD.
// The zero value is ready.
type Text struct {
	cut []byte // the beginning of a character; at most 3 bytes
}

// Decode returns the text of the next piece of the stream.
func (t *Text) Decode(piece []byte, last bool) string {
	all := piece
	if len(t.cut) > 0 {
		all = slices.Concat(t.cut, piece)
		t.cut = nil
	}
	for n := 1; !last && n < utf8.UTFMax && n <= len(all); n++ {
		start := len(all) - n
		if !utf8.RuneStart(all[start]) {
			continue
		}
		if !utf8.FullRune(all[start:]) {
			all, t.cut = all[:start], slices.Clone(all[start:])
		}
		break
	}
	if utf8.Valid(all) {
		return string(all)
	}
	return string([]rune(string(all)))
}
