package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

// dial attaches a viewer at addr (IPv4:port). It returns the connection and what was
// read beyond the header of the answer.
func dial(addr string, d dialect) (conn *net.TCPConn, rest []byte, err error) {
	dialer := net.Dialer{Timeout: attachTimeout, KeepAlive: -1}
	if d.buffer > 0 { // before connecting: it decides what window is offered
		dialer.Control = func(_, _ string, c syscall.RawConn) error {
			failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, d.buffer) })
			return errors.Join(failed, err)
		}
	}
	dialed, err := dialer.Dial("tcp4", addr)
	if err != nil {
		return nil, nil, err
	}
	conn = dialed.(*net.TCPConn)
	if d.path == "" {
		return conn, nil, nil
	}
	if err = conn.SetDeadline(time.Now().Add(attachTimeout)); err == nil {
		if d.events {
			rest, err = openEvents(conn, addr, d)
		} else {
			rest, err = upgrade(conn, addr, d)
		}
	}
	if err = errors.Join(err, conn.SetDeadline(time.Time{})); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, rest, nil
}

// upgrade makes a WebSocket of a connection and says hello, if that is due.
func upgrade(conn net.Conn, addr string, d dialect) (rest []byte, err error) {
	if _, err := conn.Write(upgradeRequest(addr, d)); err != nil {
		return nil, fmt.Errorf("send upgrade: %w", err)
	}
	got, end, err := readUntil(conn, nil, "\r\n\r\n")
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
	if _, err := conn.Write(appendMasked(nil, d.opcode, []byte(d.opening))); err != nil {
		return nil, fmt.Errorf("send opening frame: %w", err)
	}
	rest, _, err = readUntil(conn, rest, d.answer)
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

// readUntil reads on after got until that contains mark, and returns all of it
// and where the mark's first occurrence ends.
func readUntil(conn net.Conn, got []byte, mark string) (all []byte, end int, err error) {
	for {
		if i := bytes.Index(got, []byte(mark)); i >= 0 {
			return got, i + len(mark), nil
		}
		if got, err = readMore(conn, got); err != nil {
			return nil, 0, err
		}
	}
}

// readMore appends what one read returns to got.
func readMore(conn net.Conn, got []byte) ([]byte, error) {
	const most = 16 << 10
	got = slices.Grow(got, most)
	n, err := conn.Read(got[len(got) : len(got)+most])
	if err == io.EOF {
		err = fmt.Errorf("connection closed after %q", got)
	}
	return got[:len(got)+n], err
}
