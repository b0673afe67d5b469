//go:build unix && !linux

package pty

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A gate is where one goroutine at a time waits until a terminal can be read, or
// written to. Its methods may be called from any goroutine.
type gate struct {
	file    *os.File // the terminal again, which the runtime watches
	conn    syscall.RawConn
	fd      int // the terminal
	writing bool
}

// newGate returns a gate of a terminal that is not blocking.
func newGate(fd int, writing bool) (*gate, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	g := &gate{file: os.NewFile(uintptr(own), "terminal"), fd: fd, writing: writing}
	if g.conn, err = g.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, g.file.Close())
	}
	return g, nil
}

// pass calls try until it returns true, and again each time that there may be a
// reason to. It fails with [os.ErrDeadlineExceeded] or [os.ErrClosed].
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

func (g *gate) setDeadline(at time.Time) error { return g.file.SetDeadline(at) }

// close ends pass, and returns when nobody is in it any more.
func (g *gate) close() error { return g.file.Close() }
