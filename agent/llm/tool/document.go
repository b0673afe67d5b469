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

// maxPlaces bounds the lines that a refusal names.
const maxPlaces = 10

// ambiguous refuses an edit whose old_string occurs more than once.
func (d *document) ambiguous(f file, before string) error {
	var lines []string
	for at := 0; len(lines) < maxPlaces; at++ { // places may overlap
		i := strings.Index(d.text[at:], before)
		if i < 0 {
			break
		}
		at += i
		lines = append(lines, fmt.Sprint(1+strings.Count(d.text[:at], "\n")))
	}
	n := strings.Count(d.text, before)
	text := fmt.Sprintf("old_string occurs %d times in %s, on lines %s", max(n, len(lines)), f.name, strings.Join(lines, ", "))
	if n > len(lines) {
		text += ", …"
	}
	return refusal(text + ". Add text around it until it is unique, or set replace_all to change every one.")
}

// numbers matches the line numbers that read shows.
var numbers = lazyregexp.New(`(?m)^ *[0-9]+\t`)

// notFound refuses an edit whose old_string does not occur, and says what may be meant.
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

// similar finds the lines of before with other spaces: the first one's number, and n.
func (d *document) similar(before string) (line, n int) {
	want := squeezed(strings.Trim(before, "\n"))
	if strings.Join(want, "") == "" {
		return 0, 0
	}
	have := squeezed(d.text)
	left := maxComparisons
	for at := 0; at+len(want) <= len(have) && left > 0; at++ {
		same := 0
		for same < len(want) && have[at+same] == want[same] {
			same++
		}
		if left -= same + 1; same == len(want) {
			return at + 1, len(want)
		}
	}
	return 0, 0
}

// squeezed returns the lines of a text without their spaces and tabs.
func squeezed(text string) []string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), "")
	}
	return lines
}
