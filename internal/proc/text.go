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
	if !last {
		start := cutAt(all)
		all, t.cut = all[:start], slices.Clone(all[start:])
	}
	if utf8.Valid(all) {
		return string(all)
	}
	return string([]rune(string(all)))
}

// cutAt returns where an incomplete character at the end of b begins, or the
// length of b.
func cutAt(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				break
			}
			return i
		}
	}
	return len(b)
}
