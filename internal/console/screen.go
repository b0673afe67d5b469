package console

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// A Style is the style of a piece of text.
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

const (
	maxWaiting = 32 << 10 // printed bytes that wait for a Flush; beyond it they are written at once
	maxRows    = 8        // of the line being typed; of a longer one, those around the cursor are shown
)

// A Prompt is shown before the line being typed. After Enter the state
// disappears and the mark stays.
type Prompt struct {
	State string
	Mark  string
	Look  Style // of the state, or of the mark if there is no state
}

// A Screen prints texts, which may come in pieces. Without a Line it writes them at
// once. With a Line it is a terminal in raw mode: the Line is shown below the texts,
// and printed text appears with the next Flush. The last row of a piece is written
// again with the next piece.
type Screen struct {
	out    io.Writer
	colour bool
	line   *Line // nil if there is none
	err    error // the first error of out; nothing is written after it

	midLine bool // the last line has not ended

	// With a Line only.
	size          func() (width, height int) // of the terminal
	width, height int                        // as of the last Flush
	prompt        Prompt
	waiting       []func()        // printed since the last Flush, in order
	bytes         int             // of waiting; at most maxWaiting plus one piece
	rows          strings.Builder // the complete rows of it
	row           row             // the row that the next piece continues

	// The frame is the part that the next Flush writes again: the open row, if
	// there is one, and the line being typed.
	drawn  bool     // it is on the terminal
	joined bool     // its open row continues the row above it without a newline
	frame  string   // as last written
	tall   bool     // it may have several rows
	above  int      // rows above the cursor's row
	typed  []string // the line's rows among them
	before string   // the text of the cursor's row up to and under the cursor
}

// A row is the last row of the printed text.
type row struct {
	text   string
	cells  int
	look   Style
	prefix string // before each row of the line
	hang   string // after the prefix in all rows but the first
	broken bool   // the line has rows before this one
	joined bool   // the terminal broke the line before this row
}

// NewScreen returns a screen that prints on out. With a line, out is a terminal
// in raw mode, and size returns its size.
func NewScreen(out io.Writer, colour bool, line *Line, size func() (width, height int)) *Screen {
	s := &Screen{out: out, colour: colour, line: line, size: size}
	if s.Live() {
		s.width, s.height = size()
	}
	return s
}

// Live reports whether a line is typed below the printed text.
func (s *Screen) Live() bool { return s.line != nil }

// Err returns the first error of the output. Nothing is written after it.
func (s *Screen) Err() error { return s.err }

// Write prints a piece of text at the end of the last piece, with prefix before
// each line. On a terminal, long lines are broken between words unless the
// piece is verbatim.
func (s *Screen) Write(look Style, prefix, piece string, verbatim bool) {
	s.do(len(piece), func() { s.write(look, prefix, piece, verbatim) })
}

// Line prints text on separate lines. On a terminal they are broken between
// words.
func (s *Screen) Line(look Style, text string) { s.block(look, text, false) }

// Block prints text on separate lines, without breaking them between words.
func (s *Screen) Block(look Style, text string) { s.block(look, text, true) }

func (s *Screen) block(look Style, text string, verbatim bool) {
	s.do(len(text), func() {
		s.endLine()
		s.write(look, "", text+"\n", verbatim)
	})
}

// EndLine ends the open line, if there is one.
func (s *Screen) EndLine() { s.do(0, s.endLine) }

// do prints something of that many bytes. With a Line it waits for the next
// Flush, because the terminal's width by then decides where lines are broken.
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
		switch {
		case s.Live():
			s.extend(look, prefix, line, verbatim)
		case s.midLine:
			s.put(look, line)
		default:
			s.put(look, begin(prefix, line)+line)
		}
		s.midLine = true
		if ended {
			s.endLine()
		}
	}
}

// begin returns the prefix of a line. An empty line has no space at its end.
func begin(prefix, line string) string {
	if line == "" {
		return strings.TrimRight(prefix, " ")
	}
	return prefix
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

// extend adds a piece to the open line, row by row.
func (s *Screen) extend(look Style, prefix, piece string, verbatim bool) {
	r := &s.row
	if !s.midLine {
		text := begin(prefix, piece)
		*r = row{look: look, prefix: prefix, text: text, cells: cellsIn(text)}
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

// add appends a character to the open row.
func (s *Screen) add(c rune, verbatim bool) {
	r, cells := &s.row, cellsOf(c)
	if cells == 0 && len(r.text) > 16*s.width {
		return // bounds the row, because combining marks take no column
	}
	if r.cells+cells > s.width {
		s.wrap(c, verbatim)
		if c == ' ' && !verbatim {
			return
		}
	}
	r.text, r.cells = r.text+string(c), r.cells+cells
}

// wrap begins the next row, because next does not fit in the open one. It breaks the
// line after the last space, or before a wide character. Otherwise the terminal breaks
// the line.
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
	if r.joined && rest != "" { // rest may already be on the terminal
		s.emit("\x1b[K")
	}
	s.emit("\n")
	r.joined = false
	r.text = begin + rest
	r.cells = cellsIn(r.text)
}

// marks are the list marks that lines may begin with, besides numbers.
var marks = []string{"-", "*", "+", "•", "--", "!"}

// hangOf returns the indent for the following rows of a line: the line's own
// indent and the width of its list mark.
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

// Enter prints an entered line after the prompt's mark.
func (s *Screen) Enter(shown string) {
	s.Block(Bold, s.prompt.Mark+strings.ReplaceAll(shown, "\n", "\n  "))
}

// SetPrompt sets the prompt of the line being typed.
func (s *Screen) SetPrompt(p Prompt) { s.prompt = p }

// Flush writes the printed text, and the line below it.
func (s *Screen) Flush() { s.flush(true) }

// Hide writes the printed text and removes the line from the terminal, so that
// others can write there.
func (s *Screen) Hide() {
	if s.Live() {
		s.EndLine()
		s.flush(false)
	}
}

func (s *Screen) flush(withLine bool) {
	if !s.Live() {
		return
	}
	s.resize(s.size())
	for _, print := range s.waiting {
		print()
	}
	clear(s.waiting)
	s.waiting, s.bytes = s.waiting[:0], 0
	printed, erase, frame := s.rows.String(), s.erase(), ""
	s.rows.Reset()
	if withLine {
		frame = s.draw()
	}
	if s.drawn && withLine && printed == "" && frame == s.frame {
		return
	}
	s.send(erase + printed + frame)
	s.frame, s.drawn = frame, withLine
}

// Abandon leaves the line on the terminal because others have written there
// meanwhile. The next Flush shows it below.
func (s *Screen) Abandon() { s.drawn = false }

// Clear clears the terminal.
func (s *Screen) Clear() {
	s.send("\x1b[H\x1b[2J")
	s.drawn = false
}

// resize sets the size of the terminal. A narrower terminal has broken its rows again.
// If the open row may have moved, the text continues below it.
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
	s.row.hang = "" // it may be too long for the new width
	s.tall = true
	s.width, s.height, s.frame = width, height, ""
}

// erase returns the sequence that removes the frame.
func (s *Screen) erase() string {
	if !s.drawn {
		return ""
	}
	if s.joined { // erasing the row would separate it from the row above
		return up(s.above-1) + "\r\x1b[J" + up(1)
	}
	text := up(s.above) + "\r\x1b[K"
	if s.tall { // if a screen is erased from its first row, tmux keeps a copy of it
		text += "\x1b7\x1b[B\x1b[J\x1b8"
	}
	return text
}

// draw returns the frame: the open row and the line being typed, with the
// cursor in place.
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
	lead  string // the prompt with its style
	text  string // including the prompt
	plain int    // where the text after the prompt begins
	cells int
}

// layout breaks the line being typed into rows that leave the last column free, so that
// the terminal breaks none of them. It returns the shown rows and the cursor's position.
func (s *Screen) layout() (rows []shownRow, at, column int) {
	room := max(s.width-1, 1)
	state, mark, look := cut(s.prompt.State, room/2), cut(s.prompt.Mark, room*2/3), s.prompt.Look
	lead := s.styled(look, mark)
	if state != "" {
		state += " "
		lead = s.styled(look, state) + s.styled(Bold, mark)
	}
	rows = []shownRow{{lead, state + mark, len(state + mark), cellsIn(state + mark)}}
	indent := min(2, room-1)
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

// breaksIn returns how often a terminal of that width breaks a text.
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

// cut returns the part of a text that fits in most columns.
func cut(text string, most int) string {
	if cellsIn(text) <= most {
		return text
	}
	cells := 1 // for the ellipsis
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
