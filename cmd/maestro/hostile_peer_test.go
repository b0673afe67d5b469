//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/testkit/built"
)

// build compiles the program once, without symbols for debuggers, as its users run it.
var build = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(scratch, "maestro")
	return binary, built.Maestro(binary)
})

func buildBinary(t *testing.T) string {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// A victim is a running server.
type victim struct {
	addr   string
	pid    int
	token  string // file with the owner's token; empty without authentication
	bearer string // the credential of peers, if they have one
}

// serveScript starts a server for the length of the test, whose agent answers
// prompts with shortText and longText. binary is the program, or empty for the one
// that the race detector watches.
func serveScript(t *testing.T, binary string, flags ...string) victim {
	t.Helper()
	script := filepath.Join(t.TempDir(), "script.json")
	text := fmt.Sprintf(`{"prompts":[{"match":%q,"steps":[{"repeat":{"times":%d,"steps":[{"say":%q}]}}]}],`+
		`"default":[{"repeat":{"times":%d,"steps":[{"say":"word-{{n}} "}]}}]}`,
		promptLong, longPieces, strings.Repeat("x", longLetters), pairWords)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--auth", "off", "--agent", "script:" + script, "--ready-stdout"}, flags...)...)
	if binary != "" {
		cmd.Path = binary
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		survived := cmd.Process.Kill() == nil // an error says that it has ended before
		err := cmd.Wait()
		if complaint := log.String(); !survived || strings.Contains(complaint, "panic") || strings.Contains(complaint, "DATA RACE") {
			t.Errorf("the server ended with %v, want it to run until it is killed; log:\n%s", err, complaint)
		}
	})
	var ready readiness
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		t.Fatalf("got %v, want the ready line", err)
	}
	return victim{addr: strings.TrimPrefix(ready.BaseURL, "http://"), pid: cmd.Process.Pid, token: ready.TokenFile}
}

// resident returns the server's resident memory in bytes, and peak the most that
// it ever was.
func (v victim) resident(t *testing.T) int64 { return v.memory(t, "VmRSS:") }
func (v victim) peak(t *testing.T) int64     { return v.memory(t, "VmHWM:") }

func (v victim) memory(t *testing.T, what string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), what)
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// A peer is a connection that says what it likes.
type peer struct {
	net.Conn
	r *bufio.Reader
}

// dial connects with small buffers, so that a peer which does not read is felt.
func (v victim) dial(ctx context.Context) (*peer, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		})
		if err != nil {
			return err
		}
		return failed
	}}
	conn, err := d.DialContext(ctx, "tcp", v.addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	return &peer{conn, bufio.NewReaderSize(conn, 1<<10)}, nil
}

// request is a correct upgrade request without its last line.
func (v victim) request(query string) string {
	text := "GET /api/headless/ws" + query + " HTTP/1.1\r\nHost: " + v.addr + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: " + contracts.Subprotocol + "\r\n"
	if v.bearer != "" {
		text += "Authorization: Bearer " + v.bearer + "\r\n"
	}
	return text
}

// A refused upgrade.
type refusedUpgrade struct {
	status     int
	code       contracts.Code
	retryAfter string
}

func (e *refusedUpgrade) Error() string { return fmt.Sprintf("HTTP %d %s", e.status, e.code) }

// upgrade connects and upgrades. A refusal is a *refusedUpgrade.
func (v victim) upgrade(ctx context.Context, query string) (*peer, error) {
	p, err := v.dial(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(p, v.request(query)+"\r\n"); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(p.r, nil)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		return p, nil
	}
	defer p.Close()
	defer res.Body.Close()
	var body struct{ Code contracts.Code }
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		return nil, fmt.Errorf("HTTP %d without a code: %w", res.StatusCode, err)
	}
	return nil, &refusedUpgrade{res.StatusCode, body.Code, res.Header.Get("Retry-After")}
}

// The first byte of frames.
const (
	opText   = 0x81
	opBinary = 0x82
	opClose  = 0x88
)

// frame returns a whole masked frame. The mask is zero, so that a payload is
// sent as it is.
func frame(op byte, payload string) []byte {
	b := []byte{op}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

// send sends a text. A peer that was closed meanwhile learns that by reading.
func (p *peer) send(text string) { _, _ = p.Write(frame(opText, text)) }

// next returns the next frame's first byte and payload.
func (p *peer) next() (op byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	switch n {
	case 126:
		var b [2]byte
		_, err = io.ReadFull(p.r, b[:])
		n = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		_, err = io.ReadFull(p.r, b[:])
		n = binary.BigEndian.Uint64(b[:])
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(p.r, payload)
	return head[0], payload, err
}

// until reads until a frame of the server has mark in it, and returns it. A
// close comes back as its code and reason.
func (p *peer) until(mark string) (string, error) {
	for {
		op, payload, err := p.next()
		switch {
		case err != nil:
			return "", err
		case op == opClose && len(payload) >= 2:
			return fmt.Sprintf("%d %s", binary.BigEndian.Uint16(payload), payload[2:]), nil
		case op == opText && mark != "" && bytes.Contains(payload, []byte(mark)):
			return string(payload), nil
		}
	}
}

const (
	helloText = `{"type":"hello","protocol_version":"` + contracts.ProtocolVersion + `"}`
	quietText = `{"type":"hello","protocol_version":"` + contracts.ProtocolVersion + `","opt_out_notifications":["status","heartbeat","connection_info","compaction"]}`
)

// attach upgrades and says hello.
func (v victim) attach(ctx context.Context, query, hello string) (*peer, error) {
	p, err := v.upgrade(ctx, query)
	if err != nil {
		return nil, err
	}
	p.send(hello)
	got, err := p.until(`"type":"ws.attached"`)
	if err == nil && !strings.HasPrefix(got, "{") {
		err = fmt.Errorf("closed: %s", got)
	}
	return p, err
}
