package console

import (
	"unicode"

	"golang.org/x/text/width"
)

// zeroWidthJoiner joins the characters around it into one glyph.
const zeroWidthJoiner = '\u200d'

// cellsOf returns the number of columns of a character. Characters whose width
// depends on the language count as one column, the default of terminals.
func cellsOf(r rune) int {
	switch {
	case r < 0x300: // Latin text needs no table
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) || r >= 0x1160 && r <= 0x11ff: // Hangul vowels join the consonant before them
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cellsIn returns the columns of a text without control characters. A terminal
// may draw several characters as one glyph with fewer columns, never with more.
func cellsIn(text string) (n int) {
	for _, r := range text {
		n += cellsOf(r)
	}
	return n
}
