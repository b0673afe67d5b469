package main

import (
	"bufio"
	"context"
	"io"
)

// readLines hands on the lines of in and closes lines at its end. A line of more
// than maxTyped bytes ends the input.
func readLines(ctx context.Context, in io.Reader, lines chan<- string) {
	defer close(lines)
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxTyped)
	for scan.Scan() {
		select {
		case lines <- scan.Text():
		case <-ctx.Done():
			return
		}
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
