package contracts

import (
	"slices"
	"unicode/utf8"
)

// checkRaw reports why a raw value is not one JSON value within limit levels.
func checkRaw(value []byte, limit int) error {
	s := scanner{text: value, limit: limit}
	s.space()
	if err := s.skip(); err != nil {
		return err
	}
	return s.end()
}

// appendCompact appends a JSON value that checkRaw accepts, without white
// space and with its strings made safe to send: what is not UTF-8 and half
// surrogate pairs become U+FFFD, and the line separators that JavaScript once
// disliked are escaped.
func appendCompact(dst, value []byte) []byte {
	for i := 0; i < len(value); {
		switch c := value[i]; c {
		case ' ', '\t', '\n', '\r':
			i++
		case '"':
			var size int
			dst, size = appendRawString(dst, value[i:])
			i += size
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// appendRawString appends the string token that text begins with and returns
// its size in text.
func appendRawString(dst, text []byte) ([]byte, int) {
	start := 0 // of what is not yet copied
	i := 1
	for {
		c := text[i]
		switch {
		case c == '"':
			return append(dst, text[start:i+1]...), i + 1
		case c == '\\' && text[i+1] == 'u':
			r, size := unescapeRune(text[i:])
			if r == utf8.RuneError {
				dst = append(append(dst, text[start:i]...), `\ufffd`...)
				start = i + size
			}
			i += size
		case c == '\\':
			i += 2
		case c < utf8.RuneSelf:
			i++
		default:
			replacement, size := unsafeRune(text[i:])
			if replacement != "" {
				dst = append(append(dst, text[start:i]...), replacement...)
				start = i + size
			}
			i += size
		}
	}
}

// unsafeRune returns what must be sent instead of the code point that text
// begins with, empty if it may be sent as it is, and its size in text.
func unsafeRune[T []byte | string](text T) (replacement string, size int) {
	r, size := utf8.DecodeRuneInString(string(text[:min(len(text), utf8.UTFMax)]))
	switch {
	case r == utf8.RuneError && size == 1:
		return "\ufffd", 1
	case r == '\u2028':
		return `\u2028`, size
	case r == '\u2029':
		return `\u2029`, size
	}
	return "", size
}

// appendString appends s as a JSON string with the same care.
func appendString(dst []byte, s string) []byte {
	dst = append(slices.Grow(dst, len(s)+escapes(s)+2), '"')
	start := 0 // of what is not yet copied
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = appendEscape(append(dst, s[start:i]...), c)
			i++
			start = i
			continue
		}
		replacement, size := unsafeRune(s[i:])
		if replacement != "" {
			dst = append(append(dst, s[start:i]...), replacement...)
			start = i + size
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// escapes counts the bytes by which ASCII in s grows as a JSON string, so that a
// text of many lines is not copied time and again while it is written.
func escapes(s string) (n int) {
	for i := range len(s) {
		n += int(growth[s[i]])
	}
	return n
}

// growth is by how many bytes each byte grows in a JSON string.
var growth = func() (by [256]uint8) {
	for c := range byte(utf8.RuneSelf) {
		if c < ' ' || c == '"' || c == '\\' {
			by[c] = uint8(len(appendEscape(nil, c)) - 1)
		}
	}
	return by
}()

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
