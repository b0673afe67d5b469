package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxEscape bounds how much text one escape sequence may swallow, so that an
// unterminated one cannot hide the rest of an output.
const maxEscape = 256

// A cleaner makes text from an agent fit for a terminal: whatever the text
// holds, printing it cannot move the cursor, change the title, answer a query
// or reorder what is on the screen. Its zero value is ready. It remembers an
// unfinished escape sequence, so that a text may come in pieces.
type cleaner struct {
	inside  sequence
	escaped bool // in a string sequence, the previous character was ESC
	length  int  // of the sequence so far
	cr      bool // the previous character was CR, already shown as a newline
}

// A sequence says what kind of escape sequence is open.
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

// clean returns what may be printed of the next piece of a text. Escape
// sequences and control characters vanish, except newline and tab; a carriage
// return becomes a newline; characters that reorder text become U+FFFD.
func (c *cleaner) clean(piece string) string {
	var out strings.Builder
	for _, r := range piece { // invalid bytes come as U+FFFD
		c.next(&out, r)
	}
	return out.String()
}

// next handles one character.
func (c *cleaner) next(out *strings.Builder, r rune) {
	if c.inside != seqNone && c.swallow(r) {
		return
	}
	after := c.cr
	c.cr = r == '\r'
	switch {
	case r == '\r':
		out.WriteByte('\n')
	case r == '\n' && after: // shown already
	case r == '\n' || r == '\t':
		out.WriteRune(r)
	case r == runeESC:
		c.open(seqEscape)
	case r == runeCSI:
		c.open(seqControl)
	case strings.ContainsRune("\u0090\u0098\u009d\u009e\u009f", r):
		c.open(seqString)
	case r == '\u2028' || r == '\u2029':
		out.WriteByte('\n')
	case unicode.Is(unicode.Bidi_Control, r):
		out.WriteRune(unicode.ReplacementChar)
	case unicode.IsControl(r) || isTag(r):
	default:
		out.WriteRune(r)
	}
}

// isTag reports whether r is one of the invisible tag characters, which can
// carry a text that only a machine reads.
func isTag(r rune) bool { return r >= 0xE0000 && r <= 0xE007F }

func (c *cleaner) open(s sequence) { c.inside, c.length, c.escaped, c.cr = s, 0, false, false }

// swallow handles a character inside a sequence. It reports false if the
// character is not part of it; the sequence then has ended.
func (c *cleaner) swallow(r rune) bool {
	c.length++
	if c.length > maxEscape || r == '\n' {
		c.inside = seqNone
		return false
	}
	switch c.inside {
	case seqEscape:
		return c.introduce(r)
	case seqControl:
		if r >= '@' && r <= '~' {
			c.inside = seqNone
			return true
		}
		if r >= ' ' && r <= '?' {
			return true
		}
	case seqString:
		if r == runeBEL || r == runeST || c.escaped && r == '\\' {
			c.inside = seqNone
			return true
		}
		if c.escaped = r == runeESC; c.escaped || !unicode.IsControl(r) {
			return true
		}
	}
	c.inside = seqNone
	return false
}

// introduce handles the character after ESC.
func (c *cleaner) introduce(r rune) bool {
	switch {
	case r == '[':
		c.open(seqControl)
	case strings.ContainsRune("]PX^_", r):
		c.open(seqString)
	case r >= ' ' && r <= '/': // an intermediate: the final one follows
	case r >= '0' && r <= '~':
		c.inside = seqNone
	default:
		c.inside = seqNone
		return false
	}
	return true
}

// cleanText returns what may be printed of a text that is whole.
func cleanText(s string) string {
	var c cleaner
	return c.clean(s)
}

// oneLine returns a whole text as one line of at most limit characters.
func oneLine(s string, limit int) string {
	s = strings.Join(strings.Fields(cleanText(s)), " ")
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return s
}

// exposed returns a text of which nothing may escape the one who decides about
// it: what a terminal would act on or not show stands there in letters. Newlines
// and tabs stay.
func exposed(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if !strings.ContainsFunc(s, unseen) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unseen(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// unseen reports whether a character has an effect, or no look of its own.
func unseen(r rune) bool {
	switch {
	case r == '\n' || r == '\t' || r == ' ':
		return false
	case unicode.IsControl(r), unicode.IsSpace(r):
		return true
	}
	return unicode.In(r, unicode.Cf, unicode.Zs, unicode.Zl, unicode.Zp, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// newlineMark stands for a newline where there is room for one line only.
const newlineMark = "⏎"

// inLine returns a whole text as one line of at most limit characters, in which
// nothing is folded.
func inLine(s string, limit int) string {
	s = strings.ReplaceAll(exposed(s), "\n", newlineMark)
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return s
}

// What is shown of a long text before it is asked for. The two ends together are
// no more than what is shown whole.
const (
	maxShown  = 4096 // characters
	maxLines  = 60
	headShown = 3072
	headLines = 40
)

// abridge returns lines as they are, or of many the two ends and how much lies
// between.
func abridge(lines []string) []string {
	text := strings.Join(lines, "\n")
	size := utf8.RuneCountInString(text)
	if size <= maxShown && len(lines) <= maxLines {
		return lines
	}
	runes := []rune(text)
	head := runes[:cutAfter(runes, headShown, headLines, 1)]
	rest := runes[len(head):]
	tail := rest[len(rest)-cutAfter(rest, maxShown-headShown, maxLines-headLines, -1):]
	more := fmt.Sprintf("… %d characters more: /show shows all …", size-len(head)-len(tail))
	return append(append(strings.Split(string(head), "\n"), more), strings.Split(string(tail), "\n")...)
}

// cutAfter returns how many characters from the beginning of text, or with a step
// of -1 from its end, are within limit and in at most so many lines.
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
