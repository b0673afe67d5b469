package client

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestFramesThatBreakTheProtocolEndTheClient(t *testing.T) {
	for _, frame := range []string{
		`no JSON`,
		`{"type":"message","cursor":3,"message":{"type":"status"}}`,
		`{"type":"snapshot","snapshot":{"cursor":"three"}}`,
		`{"type":"reset","reason":"replay_gap","snapshot":{}}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			_, c, p := driving(t)
			if err := p.conn.Write(t.Context(), websocket.MessageText, []byte(frame)); err != nil {
				t.Fatal(err)
			}
			u, err := c.Next(t.Context())
			if e, ok := errors.AsType[*CloseError](err); !ok || e.Code != 1002 || !strings.Contains(e.Error(), "frame from the server: ") {
				t.Errorf("%s: got a %s update and %v, want 1002", frame, u.Kind, err)
			}
		})
	}
}

func TestUnknownFrameIsSkippedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		_, c, p := driving(t, WithToken("secret"), WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		if err := p.conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"ws.hologram"}`)); err != nil {
			t.Fatal(err)
		}
		p.send(status(3, "three"))
		wantStatus(t, c, 3, "three")
		_ = p.conn.CloseNow()
		wantKind(t, c, KindDisconnected)
		synctest.Wait()
		if got := log.String(); !strings.Contains(got, "unknown frame skipped") || !strings.Contains(got, "connection lost") || strings.Contains(got, "secret") {
			t.Errorf("got the log %s, want the frame and the lost connection without the token", got)
		}
	})
}

func TestBinaryFrameEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, p := driving(t)
		if err := p.conn.Write(t.Context(), websocket.MessageBinary, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		if u := wantKind(t, c, KindDisconnected); !strings.Contains(u.Err.Error(), "text only") {
			t.Errorf("got %v, want that the frame is not text", u.Err)
		}
	})
}

func TestHandshakeTakesNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		failed := s.dialing()
		p := s.next()
		expect[*contracts.Message](p)
		p.send(&contracts.HeartbeatEnvelope{Cursor: 1})
		err := <-failed
		if e, ok := errors.AsType[*CloseError](err); !ok || e.Code != 1002 || !strings.Contains(err.Error(), "before ws.attached") {
			t.Errorf("got %v, want 1002 for a frame before ws.attached", err)
		}
		if _, _, err := p.conn.Read(t.Context()); err == nil {
			t.Error("the client holds a connection that it does not use")
		}
	})
}

func TestBadAddressesAreRefused(t *testing.T) {
	for _, base := range []string{"ftp://h", "http://", "http://h/\x00"} {
		if _, err := Dial(t.Context(), base); err == nil {
			t.Errorf("Dial %q: got no error, want one", base)
		}
	}
}

func TestHelloThatCannotBeSentIsRefused(t *testing.T) {
	s := newFakeServer(t)
	if _, err := Dial(t.Context(), "ws://fake", WithDialer(s.dial), WithRole("captain")); err == nil || !strings.Contains(err.Error(), "encode hello") {
		t.Errorf("got %v, want that the hello cannot be encoded", err)
	}
}

func TestTicketIsSentOnceAndNeverShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		done := make(chan *Client)
		go func() {
			c, err := Dial(t.Context(), "ws://fake/?ticket=abc", WithDialer(s.dial))
			if err != nil {
				t.Error(err)
			}
			done <- c
		}()
		p := s.next()
		if got := p.query.Get("ticket"); got != "abc" {
			t.Errorf("got ticket %q, want abc", got)
		}
		followed()(p)
		defer (<-done).Close(false)
		s.setDown(true)
		if _, err := Dial(t.Context(), "ws://fake/?ticket=abc", WithDialer(s.dial)); err == nil || strings.Contains(err.Error(), "abc") {
			t.Errorf("got %v, want an error without the ticket", err)
		}
	})
}

func TestTicketStartsWithASnapshotEvenWithATail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		done := make(chan *Client)
		go func() {
			c, err := Dial(t.Context(), "http://fake/?ticket=abc", WithDialer(s.dial), WithTail(1))
			if err != nil {
				t.Error(err)
			}
			done <- c
		}()
		p := s.next()
		followed()(p)
		c := <-done
		defer c.Close(false)
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		_ = p.conn.CloseNow()
		wantKind(t, c, KindDisconnected)
		if p = s.next(); p.query.Has("ticket") {
			t.Error("the ticket is sent again, although it is valid once")
		}
	})
}

func TestCallThatWaitsForItsTurnEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newCalls()
		for range contracts.MaxUnanswered {
			table.slots <- struct{}{}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := table.do(ctx, &call{repeat: true}); !errors.Is(err, context.DeadlineExceeded) || len(table.open) != 0 {
			t.Errorf("got %v and %d open, want deadline exceeded and none", err, len(table.open))
		}
	})
}

func TestWaitsForTheQueueEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.pop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("pop: got %v, want deadline exceeded", err)
		}
		for want, err := range []error{nil, context.DeadlineExceeded} {
			if got := q.push(ctx, Update{}, 10); !errors.Is(got, err) {
				t.Errorf("push %d: got %v, want %v", want, got, err)
			}
		}
		q.close(ErrClosed, true)
		if err := q.push(t.Context(), Update{}, 10); err != nil {
			t.Errorf("push after the end: got %v, want the update dropped", err)
		}
		if _, err := q.pop(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want %v", err, ErrClosed)
		}
	})
}

func TestServerThatDoesNotReadEndsTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := driving(t)
		done := background(func() (contracts.Result, error) { return c.TakeControl(t.Context()) })
		began := time.Now()
		u := wantKind(t, c, KindDisconnected)
		if waited := time.Since(began); waited > contracts.DefaultWriteTimeout || errors.Is(u.Err, context.Canceled) {
			t.Errorf("left after %v because of %v, want %v", waited, u.Err, contracts.DefaultWriteTimeout)
		}
		if got := <-done; !errors.Is(got.err, ErrAnswerLost) {
			t.Errorf("got %v, want %v", got.err, ErrAnswerLost)
		}
	})
}
