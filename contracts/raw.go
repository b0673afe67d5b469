package contracts

import (
	"encoding/binary"
	"math/bits"
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

// appendString appends s as a JSON string with the same care. It looks at eight
// bytes at a time: most of what is encoded is text, and most of that stands for
// itself.
func appendString(dst []byte, s string) []byte {
	dst = append(slices.Grow(dst, len(s)+escapes(s)+len(`""`)), '"')
	i := 0
	for len(s)-i >= 8 {
		word := load(s[i:])
		plain := 8
		if marks := special(word); marks != 0 {
			plain = bits.TrailingZeros64(marks) / 8
		}
		dst = binary.LittleEndian.AppendUint64(dst, word)[:len(dst)+plain]
		if i += plain; plain < 8 {
			dst, i = appendSpecial(dst, s, i)
		}
	}
	for i < len(s) {
		if c := s[i]; c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			dst = append(dst, c)
			i++
		} else {
			dst, i = appendSpecial(dst, s, i)
		}
	}
	return append(dst, '"')
}

// appendSpecial appends what is at s[i] and does not stand for itself, or is not
// ASCII, and returns where it ends. Short escapes come in pairs, at the ends of
// lines: it appends all that follow each other.
func appendSpecial(dst []byte, s string, i int) ([]byte, int) {
	start := i
	for ; i < len(s) && short[s[i]] != 0; i++ {
		dst = append(dst, '\\', short[s[i]])
	}
	if i > start {
		return dst, i
	}
	if c := s[i]; c < utf8.RuneSelf {
		const hex = "0123456789abcdef"
		return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15]), i + 1
	}
	replacement, size := unsafeRune(s[i:])
	if replacement == "" {
		replacement = s[i : i+size]
	}
	return append(dst, replacement...), i + size
}

// short has the letters of the escapes of two characters.
var short = [256]byte{'"': '"', '\\': '\\', '\n': 'n', '\r': 'r', '\t': 't', '\b': 'b', '\f': 'f'}

// escapes returns about how many bytes s grows by as a JSON string, so that a
// text of many lines is not copied time and again while it is written.
func escapes(s string) (n int) {
	for ; len(s) >= 8; s = s[8:] {
		word := load(s)
		n += bits.OnesCount64(special(word) &^ word)
	}
	return n
}

// load returns the first eight bytes of s, the first one lowest.
func load(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// special sets the highest bit of each byte of a word that is a control character,
// a quote, a backslash or not ASCII. Bytes above the first of them may be marked
// without a reason: a subtraction has borrowed from them.
func special(word uint64) uint64 {
	const each, high = 0x0101010101010101, 0x8080808080808080
	// What is not ASCII keeps its highest bit in one of these at least.
	control, quote, backslash := word-each*' ', (word^each*'"')-each, (word^each*'\\')-each
	return (control | quote | backslash) & high
}
