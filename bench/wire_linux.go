package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// maxFrame is more bytes than any server here sends in one frame.
const maxFrame = 64 << 20

// A wire is a WebSocket that is read frame by frame, by one goroutine at a time.
type wire struct {
	fd int // -1 once it is closed
	in *bufio.Reader

	// stuck is like a program that hangs: pings are left unanswered, and reading
	// gives up when nothing came for attachTimeout.
	stuck bool
}

// dialWire attaches a viewer whose frames are read one by one.
func dialWire(addr string, d dialect) (*wire, error) {
	fd, rest, err := dial(addr, d)
	if err != nil {
		return nil, err
	}
	w := &wire{fd: fd}
	w.in = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(rest), w), 64<<10)
	return w, nil
}

// close closes the connection. Closing it again does nothing.
func (w *wire) close() error {
	if w.fd < 0 {
		return nil
	}
	err := unix.Close(w.fd)
	w.fd = -1
	return err
}

// send writes a text frame.
func (w *wire) send(text []byte) error { return writeAll(w.fd, appendMasked(nil, opText, text)) }

// Read implements [io.Reader] below the frames.
func (w *wire) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(w.fd, p)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN && !w.stuck:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// next returns the text of the next data frame.
func (w *wire) next() ([]byte, error) {
	for {
		opcode, payload, err := w.frame()
		switch {
		case err != nil:
			return nil, err
		case opcode == opText:
			return payload, nil
		case opcode == opClose:
			return nil, fmt.Errorf("closed by the server: %q", payload)
		case opcode == opPing && !w.stuck:
			if err := writeAll(w.fd, appendMasked(nil, opPong, payload)); err != nil {
				return nil, err
			}
		}
	}
}

// frame reads one whole frame.
func (w *wire) frame() (opcode byte, payload []byte, err error) {
	var head []byte
	var length uint64
	for ok := false; !ok; {
		b, err := w.in.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		head = append(head, b)
		if length, ok, err = parseHeader(head); err != nil {
			return 0, nil, err
		}
	}
	if length > maxFrame {
		return 0, nil, errors.New("frame is too long")
	}
	payload = make([]byte, length)
	_, err = io.ReadFull(w.in, payload)
	return head[0] & 15, payload, err
}
