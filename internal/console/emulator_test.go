package console

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An emulator is a terminal that understands what a Screen writes. It keeps the
// rows that scrolled away, and breaks its rows anew when its width changes, as
// most terminals do.
type emulator struct {
	width, height int
	rows          []emulatedRow
	top           int // the first row on the screen
	y, x          int // the cursor; y counts from the first row of all
	full          bool
	saved         [2]int
	escape        string // an unfinished sequence
	odd           string // what it did not understand
}

// An emulatedRow is a row of cells. A wide character has an empty second cell.
type emulatedRow struct {
	cells []string
	soft  bool // the next row belongs to the same line
}

func newEmulator(width, height int) *emulator {
	return &emulator{width: width, height: height, rows: make([]emulatedRow, 1)}
}

func (e *emulator) Write(p []byte) (int, error) {
	for _, r := range string(p) {
		switch {
		case e.escape == "\x1b" && r == '7':
			e.saved, e.escape = [2]int{e.y, e.x}, ""
		case e.escape == "\x1b" && r == '8':
			e.y, e.x, e.escape = e.saved[0], e.saved[1], ""
			for len(e.rows) <= e.y {
				e.rows = append(e.rows, emulatedRow{})
			}
		case e.escape != "":
			e.escape += string(r)
			if len(e.escape) > 2 && r >= '@' && r <= '~' {
				e.control(e.escape[2:len(e.escape)-1], r)
				e.escape = ""
			}
		case r == '\x1b':
			e.escape = "\x1b"
		case r == '\r':
			e.x, e.full = 0, false
		case r == '\n':
			e.full = false
			e.down()
		case r < ' ':
			e.odd += fmt.Sprintf("%q ", r)
		default:
			e.print(r)
		}
	}
	return len(p), nil
}

func (e *emulator) down() {
	e.y++
	for len(e.rows) <= e.y {
		e.rows = append(e.rows, emulatedRow{})
	}
	e.top = max(e.top, e.y-e.height+1)
}

func (e *emulator) print(r rune) {
	cells := cellsOf(r)
	row := &e.rows[e.y]
	if cells == 0 {
		n := e.x - 1
		if e.full {
			n++
		}
		if n > 0 && row.cells[n] == "" { // the second half of a wide one
			n--
		}
		row.cells[n] += string(r)
		return
	}
	if e.full || e.x+cells > e.width {
		row.soft = true
		e.down()
		e.x, e.full = 0, false
		row = &e.rows[e.y]
	}
	for len(row.cells) < e.x+cells {
		row.cells = append(row.cells, " ")
	}
	row.cells[e.x] = string(r)
	if cells == 2 {
		row.cells[e.x+1] = ""
	}
	e.x += cells
	if e.x == e.width {
		e.x, e.full = e.width-1, true
	}
}

func (e *emulator) control(parameters string, final rune) {
	n, err := strconv.Atoi(parameters)
	if err != nil {
		n = 1
	}
	switch {
	case final == 'm':
	case final == 'A':
		e.y, e.full = max(e.y-n, e.top), false
	case final == 'B':
		if e.full = false; e.y < e.top+e.height-1 {
			e.down()
		}
	case final == 'C':
		e.x, e.full = min(e.x+n, e.width-1), false
	case (final == 'J' || final == 'K') && parameters == "":
		if final == 'J' {
			e.rows = e.rows[:e.y+1]
			if e.y == e.top && e.x == 0 {
				e.odd += "J in the first row "
			}
		}
		if e.x == 0 && e.y > 0 {
			e.rows[e.y-1].soft = false // as tmux has it
		}
		row := &e.rows[e.y]
		row.cells, row.soft = row.cells[:min(e.x, len(row.cells))], false
	default:
		e.odd += parameters + string(final) + " "
	}
}

// resize breaks the lines anew. The cursor stays at its character.
func (e *emulator) resize(width, height int) {
	var rows []emulatedRow
	y, x := 0, 0
	for i := 0; i < len(e.rows); {
		var line []string
		offset := -1
		for more := true; more; i++ {
			if i == e.y {
				offset = len(line) + e.x
			}
			line = append(line, e.rows[i].cells...)
			more = e.rows[i].soft && i+1 < len(e.rows)
		}
		begin := len(rows)
		for first := true; first || len(line) > 0; first = false {
			n := min(width, len(line))
			if n < len(line) && line[n] == "" && n > 1 {
				n-- // a wide character is not divided
			}
			if offset >= 0 && (offset < n || n == len(line)) {
				y, x = len(rows)+max(offset-n, 0)/width, min(offset, width-1)
				if offset >= width {
					x = offset % width
				}
				offset = -1
			} else if offset >= 0 {
				offset -= n
			}
			rows = append(rows, emulatedRow{slices.Clone(line[:n]), n < len(line)})
			line = line[n:]
		}
		for y >= len(rows) && begin <= y {
			rows = append(rows, emulatedRow{})
		}
	}
	e.rows, e.y, e.x, e.full, e.width, e.height = rows, y, x, false, width, height
	e.top = max(0, e.y-height+1)
}

// text returns a row without the space at its end.
func (e *emulator) text(y int) string {
	return strings.TrimRight(strings.Join(e.rows[y].cells, ""), " ")
}

// all returns the rows down to the cursor, and those below that are not empty.
func (e *emulator) all() (rows []string) {
	for y := range e.rows {
		rows = append(rows, e.text(y))
	}
	for len(rows) > e.y+1 && rows[len(rows)-1] == "" {
		rows = rows[:len(rows)-1]
	}
	return rows
}
