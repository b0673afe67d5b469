package tool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// A document is a text file as a model sees it: without its byte order mark and
// with a line feed at the end of every line. What is not changed in it stays the
// same to the byte.
type document struct {
	raw     string // without the mark
	mark    string // it, or ""
	text    string
	returns []int // where in text the line feeds are that are CRLF in raw
	crlf    bool  // most lines end so
}

func newDocument(raw string) *document {
	d := &document{raw: raw}
	if rest, ok := strings.CutPrefix(raw, byteOrderMark); ok {
		d.raw, d.mark = rest, byteOrderMark
	}
	d.text = lineFeeds(d.raw)
	for at := 0; ; at += len("\r\n") {
		n := strings.Index(d.raw[at:], "\r\n")
		if n < 0 {
			break
		}
		at += n
		d.returns = append(d.returns, at-len(d.returns))
	}
	d.crlf = 2*len(d.returns) > strings.Count(d.text, "\n")
	return d
}

// lineFeeds returns text with a line feed for every CRLF.
func lineFeeds(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// A change puts text in the place of what is from start to end.
type change struct {
	start, end int
	text       string
}

// apply returns the file with the changes made, which are in order and do not
// overlap. New lines end as the first of those does that they replace, or as
// most in the file do.
func (d *document) apply(changes []change) string {
	var b strings.Builder
	b.WriteString(d.mark)
	done := 0 // of raw
	for _, c := range changes {
		before, _ := slices.BinarySearch(d.returns, c.start)
		after, _ := slices.BinarySearch(d.returns, c.end)
		b.WriteString(d.raw[done : c.start+before])
		crlf := d.crlf
		if at := strings.IndexByte(d.text[c.start:c.end], '\n'); at >= 0 {
			_, crlf = slices.BinarySearch(d.returns, c.start+at)
		}
		if crlf {
			b.WriteString(strings.ReplaceAll(c.text, "\n", "\r\n"))
		} else {
			b.WriteString(c.text)
		}
		done = c.end + after
	}
	b.WriteString(d.raw[done:])
	return b.String()
}

// maxPlaces bounds the lines that a refusal names.
const maxPlaces = 10

// ambiguous says where the text is that occurs more than once.
func (d *document) ambiguous(f file, before string) error {
	n := strings.Count(d.text, before)
	var lines []string
	line, from := 1, 0
	for at := 0; len(lines) < maxPlaces; {
		i := strings.Index(d.text[at:], before)
		if i < 0 {
			break
		}
		at += i
		line += strings.Count(d.text[from:at], "\n")
		from = at
		lines = append(lines, fmt.Sprint(line))
		at++ // it may overlap itself
	}
	text := fmt.Sprintf("old_string occurs %d times in %s, on lines %s", max(n, len(lines)), f.name, strings.Join(lines, ", "))
	if n > len(lines) {
		text += ", …"
	}
	return refusal(text + ". Add text around it until it is unique, or set replace_all to change every one.")
}

// numbers begin lines of text that was copied with the line numbers of read.
var numbers = lazyregexp.New(`(?m)^ *[0-9]+\t`)

// notFound says that the text does not occur, and what may be meant.
func (d *document) notFound(f file, before string) error {
	text := "old_string does not occur in " + f.name + "."
	if numbers().MatchString(before) {
		return refusal(text + " It seems to have the line numbers in it that read shows; leave those out.")
	}
	if at, n := d.similar(before); at > 0 {
		shown := strings.Join(strings.SplitAfter(d.text, "\n")[at-1:at-1+n], "")
		return refusal(fmt.Sprintf("%s From line %d on the same is there with other spaces or tabs:\n%s", text, at, cutLine(valid(shown), maxReadLine)))
	}
	return refusal(text + " It has to be the same to the last space; read the file again.")
}

// maxComparisons bounds the search for similar text.
const maxComparisons = 1_000_000

// similar returns the first line from which on as many lines as before has are the
// same but for the spaces in them, and their number; zero if there is none.
func (d *document) similar(before string) (line, n int) {
	want := strings.Split(strings.Trim(before, "\n"), "\n")
	for i, w := range want {
		want[i] = squeeze(w)
	}
	if strings.Join(want, "") == "" {
		return 0, 0
	}
	have := strings.Split(d.text, "\n")
	squeezed := make([]string, len(have))
	for i, h := range have {
		squeezed[i] = squeeze(h)
	}
	left := maxComparisons
	for at := 0; at+len(want) <= len(have) && left > 0; at++ {
		same := 0
		for same < len(want) && squeezed[at+same] == want[same] {
			same++
		}
		if left -= same + 1; same == len(want) {
			return at + 1, len(want)
		}
	}
	return 0, 0
}

// squeeze returns a line without its spaces and tabs.
func squeeze(line string) string { return strings.Join(strings.Fields(line), "") }
