package tool

import (
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// A document is a text file as a model sees it: without a byte order mark, and with a
// line feed at the end of every line if all lines of the file end in CRLF.
type document struct {
	mark string // the byte order mark, or ""
	text string
	crlf bool // the lines end in CRLF in the file
}

func newDocument(file string) document {
	text := strings.TrimPrefix(file, byteOrderMark)
	d := document{mark: file[:len(file)-len(text)], text: text}
	if lines := strings.Count(text, "\n"); lines > 0 && strings.Count(text, "\r\n") == lines {
		d.text, d.crlf = lineFeeds(text), true
	}
	return d
}

// file returns the file with another text.
func (d document) file(text string) string {
	if d.crlf {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return d.mark + text
}

// lineFeeds returns text with a line feed for every CRLF.
func lineFeeds(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// numbers matches the line numbers that read shows.
var numbers = lazyregexp.New(`(?m)^ *[0-9]+\t`)

// notFound refuses an edit whose old_string does not occur.
func notFound(f file, before string) error {
	text := "old_string does not occur in " + f.name + "."
	if numbers().MatchString(before) {
		return refusal(text + " It seems to have the line numbers in it that read shows; leave those out.")
	}
	return refusal(text + " It has to be the same to the last space; read the file again.")
}
