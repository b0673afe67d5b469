// Package show makes what agents send safe and short enough for a terminal: texts, and
// the arguments of tools in one line or, where somebody decides about them, whole.
package show

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-028515a8/maestro/internal/abridge"
)

// maxEscape bounds how much text one escape sequence may swallow, so that an
// unterminated one cannot hide the rest of an output.
const maxEscape = 256

// A Cleaner makes text from an agent safe to print: the text cannot move the cursor,
// change the title, answer a query or reorder the screen. Its zero value is ready. It
// remembers an unfinished escape sequence, so that a text may come in pieces.
type Cleaner struct {
	inside  sequence
	escaped bool // in a string sequence, the previous character was ESC
	length  int  // of the sequence so far
	cr      bool // the previous character was CR, already shown as a newline
}

// A sequence is the kind of the open escape sequence.
type sequence int

const (
	seqNone    sequence = iota
	seqEscape           // ESC was read
	seqControl          // CSI: parameters, then one final character
	seqString           // OSC, DCS, APC, PM, SOS: until BEL or ST
)

const (
	runeESC = '\x1b'
	runeBEL = '\a'
	runeCSI = '\u009b'
	runeST  = '\u009c'
)

// Clean returns the printable part of the next piece of a text. It removes escape
// sequences and control characters, except newline and tab. A carriage return becomes
// a newline, and a character that reorders text becomes U+FFFD.
func (c *Cleaner) Clean(piece string) string {
	var out strings.Builder
	for _, r := range piece { // invalid bytes come as U+FFFD
		if c.inside != seqNone && c.swallow(r) {
			continue
		}
		after := c.cr
		c.cr = r == '\r'
		switch {
		case r == '\n' && after: // the carriage return was its newline
		case r == '\r' || r == '\u2028' || r == '\u2029':
			out.WriteByte('\n')
		case r == '\n' || r == '\t':
			out.WriteRune(r)
		case r == runeESC:
			c.open(seqEscape)
		case r == runeCSI:
			c.open(seqControl)
		case strings.ContainsRune("\u0090\u0098\u009d\u009e\u009f", r):
			c.open(seqString)
		case unicode.Is(unicode.Bidi_Control, r):
			out.WriteRune(unicode.ReplacementChar)
		case unicode.IsControl(r):
		case r >= 0xE0000 && r <= 0xE007F: // a tag is invisible, and tags can hide a text that only a machine reads
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

func (c *Cleaner) open(s sequence) { c.inside, c.length, c.escaped, c.cr = s, 0, false, false }

// swallow handles a character inside a sequence. It reports false if the character
// is not part of the sequence. The sequence then has ended.
func (c *Cleaner) swallow(r rune) bool {
	c.length++
	was := c.inside
	c.inside = seqNone
	if c.length > maxEscape || r == '\n' {
		return false
	}
	switch was {
	case seqEscape:
		switch {
		case r == '[':
			c.open(seqControl)
		case strings.ContainsRune("]PX^_", r):
			c.open(seqString)
		case r >= ' ' && r <= '/': // an intermediate character: the final one follows
			c.inside = was
		}
		return r >= ' ' && r <= '~'
	case seqControl:
		if r >= ' ' && r <= '?' {
			c.inside = was
		}
		return r >= ' ' && r <= '~'
	default:
		if r == runeBEL || r == runeST || c.escaped && r == '\\' {
			return true
		}
		if c.escaped = r == runeESC; c.escaped || !unicode.IsControl(r) {
			c.inside = was
		}
		return c.inside == was
	}
}

// Clean returns the printable part of a whole text.
func Clean(s string) string {
	var c Cleaner
	return c.Clean(s)
}

// OneLine returns a whole text as one line of at most limit characters.
func OneLine(s string, limit int) string {
	return Cut(strings.Join(strings.Fields(Clean(s)), " "), limit)
}

// Cut returns at most limit characters of a text, the last of which is … if the text
// goes on.
func Cut(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return abridge.Chars(s, limit-1)
}

// Exposed returns a text that somebody decides about. Characters that a terminal acts
// on or does not show are written as escapes. Newlines and tabs stay.
func Exposed(s string) string {
	return Replaced(strings.ToValidUTF8(s, "\ufffd"), unseen, func(r rune) string { return strings.Trim(strconv.QuoteRuneToASCII(r), "'") })
}

// Replaced returns a text whose bad characters are replaced.
func Replaced(s string, bad func(rune) bool, by func(rune) string) string {
	if !strings.ContainsFunc(s, bad) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if bad(r) {
			b.WriteString(by(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Unseen reports whether a character controls the terminal or is invisible.
func unseen(r rune) bool {
	switch {
	case r == '\n' || r == '\t' || r == ' ':
		return false
	case unicode.IsControl(r), unicode.IsSpace(r):
		return true
	}
	return unicode.In(r, unicode.Cf, unicode.Zs, unicode.Zl, unicode.Zp, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// newlineMark replaces a newline in a text of one line.
const newlineMark = "⏎"

// InLine returns an exposed text as one line of at most limit characters. Unlike
// OneLine it keeps all spaces.
func InLine(s string, limit int) string {
	return Cut(strings.ReplaceAll(Exposed(s), "\n", newlineMark), limit)
}

// Bounds of a shown text. Of a longer text the two ends are shown, which together are
// within the bounds.
const (
	MaxShown  = 4096 // characters
	MaxLines  = 60
	headShown = 3072
	headLines = 40
)

// BothEnds returns the lines, or if they are too many, the two ends and the number of
// characters between them.
func BothEnds(lines []string) []string {
	text := strings.Join(lines, "\n")
	size := utf8.RuneCountInString(text)
	if size <= MaxShown && len(lines) <= MaxLines {
		return lines
	}
	runes := []rune(text)
	head := runes[:cutAfter(runes, headShown, headLines, 1)]
	rest := runes[len(head):]
	tail := rest[len(rest)-cutAfter(rest, MaxShown-headShown, MaxLines-headLines, -1):]
	more := fmt.Sprintf("… %d characters more: /show shows all …", size-len(head)-len(tail))
	return append(append(strings.Split(string(head), "\n"), more), strings.Split(string(tail), "\n")...)
}

// cutAfter returns the number of characters from the beginning of text, or with a step
// of -1 from its end, that are within limit and in at most that many lines.
func cutAfter(text []rune, limit, lines, step int) int {
	at := 0
	if step < 0 {
		at = len(text) - 1
	}
	for n := range min(limit, len(text)) {
		if text[at+n*step] == '\n' {
			if lines--; lines == 0 {
				return n
			}
		}
	}
	return min(limit, len(text))
}
