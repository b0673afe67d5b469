package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFormIsBareLines(t *testing.T) {
	f := Form{}
	b := f.AppendMessage([]byte("before\n"), 7, []byte(`{"type":"ready"}`))
	b = f.AppendSnapshot(b, 7, []byte(`{}`))
	b = f.AppendReset(b, 7, contracts.ResetGap, []byte(`{}`))
	b = f.AppendHeartbeat(b, 7, false)
	b = f.AppendHistory(b, []byte(`{"type":"history"}`))
	b = f.AppendControl(b, []byte(`{"type":"ws.pong"}`))
	if want := "before\n{\"type\":\"ready\"}\n{\"type\":\"history\"}\n{\"type\":\"ws.pong\"}\n"; string(b) != want {
		t.Fatalf("got %q, want %q", b, want)
	}
}

func TestAppendMessageDoesNotAllocate(t *testing.T) {
	dst, body := make([]byte, 0, 1<<10), []byte(`{"type":"ready"}`)
	var f contracts.Form = Form{}
	if got := testing.AllocsPerRun(100, func() { f.AppendMessage(dst, 1<<60, body) }); got != 0 {
		t.Fatalf("got %v allocations, want 0", got)
	}
}

func TestFramesComeAndGo(t *testing.T) {
	var out bytes.Buffer
	c := New(strings.NewReader("one\r\n\n"+strings.Repeat("x", 20)+"\ntwo"), &out, 10)
	defer c.Close(nil)
	var got []string
	for {
		text, err := c.ReadFrame()
		if refusal, ok := errors.AsType[*contracts.Error](err); ok {
			got = append(got, string(refusal.Code))
			continue
		}
		if err != nil {
			if err != io.EOF {
				t.Errorf("at the end: got %v, want %v", err, io.EOF)
			}
			break
		}
		got = append(got, string(text))
	}
	if want := []string{"one", "bad_request", "two"}; !equal(got, want) {
		t.Errorf("read: got %q, want %q", got, want)
	}
	for i := range 3 {
		if err := c.Write(c.Form().AppendControl(nil, fmt.Append(nil, i))); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := out.String(), "0\n1\n2\n"; got != want {
		t.Errorf("wrote: got %q, want %q", got, want)
	}
}

// streams are ways to be connected; each returns the connection's streams and
// the peer's.
var streams = map[string]func(t *testing.T) (in io.Reader, out io.Writer, peerOut io.WriteCloser, peerIn io.ReadCloser){
	"io.Pipe": func(*testing.T) (io.Reader, io.Writer, io.WriteCloser, io.ReadCloser) {
		in, peerOut := io.Pipe()
		peerIn, out := io.Pipe()
		return in, out, peerOut, peerIn
	},
	"os.Pipe": func(t *testing.T) (io.Reader, io.Writer, io.WriteCloser, io.ReadCloser) {
		in, peerOut := osPipe(t)
		peerIn, out := osPipe(t)
		return in, out, peerOut, peerIn
	},
	"blocking pipe": func(t *testing.T) (io.Reader, io.Writer, io.WriteCloser, io.ReadCloser) {
		in, peerOut := osPipe(t)
		peerIn, out := osPipe(t)
		in.Fd() // puts the file into blocking mode, as standard input is
		out.Fd()
		return in, out, peerOut, peerIn
	},
}

func osPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

func TestCloseUnblocksBothDirections(t *testing.T) {
	for name, connect := range streams {
		t.Run(name, func(t *testing.T) {
			in, out, peerOut, peerIn := connect(t)
			c := New(in, out, 0)
			ended := make(chan error, 2)
			go func() { _, err := c.ReadFrame(); ended <- err }()
			go func() { ended <- c.Write(make([]byte, 1<<20)) }() // more than a pipe holds
			if _, err := peerIn.Read(make([]byte, 1)); err != nil {
				t.Fatal(err) // the write is under way now
			}
			c.Close(nil)
			c.Close(nil)
			for range 2 {
				if err := <-ended; !errors.Is(err, net.ErrClosed) {
					t.Errorf("got %v, want %v", err, net.ErrClosed)
				}
			}
			if err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("write after close: got %v, want %v", err, net.ErrClosed)
			}
			if _, err := c.ReadFrame(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("read after close: got %v, want %v", err, net.ErrClosed)
			}
			// Now the goroutines that sit in a blocking pipe end as well.
			if err := errors.Join(peerOut.Close(), peerIn.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestBrokenPipeIsAnEnd(t *testing.T) {
	for name, connect := range streams {
		t.Run(name, func(t *testing.T) {
			in, out, peerOut, peerIn := connect(t)
			c := New(in, out, 0)
			read := make(chan error, 1)
			go func() { _, err := c.ReadFrame(); read <- err }()
			if err := peerIn.Close(); err != nil {
				t.Fatal(err)
			}
			if err := c.Write([]byte("x\n")); !errors.Is(err, syscall.EPIPE) && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("write: got %v, want a broken pipe", err)
			}
			if err := <-read; err != io.EOF {
				t.Errorf("read: got %v, want %v", err, io.EOF)
			}
			if err := peerOut.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWriteWaitsForASlowPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, peerOut := io.Pipe()
		peerIn, out := io.Pipe()
		c := New(in, out, 0)
		defer c.Close(nil)
		defer peerOut.Close()
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() {
			if err := c.Write([]byte("frame\n")); err != nil || time.Since(start) != time.Hour {
				t.Errorf("got %v after %v, want success after an hour", err, time.Since(start))
			}
		})
		time.Sleep(time.Hour)
		got := make([]byte, 6)
		if _, err := io.ReadFull(peerIn, got); err != nil || string(got) != "frame\n" {
			t.Errorf("got %q, %v, want frame", got, err)
		}
		wg.Wait()
	})
}

func TestLastSeenIsTheLastLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, peerOut := io.Pipe()
		c := New(in, io.Discard, 0)
		defer c.Close(nil)
		defer peerOut.Close()
		go c.ReadFrame() // ends when the connection does
		time.Sleep(time.Minute)
		if _, err := peerOut.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
		want := time.Now()
		time.Sleep(time.Minute)
		if got := c.LastSeen(); !got.Equal(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestCallerMayReuseWhatItWrote(t *testing.T) {
	in, peerOut := io.Pipe()
	defer peerOut.Close()
	peerIn, out := io.Pipe()
	c := New(in, out, 0)
	frame := []byte("before\n")
	written := make(chan error, 1)
	go func() { written <- c.Write(frame) }()
	got := make([]byte, len(frame))
	if _, err := io.ReadFull(peerIn, got[:1]); err != nil { // the write is under way
		t.Fatal(err)
	}
	c.Close(nil)
	if err := <-written; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("got %v, want %v", err, net.ErrClosed)
	}
	copy(frame, "after.\n")
	if _, err := io.ReadFull(peerIn, got[1:]); err != nil || string(got) != "before\n" {
		t.Fatalf("got %q, %v, want what was written", got, err)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	r, peerOut, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	peerIn, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	c := New(r, w, 0)
	line, echo := []byte(`{"type":"prompt","content":"hello"}`+"\n"), make([]byte, 64)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, err := peerOut.Write(line); err != nil {
			b.Fatal(err)
		}
		text, err := c.ReadFrame()
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Write(text); err != nil {
			b.Fatal(err)
		}
		if _, err := peerIn.Read(echo); err != nil {
			b.Fatal(err)
		}
	}
	c.Close(nil)
	for _, f := range []*os.File{r, w, peerIn, peerOut} {
		_ = f.Close()
	}
}
