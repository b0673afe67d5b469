package tool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// A document is a text file as a model sees it: without a byte order mark and with
// a line feed at the end of every line. An edit keeps all other bytes of the file.
type document struct {
	mark    string // the byte order mark, or ""
	raw     string // the file without the mark
	text    string // what the model sees
	returns []int  // the line feeds of text that are CRLF in raw
	crlf    bool   // most lines end in CRLF
}

func newDocument(raw string) *document {
	d := &document{raw: strings.TrimPrefix(raw, byteOrderMark)}
	d.mark = raw[:len(raw)-len(d.raw)]
	d.text = lineFeeds(d.raw)
	at := -1
	for line := range strings.SplitSeq(d.raw, "\r\n") {
		at += len(line) + 1
		d.returns = append(d.returns, at)
	}
	d.returns = d.returns[:len(d.returns)-1] // the last line has no line end
	d.crlf = 2*len(d.returns) > strings.Count(d.text, "\n")
	return d
}

// lineFeeds returns text with a line feed for every CRLF.
func lineFeeds(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// replace returns the file with the n bytes of text at each place replaced by another
// text. The places are in order and do not overlap. New lines end as the first line
// end in the old text does, or as most in the file do.
func (d *document) replace(places []int, n int, with string) string {
	var b strings.Builder
	b.WriteString(d.mark)
	done := 0 // of raw
	for _, at := range places {
		before, _ := slices.BinarySearch(d.returns, at)
		after, _ := slices.BinarySearch(d.returns, at+n)
		b.WriteString(d.raw[done : at+before])
		crlf := d.crlf
		if end := strings.IndexByte(d.text[at:at+n], '\n'); end >= 0 {
			_, crlf = slices.BinarySearch(d.returns, at+end)
		}
		if crlf {
			b.WriteString(strings.ReplaceAll(with, "\n", "\r\n"))
		} else {
			b.WriteString(with)
		}
		done = at + n + after
	}
	b.WriteString(d.raw[done:])
	return b.String()
}

// ambiguous refuses an edit whose old_string occurs more than once.
func (d *document) ambiguous(f file, before string) error {
	line := 1 + strings.Count(d.text[:strings.Index(d.text, before)], "\n")
	return refusal(fmt.Sprintf("old_string occurs more than once in %s, first on line %d. "+
		"Add text around it until it is unique, or set replace_all to change every one.", f.name, line))
}

// numbers matches the line numbers that read shows.
var numbers = lazyregexp.New(`(?m)^ *[0-9]+\t`)

// notFound refuses an edit whose old_string does not occur.
func (d *document) notFound(f file, before string) error {
	text := "old_string does not occur in " + f.name + "."
	if numbers().MatchString(before) {
		return refusal(text + " It seems to have the line numbers in it that read shows; leave those out.")
	}
	return refusal(text + " It has to be the same to the last space; read the file again.")
}
