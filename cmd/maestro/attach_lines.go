package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
)

// A typedLine is a line of the input, or why there are no more.
type typedLine struct {
	text string
	err  error
}

// readLines sends the lines of in, and closes lines at its end. A line of more
// than maxTyped bytes, and a failed read, end the input with an error.
func readLines(ctx context.Context, in io.Reader, lines chan<- typedLine) {
	defer close(lines)
	send := func(l typedLine) bool {
		select {
		case lines <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxTyped)
	for scan.Scan() {
		if !send(typedLine{text: scan.Text()}) {
			return
		}
	}
	if err := scan.Err(); errors.Is(err, bufio.ErrTooLong) {
		send(typedLine{err: fmt.Errorf("read input: a line has more than %d bytes", maxTyped)})
	} else if err != nil {
		send(typedLine{err: fmt.Errorf("read input: %w", err)})
	}
}

// readKeys hands on what a terminal in raw mode sends and closes keys at its end.
func readKeys(ctx context.Context, in io.Reader, keys chan<- []byte) {
	defer close(keys)
	for {
		chunk := make([]byte, 4096)
		n, err := in.Read(chunk)
		if n > 0 {
			select {
			case keys <- chunk[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}
