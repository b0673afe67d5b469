package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"sync/atomic"
)

// What switches a terminal to marking what is pasted and back, and the marks.
const (
	pasteOn    = "\x1b[?2004h"
	pasteOff   = "\x1b[?2004l"
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// A paste makes one line of what was pasted between the marks of a terminal. It
// is owned by the goroutine that reads the lines, but for lost.
type paste struct {
	text strings.Builder
	open bool
	lost atomic.Bool // the terminal dropped what it had of the line, and maybe the end of the paste
}

// take takes a line of the input. It returns false if what was pasted goes on in
// the next one.
func (p *paste) take(line string) (string, bool) {
	if p.lost.Swap(false) {
		p.text.Reset()
		p.open = false
	}
	for {
		mark := pasteBegin
		if p.open {
			mark = pasteEnd
		}
		before, after, found := strings.Cut(line, mark)
		p.text.WriteString(before)
		if !found {
			break
		}
		p.open, line = !p.open, after
	}
	if p.open {
		p.text.WriteByte('\n')
		return "", false
	}
	text := p.text.String()
	p.text.Reset()
	return text, true
}

// readLines hands on the lines of in and closes lines at its end; p puts together
// what was pasted, and is nil if nothing can be. A line of more than maxTyped
// bytes ends the input.
func readLines(ctx context.Context, in io.Reader, p *paste, lines chan<- string) {
	defer close(lines)
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxTyped)
	for scan.Scan() {
		line, whole := scan.Text(), true
		if p != nil {
			line, whole = p.take(line)
		}
		if !whole {
			if p.text.Len() > maxTyped {
				return
			}
			continue
		}
		select {
		case lines <- line:
		case <-ctx.Done():
			return
		}
	}
}
