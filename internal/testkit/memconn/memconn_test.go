package memconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// next returns the peer's next frame, which must be under way.
func next(t *testing.T, p *Peer) string {
	t.Helper()
	text, err := p.Next(t.Context())
	if err != nil {
		t.Fatalf("next: %v", err)
	}
	return text
}

func TestBothDirectionsKeepOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := New(Options{Buffer: 64}) // far less than what is sent
		const count = 200
		go func() {
			for i := range count {
				if err := p.Send(fmt.Sprint("up ", i)); err != nil {
					t.Error(err)
				}
			}
		}()
		go func() {
			for i := range count {
				if err := c.Write(c.Form().AppendControl(nil, fmt.Appendf(nil, "down %d", i))); err != nil {
					t.Error(err)
				}
			}
		}()
		for i := range count {
			up, err := c.ReadFrame()
			if want := fmt.Sprint("up ", i); err != nil || string(up) != want {
				t.Fatalf("read: got %q, %v, want %q", up, err, want)
			}
			if got, want := next(t, p), fmt.Sprint("down ", i); got != want {
				t.Fatalf("next: got %q, want %q", got, want)
			}
		}
	})
}

func TestFormsWriteLines(t *testing.T) {
	body := []byte(`{"type":"ready"}`)
	build := func(f contracts.Form) string {
		b := f.AppendOpening(nil)
		b = f.AppendMessage(b, 7, body)
		b = f.AppendSnapshot(b, 7, []byte(`{}`))
		b = f.AppendReset(b, 7, contracts.ResetGap, []byte(`{}`))
		b = f.AppendHeartbeat(b, 8, false)
		b = f.AppendHeartbeat(b, 9, true)
		return string(f.AppendControl(b, []byte(`{"type":"ws.pong"}`)))
	}
	for _, tt := range []struct {
		form contracts.Form
		want string
	}{
		{Lines, `{"type":"message","cursor":7,"message":{"type":"ready"}}
{"type":"snapshot","snapshot":{}}
{"type":"reset","reason":"replay_gap","snapshot":{}}

{"type":"heartbeat","cursor":8}

{"type":"ws.pong"}
`},
		{Events, `open
{"type":"message","cursor":7,"message":{"type":"ready"}}
{"type":"snapshot","snapshot":{}}
{"type":"reset","reason":"replay_gap","snapshot":{}}
{"type":"heartbeat","cursor":8}
comment
`},
		{Bare, `{"type":"ready"}
{"type":"ws.pong"}
`},
	} {
		if got := build(tt.form); got != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.form, got, tt.want)
		}
	}
}

func TestFrozenPeerBreaksTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := New(Options{})
		p.Freeze()
		start := time.Now()
		err := c.Write([]byte("x\n"))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != contracts.DefaultWriteTimeout {
			t.Fatalf("write: got %v after %v, want a timeout after %v", err, time.Since(start), contracts.DefaultWriteTimeout)
		}
		if _, err := c.ReadFrame(); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("read: got %v, want %v", err, net.ErrClosed)
		}
		if err := p.Send("x"); !errors.Is(err, io.ErrClosedPipe) {
			t.Fatalf("send: got %v, want %v", err, io.ErrClosedPipe)
		}
	})
}

func TestThawedPeerGetsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := New(Options{})
		p.Freeze()
		go func() {
			time.Sleep(9 * time.Second)
			p.Thaw()
		}()
		if err := c.Write([]byte("a\nb\n")); err != nil {
			t.Fatal(err)
		}
		if a, b := next(t, p), next(t, p); a != "a" || b != "b" {
			t.Fatalf("got %q and %q, want a and b", a, b)
		}
	})
}

func TestBareWritesWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := New(Options{Bare: true, Buffer: 4})
		go func() {
			time.Sleep(24 * time.Hour)
			if got := next(t, p); got != "longer than four" {
				t.Errorf("got %q", got)
			}
		}()
		if err := c.Write([]byte("longer than four\n")); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCloseUnblocksTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := New(Options{Buffer: 8})
		p.Freeze()
		ended := make(chan error, 2)
		go func() { ended <- c.Write([]byte(strings.Repeat("x", 100) + "\n")) }()
		go func() { _, err := c.ReadFrame(); ended <- err }()
		synctest.Wait()
		start, why := time.Now(), &contracts.Error{Code: contracts.CodeSuperseded}
		c.Close(why)
		c.Close(nil) // only the first call counts
		for range 2 {
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v, want %v", err, net.ErrClosed)
			}
		}
		if got, ok := p.Closed(); !ok || got != why || time.Since(start) != 0 {
			t.Errorf("got %v, %v after %v, want %v at once", got, ok, time.Since(start), why)
		}
	})
}

func TestWhatWasSentIsDeliveredBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := New(Options{})
		if err := errors.Join(c.Write([]byte("last\n")), p.Send("last")); err != nil {
			t.Fatal(err)
		}
		p.Close()
		if text, err := c.ReadFrame(); string(text) != "last" || err != nil {
			t.Fatalf("read: got %q, %v", text, err)
		}
		if _, err := c.ReadFrame(); err != io.EOF {
			t.Fatalf("read: got %v, want %v", err, io.EOF)
		}
		if got := next(t, p); got != "last" {
			t.Fatalf("next: got %q", got)
		}
		if _, err := p.Next(t.Context()); err != io.EOF {
			t.Fatalf("next: got %v, want %v", err, io.EOF)
		}
	})
}

func TestPingsKeepAPeerAliveUnlessMuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := New(Options{})
		ping := func() time.Duration {
			time.Sleep(time.Minute)
			if err := c.Write(c.Form().AppendHeartbeat(nil, 1, true)); err != nil {
				t.Fatal(err)
			}
			return time.Since(c.LastSeen())
		}
		if got := ping(); got != 0 {
			t.Errorf("seen %v ago, want now", got)
		}
		p.Mute()
		if got := ping(); got != time.Minute {
			t.Errorf("muted: seen %v ago, want a minute", got)
		}
		if err := p.Send("alive"); err != nil || time.Since(c.LastSeen()) != 0 {
			t.Errorf("sending: %v, seen %v ago, want now", err, time.Since(c.LastSeen()))
		}
	})
}

func TestBadFrameIsReportedOnce(t *testing.T) {
	c, p := New(Options{})
	want := &contracts.Error{Code: contracts.CodeBadRequest}
	if err := errors.Join(p.SendBad(want), p.Send("good")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadFrame(); !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	if text, err := c.ReadFrame(); string(text) != "good" || err != nil {
		t.Fatalf("got %q, %v, want good", text, err)
	}
}

func TestNextObeysItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := New(Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestStreamCarriesNothingToTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := New(Options{Stream: true})
		if form := c.Form(); form != Events {
			t.Errorf("form: got %s, want %s", form, Events)
		}
		if err := p.Send("x"); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("send: got %v, want %v", err, io.ErrClosedPipe)
		}
		if seen := c.LastSeen(); !seen.IsZero() {
			t.Errorf("last seen: got %v, want never", seen)
		}
		if err := c.Write([]byte("down\n")); err != nil || next(t, p) != "down" {
			t.Errorf("write: got %v, want it to arrive", err)
		}
		go func() {
			time.Sleep(time.Hour)
			p.Close()
		}()
		if _, err := c.ReadFrame(); err != io.EOF {
			t.Errorf("read: got %v, want %v once the peer has left", err, io.EOF)
		}
	})
}
