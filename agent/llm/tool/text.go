package tool

import (
	"fmt"
	"strings"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// maxBriefChars bounds a command or path in labels.
const maxBriefChars = 80

// brief returns the first line of text, at most maxBriefChars of it.
func brief(text string) string { return abridge.Line(text, maxBriefChars) }

// valid returns text as models and clients can take it: what is not UTF-8, and
// NUL, becomes U+FFFD.
func valid(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// cutLine returns a line, at most limit bytes of it and what it says about that.
func cutLine(line string, limit int) string {
	if len(line) <= limit {
		return line
	}
	first := abridge.Head(line, limit)
	return fmt.Sprintf("%s… [%d bytes left out]", first, len(line)-len(first))
}

// count returns a number of things, such as "1 line" or "2 lines".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// A window keeps the beginning and the end of a text that comes in pieces, at
// most half bytes of each. No character is cut.
type window struct {
	half       int
	head, tail string // tail is empty as long as head has room
	size       int    // of the whole text
}

func (w *window) add(text string) {
	w.size += len(text)
	if w.tail == "" {
		first := abridge.Head(text, w.half-len(w.head))
		w.head, text = w.head+first, text[len(first):]
	}
	w.tail = contracts.TailText(w.tail+text, w.half)
}

// text returns what was kept and says how much was not.
func (w *window) text() string {
	lost := w.size - len(w.head) - len(w.tail)
	if lost == 0 {
		return w.head + w.tail
	}
	return fmt.Sprintf("%s\n[… %s left out …]\n%s", w.head, count(lost, "byte"), w.tail)
}
