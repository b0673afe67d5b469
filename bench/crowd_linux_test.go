package main

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// listen runs serve for every connection to a new address, after the upgrade if
// one is asked for. All of it ends with the test.
func listen(t *testing.T, d dialect, serve func(c net.Conn, request string)) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() { // ends when the listener is closed
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection, which its viewer closes
				defer c.Close()
				request := ""
				if d.path != "" {
					request = upgrade(c)
				}
				serve(c, request)
			}()
		}
	}()
	return ln.Addr().String()
}

func upgrade(c net.Conn) (request string) {
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		return ""
	}
	if _, err := io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n"); err != nil {
		return ""
	}
	return string(buf[:n])
}

// send writes all parts at once; a viewer that has left is no failure.
func send(c net.Conn, parts ...[]byte) {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	_, _ = c.Write(all)
}

func watch(t *testing.T, addr string, d dialect, viewers int, target uint64) (*crowd, error) {
	t.Helper()
	c, err := newCrowd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Errorf("close: got %v, want nil", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.attach(ctx, addr, d, viewers); err != nil {
		t.Fatal(err)
	}
	return c, c.await(ctx, target)
}

func TestCrowdReadsEveryMessageOfEveryViewer(t *testing.T) {
	for name, d := range map[string]dialect{
		"raw":  rawDialect,
		"ws":   plainDialect,
		"ours": {path: "/", opcode: opText, opening: "hello", answer: `"hello_ok"`},
	} {
		t.Run(name, func(t *testing.T) {
			addr := listen(t, d, func(c net.Conn, _ string) {
				if d.opening != "" {
					hello := make([]byte, len(appendMasked(nil, opText, []byte(d.opening))))
					if _, err := io.ReadFull(c, hello); err != nil {
						return
					}
					send(c, frame(opText, `{"type":"hello_ok"}`), frame(opText, message(0)))
				} else {
					send(c, frame(opText, message(0)))
				}
				send(c, frame(opText, message(1)+message(2)))
				io.Copy(io.Discard, c) // until the viewer leaves
			})
			c, err := watch(t, addr, d, 70, 3)
			if err != nil {
				t.Fatal(err)
			}
			if c.deliveries != 210 {
				t.Errorf("deliveries to 70 viewers: got %d, want 210", c.deliveries)
			}
		})
	}
}

func TestCrowdFailsWhenOneViewerIsFailed(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"lost", "out of order"},
		{"closed", "closed after message 1"},
		{"close frame", "4429 slow"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr := listen(t, rawDialect, func(c net.Conn, _ string) {
				send(c, frame(opText, message(0)))
				switch tt.name {
				case "lost":
					send(c, frame(opText, message(2)))
				case "close frame":
					send(c, frame(opClose, "\x11\x4dslow"))
				case "closed":
					return
				}
				io.Copy(io.Discard, c)
			})
			_, err := watch(t, addr, rawDialect, 2, 3)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("await: got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestCrowdAnswersPings(t *testing.T) {
	answered := make(chan string, 1)
	addr := listen(t, rawDialect, func(c net.Conn, _ string) {
		send(c, frame(opPing, "tick"))
		pong := make([]byte, 10)
		if _, err := io.ReadFull(c, pong); err == nil {
			answered <- string(pong)
		}
		send(c, frame(opText, message(0)))
		io.Copy(io.Discard, c)
	})
	if _, err := watch(t, addr, rawDialect, 1, 1); err != nil {
		t.Fatal(err)
	}
	if got, want := <-answered, string(appendMasked(nil, opPong, []byte("tick"))); got != want {
		t.Errorf("answer to a ping: got %q, want %q", got, want)
	}
}

func TestRefusedUpgradeIsReported(t *testing.T) {
	addr := listen(t, rawDialect, func(c net.Conn, _ string) {
		send(c, []byte("HTTP/1.1 429 Too Many Requests\r\n\r\n"))
	})
	_, _, err := dial(addr, plainDialect)
	if err == nil || !strings.Contains(err.Error(), "429 Too Many") {
		t.Errorf("dial: got %v, want an error with the status line", err)
	}
}
