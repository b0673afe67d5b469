package session

import (
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// A bound is how much of the end of a text is kept: at most so many characters,
// and at most so many bytes.
type bound struct{ chars, bytes int }

// Outputs are counted in characters, answers in bytes,
// because a snapshot has to fit in a frame.
var (
	outputBound = bound{contracts.MaxStateOutput, utf8.UTFMax * contracts.MaxStateOutput}
	answerBound = bound{contracts.MaxStateText, contracts.MaxStateText}
)

// A tail is the end of a text that only grows. Its zero value is empty; the
// bound is the caller's, and the same in every call.
//
// It lets the text grow to twice the bound before it throws away the front, so
// that an append moves each byte once on average.
type tail struct{ buf []byte }

// write appends s.
func (t *tail) write(s string, b bound) {
	if len(s) > b.bytes {
		t.buf = append(t.buf[:0], last(s, b)...)
		return
	}
	t.buf = append(t.buf, s...)
	if len(t.buf) > 2*b.bytes {
		t.buf = append(t.buf[:0], last(t.buf, b)...)
	}
}

// text returns the end of what was written.
func (t *tail) text(b bound) string { return string(last(t.buf, b)) }

// last returns the end of text that is within the bound.
func last[T string | []byte](text T, b bound) T {
	text = lastWhole(text, b.bytes)
	if len(text) <= b.chars {
		return text
	}
	chars := 0
	for i := len(text) - 1; i >= 0; i-- {
		if !utf8.RuneStart(text[i]) {
			continue
		}
		if chars++; chars == b.chars {
			return text[i:]
		}
	}
	return text
}

// lastWhole returns the end of text: at most limit bytes that do not begin in
// the middle of a code point. Where a cut text is cut again later, the result
// is that of a single cut, which is why all continuation bytes go and not only
// the three that UTF-8 allows.
func lastWhole[T string | []byte](text T, limit int) T {
	cut := max(len(text)-limit, 0)
	for cut > 0 && cut < len(text) && !utf8.RuneStart(text[cut]) {
		cut++
	}
	return text[cut:]
}
