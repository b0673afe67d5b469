package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	readSize     = 256 << 10        // bytes one read may return
	pumpEvery    = 64               // attachments between two looks at the viewers that are there
	patience     = 20 * time.Second // without a byte for any viewer, a run is given up
	pollInterval = 100              // milliseconds after which waiting looks at ctx
)

// A crowd is many viewers served by the calling thread. It is not safe for
// concurrent use.
type crowd struct {
	tally

	epoll   int
	viewers map[int32]*viewer // by socket
	next    uint64            // number of the message that new viewers get first
	ready   []unix.EpollEvent
	buf     []byte
	target  uint64 // what await waits for
	behind  int    // viewers whose stream has not reached target
}

type viewer struct {
	fd int
	stream
}

func newCrowd() (*crowd, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	return &crowd{
		epoll:   epoll,
		viewers: map[int32]*viewer{},
		ready:   make([]unix.EpollEvent, 1024),
		buf:     make([]byte, readSize),
	}, nil
}

// close disconnects every viewer.
func (c *crowd) close() error {
	err := unix.Close(c.epoll)
	for _, v := range c.viewers {
		err = errors.Join(err, unix.Close(v.fd))
	}
	clear(c.viewers)
	return err
}

// attach adds count viewers, one after the other. Those that are there already
// are read meanwhile: what a server tells them about newcomers is part of the
// cost of attaching and must not pile up.
func (c *crowd) attach(ctx context.Context, addr string, d dialect, count int) error {
	for i := range count {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := c.add(addr, d); err != nil {
			return fmt.Errorf("attach viewer %d: %w", i+1, err)
		}
		if i%pumpEvery == pumpEvery-1 {
			if _, err := c.pump(0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *crowd) add(addr string, d dialect) (*viewer, error) {
	conn, rest, err := dial(addr, d)
	if err != nil {
		return nil, err
	}
	fd, err := detach(conn)
	if err != nil {
		return nil, err
	}
	v := &viewer{fd: fd, stream: stream{next: c.next, chunked: d.events}}
	c.viewers[int32(fd)] = v
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	if err := v.feed(rest, &c.tally); err != nil {
		return nil, err
	}
	return v, unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// detach returns a copy of a connection's socket that the runtime does not know, and
// closes the connection.
func detach(conn *net.TCPConn) (fd int, err error) {
	defer func() { err = errors.Join(err, conn.Close()) }()
	file, err := conn.File()
	if err != nil {
		return -1, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// await reads until every viewer has had all messages below target.
func (c *crowd) await(ctx context.Context, target uint64) error {
	c.target, c.behind, c.next = target, 0, target
	for _, v := range c.viewers {
		if v.next < target {
			c.behind++
		}
	}
	last := time.Now()
	for c.behind > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		read, err := c.pump(pollInterval)
		if err != nil {
			return err
		}
		if read {
			last = time.UnixMicro(c.now)
		} else if time.Since(last) > patience {
			return fmt.Errorf("%d of %d viewers lack messages and nothing came for %v", c.behind, len(c.viewers), patience)
		}
	}
	return nil
}

// idle reads until nothing came for a while.
func (c *crowd) idle(ctx context.Context, quiet time.Duration) error {
	for ctx.Err() == nil {
		read, err := c.pump(int(quiet.Milliseconds()))
		if err != nil || !read {
			return err
		}
	}
	return ctx.Err()
}

// pump waits at most the given milliseconds for viewers to become readable and
// reads each of them once. It reports whether anything was read.
func (c *crowd) pump(milliseconds int) (bool, error) {
	n, err := unix.EpollWait(c.epoll, c.ready, milliseconds)
	if err != nil && err != unix.EINTR {
		return false, fmt.Errorf("wait for viewers: %w", err)
	}
	for _, ev := range c.ready[:max(n, 0)] {
		if err := c.read(c.viewers[ev.Fd]); err != nil {
			return false, err
		}
	}
	return n > 0, nil
}

func (c *crowd) read(v *viewer) error {
	n, err := unix.Read(v.fd, c.buf)
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("connection closed after message %d", v.next)
	}
	c.now = time.Now().UnixMicro()
	before := v.next
	if err := v.feed(c.buf[:n], &c.tally); err != nil {
		return err
	}
	if before < c.target && v.next >= c.target {
		c.behind--
	}
	if len(v.reply) > 0 {
		if err := writeAll(v.fd, v.reply); err != nil {
			return fmt.Errorf("answer a ping: %w", err)
		}
		v.reply = v.reply[:0]
	}
	return nil
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
