package console

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Style is how a piece of text looks.
type Style string

const (
	Plain  Style = ""
	Bold   Style = "\x1b[1m"
	Dim    Style = "\x1b[2m"
	Red    Style = "\x1b[31m"
	Green  Style = "\x1b[32m"
	Yellow Style = "\x1b[33m"
	Cyan   Style = "\x1b[36m"
)

const unstyled = "\x1b[0m"

// maxWaiting is how many bytes are printed before they are written without a
// Flush.
const maxWaiting = 32 << 10

// maxRows is how many rows the line being typed takes at most. Of a longer one
// those around the cursor are shown.
const maxRows = 8

// A Prompt is what stands before the line being typed. The state is gone once the
// line is entered, the mark stays.
type Prompt struct {
	State string
	Mark  string
	Look  Style // of the state, and without one of the mark
}

// A Screen prints texts. Without a Line it writes them as they come. With one it
// is a terminal in raw mode: the Line is shown below the texts, and what is
// printed appears with the next Flush.
//
// Text may come in pieces. The row that the last piece ended in is written again
// with the next one, so that the Line can stand below it meanwhile.
type Screen struct {
	out    io.Writer
	colour bool
	line   *Line // nil if there is none
	err    error // of out; the first one is final

	midLine bool // the last line has not ended

	// With a Line only.
	size          func() (width, height int) // of the terminal
	width, height int                        // as of the last Flush
	prompt        Prompt
	waiting       []func()        // what was printed since, in its order
	bytes         int             // of that; at most maxWaiting, and one more piece
	rows          strings.Builder // of that, the rows that are complete
	row           row             // the one that the next piece goes on in

	// The frame is what the next Flush writes again: the open row, if there is
	// one, and the line being typed.
	drawn  bool     // it is on the terminal
	joined bool     // its open row belongs to the row above it
	frame  string   // as it was written
	tall   bool     // it may have several rows
	above  int      // rows above that of the cursor
	typed  []string // of those, the ones of the line
	before string   // what is in the row up to the cursor, and under it
}

// A row is the last row of what was printed.
type row struct {
	text   string
	cells  int
	look   Style
	prefix string // before each row of the line
	hang   string // after the prefix, in rows that follow the first
	broken bool   // the line has rows before this one
	joined bool   // the terminal has broken the line here
}

// NewScreen returns a screen that prints on out. With a line, out is a terminal in
// raw mode, and size returns its size.
func NewScreen(out io.Writer, colour bool, line *Line, size func() (width, height int)) *Screen {
	s := &Screen{out: out, colour: colour, line: line, size: size}
	if s.Live() {
		s.width, s.height = size()
	}
	return s
}

// Live reports whether a line is typed below what is printed.
func (s *Screen) Live() bool { return s.line != nil }

// Err returns the first error of the output. Nothing is written after it.
func (s *Screen) Err() error { return s.err }

// Write prints a piece of a text where the last piece ended, with prefix before
// each line. On a terminal long lines are broken between words, unless the piece
// is verbatim.
func (s *Screen) Write(look Style, prefix, piece string, verbatim bool) {
	s.do(len(piece), func() { s.write(look, prefix, piece, verbatim) })
}

// Line prints text on lines of its own, which on a terminal are broken between
// words.
func (s *Screen) Line(look Style, text string) { s.block(look, text, false) }

// Block prints text on lines of its own, which are left as they are.
func (s *Screen) Block(look Style, text string) { s.block(look, text, true) }

func (s *Screen) block(look Style, text string, verbatim bool) {
	s.do(len(text), func() {
		s.endLine()
		s.write(look, "", text+"\n", verbatim)
	})
}

// EndLine ends the open line, if there is one.
func (s *Screen) EndLine() { s.do(0, s.endLine) }

// do prints something of that many bytes, with a Line not before the next Flush:
// how wide the terminal is by then decides where lines are broken.
func (s *Screen) do(bytes int, print func()) {
	if !s.Live() {
		print()
		return
	}
	s.waiting = append(s.waiting, print)
	if s.bytes += bytes + 1; s.bytes > maxWaiting {
		s.Flush()
	}
}

func (s *Screen) write(look Style, prefix, piece string, verbatim bool) {
	for line := range strings.Lines(piece) {
		line, ended := strings.CutSuffix(line, "\n")
		if s.Live() {
			s.extend(look, prefix, line, verbatim)
		} else {
			s.put(look, prefixed(prefix, line, s.midLine))
		}
		s.midLine = true
		if ended {
			s.endLine()
		}
	}
}

// prefixed returns a line with its prefix. An empty one has no space at its end.
func prefixed(prefix, line string, midLine bool) string {
	switch {
	case midLine:
		return line
	case line == "":
		return strings.TrimRight(prefix, " ")
	}
	return prefix + line
}

func (s *Screen) endLine() {
	if !s.midLine {
		return
	}
	s.midLine = false
	if s.Live() {
		s.put(s.row.look, s.row.text)
		s.row = row{}
	}
	s.emit("\n")
}

// extend adds to the open line, row by row.
func (s *Screen) extend(look Style, prefix, piece string, verbatim bool) {
	r := &s.row
	if !s.midLine {
		begin := prefixed(prefix, "", false)
		if piece != "" {
			begin = prefix
		}
		*r = row{look: look, prefix: prefix, text: begin, cells: cellsIn(begin)}
	}
	for _, c := range piece {
		n := 1
		if c == '\t' {
			c, n = ' ', 8-r.cells%8
		}
		for range n {
			s.add(c, verbatim)
		}
	}
}

// add puts a character behind the open row.
func (s *Screen) add(c rune, verbatim bool) {
	r, cells := &s.row, cellsOf(c)
	if cells == 0 && len(r.text) > 16*s.width {
		return // bounds the row: combining marks take no column
	}
	if r.cells+cells > s.width {
		s.wrap(c, verbatim)
		if c == ' ' && !verbatim {
			return
		}
	}
	r.text, r.cells = r.text+string(c), r.cells+cells
}

// wrap begins the row after the open one, which next does not fit in. It breaks
// the line after the last space, or before a wide character. Otherwise the
// terminal breaks it, which then knows that the rows belong together.
func (s *Screen) wrap(next rune, verbatim bool) {
	r := &s.row
	if !r.broken {
		r.broken, r.hang = true, hangOf(strings.TrimPrefix(r.text, r.prefix), s.width/2)
	}
	begin := r.prefix + r.hang
	from := 0
	if !r.joined {
		from = min(len(begin), len(r.text))
	}
	head, rest := r.text, ""
	space := strings.LastIndexByte(head[from:], ' ')
	switch {
	case verbatim:
		space = -1
	case next == ' ' || cellsOf(next) > 1 && cellsIn(begin) < s.width-1:
		space = 0
	case space > 0 && cellsIn(begin+head[from+space+1:])+cellsOf(next) <= s.width:
		head, rest = head[:from+space], head[from+space+1:]
	default:
		space = -1
	}
	if space < 0 {
		s.put(r.look, head)
		r.text, r.cells, r.joined = "", 0, true
		return
	}
	if !r.joined {
		head = strings.TrimRight(head, " ")
	}
	s.put(r.look, head)
	if r.joined && rest != "" { // which may be there
		s.emit("\x1b[K")
	}
	s.emit("\n")
	r.joined = false
	r.text = begin + rest
	r.cells = cellsIn(r.text)
}

// marks are what lines may begin with, beside numbers.
var marks = []string{"-", "*", "+", "•", "--", "!"}

// hangOf returns the space below the beginning of a line: its indent, and the mark
// that it begins with, such as that of a list.
func hangOf(line string, most int) string {
	n := len(line) - len(strings.TrimLeft(line, " "))
	mark, _, found := strings.Cut(line[n:], " ")
	digits := strings.TrimRight(mark, ".)")
	if found && (slices.Contains(marks, mark) || digits != mark && len(digits) < 4 && strings.Trim(digits, "0123456789") == "") {
		n += utf8.RuneCountInString(mark) + 1
	}
	if n > most {
		return ""
	}
	return strings.Repeat(" ", n)
}

// Enter prints a line that was entered, after the mark of the prompt.
func (s *Screen) Enter(shown string) {
	s.Block(Bold, s.prompt.Mark+strings.ReplaceAll(shown, "\n", "\n  "))
}

// SetPrompt changes what stands before the line being typed.
func (s *Screen) SetPrompt(p Prompt) { s.prompt = p }

// Flush writes what was printed, and the line below it.
func (s *Screen) Flush() {
	if !s.Live() {
		return
	}
	s.resize(s.size())
	printed := s.print()
	erase := s.erase()
	frame := s.draw()
	if s.drawn && printed == "" && frame == s.frame {
		return
	}
	s.send(erase + printed + frame)
	s.frame, s.drawn = frame, true
}

// print does what waits and returns the rows that are complete.
func (s *Screen) print() string {
	for _, print := range s.waiting {
		print()
	}
	clear(s.waiting)
	s.waiting, s.bytes = s.waiting[:0], 0
	printed := s.rows.String()
	s.rows.Reset()
	return printed
}

// Hide writes what was printed and takes the line off the terminal, which others
// write on now.
func (s *Screen) Hide() {
	if !s.Live() {
		return
	}
	s.EndLine()
	s.resize(s.size())
	printed := s.print()
	s.send(s.erase() + printed)
	s.drawn = false
}

// Abandon leaves the line on the terminal as it is: others have written there
// meanwhile. The next Flush shows it below.
func (s *Screen) Abandon() { s.drawn = false }

// Clear clears the terminal.
func (s *Screen) Clear() {
	s.send("\x1b[H\x1b[2J")
	s.drawn = false
}

// resize takes over the size of the terminal, which has broken the rows that it
// shows anew if it is narrower. An open row that may have changed its place is
// left as it is: the text goes on below.
func (s *Screen) resize(width, height int) {
	if s.width == width && s.height == height {
		return
	}
	moved := s.midLine && (s.row.joined || breaksIn(s.row.text, width) > 0)
	switch {
	case width == s.width:
		moved = false
	case s.drawn:
		s.above = breaksIn(s.before, width)
		for _, text := range s.typed {
			s.above += 1 + breaksIn(text, width)
		}
		if s.midLine && !moved {
			s.above++
		}
	case moved:
		s.put(s.row.look, s.row.text)
		s.emit("\n")
	}
	if moved {
		s.row.text, s.row.cells, s.row.joined, s.joined = s.row.prefix, cellsIn(s.row.prefix), false, false
	}
	s.row.hang = "" // it may be too long now
	s.tall = true
	s.width, s.height, s.frame = width, height, ""
}

// erase returns what takes the frame off the terminal.
func (s *Screen) erase() string {
	if !s.drawn {
		return ""
	}
	if s.joined { // erasing it would tear it off the row above
		return up(s.above-1) + "\r\x1b[J" + up(1)
	}
	text := up(s.above) + "\r\x1b[K"
	if s.tall { // tmux keeps a copy of a screen that is erased from its first row on
		text += "\x1b7\x1b[B\x1b[J\x1b8"
	}
	return text
}

// draw returns the frame: the open row and the line being typed, with the cursor
// in its place.
func (s *Screen) draw() string {
	var b strings.Builder
	rows, at, column := s.layout()
	s.above, s.joined, s.typed = at, s.midLine && s.row.joined, s.typed[:0]
	if s.midLine {
		b.WriteString(s.styled(s.row.look, s.row.text) + "\r\n")
		s.above++
	}
	for i, r := range rows {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if i < at {
			s.typed = append(s.typed, r.text)
		}
		b.WriteString(r.lead + r.text[r.plain:])
	}
	s.before = firstCells(rows[at].text, column+1)
	s.tall = s.midLine || len(rows) > 1
	b.WriteString(up(len(rows)-1-at) + "\r")
	if column > 0 {
		fmt.Fprintf(&b, "\x1b[%dC", column)
	}
	return b.String()
}

// A shownRow is a row of the line being typed.
type shownRow struct {
	lead  string // the prompt, as it looks
	text  string // with the prompt
	plain int    // where the text after the prompt begins
	cells int
}

// layout breaks the line being typed into rows that leave the last column free,
// so that the terminal breaks none of them. It returns those that are shown, and
// where the cursor is.
func (s *Screen) layout() (rows []shownRow, at, column int) {
	room := max(s.width-1, 1)
	state, mark, look := cut(s.prompt.State, room/2), cut(s.prompt.Mark, room*2/3), s.prompt.Look
	lead := s.styled(look, mark)
	if state != "" {
		state += " "
		lead = s.styled(look, state) + s.styled(Bold, mark)
	}
	first := shownRow{lead, state + mark, len(state + mark), cellsIn(state + mark)}
	indent := min(2, room-1)
	rows = []shownRow{first}
	next := func() { rows = append(rows, shownRow{text: strings.Repeat(" ", indent), cells: indent}) }
	for i, c := range s.line.cells {
		last := &rows[len(rows)-1]
		newline := c.text == "\n"
		if !newline && last.cells+c.width > room && last.cells > indent {
			next()
			last = &rows[len(rows)-1]
		}
		if i == s.line.at {
			at, column = len(rows)-1, last.cells
		}
		if newline {
			next()
			continue
		}
		shown := c.shown
		if c.width > room {
			shown = cut(shown, room-last.cells)
		}
		last.text, last.cells = last.text+shown, last.cells+min(c.width, room-last.cells)
	}
	if s.line.at == len(s.line.cells) {
		if last := rows[len(rows)-1]; last.cells >= room {
			next()
		}
		at, column = len(rows)-1, rows[len(rows)-1].cells
	}
	most := max(1, min(maxRows, s.height-2))
	from := max(0, min(at-most/2, len(rows)-most))
	return rows[from:min(from+most, len(rows))], at - from, column
}

// breaksIn returns how often a terminal of a width breaks a text.
func breaksIn(text string, width int) (breaks int) {
	at := 0
	for _, r := range text {
		cells := cellsOf(r)
		if at += cells; at > width {
			breaks, at = breaks+1, cells
		}
	}
	return breaks
}

// firstCells returns the characters of a text that begin in its first columns.
func firstCells(text string, columns int) string {
	at := 0
	for i, r := range text {
		if at >= columns {
			return text[:i]
		}
		at += cellsOf(r)
	}
	return text
}

// cut returns what fits of a text into so many columns.
func cut(text string, most int) string {
	if cellsIn(text) <= most {
		return text
	}
	cells := 1 // for the mark of the cut
	for i, r := range text {
		if cells += cellsOf(r); cells > most {
			return text[:i] + "…"
		}
	}
	return text
}

func up(rows int) string {
	if rows <= 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA", rows)
}

func (s *Screen) styled(look Style, text string) string {
	if s.colour && look != Plain && text != "" {
		return string(look) + text + unstyled
	}
	return text
}

func (s *Screen) put(look Style, text string) { s.emit(s.styled(look, text)) }

// emit prints text. On a terminal in raw mode a newline needs a carriage return.
func (s *Screen) emit(text string) {
	if !s.Live() {
		s.send(text)
		return
	}
	s.rows.WriteString(strings.ReplaceAll(text, "\n", "\r\n"))
}

func (s *Screen) send(text string) {
	if s.err == nil && text != "" {
		_, s.err = io.WriteString(s.out, text)
	}
}
