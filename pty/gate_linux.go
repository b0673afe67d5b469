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
//
// The runtime is not told of the terminal itself. It would be told of every 4 KiB
// that pass, whether somebody waits for them or not, and a thread would wake for
// each; with a program that writes much, that costs more than all the rest. The
// runtime watches an instance of epoll instead, which tells once when it is asked.
type gate struct {
	file *os.File // the instance
	conn syscall.RawConn
	fd   int    // the terminal
	want uint32 // the event
	asks bool   // owned by who waits: the instance was asked and has not told
}

// newGate returns a gate of a terminal, which must stay open until the gate is
// closed and is not blocking.
func newGate(fd int, writing bool) (*gate, error) {
	instance, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	g := &gate{fd: fd, want: unix.EPOLLIN}
	if writing {
		g.want = unix.EPOLLOUT
	}
	err = os.NewSyscallError("fcntl", unix.SetNonblock(instance, true)) // so that the runtime watches it
	if err == nil {
		err = g.control(instance, unix.EPOLL_CTL_ADD, 0)
	}
	g.file = os.NewFile(uintptr(instance), "epoll")
	if err == nil {
		g.conn, err = g.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(err, g.file.Close())
	}
	return g, nil
}

func (g *gate) control(instance, op int, want uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(instance, op, g.fd, &unix.EpollEvent{Events: want | unix.EPOLLONESHOT}))
}

// pass calls try until it returns true, and again each time that there may be a
// reason to. It fails with [os.ErrDeadlineExceeded] or [os.ErrClosed].
func (g *gate) pass(try func() bool) (err error) {
	failed := g.conn.Read(func(instance uintptr) bool {
		if g.asks {
			var events [1]unix.EpollEvent
			n, _ := unix.EpollWait(int(instance), events[:], 0) // what was told once is not told again
			g.asks = n == 0
		}
		if try() {
			return true
		}
		err = g.control(int(instance), unix.EPOLL_CTL_MOD, g.want) // tells at once if there is something by now
		g.asks = err == nil
		return err != nil
	})
	switch {
	case errors.Is(failed, os.ErrDeadlineExceeded):
		return failed
	case failed != nil:
		return os.ErrClosed
	}
	return err
}

func (g *gate) setDeadline(at time.Time) error { return g.file.SetReadDeadline(at) }

// close ends pass, and returns when nobody is in it any more.
func (g *gate) close() error { return g.file.Close() }
