//go:build unix

package pty

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/seed-028515a8/maestro/internal/child"
)

// start opens a terminal and starts cmd on it.
func (t *Terminal) start(cmd *exec.Cmd, size Size) error {
	ours, theirs, err := open()
	if err != nil {
		return fmt.Errorf("open terminal: %w", err)
	}
	defer theirs.Close()
	t.master = ours
	if t.flow.conn, err = ours.SyscallConn(); err == nil {
		err = t.setSize(size)
	}
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
		cmd.SysProcAttr = &syscall.SysProcAttr{Setctty: true} // of its session, which it leads anyhow
		t.group, err = child.Start(cmd)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start on terminal: %w", err), ours.Close())
	}
	return nil
}

// open returns both ends of a terminal. The library's are of a kind on which
// deadlines have no effect and Close does not end a Read, so ours is opened once
// more. Its descriptor must never be asked for: that would undo it.
func open() (ours, theirs *os.File, err error) {
	blocking, theirs, err := pty.Open()
	if err != nil {
		return nil, nil, err
	}
	defer blocking.Close()
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fd), theirs.Close())
	}
	return os.NewFile(uintptr(fd), blocking.Name()), theirs, nil
}

// Resize sets the size and returns the one in effect. The program is told even if
// it is the same, so that it draws anew.
func (t *Terminal) Resize(size Size) (Size, error) {
	before, err := t.size()
	if err == nil && before != size {
		err = t.setSize(size) // which tells the program
	} else if err == nil {
		err = t.control(func(fd int) error {
			group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
			if err == nil && group > 1 {
				_ = unix.Kill(-group, unix.SIGWINCH) // it may have ended
			}
			return nil // then nobody is there to be told
		})
	}
	if err != nil {
		return Size{}, err
	}
	return t.size()
}

func (t *Terminal) size() (size Size, err error) {
	err = t.control(func(fd int) error {
		ws, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			size = Size{Columns: ws.Col, Rows: ws.Row}
		}
		return err
	})
	return size, err
}

func (t *Terminal) setSize(size Size) error {
	return t.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: size.Columns, Row: size.Rows})
	})
}

// control calls act with the descriptor.
func (t *Terminal) control(act func(fd int) error) error {
	conn, err := t.master.SyscallConn()
	if err != nil {
		return err
	}
	if failed := conn.Control(func(fd uintptr) { err = act(int(fd)) }); failed != nil {
		return failed
	}
	return err
}

// How a flow is read.
const (
	flowDelay = 2                     // milliseconds a reader waits in the system for more of it, before it leaves the waiting to the runtime
	flowTime  = 10 * time.Millisecond // after which what there is of it is returned
)

// A flow is how a terminal is read. It belongs to the reader.
type flow struct {
	conn syscall.RawConn
	on   bool // something was read, and more may come at once
	poll [1]unix.PollFd
}

// take reads what there is, waiting for it, and in a flow as much as fits. A
// terminal holds 4 KiB at the most, so that in a flow every read waits: done
// through the runtime, that costs more than the reading.
func (t *Terminal) take(p []byte) (n int, err error) {
	began := time.Now()
	failed := t.flow.conn.Read(func(fd uintptr) bool {
		for {
			var got int
			got, err = unix.Read(int(fd), p[n:])
			n += max(got, 0)
			switch {
			case err == unix.EINTR:
			case err == unix.EAGAIN && t.flow.on:
				t.flow.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
				ready, _ := unix.Poll(t.flow.poll[:], flowDelay) // that it was interrupted is no reason to stay here
				t.flow.on = ready > 0
			case err == unix.EAGAIN:
				return n > 0
			case err != nil, got == 0, n == len(p), !t.flow.on, time.Since(began) > flowTime:
				return true
			}
		}
	})
	switch {
	case n > 0:
		t.flow.on = err != unix.EAGAIN // an error comes again
		return n, nil
	case errors.Is(failed, os.ErrDeadlineExceeded):
		return 0, failed
	case failed != nil:
		return 0, os.ErrClosed
	case err == nil && len(p) > 0, err == unix.EIO: // Linux has an error of its own for the end
		return 0, io.EOF
	}
	return 0, err
}
