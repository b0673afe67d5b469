//go:build unix && !linux

package pty

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A gate is where one goroutine at a time waits until a terminal is readable,
// or writable. Its methods may be called from any goroutine.
type gate struct {
	file    *os.File // a duplicate of the terminal that the runtime poller watches; shared by both gates
	conn    syscall.RawConn
	writing bool
}

// newGates returns the gates of a non-blocking terminal.
func newGates(fd int) (reading, typing *gate, err error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(own), "terminal")
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return &gate{file: file, conn: conn}, &gate{file: file, conn: conn, writing: true}, nil
}

// pass calls try until it returns true: at once, and after each event. It fails
// with [os.ErrDeadlineExceeded] or [os.ErrClosed].
func (g *gate) pass(try func() bool) error {
	wait := g.conn.Read
	if g.writing {
		wait = g.conn.Write
	}
	err := wait(func(uintptr) bool { return try() })
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return os.ErrClosed
	}
	return err
}

func (g *gate) setDeadline(at time.Time) error {
	if g.writing {
		return g.file.SetWriteDeadline(at)
	}
	return g.file.SetReadDeadline(at)
}

// close ends pass of both gates, and returns when no goroutine is in it.
func (g *gate) close() error {
	if err := g.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
