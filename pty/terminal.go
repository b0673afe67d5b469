package pty

import (
	"errors"
	"io"
	"os/exec"
	"time"

	"github.com/seed-028515a8/maestro/internal/proc"
)

// ErrUnsupported says that there are no terminals on this system.
var ErrUnsupported = errors.New("terminals are not supported on this system")

// A Size is that of a terminal, in characters, each side at least 1.
type Size struct{ Columns, Rows uint16 }

// DefaultSize is that of a terminal of which nobody has said more.
var DefaultSize = Size{Columns: 80, Rows: 24}

// DefaultKeep is how many bytes a terminal keeps for those who come later.
const DefaultKeep = 256 << 10

// mostUnread is more than a terminal holds that was written and not read.
const mostUnread = 128 << 10

// A Terminal is a program on a terminal. Its methods may be called from any
// goroutine, but one at a time reads and one writes.
//
// Nothing is read unless somebody calls Read, and the program waits once the
// terminal is full.
type Terminal struct {
	device
	group *proc.Group
	kept  journal
}

// Start starts cmd on a terminal of a size, of whose output keep bytes are kept;
// 0 means [DefaultKeep]. cmd's standard files are the terminal's. Its owner stops
// the group and closes the terminal.
func Start(cmd *exec.Cmd, size Size, keep int) (*Terminal, error) {
	if keep <= 0 {
		keep = DefaultKeep
	}
	t := &Terminal{kept: journal{most: keep}}
	if err := t.start(cmd, size); err != nil {
		return nil, err
	}
	return t, nil
}

// Group is the program and what it started.
func (t *Terminal) Group() *proc.Group { return t.group }

// Read reads what was written to the terminal, and keeps it. io.EOF means that
// the program has ended and nobody has the terminal open any more. Before, a
// program may close it and open it again.
func (t *Terminal) Read(p []byte) (int, error) {
	for over := false; ; {
		n, err := t.device.read(p)
		t.kept.append(p[:n])
		if err != io.EOF || over {
			return n, err
		}
		select {
		case <-t.group.Exited():
			over = true // what it wrote last is there by now
		case <-time.After(reopenPoll):
		}
	}
}

// reopenPoll is how often a terminal is looked at that nobody has open.
const reopenPoll = 10 * time.Millisecond

// ReadAt copies bytes that were read before, from a cursor on, and returns how
// many; 0 means that the cursor is the newest. The error is [ErrGap] if they are
// not kept.
func (t *Terminal) ReadAt(p []byte, cursor uint64) (int, error) { return t.kept.read(cursor, p) }

// Cursors returns the oldest cursor that can be read from, and the newest.
func (t *Terminal) Cursors() (tail, head uint64) { return t.kept.bounds() }

// Unread returns how much there may be to read when nobody writes any more. It is
// a bound: how much there is, the system does not say.
func (t *Terminal) Unread() int { return mostUnread }

// Write types p.
func (t *Terminal) Write(p []byte) (int, error) { return t.device.write(p) }

// SetReadDeadline bounds Read, as that of a [net.Conn] does.
func (t *Terminal) SetReadDeadline(at time.Time) error { return t.setReadDeadline(at) }

// SetWriteDeadline bounds Write.
func (t *Terminal) SetWriteDeadline(at time.Time) error { return t.setWriteDeadline(at) }

// Close lets go of the terminal, which hangs up on what still has it open. It
// returns when nobody reads or writes any more; a later Close returns the same.
func (t *Terminal) Close() error { return t.device.close() }
