package sse

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestClientsOfEveryKindReadTheStream(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			const count = 500
			k.opts.session = &fakeSession{stream: func(_ context.Context, c *Conn) error {
				for i := 0; i < count; {
					var batch []byte
					for n := 1 + i%40; n > 0 && i < count; n, i = n-1, i+1 {
						batch = append(batch, message(uint64(i), fmt.Sprintf("%q", strings.Repeat("x", i*7919%3000)))...)
					}
					if err := c.Write(batch); err != nil {
						return err
					}
				}
				c.Close(nil)
				_, err := c.ReadFrame()
				return err
			}}
			res := newServer(t, k.opts).get(k)
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatalf("got %v after %d bytes, want the end of the stream", err, len(body))
			}
			events, err := parse(string(body))
			if err != nil || len(events) != count {
				t.Fatalf("got %d events, %v, want %d", len(events), err, count)
			}
			for i, e := range events {
				if want := fmt.Sprintf("%s.%d", epoch, i); e.id != want {
					t.Fatalf("got event %s, want %s", e.id, want)
				}
			}
			for name, want := range map[string]string{
				"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no",
				"X-Content-Type-Options": "nosniff", "X-Maestro-Headless-Epoch": epoch,
			} {
				if got := res.Header.Get(name); got != want {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
			if date, err := time.Parse(time.RFC1123, res.Header.Get("Date")); err != nil || time.Since(date) > time.Minute {
				t.Errorf("got date %v, %v, want now", date, err)
			}
		})
	}
}

// A countingListener counts what is written to its connections, in writes.
type countingListener struct {
	net.Listener
	writes *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countingConn{c, l.writes}, err
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func TestReplayOfManyEventsIsOneWrite(t *testing.T) {
	var writes atomic.Int64
	s := newServer(t, options{listen: func(ln net.Listener) net.Listener { return countingListener{ln, &writes} }})
	p := s.raw(request)
	c := receive(t, s.conns)
	if got := writes.Load(); got != 0 {
		t.Errorf("got %d writes before the first event, want none", got)
	}
	var batch []byte
	for i := range 3000 {
		batch = append(batch, message(uint64(i), `{"type":"ready"}`)...)
	}
	for i := range 2 {
		if err := c.Write(batch); err != nil {
			t.Fatal(err)
		}
		if got, want := writes.Load(), int64(i+1); got != want {
			t.Errorf("got %d writes, want %d", got, want)
		}
	}
	p.header()
	for range 2 {
		if got, err := p.chunk(); err != nil || got != string(batch) {
			t.Errorf("got a chunk of %d bytes, %v, want %d", len(got), err, len(batch))
		}
	}
}

func TestEachWriteIsAChunk(t *testing.T) {
	s := newServer(t, options{})
	p := s.raw(request)
	c := receive(t, s.conns)
	for _, size := range []int{1, 15, 16, 17, 4095, 4096, 70000, contracts.WritePart} {
		want := strings.Repeat("x", size)
		written := make(chan error, 1)
		go func() { written <- c.Write([]byte(want)) }()
		if size == 1 {
			status, h := p.header()
			if status != "HTTP/1.1 200 OK" || h.Get("Transfer-Encoding") != "chunked" || h.Get("Connection") != "keep-alive" || h.Get("Content-Length") != "" {
				t.Errorf("got %s, %v, want a chunked stream", status, h)
			}
		}
		if got, err := p.chunk(); err != nil || got != want {
			t.Fatalf("got a chunk of %d bytes, %v, want %d", len(got), err, size)
		}
		if err := receive(t, written); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(c.Write(nil), c.Write([]byte{})); err != nil {
		t.Errorf("nothing: got %v, want no error and no chunk, which would end the stream", err)
	}
	if err := c.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	if got, err := p.chunk(); got != "more" {
		t.Errorf("got %q, %v, want more", got, err)
	}
}

func TestOldClientsGetNoChunks(t *testing.T) {
	s := newServer(t, options{})
	p := s.raw("GET /events HTTP/1.0\r\n\r\n")
	c := receive(t, s.conns)
	want := string(message(1, "{}")) + string(message(2, "{}"))
	if err := errors.Join(c.Write(message(1, "{}")), c.Write(message(2, "{}"))); err != nil {
		t.Fatal(err)
	}
	c.Close(nil)
	status, h := p.header()
	if status != "HTTP/1.1 200 OK" || h.Get("Transfer-Encoding") != "" || h.Get("Connection") != "close" {
		t.Errorf("got %s, %v, want a stream that ends with the connection", status, h)
	}
	if got, err := io.ReadAll(p.r); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// On TLS an end that nobody has announced may be an attacker's.
func TestEndIsAnnouncedOnTLS(t *testing.T) {
	for name, stream := range map[string]func(context.Context, *Conn) error{
		"stream":  func(_ context.Context, c *Conn) error { return c.Write(message(1, "{}")) },
		"refusal": func(context.Context, *Conn) error { return &contracts.Error{Code: contracts.CodeStaleSession} },
	} {
		for _, version := range []string{"1.0", "1.1"} {
			t.Run(name+" HTTP/"+version, func(t *testing.T) {
				s := newServer(t, options{tls: true, session: &fakeSession{stream: stream}})
				plain, err := s.dial()
				if err != nil {
					t.Fatal(err)
				}
				defer plain.Close()
				var wire bytes.Buffer
				secure := tls.Client(tapped{plain, &wire}, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
				if _, err := io.WriteString(secure, strings.Replace(request, "1.1", version, 1)); err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(secure); err != nil || len(got) == 0 {
					t.Errorf("got %d bytes, %v, want an end in order", len(got), err)
				}
				const alert = 21
				if got := lastRecord(wire.Bytes()); got != alert {
					t.Errorf("got a record of type %d at the end, want %d", got, alert)
				}
			})
		}
	}
}

// A tapped connection keeps what is read from it.
type tapped struct {
	net.Conn
	wire *bytes.Buffer
}

func (c tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.Write(b[:n])
	return n, err
}

// lastRecord returns the type of the last TLS record.
func lastRecord(wire []byte) (kind byte) {
	for len(wire) >= 5 {
		kind = wire[0]
		wire = wire[min(len(wire), 5+int(wire[3])<<8+int(wire[4])):]
	}
	return kind
}

// fill writes until a write fails, each so little that net/http buffers it: where
// that is in between, flushing fails.
func fill(c *Conn) error {
	text := bytes.Repeat([]byte("x"), 2<<10)
	for {
		if err := c.Write(text); err != nil {
			return err
		}
	}
}

func TestBlockedWriteFailsInTime(t *testing.T) {
	for _, k := range kinds {
		k.opts.bubble = true
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, k.opts)
				got := make(chan any, 1)
				go func() { got <- s.get(k) }() // and reads no body
				c := <-s.conns
				if err := c.Write(message(1, "{}")); err != nil {
					t.Fatal(err)
				}
				<-got
				start := time.Now()
				err := fill(c)
				if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != contracts.DefaultWriteTimeout {
					t.Errorf("got %v after %v, want a timeout after %v", err, time.Since(start), contracts.DefaultWriteTimeout)
				}
				if err := <-s.read; err == nil {
					t.Error("read: got no error, want one")
				}
				if err := c.Write(message(2, "{}")); !errors.Is(err, net.ErrClosed) {
					t.Errorf("after half an event: got %v, want %v", err, net.ErrClosed)
				}
			})
		})
	}
}

// A peer that takes a large snapshot slowly is not one that takes nothing.
func TestLargeEventMayTakeItsTime(t *testing.T) {
	for _, k := range kinds {
		k.opts.bubble = true
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, k.opts)
				got := make(chan io.Reader, 1)
				go func() { got <- s.get(k).Body }()
				c := <-s.conns
				written := make(chan error, 1)
				event := message(1, strings.Repeat("x", 4*contracts.WritePart))
				go func() { written <- c.Write(event) }()
				body := <-got
				part := make([]byte, contracts.WritePart/2)
				for left := len(event); left > 0; left -= len(part) {
					time.Sleep(3 * time.Second)
					if _, err := io.ReadFull(body, part[:min(left, len(part))]); err != nil {
						t.Fatalf("with %d bytes left: %v", left, err)
					}
				}
				if err := <-written; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestPeerThatStopsReadingIsGivenUp(t *testing.T) {
	for _, k := range kinds {
		k.opts.WriteTimeout = time.Minute
		t.Run(k.name, func(t *testing.T) {
			s := newServer(t, k.opts)
			got := make(chan any, 1)
			go func() { got <- s.get(k) }()
			c := receive(t, s.conns)
			if err := c.Write(message(1, "{}")); err != nil {
				t.Fatal(err)
			}
			receive(t, got)
			if c.timeout != k.opts.WriteTimeout {
				t.Errorf("got a write timeout of %v, want %v", c.timeout, k.opts.WriteTimeout)
			}
			c.timeout = 50 * time.Millisecond // as what was written before this may have taken longer
			// HTTP/2 may have told the reader first, which closes the stream.
			if err := fill(c); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v, want %v or %v", err, os.ErrDeadlineExceeded, net.ErrClosed)
			}
			receive(t, s.read)
		})
	}
}

// HTTP/2 breaks a stream off when its deadline passes, whatever happens on it.
func TestIdleStreamStays(t *testing.T) {
	for _, k := range kinds {
		k.opts.bubble = true
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, k.opts)
				body := make(chan io.ReadCloser, 1)
				go func() { body <- s.get(k).Body }()
				c := <-s.conns
				if err := c.Write(message(1, "{}")); err != nil {
					t.Fatal(err)
				}
				read := make(chan error, 1)
				b := <-body
				go func() {
					text, err := io.ReadAll(b)
					if events, bad := parse(string(text)); err == nil && len(events) != 2 {
						err = fmt.Errorf("got %d events, %w, want 2", len(events), bad)
					}
					read <- err
				}()
				time.Sleep(24 * time.Hour)
				if err := c.Write(message(2, "{}")); err != nil {
					t.Error(err)
				}
				c.Close(nil)
				if err := <-read; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestCloseEndsInOrder(t *testing.T) {
	s := newServer(t, options{})
	p := s.raw(request)
	c := receive(t, s.conns)
	if err := c.Write(message(1, "{}")); err != nil {
		t.Fatal(err)
	}
	c.Close(&contracts.Error{Code: contracts.CodeSuperseded})
	c.Close(nil) // only the first counts
	p.header()
	if got, err := p.chunk(); got != string(message(1, "{}")) {
		t.Errorf("got %q, %v, want the event", got, err)
	}
	if got, err := p.chunk(); got != "" || err != nil {
		t.Errorf("got %q, %v, want the last chunk", got, err)
	}
	p.ended()
	if err := receive(t, s.read); err != net.ErrClosed {
		t.Errorf("read: got %v, want %v", err, net.ErrClosed)
	}
	if err := c.Write(message(2, "{}")); err != net.ErrClosed {
		t.Errorf("write: got %v, want %v", err, net.ErrClosed)
	}
}

func TestNothingIsTornByClose(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := newServer(t, k.opts)
			for range 20 {
				got := make(chan *bytes.Buffer, 1)
				go func() {
					var all bytes.Buffer
					if _, err := all.ReadFrom(s.get(k).Body); err != nil {
						t.Errorf("got %v after %d bytes, want the end of the stream", err, all.Len())
					}
					got <- &all
				}()
				c := receive(t, s.conns)
				if err := c.Write(message(0, "{}")); err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					for i := uint64(1); c.Write(message(i, `"text"`)) == nil; i++ {
					}
				})
				for range 3 {
					wg.Go(func() { c.Close(nil) })
				}
				wg.Wait()
				if events, err := parse(receive(t, got).String()); err != nil || len(events) == 0 {
					t.Errorf("got %d events, %v, want whole ones", len(events), err)
				}
				receive(t, s.read)
			}
		})
	}
}

func TestCloseUnblocksReadAndWrite(t *testing.T) {
	for _, k := range kinds {
		k.opts.bubble = true
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, k.opts)
				got := make(chan any, 1)
				go func() { got <- s.get(k) }()
				c := <-s.conns
				if err := c.Write(message(1, "{}")); err != nil {
					t.Fatal(err)
				}
				<-got
				written := make(chan error, 1)
				go func() { written <- fill(c) }()
				synctest.Wait()
				start := time.Now()
				c.Close(&contracts.Error{Code: contracts.CodeSuperseded})
				if took := time.Since(start); took != 0 {
					t.Errorf("close took %v, want no time", took)
				}
				if err := <-written; err == nil || time.Since(start) != closeTimeout {
					t.Errorf("write: got %v after %v, want an error after %v", err, time.Since(start), closeTimeout)
				}
				if err := <-s.read; err != net.ErrClosed || time.Since(start) > closeTimeout {
					t.Errorf("read: got %v after %v, want %v within %v", err, time.Since(start), net.ErrClosed, closeTimeout)
				}
			})
		})
	}
}

// A stream that is closed before it began has not been answered yet.
func TestCloseBeforeTheFirstEventIsARefusal(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := newServer(t, k.opts)
			go func() {
				c := <-s.conns
				c.Close(nil)
				if err := c.Write(message(1, "{}")); err != net.ErrClosed {
					t.Errorf("write: got %v, want %v", err, net.ErrClosed)
				}
			}()
			refused(t, s.get(k), 503, contracts.CodeGoingAway)
			if err := receive(t, s.read); err != net.ErrClosed {
				t.Errorf("read: got %v, want %v", err, net.ErrClosed)
			}
		})
	}
}

func TestCutBreaksTheStreamOff(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := newServer(t, k.opts)
			got := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, s.get(k).Body)
				got <- err
			}()
			c := receive(t, s.conns)
			if err := c.Write(message(1, "{}")); err != nil {
				t.Fatal(err)
			}
			c.Cut()
			c.Cut()
			if err := receive(t, got); err == nil && !k.plain { // an old client cannot tell
				t.Error("the client got an end in order, want an error")
			}
			if err := receive(t, s.read); err == nil {
				t.Error("read: got no error, want one")
			}
			if err := c.Write(message(2, "{}")); err == nil {
				t.Error("write: got no error, want one")
			}
		})
	}
}

func TestPeerThatHangsUpEndsReadFrame(t *testing.T) {
	for _, k := range kinds {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s begun %v", k.name, begun), func(t *testing.T) {
				s := newServer(t, k.opts)
				hang := make(chan func() error, 1)
				go func() {
					if !begun && !k.opts.tls {
						hang <- s.raw(request).Close
						return
					}
					hang <- s.get(k).Body.Close
				}()
				c := receive(t, s.conns)
				if begun || k.opts.tls {
					if err := c.Write(message(1, "{}")); err != nil {
						t.Fatal(err)
					}
				}
				_ = receive(t, hang)() // an error says that it is gone
				if err := receive(t, s.read); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("got %v, want that the peer has gone", err)
				}
			})
		}
	}
}

func TestPeerThatFloodsIsCut(t *testing.T) {
	s := newServer(t, options{})
	p := s.raw(request)
	c := receive(t, s.conns)
	if err := c.Write(message(1, "{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(bytes.Repeat([]byte("x"), 4<<10)); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(message(2, "{}")); err != nil {
		t.Errorf("after 4 KiB: got %v, want it to be of no interest", err)
	}
	for {
		if _, err := p.Write(make([]byte, 4<<10)); err != nil {
			break // the server has hung up
		}
	}
	if err := receive(t, s.read); err == nil {
		t.Error("got no error, want the end of reading")
	}
}

// After the end of its request a ResponseWriter must not be touched.
func TestLateCallsAreHarmless(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := newServer(t, k.opts)
			got := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, s.get(k).Body)
				got <- err
			}()
			c := receive(t, s.conns)
			if err := c.Write(message(1, "{}")); err != nil {
				t.Fatal(err)
			}
			c.Close(nil)
			if err := receive(t, got); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				c.Cut()
				c.Close(nil)
				if err := c.Write(message(1, "{}")); err != net.ErrClosed {
					t.Errorf("got %v, want %v", err, net.ErrClosed)
				}
				if _, err := c.ReadFrame(); err != net.ErrClosed {
					t.Errorf("got %v, want %v", err, net.ErrClosed)
				}
			}
		})
	}
}

func TestStreamsHearNothing(t *testing.T) {
	s := newServer(t, options{})
	p := s.raw(request)
	c := receive(t, s.conns)
	if _, err := io.WriteString(p, "hello?"); err != nil {
		t.Fatal(err)
	}
	if got := c.LastSeen(); !got.IsZero() {
		t.Errorf("got %v, want the zero time", got)
	}
	if got := c.Form(); got != (Form{epoch}) {
		t.Errorf("got %v, want the form of the session's epoch", got)
	}
}

func TestWritesAllocateNothingPerByte(t *testing.T) {
	s := newServer(t, options{})
	p := s.raw(request)
	c := receive(t, s.conns)
	go func() { _, _ = io.Copy(io.Discard, p.r) }() // ends with the connection
	event := message(1, `{"type":"ready"}`)
	for _, count := range []int{1, 100, 1000} {
		batch := bytes.Repeat(event, count)
		got := testing.AllocsPerRun(100, func() {
			if err := c.Write(batch); err != nil {
				t.Error(err)
			}
		})
		if got > 1 { // the vector of the system call
			t.Errorf("%d events: got %v allocations, want at most one", count, got)
		}
	}
}
