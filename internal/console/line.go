package console

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxLine bounds a line, in bytes. Input beyond it is refused.
const MaxLine = 1 << 20

// A larger paste is shown as its size and edited as one character.
const (
	maxShownPaste = 1000 // characters
	maxShownLines = 10
)

// Bounds of the history; beyond them the oldest lines are dropped.
const (
	maxHistory      = 100         // lines
	maxHistoryBytes = 4 * MaxLine // of all lines together
)

// An Event is a user action that does not edit the line.
type Event int

const (
	Entered   Event = iota + 1 // the line is complete: see [Line.Next]
	Interrupt                  // Ctrl-C on an empty line
	End                        // Ctrl-D on an empty line
	Stop                       // Ctrl-Z
	Clear                      // Ctrl-L
	Refused                    // the line would exceed MaxLine; the part of the paste that fits is in the history
)

// A cell is a unit that the cursor steps over: a character with its combining
// characters, or a folded paste.
type cell struct {
	text  string // the text that it stands for
	shown string // empty for a newline
	width int
}

// A Line is the line being typed. Its zero value is an empty line.
//
// A line may be typed for a purpose, such as the answer to a question. The line
// without a purpose is kept meanwhile: see [Line.For].
type Line struct {
	keys  keyboard
	cells []cell
	at    int // the cursor is before cells[at]
	bytes int // of all cells' texts

	purpose string
	aside   []cell // the line without a purpose, while there is a purpose

	history []string // oldest first
	kept    int      // bytes of the history; at most maxHistoryBytes
	older   int      // position in the history, from its end; 0 means not in the history
	newest  []cell   // the line while an older one is shown
}

// Feed adds input from the terminal.
func (l *Line) Feed(input []byte) { l.keys.feed(input) }

// Next edits the line until an event. It returns false when all input has been
// processed. With [Entered] it returns the text of the line and how it was
// shown; the line is then empty.
func (l *Line) Next() (event Event, text, shown string, ok bool) {
	for {
		press, more := l.keys.next()
		if !more {
			return 0, "", "", false
		}
		if press == nil {
			continue
		}
		switch event := press(l); event {
		case 0:
		case Entered:
			text, shown = textOf(l.cells), shownOf(l.cells)
			l.set(nil)
			return Entered, text, shown, true
		default:
			return event, "", "", true
		}
	}
}

// word returns the start of the word before the cursor, or the end of the one
// after it.
func (l *Line) word(step int) int {
	at := l.at
	blank := func() bool { return strings.TrimSpace(l.cells[at+min(step, 0)].shown) == "" }
	inside := func() bool { return step < 0 && at > 0 || step > 0 && at < len(l.cells) }
	for inside() && blank() {
		at += step
	}
	for inside() && !blank() {
		at += step
	}
	return at
}

// insert inserts a text at the cursor. It returns false if the line would be too long.
func (l *Line) insert(text string, paste bool) bool {
	text = strings.ToValidUTF8(text, "\ufffd")
	if paste {
		text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
	if l.bytes+len(text) > MaxLine {
		return false
	}
	if paste && (strings.Count(text, "\n") > maxShownLines || utf8.RuneCountInString(text) > maxShownPaste) {
		l.put(folded(text))
		return true
	}
	for _, r := range text {
		l.put(cellFor(r))
	}
	return true
}

// folded returns the cell of a long paste.
func folded(text string) cell {
	size := fmt.Sprintf("%d characters", utf8.RuneCountInString(text))
	if lines := strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1; lines > 1 {
		size = fmt.Sprintf("%d lines", lines)
	}
	shown := "[" + size + " pasted]"
	return cell{text, shown, len(shown)}
}

// cellFor returns the cell of a character. A character that is invisible or
// reorders text is shown as U+FFFD.
func cellFor(r rune) cell {
	switch {
	case r == '\n':
		return cell{text: "\n"}
	case r == '\t':
		return cell{"\t", "    ", 4}
	case unicode.Is(unicode.Zs, r):
		return cell{string(r), " ", 1}
	case joins(r):
		return cell{string(r), string(r), 0}
	case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs):
		return cell{string(r), "\ufffd", 1}
	}
	return cell{string(r), string(r), cellsOf(r)}
}

// joins reports whether a character is drawn on the one before it.
func joins(r rune) bool {
	return r == zeroWidthJoiner || unicode.In(r, unicode.Mn, unicode.Me, unicode.Variation_Selector) || r >= 0x1160 && r <= 0x11ff
}

// put inserts a cell at the cursor, or joins it to the cell before.
func (l *Line) put(c cell) {
	l.older = 0
	l.bytes += len(c.text)
	if l.at > 0 {
		before := &l.cells[l.at-1]
		whole := utf8.RuneCountInString(before.shown) < 16 && before.shown == before.text // neither a newline nor a folded paste
		if whole && (c.width == 0 && c.shown != "" || strings.HasSuffix(before.text, string(zeroWidthJoiner))) {
			before.text, before.shown, before.width = before.text+c.text, before.shown+c.shown, before.width+c.width
			return
		}
	}
	if c.width == 0 && c.shown != "" { // there is no character to join
		c.shown, c.width = "\ufffd", 1
	}
	l.cells = slices.Insert(l.cells, l.at, c)
	l.at++
}

func (l *Line) remove(from, to int) {
	from, to = max(from, 0), min(to, len(l.cells))
	if from >= to {
		return
	}
	l.older = 0
	for _, c := range l.cells[from:to] {
		l.bytes -= len(c.text)
	}
	l.cells, l.at = slices.Delete(l.cells, from, to), from
}

// set replaces the line and puts the cursor at its end.
func (l *Line) set(cells []cell) {
	l.cells, l.at, l.bytes, l.older = cells, len(cells), 0, 0
	for _, c := range cells {
		l.bytes += len(c.text)
	}
}

// recall shows the history line that is step lines older.
func (l *Line) recall(step int) {
	to := l.older + step
	if to < 0 || to > len(l.history) {
		return
	}
	if l.older == 0 {
		l.newest = l.cells
	}
	if to == 0 {
		l.set(l.newest)
		return
	}
	l.set(pasted(nil, l.history[len(l.history)-to]))
	l.older = to
}

// Remember adds an entered text to the history.
func (l *Line) Remember(text string) {
	if text == "" || len(text) > MaxLine || len(l.history) > 0 && l.history[len(l.history)-1] == text {
		return
	}
	l.history = append(l.history, text)
	l.kept += len(text)
	for len(l.history) > maxHistory || l.kept > maxHistoryBytes {
		l.kept -= len(l.history[0])
		l.history = slices.Delete(l.history, 0, 1)
	}
}

// For sets the purpose of the line. If the purpose changes, the line becomes
// empty; for the purpose "", the kept line returns. For reports whether a line
// without a purpose has just been set aside.
func (l *Line) For(purpose string) (aside bool) {
	if purpose == l.purpose {
		return false
	}
	if l.purpose == "" {
		l.aside, aside = l.cells, len(l.cells) > 0
	}
	l.purpose = purpose
	l.set(nil)
	if purpose == "" {
		l.set(l.aside)
		l.aside = nil
	}
	return aside
}

// Return restores a text that was entered and not used. It appends the text to
// the line that was set aside. If no purpose is set, it becomes the current
// line unless another text is being typed.
func (l *Line) Return(text string) {
	switch {
	case l.purpose != "":
		l.aside = pasted(l.aside, text)
	case len(l.cells) == 0:
		l.set(pasted(nil, text))
	}
}

// pasted returns cells with a text of at most MaxLine bytes after them.
func pasted(cells []cell, text string) []cell {
	l := Line{cells: cells, at: len(cells)}
	l.insert(text, true)
	return l.cells
}

func textOf(cells []cell) string {
	var b strings.Builder
	for _, c := range cells {
		b.WriteString(c.text)
	}
	return b.String()
}

func shownOf(cells []cell) string {
	var b strings.Builder
	for _, c := range cells {
		if c.text == "\n" {
			b.WriteByte('\n')
		}
		b.WriteString(c.shown)
	}
	return b.String()
}
