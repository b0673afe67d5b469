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

	// asked is owned by who waits: the instance may have something to tell.
	asked bool
}

// newGates returns the gates of a terminal, which is not blocking and must stay
// open until they are closed.
func newGates(fd int) (reading, typing *gate, err error) {
	if reading, err = newAuthenticator(fd, unix.EPOLLIN); err != nil {
		return nil, nil, err
	}
	if typing, err = newAuthenticator(fd, unix.EPOLLOUT); err != nil {
		return nil, nil, errors.Join(err, reading.close())
	}
	return reading, typing, nil
}

func newAuthenticator(fd int, want uint32) (*gate, error) {
	instance, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	g := &gate{fd: fd, want: want, asked: true}                         // it tells of a hang-up unasked
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
		if g.asked {
			var events [1]unix.EpollEvent
			n, _ := unix.EpollWait(int(instance), events[:], 0) // what was told once is not told again
			g.asked = n <= 0
		}
		if try() {
			return true
		}
		err = g.control(int(instance), unix.EPOLL_CTL_MOD, g.want) // tells at once if there is something by now
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

// close ends pass, and returns when nobody is in it any more.
func (g *gate) close() error { return g.file.Close() }
