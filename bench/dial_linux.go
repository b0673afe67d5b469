package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attachTimeout bounds each read and write of a viewer's handshake.
const attachTimeout = 10 * time.Second

// A dialect is how a viewer attaches to one kind of server.
type dialect struct {
	path     string // of the request; empty for raw TCP, which has no handshake
	events   bool   // the answer to the request is a stream of server-sent events, not a WebSocket
	protocol string // WebSocket subprotocol to offer, if any
	opcode   byte   // of the opening frame
	opening  string // payload of the viewer's first frame; empty for none
	answer   string // the viewer is attached once it was sent this; empty: after the header of the answer
	buffer   int    // receive buffer in bytes; zero leaves it to the system
}

var (
	rawDialect   = dialect{}
	plainDialect = dialect{path: "/"}
	eventDialect = dialect{path: "/", events: true}
	natsDialect  = dialect{
		path:    "/",
		opcode:  opBinary,
		opening: "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"go\",\"version\":\"1\"}\r\nSUB bench 1\r\nPING\r\n",
		answer:  "PONG\r\n",
	}
)

// dial attaches a viewer at addr (IPv4:port) over a blocking socket. It returns
// the socket and what was read beyond the header of the answer.
func dial(addr string, d dialect) (fd int, rest []byte, err error) {
	fd, err = connect(addr, d.buffer)
	if err != nil || d.path == "" {
		return fd, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	if d.events {
		rest, err = openEvents(fd, addr, d)
	} else {
		rest, err = upgrade(fd, addr, d)
	}
	return fd, rest, err
}

// upgrade makes a WebSocket of a connection and says hello, if that is due.
func upgrade(fd int, addr string, d dialect) (rest []byte, err error) {
	if err := writeAll(fd, upgradeRequest(addr, d)); err != nil {
		return nil, fmt.Errorf("send upgrade: %w", err)
	}
	got, end, err := readUntil(fd, nil, "\r\n\r\n")
	if err != nil {
		return nil, fmt.Errorf("read upgrade: %w", err)
	}
	if !bytes.HasPrefix(got, []byte("HTTP/1.1 101 ")) {
		return nil, fmt.Errorf("upgrade refused: %q", got)
	}
	rest = got[end:]
	if d.opening == "" {
		return rest, nil
	}
	if err := writeAll(fd, appendMasked(nil, d.opcode, []byte(d.opening))); err != nil {
		return nil, fmt.Errorf("send opening frame: %w", err)
	}
	rest, _, err = readUntil(fd, rest, d.answer)
	if err != nil {
		return nil, fmt.Errorf("read answer %q: %w", d.answer, err)
	}
	return rest, nil
}

func upgradeRequest(addr string, d dialect) []byte {
	b := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n", d.path, addr)
	if d.protocol != "" {
		b = fmt.Appendf(b, "Sec-WebSocket-Protocol: %s\r\n", d.protocol)
	}
	return append(b, '\r', '\n')
}

// connect opens a TCP connection whose reads and writes block, and time out.
func connect(addr string, buffer int) (fd int, err error) {
	dialer := net.Dialer{Timeout: attachTimeout, KeepAlive: -1}
	if buffer > 0 { // before connecting: it decides what window is offered
		dialer.Control = func(_, _ string, c syscall.RawConn) error {
			failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, buffer) })
			return errors.Join(failed, err)
		}
	}
	conn, err := dialer.Dial("tcp4", addr)
	if err != nil {
		return -1, err
	}
	defer func() { _ = conn.Close() }() // a copy of the socket stays
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		return -1, err
	}
	defer func() { _ = file.Close() }()
	if fd, err = unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return -1, err
	}
	limit := unix.NsecToTimeval(attachTimeout.Nanoseconds())
	if err := errors.Join(
		unix.SetNonblock(fd, false), // the runtime has made it non-blocking
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
	); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// readUntil reads on after got until that contains mark, and returns all of it
// and where the mark's first occurrence ends.
func readUntil(fd int, got []byte, mark string) (all []byte, end int, err error) {
	for {
		if i := bytes.Index(got, []byte(mark)); i >= 0 {
			return got, i + len(mark), nil
		}
		if got, err = readMore(fd, got); err != nil {
			return nil, 0, err
		}
	}
}

// readMore appends what one read returns to got.
func readMore(fd int, got []byte) ([]byte, error) {
	const most = 16 << 10
	got = slices.Grow(got, most)
	for {
		n, err := unix.Read(fd, got[len(got):len(got)+most])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n == 0:
			return nil, fmt.Errorf("connection closed after %q", got)
		default:
			return got[:len(got)+n], nil
		}
	}
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
