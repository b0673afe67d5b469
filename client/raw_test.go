package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/line"
)

func TestRawCarriesTextsUntouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		r, err := DialRaw(t.Context(), "ws://fake", url.Values{"cursor": {"-1"}}, WithDialer(s.dial))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		p := s.next()
		if got := p.query.Encode(); got != "cursor=-1" {
			t.Errorf("got query %q, want cursor=-1", got)
		}
		go func() { _ = r.SendText([]byte(`{not json`)) }()
		if _, text, err := p.conn.Read(t.Context()); err != nil || string(text) != `{not json` {
			t.Errorf("server: got %q, %v", text, err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.ReceiveText(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want deadline exceeded", err)
		}
		if err := p.conn.Write(t.Context(), websocket.MessageText, []byte("after all")); err != nil {
			t.Fatal(err)
		}
		if text, err := r.ReceiveText(t.Context()); err != nil || string(text) != "after all" {
			t.Errorf("got %q, %v; want the text sent after the deadline", text, err)
		}
		go p.conn.Close(4400, "bad_request")
		_, err = r.ReceiveText(t.Context())
		if e, ok := errors.AsType[*CloseError](err); !ok || e.Code != 4400 || e.Reason != contracts.CodeBadRequest {
			t.Errorf("got %v, want 4400 bad_request", err)
		}
	})
}

func TestRawCloseFreesTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		r, err := DialRaw(t.Context(), "ws://fake", nil, WithDialer(s.dial))
		if err != nil {
			t.Fatal(err)
		}
		p := s.next()
		go func() {
			for p.conn.Write(t.Context(), websocket.MessageText, []byte("more")) == nil {
			}
		}()
		synctest.Wait() // its backlog is full
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLinesDecodesEvents(t *testing.T) {
	in := strings.NewReader(`{"type":"status","message":"one"}` + "\r\n\n" + `{"type":"hologram"}` + "\n" + `{"type":"status","message":"last, unterminated"}`)
	var out strings.Builder
	l := NewLines(in, &out)
	defer l.Close()
	if err := l.Send(&contracts.Prompt{Content: "a\nb"}); err != nil {
		t.Fatal(err)
	}
	if want := `{"type":"prompt","content":"a\nb"}` + "\n"; out.String() != want {
		t.Errorf("sent %q, want %q", out.String(), want)
	}
	for i, want := range []string{"one", "", "last, unterminated"} {
		u, err := l.Next(t.Context())
		if err != nil || u.Cursor != uint64(i+1) {
			t.Fatalf("line %d: got %+v, %v", i+1, u, err)
		}
		if want == "" {
			if u.Kind != KindUnknown {
				t.Errorf("got %s for an unknown type, want unknown", u.Kind)
			}
			continue
		}
		if s, ok := u.Event.(*contracts.Status); !ok || s.Message != want {
			t.Errorf("got %+v, want status %q", u.Event, want)
		}
	}
	if _, err := l.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}

func TestLinesRefusesAnEndlessLine(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		_, _ = io.Copy(w, io.LimitReader(letters{}, contracts.MaxLineBytes+100)) // fails when the reader gives up
		_ = w.Close()
	}()
	l := NewLines(r, io.Discard)
	defer l.Close()
	if _, err := l.Next(t.Context()); !errors.Is(err, line.ErrLong) {
		t.Errorf("got %v, want %v", err, line.ErrLong)
	}
}

// letters is an endless text without a newline.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestMainAsChild is not a test of its own: started by the tests below, this
// binary is a server on standard streams.
func TestMainAsChild(t *testing.T) {
	mode := os.Getenv("CLIENT_TEST_CHILD")
	if mode == "" {
		return
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Printf(`{"type":"status","message":%q}`+"\n", in.Text())
	}
	if mode == "stubborn" {
		<-time.After(time.Hour) // does not end with its input: it has to be killed
	}
	os.Exit(3)
}

func child(t *testing.T, mode string) *Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMainAsChild$")
	cmd.Env = append(os.Environ(), "CLIENT_TEST_CHILD="+mode)
	p, err := Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProcessSpeaksOnItsStreams(t *testing.T) {
	p := child(t, "obedient")
	if err := p.SendText([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	u, err := p.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := u.Event.(*contracts.Status); !ok || s.Message != "hello" {
		t.Errorf("got %s, want the echo", u.Body)
	}
	if err := p.CloseInput(); err != nil {
		t.Fatal(err)
	}
	err = p.Wait(t.Context())
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 3 {
		t.Errorf("Wait: got %v, want exit status 3", err)
	}
	if again := p.Close(); !errors.Is(again, err) {
		t.Errorf("Close: got %v, want %v", again, err)
	}
}

func TestProcessThatDoesNotEndIsKilled(t *testing.T) {
	p := child(t, "stubborn")
	p.exitTimeout = 100 * time.Millisecond
	err := p.Close()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Exited() {
		t.Errorf("got %v, want death by a signal", err)
	}
}
