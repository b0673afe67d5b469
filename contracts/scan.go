package contracts

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads one JSON text (RFC 8259) without building values. Unlike
// encoding/json it bounds nesting, refuses anything but white space after the
// value, and reports errors with their offset.
//
// It does not check UTF-8: the caller checks the text before, or repairs the
// strings afterwards.
type scanner struct {
	text    []byte
	pos     int
	depth   int    // open objects and arrays
	limit   int    // greatest depth
	scratch []byte // the last string with escapes, decoded
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

func (s *scanner) fail(what string) error {
	if s.pos >= len(s.text) {
		what = "unexpected end of text"
	}
	return &syntaxError{what: what, offset: s.pos}
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
func (s *scanner) end() error {
	s.space()
	if s.pos < len(s.text) {
		return s.fail("unexpected text after the value")
	}
	return nil
}

// open enters the object or array at the current position.
func (s *scanner) open() error {
	if s.depth == s.limit {
		return &syntaxError{what: fmt.Sprintf("nesting deeper than %d levels", s.limit), offset: s.pos, deep: true}
	}
	s.depth++
	s.pos++
	return nil
}

// more reports whether another element follows, and moves to it. Otherwise it has
// left the object or array, which ends with closing.
func (s *scanner) more(closing byte, first bool) (bool, error) {
	s.space()
	if s.peek() == closing {
		s.pos++
		s.depth--
		return false, nil
	}
	if !first {
		if s.peek() != ',' {
			return false, s.fail("expected a comma or the end of the " + container(closing))
		}
		s.pos++
		s.space()
	}
	return true, nil
}

func container(closing byte) string {
	if closing == '}' {
		return "object"
	}
	return "array"
}

// key reads a member's name and moves to its value. The name is valid until the
// next string is read.
func (s *scanner) key() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.fail("expected a property name")
	}
	name, err := s.str()
	if err != nil {
		return nil, err
	}
	s.space()
	if s.peek() != ':' {
		return nil, s.fail("expected a colon")
	}
	s.pos++
	s.space()
	return name, nil
}

// str reads a string and returns its content, valid until the next call.
func (s *scanner) str() ([]byte, error) {
	start := s.pos + 1
	for i := start; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.pos = i + 1
			return s.text[start:i], nil
		case c == '\\':
			s.scratch = append(s.scratch[:0], s.text[start:i]...)
			s.pos = i
			return s.escapedStr()
		case c < ' ':
			s.pos = i
			return nil, s.fail("control character in a string")
		}
	}
	s.pos = len(s.text)
	return nil, s.fail("")
}

// escapedStr reads the rest of a string from its first escape.
func (s *scanner) escapedStr() ([]byte, error) {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return s.scratch, nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < ' ':
			return nil, s.fail("control character in a string")
		default:
			s.scratch = append(s.scratch, c)
			s.pos++
		}
	}
	return nil, s.fail("")
}

// escape decodes one escape. A lone surrogate becomes U+FFFD.
func (s *scanner) escape() error {
	rest := s.text[s.pos:]
	if len(rest) < 2 {
		s.pos = len(s.text)
		return s.fail("")
	}
	if rest[1] == 'u' {
		r, size := unescapeRune(rest)
		if size == 0 {
			return s.fail("invalid \\u escape in a string")
		}
		s.scratch = utf8.AppendRune(s.scratch, r)
		s.pos += size
		return nil
	}
	c := rest[1]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	default:
		return s.fail("invalid escape in a string")
	}
	s.scratch = append(s.scratch, c)
	s.pos += 2
	return nil
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
	var r rune
	for _, c := range text[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// number reads a number and returns its text.
func (s *scanner) number() ([]byte, error) {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return nil, s.fail("expected a digit")
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return nil, s.fail("expected a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return nil, s.fail("expected a digit")
		}
	}
	return s.text[start:s.pos], nil
}

// digits skips digits and reports whether there was one.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.text) && isDigit(s.text[s.pos]) {
		s.pos++
	}
	return s.pos > start
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// word reads true, false or null.
func (s *scanner) word(w string) error {
	if len(s.text)-s.pos < len(w) || string(s.text[s.pos:s.pos+len(w)]) != w {
		return s.fail("expected a value")
	}
	s.pos += len(w)
	return nil
}

// skip skips one value of any kind. The limit bounds the recursion.
func (s *scanner) skip() error {
	switch c := s.peek(); {
	case c == '{':
		return s.skipObject()
	case c == '[':
		return s.skipArray()
	case c == '"':
		_, err := s.str()
		return err
	case c == '-' || isDigit(c):
		_, err := s.number()
		return err
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return s.fail("expected a value")
}

func (s *scanner) skipObject() error {
	if err := s.open(); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.more('}', first)
		if err != nil || !more {
			return err
		}
		if _, err := s.key(); err != nil {
			return err
		}
		if err := s.skip(); err != nil {
			return err
		}
	}
}

func (s *scanner) skipArray() error {
	if err := s.open(); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.more(']', first)
		if err != nil || !more {
			return err
		}
		if err := s.skip(); err != nil {
			return err
		}
	}
}
