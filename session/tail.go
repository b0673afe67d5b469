package session

import "unicode/utf8"

// A tail is the end of a text that only grows. Its zero value is empty; the
// limit is the caller's, in bytes, and the same in every call.
//
// It lets the text grow to twice the limit before it throws away the front, so
// that an append moves each byte once on average.
type tail struct{ buf []byte }

// write appends s.
func (t *tail) write(s string, limit int) {
	if len(s) > limit {
		t.buf = append(t.buf[:0], lastWhole(s, limit)...)
		return
	}
	t.buf = append(t.buf, s...)
	if len(t.buf) > 2*limit {
		t.buf = append(t.buf[:0], lastWhole(t.buf, limit)...)
	}
}

// text returns the last limit bytes, without the code point that a cut would
// split.
func (t *tail) text(limit int) string { return string(lastWhole(t.buf, limit)) }

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
