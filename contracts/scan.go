package contracts

import (
	"bytes"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads one JSON text (RFC 8259) without building values. Unlike
// encoding/json it bounds nesting, refuses anything but white space after the
// value, and reports errors with their offset.
//
// The first error ends the reading: it is kept in err, and every later call finds
// the end of the text and of all objects and arrays.
//
// It does not check UTF-8: the caller checks the text before, or repairs the
// strings afterwards.
type scanner struct {
	text    []byte
	pos     int
	depth   int          // open objects and arrays
	limit   int          // greatest depth
	first   bool         // nothing of the innermost object or array has been read yet
	scratch []byte       // the last string with escapes, decoded
	err     *syntaxError // the first error
}

// A syntaxError says why a text is not JSON.
type syntaxError struct {
	what   string
	offset int
	deep   bool // the text may be JSON but nests beyond the limit
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.what, e.offset)
}

// fail ends the reading with an error at the current position, unless it has ended.
func (s *scanner) fail(what string) {
	if s.pos >= len(s.text) {
		what = "unexpected end of text"
	}
	if s.err == nil {
		s.err = &syntaxError{what: what, offset: s.pos}
	}
	s.pos = len(s.text)
}

// peek returns the next byte, or 0 at the end. No JSON token begins with 0.
func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// end refuses anything but white space after the value.
func (s *scanner) end() {
	if s.space(); s.pos < len(s.text) {
		s.fail("unexpected text after the value")
	}
}

// open enters the object or array at the current position.
func (s *scanner) open() {
	if s.depth == s.limit {
		s.fail(fmt.Sprintf("nesting deeper than %d levels", s.limit))
		s.err.deep = true
		return
	}
	s.depth++
	s.pos++
	s.first = true
}

// more reports whether another element follows, and moves to it. Otherwise it has
// left the object or array, which ends with closing.
func (s *scanner) more(closing byte) bool {
	first := s.first
	s.first = false
	s.space()
	switch c := s.peek(); {
	case c == closing:
		s.pos++
		s.depth--
		return false
	case first:
	case c == ',':
		s.pos++
		s.space()
	case closing == '}':
		s.fail("expected a comma or the end of the object")
	default:
		s.fail("expected a comma or the end of the array")
	}
	return s.err == nil
}

// key reads the name of the next member and moves to its value. It returns false
// at the end of the object. The name is valid until the next string is read.
func (s *scanner) key() (name []byte, ok bool) {
	if !s.more('}') {
		return nil, false
	}
	if s.peek() != '"' {
		s.fail("expected a property name")
		return nil, false
	}
	name = s.str()
	if s.space(); s.peek() != ':' {
		s.fail("expected a colon")
		return nil, false
	}
	s.pos++
	s.space()
	return name, true
}

// str reads a string and returns its content, valid until the next call.
func (s *scanner) str() []byte {
	text, start := s.text, s.pos+1
	for i := start; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			s.pos = i + 1
			return text[start:i]
		case c == '\\':
			s.scratch = append(s.scratch[:0], text[start:i]...)
			s.pos = i
			return s.escapedStr()
		case c < ' ':
			s.pos = i
			s.fail("control character in a string")
			return nil
		}
	}
	s.pos = len(s.text)
	s.fail("")
	return nil
}

// escapedStr reads the rest of a string from its first escape.
func (s *scanner) escapedStr() []byte {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return s.scratch
		case c == '\\':
			s.escape()
		case c < ' ':
			s.fail("control character in a string")
		default:
			s.scratch = append(s.scratch, c)
			s.pos++
		}
	}
	s.fail("")
	return nil
}

// escape decodes one escape. A lone surrogate becomes U+FFFD.
func (s *scanner) escape() {
	rest := s.text[s.pos:]
	if len(rest) < 2 {
		s.pos = len(s.text)
		s.fail("")
		return
	}
	if rest[1] == 'u' {
		r, size := unescapeRune(rest)
		if size == 0 {
			s.fail("invalid \\u escape in a string")
			return
		}
		s.scratch = utf8.AppendRune(s.scratch, r)
		s.pos += size
		return
	}
	i := strings.IndexByte(`"\/bfnrt`, rest[1])
	if i < 0 {
		s.fail("invalid escape in a string")
		return
	}
	s.scratch = append(s.scratch, "\"\\/\b\f\n\r\t"[i])
	s.pos += 2
}

// unescapeRune decodes the \u escape, or surrogate pair, at the start of text. It
// returns U+FFFD for a lone surrogate and size 0 for a malformed escape.
func unescapeRune(text []byte) (r rune, size int) {
	r = hex4(text)
	if r < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if pair := utf16.DecodeRune(r, hex4(text[6:])); pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

// hex4 returns the value of \uXXXX at the start of text, or -1.
func hex4(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	r, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(r)
}

// number reads a number and returns its text, or nil after an error.
func (s *scanner) number() []byte {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else {
		s.digits()
	}
	if s.peek() == '.' {
		s.pos++
		s.digits()
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		s.digits()
	}
	if s.err != nil {
		return nil
	}
	return s.text[start:s.pos]
}

// digits skips digits, of which there must be one.
func (s *scanner) digits() {
	start := s.pos
	for isDigit(s.peek()) {
		s.pos++
	}
	if s.pos == start {
		s.fail("expected a digit")
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// word reads true, false or null.
func (s *scanner) word(w string) {
	if !bytes.HasPrefix(s.text[s.pos:], []byte(w)) {
		s.fail("expected a value")
		return
	}
	s.pos += len(w)
}

// skip skips one value of any kind. The limit bounds the recursion.
func (s *scanner) skip() {
	switch c := s.peek(); {
	case c == '{':
		s.open()
		s.skipMembers()
	case c == '[':
		for s.open(); s.more(']'); {
			s.skip()
		}
	case c == '"':
		s.str()
	case c == '-' || isDigit(c):
		s.number()
	case c == 't':
		s.word("true")
	case c == 'f':
		s.word("false")
	case c == 'n':
		s.word("null")
	default:
		s.fail("expected a value")
	}
}

// skipMembers skips the remaining members of the object, and leaves it.
func (s *scanner) skipMembers() {
	for _, ok := s.key(); ok; _, ok = s.key() {
		s.skip()
	}
}

// parseInteger returns the value of a JSON number as sign and magnitude. It accepts
// every spelling of an integer, such as 1.0 and 1e3, with at most 64 digits. ok is
// false for fractions and for magnitudes above 64 bits.
func parseInteger(text []byte) (negative bool, magnitude uint64, ok bool) {
	const most, precision = 64, 256 // characters, and bits for so many digits
	if n, err := strconv.ParseUint(string(text), 10, 64); err == nil {
		return false, n, true
	}
	if len(text) > most {
		return false, 0, false
	}
	f, _, err := big.ParseFloat(string(text), 10, precision, big.ToZero)
	if err != nil || !f.IsInt() {
		return false, 0, false
	}
	magnitude, accuracy := new(big.Float).Abs(f).Uint64()
	return f.Sign() < 0, magnitude, accuracy == big.Exact
}
