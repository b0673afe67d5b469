package console

import (
	"unicode"

	"golang.org/x/text/width"
)

// zeroWidthJoiner makes one picture of the characters around it.
const zeroWidthJoiner = '\u200d'

// cellsOf returns how many columns a terminal gives a character. Characters whose
// width depends on the language count as one column, as terminals do by default.
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

// cellsIn returns the width of a text without control characters. A terminal may
// draw several characters as one picture and give them less, but never more.
func cellsIn(text string) (n int) {
	for _, r := range text {
		n += cellsOf(r)
	}
	return n
}
