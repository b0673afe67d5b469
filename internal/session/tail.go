package session

import (
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/contracts"
)

// A bound limits the kept end of a text in characters and in bytes.
type bound struct{ chars, bytes int }

// Outputs are limited in characters, answers in bytes, so that
// a snapshot fits in a frame.
var (
	outputBound = bound{contracts.MaxStateOutput, utf8.UTFMax * contracts.MaxStateOutput}
	answerBound = bound{contracts.MaxStateText, contracts.MaxStateText}
)

// A tail is the end of a growing text. Its zero value is empty. The caller passes
// the same bound in every call.
//
// The text grows to twice the bound before the front is dropped, so that on average
// an append moves each byte once.
type tail struct{ buf []byte }

// write appends s.
func (t *tail) write(s string, b bound) {
	if len(s) > b.bytes {
		t.buf = append(t.buf[:0], lastText(s, b)...)
		return
	}
	t.buf = append(t.buf, s...)
	if len(t.buf) > 2*b.bytes {
		t.buf = append(t.buf[:0], lastText(t.buf, b)...)
	}
}

// text returns the end of the text.
func (t *tail) text(b bound) string { return string(lastText(t.buf, b)) }

// lastText returns the end of text within the bound.
func lastText[T string | []byte](text T, b bound) T {
	text = lastBytes(text, b.bytes)
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

// lastBytes returns the end of text: at most limit bytes, not beginning within a
// code point. It drops all continuation bytes at the cut, not only the three that
// UTF-8 allows, so that cutting twice gives the same result as cutting once.
func lastBytes[T string | []byte](text T, limit int) T {
	cut := max(len(text)-limit, 0)
	for cut > 0 && cut < len(text) && !utf8.RuneStart(text[cut]) {
		cut++
	}
	return text[cut:]
}
