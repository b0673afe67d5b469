package foreign_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/dialect"
	"github.com/seed-028515a8/maestro/internal/transport/foreign"
	"github.com/seed-028515a8/maestro/internal/transport/stdio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A parrot is a translator: it sends each line of the client to the session as a
// prompt, and tells the client what it is called with. Some lines are orders.
type parrot struct {
	floods bool // each second, with a long line
	stays  bool // after the end of the input
}

func say(out *dialect.Out, format string, args ...any) { out.Reply(fmt.Sprintf(format, args...)) }

func (*parrot) Begin(out *dialect.Out)    { out.Open(dialect.Start{SessionID: "first"}) }
func (*parrot) LongLine(out *dialect.Out) { say(out, "long line") }

func (p *parrot) EOF(out *dialect.Out) {
	if !p.stays {
		out.End(7)
	}
}

func (*parrot) Detached(out *dialect.Out, e error) { say(out, "detached: %v", e) }

func (p *parrot) Wake(out *dialect.Out) {
	if !p.floods {
		say(out, "awake")
		return
	}
	say(out, "%s", strings.Repeat("x", 1<<20))
	out.WakeAt(out.Now.Add(time.Second))
}

func (p *parrot) Line(out *dialect.Out, text []byte) {
	switch order, rest, _ := strings.Cut(string(text), " "); order {
	case "open":
		out.Open(dialect.Start{SessionID: rest})
	case "sleep":
		out.WakeAt(out.Now.Add(time.Hour))
	case "flood":
		p.floods = true
		p.Wake(out)
	case "stay":
		p.stays = true
	case "panic":
		panic(rest)
	default:
		if err := out.Do("id", &contracts.Prompt{Content: string(text)}); err != nil {
			say(out, "not sent: %v", err)
		}
	}
}

func (*parrot) Frame(out *dialect.Out, f contracts.Frame, ev contracts.Event) {
	if ev != nil {
		say(out, "event %s", ev.EventType())
		return
	}
	say(out, "frame %s", f.FrameType())
}

// A stage is one client, the sessions that it opens, and the end of its connection.
type stage struct {
	in      io.WriteCloser
	out     *bufio.Reader
	hangUp  io.Closer
	ports   chan *foreign.Port // opened, in order
	release chan error         // what a session's serve returns
	code    int
	err     error
	ended   chan struct{}
	closed  *closeReason
}

// A closeReason keeps the reason of the first Close.
type closeReason struct {
	*stdio.Conn
	once   sync.Once
	reason *contracts.Error
}

func (c *closeReason) Close(why *contracts.Error) {
	c.once.Do(func() { c.reason = why })
	c.Conn.Close(why)
}

func play(t *testing.T, ctx context.Context) *stage {
	in, clientOut := io.Pipe()
	clientIn, out := io.Pipe()
	s := &stage{in: clientOut, out: bufio.NewReader(clientIn), hangUp: clientIn, ports: make(chan *foreign.Port, 8), release: make(chan error), ended: make(chan struct{})}
	s.closed = &closeReason{Conn: stdio.NewText(in, out, 100)}
	go func() { // ends with the connection
		defer close(s.ended)
		s.code, s.err = foreign.Serve(ctx, s.closed, foreign.Options{
			Translator: &parrot{}, Handshake: 10 * time.Second,
			Open: func(_ context.Context, start dialect.Start) (foreign.Attach, error) {
				if start.SessionID == "missing" {
					return nil, errors.New("no such session")
				}
				return func(_ context.Context, port *foreign.Port) error {
					s.ports <- port
					for {
						frame, err := port.ReadFrame()
						if err != nil || string(frame) == `{"type":"ws.bye"}` {
							return err
						}
						if strings.Contains(string(frame), "leave") {
							return errors.New("the session has ended")
						}
						if strings.Contains(string(frame), "throw me out") {
							port.Close(&contracts.Error{Code: contracts.CodeSuperseded, Message: "a newer one came"})
							continue
						}
						if err := port.Write(port.Form().AppendMessage(nil, 1, []byte(`{"type":"response_start","response_id":"`+start.SessionID+`"}`))); err != nil {
							return err
						}
					}
				}, nil
			},
		})
	}()
	t.Cleanup(func() {
		_ = clientOut.Close()
		_ = clientIn.Close()
		<-s.ended
		_ = in.Close()
		_ = out.Close()
	})
	return s
}

func (s *stage) write(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		t.Fatalf("write %q: %v", line, err)
	}
}

func (s *stage) wants(t *testing.T, want string) {
	t.Helper()
	got, err := s.out.ReadString('\n')
	if got != want+"\n" {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

func TestLinesAndFramesAreTranslated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, t.Context())
		s.write(t, "hello")
		s.wants(t, `"event response_start"`)
		s.write(t, strings.Repeat("x", 101))
		s.wants(t, `"long line"`)
		port := <-s.ports
		if err := port.Write([]byte("no frame\n")); err == nil {
			t.Error("a frame that no session sends: got no error")
		}
	})
}

func TestClientLeavesASessionBeforeItGetsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, t.Context())
		first := <-s.ports
		s.write(t, "open missing")
		s.wants(t, `"detached: no such session"`)
		if err := first.Write(first.Form().AppendControl(nil, []byte(`{"type":"ws.pong","id":null,"lease_expires_at":null}`))); err == nil {
			t.Error("write to a port that was left: got no error")
		}
		s.write(t, "open second")
		<-s.ports
		s.write(t, "hello")
		s.wants(t, `"event response_start"`)
		s.write(t, "leave")
		s.wants(t, `"detached: the session has ended"`)
		s.write(t, "open third")
		s.write(t, "throw me out")
		s.wants(t, `"detached: a newer one came"`)
		if err := s.in.Close(); err != nil {
			t.Fatal(err)
		}
		if <-s.ended; s.closed.reason == nil || s.closed.reason.Code != contracts.CodeSuperseded {
			t.Errorf("got the connection closed with %v, want the reason of the session", s.closed.reason)
		}
	})
}

func TestTranslatorIsWokenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, t.Context())
		began := time.Now()
		s.write(t, "sleep")
		s.wants(t, `"awake"`)
		if got := time.Since(began); got != time.Hour {
			t.Errorf("got %v, want %v", got, time.Hour)
		}
	})
}

// The session waits for a client that does not read, and lines of the client are read
// until it owes too much.
func TestUnreadLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, t.Context())
		port := <-s.ports
		written := make(chan int)
		go func() { // ends when the port is closed
			event := port.Form().AppendMessage(nil, 1, []byte(`{"type":"response_start","response_id":"r"}`))
			n := 0
			for port.Write(event) == nil {
				n++
			}
			written <- n
		}()
		synctest.Wait()
		if err := s.hangUp.Close(); err != nil {
			t.Fatal(err)
		}
		const each, most = len(`"event response_start"` + "\n"), 256 << 10
		if n := <-written; n < most/each || n > 2*most/each {
			t.Errorf("got %d events of %d bytes accepted, want about %d bytes", n, each, most)
		}
		<-s.ended
	})
}

// What a translator says by itself has a bound too.
func TestFloodOfATranslatorEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, t.Context())
		s.write(t, "flood")
		time.Sleep(time.Minute)
		select {
		case <-s.ended:
		default:
			t.Fatal("got no end of the connection of a client that does not read")
		}
		if s.err == nil || s.err.Error() != "the client does not read" {
			t.Errorf("got %v, want that the client does not read", s.err)
		}
	})
}

// A client that sends no more has a minute to read.
func TestClientThatOnlyKeepsItsEndOpenIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, t.Context())
		for _, line := range []string{"stay", "first", "second"} {
			s.write(t, line)
		}
		time.Sleep(time.Hour) // it may send more
		if err := s.in.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			time.Sleep(59 * time.Second)
			s.wants(t, `"event response_start"`)
		}
		time.Sleep(time.Hour) // there is nothing to read
		port := <-s.ports
		if err := port.Write(port.Form().AppendMessage(nil, 1, []byte(`{"type":"response_start","response_id":"r"}`))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(61 * time.Second)
		<-s.ended
		if s.code != 1 || s.err == nil || s.err.Error() != "the client does not read" {
			t.Errorf("got %d and %v, want that the client does not read", s.code, s.err)
		}
	})
}

func TestClientWithoutASessionIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, t.Context())
		time.Sleep(time.Minute) // it has a session
		s.write(t, "open missing")
		s.wants(t, `"detached: no such session"`)
		time.Sleep(9 * time.Second)
		s.write(t, "open second")
		time.Sleep(time.Minute)
		s.write(t, "open missing")
		s.wants(t, `"detached: no such session"`)
		time.Sleep(11 * time.Second)
		<-s.ended
		if s.err == nil || s.err.Error() != "the client has asked for no session" {
			t.Errorf("got %v, want that it has asked for no session", s.err)
		}
	})
}

func TestConnectionEnds(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(*stage, context.CancelFunc) error
		code int
		err  string
	}{
		"by the translator": {func(s *stage, _ context.CancelFunc) error { return s.in.Close() }, 7, "<nil>"},
		"by the caller":     {func(_ *stage, cancel context.CancelFunc) error { cancel(); return nil }, 1, "context canceled"},
		"by a panic":        {func(s *stage, _ context.CancelFunc) error { _, err := io.WriteString(s.in, "panic oops\n"); return err }, 1, "translator panicked: oops"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := play(t, ctx)
				port := <-s.ports
				if err := test.do(s, cancel); err != nil {
					t.Fatal(err)
				}
				<-s.ended
				got, _, _ := strings.Cut(fmt.Sprint(s.err), "\n")
				if s.code != test.code || got != test.err {
					t.Errorf("got code %d and %q, want %d and %q", s.code, got, test.code, test.err)
				}
				if _, err := port.ReadFrame(); err != io.EOF {
					t.Errorf("after the end: got %v, want %v", err, io.EOF)
				}
			})
		})
	}
}
