package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// maxFrame is more bytes than any server here sends in one frame.
const maxFrame = 64 << 20

// A wire is a WebSocket that is read frame by frame, by one goroutine at a time.
type wire struct {
	conn *net.TCPConn
	in   *bufio.Reader

	// stuck is like a program that hangs: pings are left unanswered, and reading
	// gives up when a frame has not come after attachTimeout.
	stuck bool
}

// dialWire attaches a viewer whose frames are read one by one.
func dialWire(addr string, d dialect) (*wire, error) {
	conn, rest, err := dial(addr, d)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, in: bufio.NewReaderSize(io.MultiReader(bytes.NewReader(rest), conn), 64<<10)}, nil
}

// close closes the connection. Closing it again does nothing.
func (w *wire) close() error {
	if err := w.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// send writes a text frame.
func (w *wire) send(text []byte) error { return w.write(opText, text) }

func (w *wire) write(opcode byte, payload []byte) error {
	if err := w.conn.SetWriteDeadline(time.Now().Add(attachTimeout)); err != nil {
		return err
	}
	_, err := w.conn.Write(appendMasked(nil, opcode, payload))
	return err
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
			if err := w.write(opPong, payload); err != nil {
				return nil, err
			}
		}
	}
}

// frame reads one whole frame.
func (w *wire) frame() (opcode byte, payload []byte, err error) {
	if w.stuck {
		if err := w.conn.SetReadDeadline(time.Now().Add(attachTimeout)); err != nil {
			return 0, nil, err
		}
	}
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
