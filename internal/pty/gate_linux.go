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
//
// The terminal is not registered with Go's runtime poller, in which a thread
// would wake for every 4 KiB of output. Instead the poller watches an epoll
// instance, which reports once per request (ADR 25).
type gate struct {
	file *os.File // the epoll instance
	conn syscall.RawConn
	fd   int    // the terminal
	want uint32 // the awaited event

	// asked says that the instance may report an event. The waiting goroutine
	// owns it.
	asked bool
}

// newGates returns the gates of a terminal. The terminal must be non-blocking
// and stay open until they are closed.
func newGates(fd int) (reading, typing *gate, err error) {
	if reading, err = newGate(fd, unix.EPOLLIN); err != nil {
		return nil, nil, err
	}
	if typing, err = newGate(fd, unix.EPOLLOUT); err != nil {
		return nil, nil, errors.Join(err, reading.close())
	}
	return reading, typing, nil
}

func newGate(fd int, want uint32) (*gate, error) {
	instance, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	g := &gate{fd: fd, want: want, asked: true}                         // a hang-up is reported without a request
	err = os.NewSyscallError("fcntl", unix.SetNonblock(instance, true)) // so that the runtime poller can watch it
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

// pass calls try until it returns true: at once, and after each event. It fails
// with [os.ErrDeadlineExceeded] or [os.ErrClosed].
func (g *gate) pass(try func() bool) (err error) {
	failed := g.conn.Read(func(instance uintptr) bool {
		if g.asked {
			var events [1]unix.EpollEvent
			n, _ := unix.EpollWait(int(instance), events[:], 0) // a reported event is not reported again
			g.asked = n <= 0
		}
		if try() {
			return true
		}
		err = g.control(int(instance), unix.EPOLL_CTL_MOD, g.want) // reports at once if the event has happened already
		g.asked = true
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

// close ends pass, and returns when no goroutine is in it.
func (g *gate) close() error { return g.file.Close() }
