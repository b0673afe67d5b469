package ws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestFramesPassInOrderAmongPings(t *testing.T) {
	s := newServer(t, false, Options{})
	p := s.client()
	c := receive(t, s.conns)
	const count = 2000
	message := func(i int) string {
		limit := 300
		if i%50 == 49 {
			limit = 70000 // longer than any buffer on the way
		}
		return fmt.Sprintf("%08d:", i) + strings.Repeat("x", i*7919%limit)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	half := make(chan struct{}) // closed when half of the messages have come
	wg.Go(func() {              // pings of the peer, answered beside the data
		for {
			select {
			case <-half:
				return
			default:
			}
			if p.Ping(ctx) != nil {
				return
			}
		}
	})
	wg.Go(func() {
		for i := 0; i < count; {
			var batch []byte
			for n := 1 + i%40; n > 0 && i < count; n, i = n-1, i+1 {
				batch = Form{}.AppendControl(batch, []byte(message(i)))
			}
			if err := c.Write(Form{}.AppendHeartbeat(batch, 1, true)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	said := make(chan error, 1)
	wg.Go(func() { // data of the peer
		var err error
		for i := 0; i < 200 && err == nil; i++ {
			err = p.Write(ctx, websocket.MessageText, []byte(message(i)))
		}
		said <- err
	})
	for i := range count {
		_, b, err := p.Read(ctx)
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if string(b) != message(i) {
			t.Fatalf("message %d: got %d bytes, want %d", i, len(b), len(message(i)))
		}
		if i == count/2 {
			close(half)
		}
	}
	if err := receive(t, said); err != nil {
		t.Fatal(err)
	}
	c.Close(nil) // a peer that is slower than a second loses what it has not read by then
	if _, _, err := p.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Fatalf("got %v, want a normal close", err)
	}
}

func TestEveryCodeHasItsCloseCode(t *testing.T) {
	s := newServer(t, false, Options{})
	for _, code := range []contracts.Code{
		contracts.CodeBadRequest, contracts.CodeUnauthenticated, contracts.CodeAccessDenied, contracts.CodeStaleSession,
		contracts.CodeTimeout, contracts.CodeControllerLeaseHeld, contracts.CodeSuperseded, contracts.CodeRuntimeOwnedElsewhere,
		contracts.CodeUpgradeRequired, contracts.CodeSlowConsumer, contracts.CodeRuntimeNotReady, contracts.CodeGoingAway,
		contracts.CodeOverloaded, contracts.CodeInternal,
	} {
		p := s.raw()
		c := receive(t, s.conns)
		if err := c.Write(text("last words")); err != nil {
			t.Fatal(err)
		}
		c.Close(&contracts.Error{Code: code})
		c.Close(nil) // only the first counts
		if got, want := p.closed(), fmt.Sprintf("%d %s", code.CloseCode(), code); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNothingFollowsTheCloseFrame(t *testing.T) {
	s := newServer(t, false, Options{})
	for range 50 {
		p := s.raw()
		c := receive(t, s.conns)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for c.Write(text("data")) == nil {
				}
			})
		}
		wg.Go(func() { p.trySend(bytes.Repeat(mask(finPing, "ping"), 20)) })
		c.Close(nil)
		if got, want := p.closed(), "1000 "; got != want { // fails if anything follows
			t.Errorf("got %q, want %q", got, want)
		}
		wg.Wait()
		if err := c.Write(text("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after close: got %v, want %v", err, net.ErrClosed)
		}
	}
}

func TestPeerThatClosesGetsAnAnswer(t *testing.T) {
	s := newServer(t, false, Options{})
	for name, tt := range map[string]struct {
		payload string
		answer  string
		quiet   bool // ReadFrame says io.EOF
	}{
		"normal":     {"\x03\xe8bye", "1000 bye", true},
		"going away": {"\x03\xe9", "1001 ", true},
		"no code":    {"", "empty", true},
		"own code":   {"\x0f\xa0", "4000 ", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.raw()
			receive(t, s.conns)
			p.send(mask(finClose, tt.payload))
			if got := p.closed(); got != tt.answer {
				t.Errorf("got %q, want %q", got, tt.answer)
			}
			if got := receive(t, s.read); (got.err == io.EOF) != tt.quiet || got.err == nil {
				t.Errorf("got %v, want io.EOF: %v", got.err, tt.quiet)
			}
		})
	}
}

func TestBlockedWriteFailsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, true, Options{})
		s.raw() // reads nothing
		c := <-s.conns
		start := time.Now()
		err := c.Write(text("x"))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != contracts.DefaultWriteTimeout {
			t.Errorf("got %v after %v, want a timeout after %v", err, time.Since(start), contracts.DefaultWriteTimeout)
		}
		if got := <-s.read; got.err == nil {
			t.Errorf("read: got %q, want an error", got.text)
		}
		if err := c.Write(text("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after half a frame: got %v, want %v", err, net.ErrClosed)
		}
	})
}

// A peer that takes a large snapshot slowly is not one that takes nothing.
func TestLargeFrameMayTakeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, true, Options{})
		p := s.raw()
		c := <-s.conns
		frame := text(strings.Repeat("x", 4*contracts.WritePart))
		written := make(chan error, 1)
		go func() { written <- c.Write(frame) }()
		part := make([]byte, contracts.WritePart/2)
		for left := len(frame); left > 0; left -= len(part) {
			time.Sleep(4 * time.Second)
			if _, err := io.ReadFull(p.r, part[:min(left, len(part))]); err != nil {
				t.Fatalf("with %d bytes left: %v", left, err)
			}
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}

func TestCloseUnblocksReadAndWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, true, Options{})
		s.raw()
		c := <-s.conns
		written := make(chan error, 1)
		go func() { written <- c.Write(text("x")) }()
		time.Sleep(time.Second)
		start := time.Now()
		c.Close(&contracts.Error{Code: contracts.CodeSuperseded})
		if took := time.Since(start); took != 0 {
			t.Errorf("close took %v, want no time", took)
		}
		if err := <-written; err == nil || time.Since(start) > closeTimeout {
			t.Errorf("write: got %v after %v, want an error within %v", err, time.Since(start), closeTimeout)
		}
		if got := <-s.read; got.err == nil || time.Since(start) > closeTimeout {
			t.Errorf("read: got %v after %v, want an error within %v", got.err, time.Since(start), closeTimeout)
		}
	})
}

func TestCloseWaitsASecondForThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, true, Options{})
		p := s.raw()
		c := <-s.conns
		start := time.Now()
		c.Close(nil)
		if first, _, err := p.receive(); err != nil || first != finClose {
			t.Fatalf("got %#x, %v, want a close frame", first, err)
		}
		// What the peer still says is not delivered.
		p.send(mask(finText, "too late"))
		if _, err := p.r.ReadByte(); err != io.EOF || time.Since(start) != closeTimeout {
			t.Errorf("got %v after %v, want the end after %v", err, time.Since(start), closeTimeout)
		}
		if got := <-s.read; !errors.Is(got.err, net.ErrClosed) {
			t.Errorf("got %+v, want %v", got, net.ErrClosed)
		}
	})
}

func TestCloseEndsAtOnceWithAPeerThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, true, Options{})
		p := s.client()
		c := <-s.conns
		start := time.Now()
		c.Close(&contracts.Error{Code: contracts.CodeStaleSession})
		if _, _, err := p.Read(t.Context()); websocket.CloseStatus(err) != 4404 {
			t.Errorf("got %v, want 4404", err)
		}
		<-s.read
		synctest.Wait()
		if took := time.Since(start); took != 0 || s.connLimit.Counts().Conns != 0 {
			t.Errorf("got %d connections after %v, want none at once", s.connLimit.Counts().Conns, took)
		}
	})
}

func TestPingIsAnsweredOnceAWriteLetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, true, Options{})
		p := s.raw()
		c := <-s.conns
		written := make(chan error, 1)
		go func() { written <- c.Write(text("data")) }()
		synctest.Wait()
		time.Sleep(6 * time.Second)
		p.send(mask(finPing, "1"))
		p.send(mask(finPing, "2")) // the answer to the latest is enough
		synctest.Wait()
		if got := time.Since(c.LastSeen()); got != 0 {
			t.Errorf("seen %v ago although a write is blocked, want now", got)
		}
		for _, want := range []struct {
			first   byte
			payload string
		}{{finText, "data"}, {finPong, "2"}} {
			first, payload, err := p.receive()
			if err != nil || first != want.first || string(payload) != want.payload {
				t.Errorf("got %#x %s, %v, want %#x %s", first, payload, err, want.first, want.payload)
			}
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}

func TestPongsAreSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, true, Options{})
		p := s.client()
		go func() { // answers pings
			for {
				if _, _, err := p.Read(t.Context()); err != nil {
					return
				}
			}
		}()
		c := <-s.conns
		time.Sleep(time.Minute)
		if got := time.Since(c.LastSeen()); got != time.Minute {
			t.Errorf("a silent peer: seen %v ago, want a minute", got)
		}
		if err := c.Write(Form{}.AppendHeartbeat(nil, 1, true)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := time.Since(c.LastSeen()); got != 0 {
			t.Errorf("after a ping: seen %v ago, want now", got)
		}
	})
}

func TestFrameSentWithTheHandshakeIsNotLost(t *testing.T) {
	for _, size := range []int{5, 300, 3000} { // within, and beyond, our buffer
		s := newServer(t, false, Options{})
		want := strings.Repeat("x", size)
		p := s.raw(mask(finText, want)...)
		p.send(mask(finText, "next"))
		for _, want := range []string{want, "next"} {
			if got := receive(t, s.read); got.text != want {
				t.Errorf("got %d bytes, %v, want %d", len(got.text), got.err, len(want))
			}
		}
	}
}

func TestParkedReaderHoldsNoBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, true, Options{})
		p := s.raw()
		c := <-s.conns
		p.send(mask(finText, strings.Repeat("x", 1<<20)))
		<-s.read
		p.send(mask(finText, "small"))
		<-s.read
		synctest.Wait() // the reader is parked again
		if c.frame != nil {
			t.Errorf("got a buffer of %d bytes, want none", cap(*c.frame))
		}
	})
}

// discard is a socket that takes everything.
type discard struct{ net.Conn }

func (discard) Write(p []byte) (int, error)      { return len(p), nil }
func (discard) SetWriteDeadline(time.Time) error { return nil }

func TestWriteDoesNotAllocate(t *testing.T) {
	c := &Conn{tap: newTap(time.Second, 1<<20)}
	c.tap.Conn = discard{}
	frames := text("hello")
	if got := testing.AllocsPerRun(100, func() {
		if err := c.Write(frames); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func BenchmarkWrite(b *testing.B) {
	c := &Conn{tap: newTap(time.Second, 1<<20)}
	c.tap.Conn = discard{}
	frames := text("hello")
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Write(frames); err != nil {
			b.Fatal(err)
		}
	}
}

var _ interface {
	Form() contracts.Form
	ReadFrame() ([]byte, error)
	Write([]byte) error
	LastSeen() time.Time
	Close(*contracts.Error)
} = (*Conn)(nil)

var _ Session = serveFunc(func(context.Context, *Conn) error { return nil })
