package contracts

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// appendCompact appends a JSON value that the scanner accepts, without white space.
// Invalid UTF-8 and lone surrogates in its strings become U+FFFD; U+2028 and
// U+2029, which older JavaScript does not allow in strings, are escaped.
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

// appendRawString appends the string token at the start of text and returns the
// token's size in text.
func appendRawString(dst, text []byte) ([]byte, int) {
	start := 0 // first byte that is not copied yet
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

// unsafeRune looks at the code point at the start of text. It returns its
// replacement, empty if the code point can be sent, and its size in text.
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

// appendString appends s as a JSON string, with the replacements of appendCompact.
// It handles eight bytes at a time, because most text needs no escapes.
func appendString(dst []byte, s string) []byte {
	dst = append(slices.Grow(dst, len(s)+countEscapes(s)+len(`""`)), '"')
	i := 0
	for len(s)-i >= 8 {
		word := loadWord(s[i:])
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

// appendSpecial appends the character at s[i], which needs an escape or is not
// ASCII, and returns the index after it. Short escapes often come in pairs, at line
// ends: it appends all consecutive ones.
func appendSpecial(dst []byte, s string, i int) ([]byte, int) {
	start := i
	for ; i < len(s) && shortEscapes[s[i]] != 0; i++ {
		dst = append(dst, '\\', shortEscapes[s[i]])
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

// shortEscapes holds the letters of the two-character escapes.
var shortEscapes = [256]byte{'"': '"', '\\': '\\', '\n': 'n', '\r': 'r', '\t': 't', '\b': 'b', '\f': 'f'}

// countEscapes estimates by how many bytes s grows as a JSON string, so that the
// buffer of a text with many lines does not grow repeatedly.
func countEscapes(s string) (n int) {
	for ; len(s) >= 8; s = s[8:] {
		word := loadWord(s)
		n += bits.OnesCount64(special(word) &^ word)
	}
	return n
}

// loadWord returns the first eight bytes of s, the first one lowest.
func loadWord(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// special sets the highest bit of each byte of word that is a control character, a
// quote, a backslash or not ASCII. Bytes above the first marked one may be marked
// wrongly, because the subtractions borrow.
func special(word uint64) uint64 {
	const each, high = 0x0101010101010101, 0x8080808080808080
	// A byte that is not ASCII keeps its highest bit in at least one of these.
	control, quote, backslash := word-each*' ', (word^each*'"')-each, (word^each*'\\')-each
	return (control | quote | backslash) & high
}

// SplitText cuts s into pieces of at most limit bytes without cutting a code point.
// A limit below 4 counts as 4, the length of the longest code point. An empty
// string has no pieces.
func SplitText(s string, limit int) []string {
	limit = max(limit, utf8.UTFMax)
	if s == "" {
		return nil
	}
	pieces := make([]string, 0, len(s)/limit+1)
	for len(s) > limit {
		cut := limit
		// Only the last three bytes can belong to an unfinished code point. More
		// continuation bytes are not UTF-8 and may be cut.
		for cut > limit-utf8.UTFMax+1 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		pieces = append(pieces, s[:cut])
		s = s[cut:]
	}
	return append(pieces, s)
}

// TailText returns the end of s: at most limit bytes, beginning with a whole code
// point.
func TailText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := len(s) - max(limit, 0)
	for end := min(cut+utf8.UTFMax-1, len(s)); cut < end && !utf8.RuneStart(s[cut]); {
		cut++
	}
	return s[cut:]
}
