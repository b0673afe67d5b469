package contracts

import "unicode/utf8"

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
