package main

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/bench/control"
	"github.com/seed-028515a8/maestro/contracts"
)

// serve lets viewers in for the length of a test, and forgets at once those that
// left.
func serve(t *testing.T) *control.Server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	s, err := open(ln, time.Second, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// follow attaches a viewer over HTTP and returns the lines that it is sent.
func follow(t *testing.T, ctx context.Context, addr string) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+addr+"/api/headless/sessions/bench/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("events: got %s, want 200", answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return lines
}

// attachSocket attaches a viewer over WebSocket.
func attachSocket(t *testing.T, ctx context.Context, addr string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.Dial(ctx, "ws://"+addr+"/api/headless/ws?role=viewer&sessionId=bench", &websocket.DialOptions{
		Subprotocols: []string{contracts.Subprotocol},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	c.SetReadLimit(1 << 20)
	hello := `{"type":"hello","protocol_version":"` + contracts.ProtocolVersion + `","role":"viewer"}`
	if err := c.Write(ctx, websocket.MessageText, []byte(hello)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestViewersOfBothTransportsGetEveryMessage(t *testing.T) {
	s := serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lines, c := follow(t, ctx, s.Addr), attachSocket(t, ctx, s.Addr)
	for !strings.Contains(frame(t, ctx, c), "hello_ok") {
	}
	const messages = 20
	for n := range uint64(messages) {
		if err := s.Publish(control.Text(n, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	events, frames := uint64(0), uint64(0)
	for events < messages && lines.Scan() {
		events = counted(t, "event", lines.Text(), events)
	}
	for frames < messages {
		frames = counted(t, "frame", frame(t, ctx, c), frames)
	}
	if events != messages {
		t.Errorf("events before the end of the stream: got %d, want %d (%v)", events, messages, lines.Err())
	}
}

func TestViewersThatLeftAreForgotten(t *testing.T) {
	s := serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	streaming, leave := context.WithCancel(ctx)
	follow(t, streaming, s.Addr)
	c := attachSocket(t, ctx, s.Addr)
	for !strings.Contains(frame(t, ctx, c), "hello_ok") {
	}
	if got := s.Viewers(); got != 2 {
		t.Errorf("viewers: got %d, want 2", got)
	}
	leave()
	c.CloseNow()
	for s.Viewers() > 0 {
		select {
		case <-ctx.Done():
			t.Fatalf("viewers after they have left: got %d, want 0", s.Viewers())
		case <-time.After(time.Millisecond):
		}
	}
}

// frame returns the next frame.
func frame(t *testing.T, ctx context.Context, c *websocket.Conn) string {
	t.Helper()
	_, text, err := c.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// counted returns the number of the message after the one in text, if there is
// one, which must be next.
func counted(t *testing.T, what, text string, next uint64) uint64 {
	t.Helper()
	i := strings.IndexByte(text, control.Mark)
	if i < 0 {
		return next
	}
	if n, _, ok := control.ParseMark([]byte(text[i:])); !ok || n != next {
		t.Fatalf("%s %.300q: got number %d, %v; want %d, true", what, text, n, ok, next)
	}
	return next + 1
}
