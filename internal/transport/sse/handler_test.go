package sse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/transport/connlimit"
	"github.com/seed-028515a8/maestro/internal/transport/httperr"
)

// refused fails the test unless res is a refusal of that code, as a whole.
func refused(t *testing.T, res *http.Response, status int, code contracts.Code) httperr.Body {
	t.Helper()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body httperr.Body
	err = json.Unmarshal(text, &body)
	if res.StatusCode != status || err != nil || body.Code != code || body.ErrorType != code || body.Retryable != code.Retryable() {
		t.Errorf("got %d %s, %v, want %d %s", res.StatusCode, text, err, status, code)
	}
	if got := res.Header.Get("Content-Type"); got != "application/json; charset=utf-8" {
		t.Errorf("got content type %q, want JSON", got)
	}
	if res.ContentLength != int64(len(text)) {
		t.Errorf("got content length %d, want %d", res.ContentLength, len(text))
	}
	if status == 503 && res.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	return body
}

func TestRefusalBeforeTheStreamIsTheCallers(t *testing.T) {
	d := connlimit.New(connlimit.Options{Connections: 1})
	stale := &contracts.Error{Code: contracts.CodeStaleSubscription, Message: "Headless subscriber not found"}
	s := newServer(t, options{Options: Options{ConnLimit: d}, session: &fakeSession{refuse: stale}})
	for range 3 { // the place is given back
		refused(t, s.get(kinds[0]), 404, contracts.CodeStaleSubscription)
	}
	if got := d.Counts().Slots; got != 0 {
		t.Errorf("got %d places taken, want 0", got)
	}
}

func TestRefusalOfTheStreamIsAProperAnswer(t *testing.T) {
	for _, k := range kinds {
		for name, tt := range map[string]struct {
			err    error
			status int
			code   contracts.Code
			text   string
		}{
			"refusal":         {&contracts.Error{Code: contracts.CodeStaleSession, Message: "Headless session not found"}, 404, contracts.CodeStaleSession, "Headless session not found"},
			"wrapped refusal": {fmt.Errorf("tune: %w", &contracts.Error{Code: contracts.CodeOverloaded, Message: "too many"}), 503, contracts.CodeOverloaded, "too many"},
			"fault":           {errors.New("disk on fire"), 500, contracts.CodeInternal, "Internal server error"},
			"nothing":         {nil, 503, contracts.CodeGoingAway, ""},
			"end":             {io.EOF, 503, contracts.CodeGoingAway, ""},
			"closed":          {net.ErrClosed, 503, contracts.CodeGoingAway, ""},
		} {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				k := k
				k.opts.session = &fakeSession{stream: func(context.Context, *Conn) error { return tt.err }}
				k.opts.wrap = allowed(k.opts.wrap)
				s := newServer(t, k.opts)
				res := s.get(k)
				body := refused(t, res, tt.status, tt.code)
				if tt.text != "" && body.Message != tt.text {
					t.Errorf("got %q, want %q", body.Message, tt.text)
				}
				if got := res.Header.Get("Access-Control-Allow-Origin"); got != "https://app.example" {
					t.Errorf("got allowed origin %q, want the page to be able to read why", got)
				}
				if got := res.Header.Get("Cache-Control"); got != "no-store" {
					t.Errorf("got cache control %q, want no-store", got)
				}
			})
		}
	}
}

// allowed is middleware that lets a page of another origin read the answer.
func allowed(wrap func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if wrap != nil {
			next = wrap(next)
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "https://app.example")
			w.Header().Add("Vary", "Origin")
			w.Header().Set("Content-Type", "text/html") // which a stream knows better
			next.ServeHTTP(w, r)
		})
	}
}

func TestHeadersDecidedBeforeAreOnTheStream(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			k.opts.session = &fakeSession{stream: func(_ context.Context, c *Conn) error { return c.Write(message(1, "{}")) }}
			k.opts.wrap = allowed(k.opts.wrap)
			h := newServer(t, k.opts).get(k).Header
			if h.Get("Access-Control-Allow-Origin") != "https://app.example" || h.Get("Vary") != "Origin" || !slices.Equal(h.Values("Content-Type"), []string{"text/event-stream"}) {
				t.Errorf("got %v, want what was set before and the stream's own content type", h)
			}
		})
	}
}

func TestSessionLearnsWhatIsAskedAndByWhom(t *testing.T) {
	cursor := int64(7)
	req := contracts.StreamRequest{SubscriptionID: "sub_1", Cursor: &cursor, Epoch: "e"}
	by := contracts.Caller{Principal: contracts.Principal{ID: "alice"}, Token: "secret"}
	asked := false
	session := &fakeSession{
		asked: func(gotReq contracts.StreamRequest, gotBy contracts.Caller) {
			asked = gotReq.SubscriptionID == "sub_1" && *gotReq.Cursor == 7 && gotReq.Epoch == "e" && gotBy == by
		},
		refuse: errors.New("no"),
	}
	err := New(Options{ConnLimit: connlimit.New(connlimit.Options{})}).Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), session, req, by)
	if !asked || err != session.refuse {
		t.Errorf("got asked %v, %v, want the request, the caller and %v", asked, err, session.refuse)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	s := newServer(t, options{Options: Options{ConnLimit: connlimit.New(connlimit.Options{Connections: 2})}})
	first, second := s.raw(request), s.raw(request)
	c1, c2 := receive(t, s.conns), receive(t, s.conns)
	if err := errors.Join(c1.Write(message(1, "{}")), c2.Write(message(1, "{}"))); err != nil {
		t.Fatal(err)
	}
	refused(t, s.get(kinds[0]), 503, contracts.CodeOverloaded)
	_ = first.Close()
	receive(t, s.read)
	for s.connLimit.Counts().Conns > 1 { // it is on its way out
		runtime.Gosched()
	}
	third := s.raw(request)
	receive(t, s.conns)
	if got := s.connLimit.Counts().Slots; got != 2 {
		t.Errorf("got %d places taken, want 2", got)
	}
	_, _ = second, third
}

func TestPanicEndsOneStreamOnly(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			begin := true
			var s *server
			k.opts.session = &fakeSession{stream: func(ctx context.Context, c *Conn) error {
				if err := c.Write(message(1, "{}")); begin && err != nil {
					return err
				}
				panic("an invariant broke")
			}}
			s = newServer(t, k.opts)
			body, err := io.ReadAll(s.get(k).Body)
			if err != nil || string(body) != string(message(1, "{}")) {
				t.Errorf("got %q, %v, want the event and an end in order", body, err)
			}
			if got := s.log.String(); !strings.Contains(got, "an invariant broke") || !strings.Contains(got, "handler_test.go") {
				t.Errorf("got log %s, want the panic and its stack", got)
			}
			for s.connLimit.Counts().Slots > 0 {
				runtime.Gosched()
			}
		})
	}
}

func TestPanicBeforeTheFirstEventIsARefusal(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			k.opts.session = &fakeSession{stream: func(context.Context, *Conn) error { panic("an invariant broke") }}
			s := newServer(t, k.opts)
			body := refused(t, s.get(k), 500, contracts.CodeInternal)
			if strings.Contains(body.Message, "invariant") {
				t.Errorf("the client sees a panic: %s", body.Message)
			}
		})
	}
}

func TestPanicWhileAskingGivesThePlaceBack(t *testing.T) {
	s := newServer(t, options{session: &fakeSession{asked: func(contracts.StreamRequest, contracts.Caller) { panic("an invariant broke") }}})
	s.raw(request).ended()
	for s.connLimit.Counts().Slots > 0 {
		runtime.Gosched()
	}
}

func TestClosingTheDoorEndsEverything(t *testing.T) {
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
			if err := s.connLimit.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := receive(t, got); err != nil {
				t.Errorf("got %v, want an end in order", err)
			}
			if s.connLimit.Counts().Slots != 0 {
				t.Errorf("got %d places taken, want 0", s.connLimit.Counts().Slots)
			}
			refused(t, s.get(k), 503, contracts.CodeGoingAway)
		})
	}
}

// The limiter may be closed between the answer that lets a stream in and its start.
func TestDoorShutMeanwhileRefusesTheStream(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			d := connlimit.New(connlimit.Options{})
			shut := make(chan error, 1)
			var s *server
			k.opts.ConnLimit = d
			k.opts.session = &fakeSession{
				asked: func(contracts.StreamRequest, contracts.Caller) {
					go func() { shut <- d.Close(context.Background()) }() // it waits for this very stream
					for slot, err := d.Admit(contracts.Principal{}); err == nil; slot, err = d.Admit(contracts.Principal{}) {
						slot.Leave() // until it is closed
					}
				},
				stream: func(ctx context.Context, c *Conn) error { return s.follow(ctx, c) },
			}
			s = newServer(t, k.opts)
			refused(t, s.get(k), 503, contracts.CodeGoingAway)
			if err := receive(t, s.read); err != net.ErrClosed {
				t.Errorf("read: got %v, want %v", err, net.ErrClosed)
			}
			if err := receive(t, shut); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

func TestDoorDoesNotWaitForAStuckSessionForEver(t *testing.T) {
	for _, k := range kinds {
		if k.opts.wrap != nil {
			continue // nothing but the handler's end ends such a connection
		}
		k.opts.bubble = true
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				unstick := make(chan struct{})
				begun := make(chan struct{})
				k.opts.session = &fakeSession{stream: func(_ context.Context, c *Conn) error {
					if err := c.Write(message(1, "{}")); err != nil {
						t.Error(err)
					}
					close(begun)
					<-unstick
					return nil
				}}
				s := newServer(t, k.opts)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = io.Copy(io.Discard, s.get(k).Body)
				}()
				<-begun
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				start := time.Now()
				if err := s.connLimit.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
				}
				<-ended // though the session has not
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("the client's stream ended after %v, want at most 3s", took)
				}
				close(unstick)
			})
		})
	}
}

func TestSessionContextEndsWithTheDoor(t *testing.T) {
	s := newServer(t, options{session: &fakeSession{stream: func(ctx context.Context, _ *Conn) error { <-ctx.Done(); return ctx.Err() }}})
	s.raw(request)
	for s.connLimit.Counts().Conns == 0 {
		runtime.Gosched()
	}
	if err := s.connLimit.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestFaultsAreLoggedAndEndsAreNot(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"fault": {errors.New("disk on fire"), true}, "end": {io.EOF, false}, "closed": {net.ErrClosed, false}, "none": {nil, false},
		"refusal": {&contracts.Error{Code: contracts.CodeStaleSession}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, options{session: &fakeSession{stream: func(_ context.Context, c *Conn) error {
				return errors.Join(c.Write(message(1, "{}")), tt.err)
			}}})
			_, _ = io.Copy(io.Discard, s.get(kinds[0]).Body)
			if got := s.log.String(); strings.Contains(got, "stream ended") != tt.want {
				t.Errorf("got log %q, want it logged: %v", got, tt.want)
			}
		})
	}
}

func TestIdleStreamCostsOneGoroutine(t *testing.T) {
	s := newServer(t, options{})
	want := 50
	for range want {
		s.raw(request)
		if err := receive(t, s.conns).Write(message(1, "{}")); err != nil {
			t.Fatal(err)
		}
	}
	for served := goroutines("net/http.(*conn).serve"); served > 0; served = goroutines("net/http.(*conn).serve") {
		runtime.Gosched() // they are on their way out: the handler has returned
	}
	if got := goroutines("sse.(*Conn)", "sse.(*Streams)"); got != want {
		t.Errorf("got %d goroutines for %d streams, want one each", got, want)
	}
}

// goroutines counts those with one of the functions on their stack.
func goroutines(functions ...string) (n int) {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if slices.ContainsFunc(functions, func(f string) bool { return strings.Contains(stack, f) }) {
			n++
		}
	}
	return n
}
