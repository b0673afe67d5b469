package pty

import (
	"errors"
	"io"
	"time"

	"github.com/seed-028515a8/maestro/internal/proc"
)

// ErrUnsupported says that the system has no terminals.
var ErrUnsupported = errors.New("terminals are not supported on this system")

// A Size is the size of a terminal in characters; each side is at least 1.
type Size struct{ Columns, Rows uint16 }

// DefaultSize is the size of a terminal for which none was given.
var DefaultSize = Size{Columns: 80, Rows: 24}

// mostUnread is an upper bound of the unread output in a terminal, in bytes.
const mostUnread = 128 << 10

// A Terminal is a program on a terminal. Its methods may be called from any
// goroutine, but only one goroutine at a time may read, and one write.
//
// Output is read by Read only; when the terminal is full, the program waits.
type Terminal struct {
	device // Write, SetReadDeadline, SetWriteDeadline and Close
	group  *proc.Group
}

// Group returns the group of the program.
func (t *Terminal) Group() *proc.Group { return t.group }

// Read reads output of the terminal. io.EOF means that the
// program has ended and no process has the terminal open. Before its end, a
// program may close the terminal and open it again.
func (t *Terminal) Read(p []byte) (int, error) {
	for over := false; ; {
		n, err := t.device.read(p)
		if err != io.EOF || over {
			return n, err
		}
		select {
		case <-t.group.Exited():
			over = true // its last output is available by now
		case <-time.After(reopenPoll):
		}
	}
}

// reopenPoll is how often Read checks a terminal that no process has open.
const reopenPoll = 10 * time.Millisecond

// Unread returns an upper bound of the unread output after the last writer has
// ended. The system does not report the exact number.
func (t *Terminal) Unread() int { return mostUnread }
