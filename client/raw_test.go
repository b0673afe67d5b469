package client

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
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
		for open := true; open; {
			select {
			case _, open = <-r.texts:
			default:
				t.Fatal("the reader still runs after Close")
			}
		}
		if _, err := r.ReceiveText(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v after Close, want %v", err, ErrClosed)
		}
	})
}
