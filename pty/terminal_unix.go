//go:build unix

package pty

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

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
	if err = t.setSize(size); err == nil {
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

// ended returns what an error of reading means: Linux has one of its own for
// the end.
func ended(err error) error {
	if errors.Is(err, unix.EIO) {
		return io.EOF
	}
	return err
}
