package main

import (
	"context"
	"fmt"
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
				switch {
				case d.events:
					request = accept(c, eventHeader)
				case d.path != "":
					request = accept(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
				}
				serve(c, request)
			}()
		}
	}()
	return ln.Addr().String()
}

const eventHeader = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// accept reads a request and answers it with a header.
func accept(c net.Conn, header string) (request string) {
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		return ""
	}
	if _, err := io.WriteString(c, header); err != nil {
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

func TestCrowdReadsEventsHoweverTheyAreChunked(t *testing.T) {
	d := streamDialect("s")
	first := event(`{"type":"snapshot","snapshot":{"cursor":0}}`)
	live := event(message(0)) + event(message(1)) + event(message(2))
	for name, parts := range map[string][][]byte{
		"an event in each":       {chunked(first), chunked(event(message(0))), chunked(event(message(1))), chunked(event(message(2)))},
		"all in one":             {chunked(first + live)},
		"the answer cut":         {chunked(first[:20]), chunked(first[20:]), chunked(live)},
		"an event cut":           {chunked(first), chunked(live[:50]), chunked(live[50:300]), chunked(live[300:])},
		"sizes with many digits": {[]byte(fmt.Sprintf("%010X;name=value\r\n%s\r\n", len(first+live), first+live))},
	} {
		t.Run(name, func(t *testing.T) {
			requests := make(chan string, 70)
			addr := listen(t, d, func(c net.Conn, request string) {
				requests <- request
				for _, part := range parts {
					send(c, part)
				}
				io.Copy(io.Discard, c) // until the viewer leaves
			})
			c, err := watch(t, addr, d, 70, 3)
			if err != nil {
				t.Fatal(err)
			}
			if c.deliveries != 210 {
				t.Errorf("deliveries to 70 viewers: got %d, want 210", c.deliveries)
			}
			if got, want := <-requests, "GET /api/headless/sessions/s/events HTTP/1.1\r\n"; !strings.HasPrefix(got, want) {
				t.Errorf("request: got %q, want %q first", got, want)
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

func TestEventsThatAreNoneAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, answer, want string }{
		{"refused", "HTTP/1.1 429 Too Many Requests\r\n\r\n", "429 Too Many"},
		{"a page", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n", `not events but "text/html"`},
		{"not chunked", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", "not chunked"},
		{"no state", eventHeader + string(chunked(event("{}"))), "connection closed after"},
		{"ended", eventHeader + "0\r\n\r\n", "server ended the stream"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr := listen(t, rawDialect, func(c net.Conn, _ string) { accept(c, tt.answer) })
			_, _, err := dial(addr, streamDialect("s"))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("dial: got %v, want an error with %q", err, tt.want)
			}
		})
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
