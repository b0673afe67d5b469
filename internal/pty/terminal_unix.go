//go:build unix

package pty

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/seed-028515a8/maestro/internal/proc"
)

// A device is our end of a terminal. It is non-blocking; its gates wait for it.
type device struct {
	// Static after open.
	fd              int
	file            *os.File // of fd
	conn            syscall.RawConn
	reading, typing *gate

	closing sync.Once
	closed  error // error of the close

	// Owned by the reader.
	flows bool // output was read, and more may come at once
	poll  [1]unix.PollFd
}

// Start starts cmd on a terminal, which becomes its standard files. The owner must
// stop the group and close the terminal.
func Start(cmd *exec.Cmd, size Size) (*Terminal, error) {
	t := &Terminal{}
	theirs, err := t.device.open()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open terminal: %w", err), t.Close())
	}
	defer theirs.Close()
	if err = t.setSize(size); err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
		cmd.SysProcAttr = &syscall.SysProcAttr{Setctty: true} // the terminal controls the session, which cmd leads anyway
		t.group, err = proc.Start(cmd)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start on terminal: %w", err), t.Close())
	}
	return t, nil
}

// open opens both ends and returns the program's. The library registers its
// files with the runtime poller in a way that deadlines have no effect and
// Close does not end a Read, so our end is duplicated. After an error, call
// Close.
func (d *device) open() (theirs *os.File, err error) {
	ours, theirs, err := pty.Open()
	if err != nil {
		return nil, err
	}
	if d.fd, err = unix.FcntlInt(ours.Fd(), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		err = unix.SetNonblock(d.fd, false)
		d.file = os.NewFile(uintptr(d.fd), ours.Name()) // while it is blocking, so that the runtime poller does not watch it
		err = errors.Join(err, unix.SetNonblock(d.fd, true))
	}
	if err = errors.Join(err, ours.Close()); err == nil {
		d.conn, err = d.file.SyscallConn()
	}
	if err == nil {
		d.reading, d.typing, err = newGates(d.fd)
	}
	if err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	return theirs, nil
}

// Close closes the terminal, which hangs up the processes that have it open. It
// returns when no goroutine reads or writes; a later Close returns the same
// error.
func (d *device) Close() error {
	d.closing.Do(func() {
		if d.reading != nil {
			d.closed = errors.Join(d.reading.close(), d.typing.close())
		}
		if d.file != nil { // no goroutine reads or writes any more
			d.closed = errors.Join(d.closed, d.file.Close())
		}
	})
	return d.closed
}

// SetReadDeadline bounds Read, as in [net.Conn].
func (d *device) SetReadDeadline(at time.Time) error { return d.reading.setDeadline(at) }

// SetWriteDeadline bounds Write.
func (d *device) SetWriteDeadline(at time.Time) error { return d.typing.setDeadline(at) }

// Resize sets the size and returns the one in effect. The program is notified
// even if the size is the same, so that it redraws.
func (t *Terminal) Resize(size Size) (Size, error) {
	before, err := t.size()
	if err == nil && before != size {
		err = t.setSize(size) // this notifies the program
	} else if err == nil {
		err = t.control(func(fd int) error {
			group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
			if err == nil && group > 1 {
				_ = unix.Kill(-group, unix.SIGWINCH) // the group may have ended
			}
			return nil // an error says that there is no process to notify
		})
	}
	if err != nil {
		return Size{}, err
	}
	return t.size()
}

func (d *device) size() (size Size, err error) {
	err = d.control(func(fd int) error {
		ws, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			size = Size{Columns: ws.Col, Rows: ws.Row}
		}
		return err
	})
	return size, err
}

func (d *device) setSize(size Size) error {
	return d.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: size.Columns, Row: size.Rows})
	})
}

// control calls act with the file descriptor, which stays open meanwhile.
func (d *device) control(act func(fd int) error) (err error) {
	if failed := d.conn.Control(func(fd uintptr) { err = act(int(fd)) }); failed != nil {
		return failed
	}
	return err
}

// How a flow of output is read.
const (
	flowDelay = 2                     // milliseconds that a reader waits in the system for more output before it waits in the runtime poller
	flowTime  = 10 * time.Millisecond // time after which the output read so far is returned
)

// read waits for output and reads it; in a flow it reads as much as fits. A
// terminal holds at most 4 KiB, so in a flow every read must wait, and waiting
// in the runtime poller costs more than reading.
func (d *device) read(p []byte) (n int, err error) {
	began := time.Now()
	failed := d.reading.pass(func() bool {
		for {
			var got int
			got, err = unix.Read(d.fd, p[n:])
			n += max(got, 0)
			switch {
			case err == unix.EINTR:
			case err == unix.EAGAIN && d.flows:
				d.poll[0] = unix.PollFd{Fd: int32(d.fd), Events: unix.POLLIN}
				ready, _ := unix.Poll(d.poll[:], flowDelay) // an interruption counts as no output
				d.flows = ready > 0
			case err == unix.EAGAIN:
				return n > 0
			case err != nil, got == 0, n == len(p), !d.flows, time.Since(began) > flowTime:
				return true
			}
		}
	})
	switch {
	case n > 0:
		d.flows = err != unix.EAGAIN // an error will be returned again
		return n, nil
	case failed != nil:
		return 0, failed
	case err == nil && len(p) > 0, err == unix.EIO: // Linux returns EIO at the end
		return 0, io.EOF
	}
	return 0, err
}

// Write types all of p.
func (d *device) Write(p []byte) (n int, err error) {
	failed := d.typing.pass(func() bool {
		for n < len(p) {
			var put int
			put, err = unix.Write(d.fd, p[n:])
			n += max(put, 0)
			switch {
			case err == unix.EINTR:
			case err != nil:
				return err != unix.EAGAIN
			}
		}
		return true
	})
	if failed != nil {
		return n, failed
	}
	return n, err
}
