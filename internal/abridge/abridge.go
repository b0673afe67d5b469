// Package abridge shortens texts without cutting a character. A text that is short
// enough is returned as it is.
package abridge

import (
	"strings"
	"unicode/utf8"
)

// mark stands where a text goes on.
const mark = "…"

// Head returns the beginning of a text, at most limit bytes of it.
func Head(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := max(limit, 0)
	// More bytes than these that go on with a character are not UTF-8 and may be cut.
	for first := max(end-utf8.UTFMax+1, 0); end > first && !utf8.RuneStart(text[end]); {
		end--
	}
	return text[:end]
}

// Bytes is [Head] with … at the end of a text that goes on. The limit is without it.
func Bytes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return Head(text, limit) + mark
}

// Chars returns the first characters of a text, at most limit of them, with … after
// them if the text goes on.
func Chars(text string, limit int) string {
	if short := FirstChars(text, limit); short != text {
		return short + mark
	}
	return text
}

// Line returns the first line of a text, at most limit characters of it, with … after
// them if the text goes on.
func Line(text string, limit int) string {
	first, _, more := strings.Cut(text, "\n")
	if short := FirstChars(first, limit); more || short != first {
		return short + mark
	}
	return first
}

// FirstChars returns the first characters of a text, at most limit of them.
func FirstChars(text string, limit int) string {
	for i := range text {
		if limit == 0 {
			return text[:i]
		}
		limit--
	}
	return text
}
