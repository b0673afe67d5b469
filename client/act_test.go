package client

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/seed-028515a8/maestro/contracts"
)

// outcome is what a call in the background returned.
type outcome struct {
	result contracts.Result
	err    error
}

// background runs a call and returns where its outcome will be.
func background(call func() (contracts.Result, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		r, err := call()
		done <- outcome{r, err}
	}()
	return done
}

// driving is a connected controller whose first updates have been read.
func driving(t *testing.T, opts ...Option) (*fakeServer, *Client, *peer) {
	s := newFakeServer(t)
	c, p := s.connect(followed(), append([]Option{WithRole(contracts.RoleController)}, opts...)...)
	wantKind(t, c, KindConnected)
	wantKind(t, c, KindSnapshot)
	return s, c, p
}

// sends checks that a call sends a command, and lets it succeed.
func sends(t *testing.T, p *peer, cmd contracts.Command, call func() (contracts.Result, error)) {
	t.Helper()
	done := background(call)
	f := expect[*contracts.Send](p)
	want, err := contracts.EncodeCommand(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if string(f.Message) != string(want) {
		t.Errorf("got %s, want %s", f.Message, want)
	}
	p.send(&contracts.Result{ID: &f.ID, Seq: 2})
	if got := <-done; got.err != nil {
		t.Error(got.err)
	}
}

func TestSendReturnsTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, p := driving(t)
		done := background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "hi") })
		f := expect[*contracts.Send](p)
		if want := `{"type":"prompt","content":"hi"}`; string(f.Message) != want {
			t.Errorf("got message %s, want %s", f.Message, want)
		}
		if len(f.ID) == 0 || len(f.ID) > contracts.MaxSendIDBytes {
			t.Errorf("got id %q, want 1 to %d bytes", f.ID, contracts.MaxSendIDBytes)
		}
		p.send(&contracts.Result{ID: &f.ID, Seq: 2, Cursor: 41})
		if got := <-done; got.err != nil || got.result.Cursor != 41 {
			t.Errorf("got %+v, want cursor 41", got)
		}
	})
}

func TestRefusalIsReturnedWithItsCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, p := driving(t)
		done := background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "hi") })
		f := expect[*contracts.Send](p)
		busy := &contracts.Error{Code: contracts.CodeRuntimeBusy, Message: "busy", Metadata: map[string]string{"k": "v"}}
		p.send(&contracts.Refusal{ID: &f.ID, Seq: 2, Message: busy.Message, Code: busy.Code, ErrorType: busy.Code, Retryable: true, Details: busy.Details()})
		got := <-done
		e, ok := errors.AsType[*contracts.Error](got.err)
		if !ok || e.Code != busy.Code || e.Message != "busy" || e.Metadata["k"] != "v" {
			t.Errorf("got %#v, want %#v", got.err, busy)
		}
	})
}

func TestCallsOnTheWire(t *testing.T) {
	ok, no := true, false
	for _, test := range []struct {
		name string
		call func(context.Context, *Client) (contracts.Result, error)
		want contracts.Command
	}{
		{"interrupt", func(ctx context.Context, c *Client) (contracts.Result, error) { return c.Interrupt(ctx) }, &contracts.Interrupt{}},
		{"approve", func(ctx context.Context, c *Client) (contracts.Result, error) { return c.Approve(ctx, "q", "") },
			&contracts.ServerRequestResponse{RequestID: "q", RequestType: contracts.RequestApproval, Approved: &ok}},
		{"approve with reason", func(ctx context.Context, c *Client) (contracts.Result, error) { return c.Approve(ctx, "q", "yes") },
			&contracts.ServerRequestResponse{RequestID: "q", RequestType: contracts.RequestApproval, Approved: &ok, Result: &contracts.ToolResult{Success: true, Output: "yes"}}},
		{"deny with reason", func(ctx context.Context, c *Client) (contracts.Result, error) { return c.Deny(ctx, "q", "no") },
			&contracts.ServerRequestResponse{RequestID: "q", RequestType: contracts.RequestApproval, Approved: &no, Result: &contracts.ToolResult{Error: "no"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c, p := driving(t)
				sends(t, p, test.want, func() (contracts.Result, error) { return test.call(t.Context(), c) })
			})
		})
	}
}

func TestLeaseFramesOnTheWire(t *testing.T) {
	for _, test := range []struct {
		name, want string
		call       func(context.Context, *Client) (contracts.Result, error)
	}{
		{"take", "ws.take_control", func(ctx context.Context, c *Client) (contracts.Result, error) { return c.TakeControl(ctx) }},
		{"release", "ws.release_control", func(ctx context.Context, c *Client) (contracts.Result, error) { return c.ReleaseControl(ctx) }},
		{"ask", "ws.ask_control", func(ctx context.Context, c *Client) (contracts.Result, error) { return c.AskControl(ctx, "please") }},
		{"grant", "ws.grant_control", func(ctx context.Context, c *Client) (contracts.Result, error) { return c.GrantControl(ctx, "conn_2") }},
		{"deny", "ws.deny_control", func(ctx context.Context, c *Client) (contracts.Result, error) {
			return c.DenyControl(ctx, "conn_2", "no")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, c, p := driving(t)
				done := background(func() (contracts.Result, error) { return test.call(t.Context(), c) })
				f := p.read()
				if f.FrameType() != test.want {
					t.Fatalf("got %s, want %s", f.FrameType(), test.want)
				}
				text, err := contracts.EncodeFrame(f)
				if err != nil {
					t.Fatal(err)
				}
				var with struct{ ID string }
				if err := json.Unmarshal(text, &with); err != nil {
					t.Fatal(err)
				}
				p.send(&contracts.Result{ID: &with.ID, Seq: 2})
				if got := <-done; got.err != nil {
					t.Error(got.err)
				}
				done = background(func() (contracts.Result, error) { return test.call(t.Context(), c) })
				p.read()
				_ = p.conn.CloseNow()
				if got := <-done; !errors.Is(got.err, ErrAnswerLost) {
					t.Errorf("without its answer: got %v, want %v, because the holder may have changed", got.err, ErrAnswerLost)
				}
			})
		})
	}
}

// TestAnswersNameTheRequestThatWasShown has two requests: an answer must carry the digest of its own.
func TestAnswersNameTheRequestThatWasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, p := driving(t, WithPeople("Ann"))
		for i, id := range []string{"a", "b"} {
			cursor := uint64(3 + 2*i)
			p.send(message(cursor, &contracts.ServerRequest{RequestID: id, CallID: "call_" + id, RequestType: contracts.RequestApproval, Tool: "bash", Args: json.RawMessage(`{}`)}),
				message(cursor+1, &contracts.RequestShown{RequestID: id, Digest: "sha256:" + id, Display: "bash {}"}))
			wantKind(t, c, KindEvent)
			wantKind(t, c, KindEvent)
		}
		yes := func(id, digest string) *contracts.ServerRequestResponse {
			return &contracts.ServerRequestResponse{RequestID: id, RequestType: contracts.RequestApproval, Approved: new(true), Digest: digest}
		}
		for _, tt := range []struct {
			given, want *contracts.ServerRequestResponse
		}{
			{yes("b", ""), yes("b", "sha256:b")}, {yes("a", ""), yes("a", "sha256:a")},
			{yes("a", "sha256:x"), yes("a", "sha256:x")}, {yes("c", ""), yes("c", "")},
		} {
			sends(t, p, tt.want, func() (contracts.Result, error) { return c.Send(t.Context(), tt.given) })
		}
	})
}

func TestAnswersReachTheirCallsInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, p := driving(t)
		first := background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "first") })
		one := expect[*contracts.Send](p)
		second := background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "second") })
		two := expect[*contracts.Send](p)
		p.send(&contracts.Result{ID: &two.ID, Seq: 2, Cursor: 4}, &contracts.Result{ID: &one.ID, Seq: 3, Cursor: 3})
		for cursor, done := range map[uint64]<-chan outcome{3: first, 4: second} {
			if got := <-done; got.err != nil || got.result.Cursor != cursor {
				t.Errorf("got %+v, want cursor %d", got, cursor)
			}
		}
	})
}

func TestCallThatCannotBeEncodedIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := driving(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, command := c.Send(ctx, &contracts.ServerRequestResponse{RequestID: "q", RequestType: "x"})
		_, frame := c.History(ctx, contracts.HistoryRequest{Kind: "x"})
		for _, err := range []error{command, frame} {
			if err == nil || !strings.Contains(err.Error(), "encode") {
				t.Errorf("got %v, want that it cannot be encoded", err)
			}
		}
	})
}

func TestLostAnswerIsAskedForAgainWithTheSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, p := driving(t)
		done := background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "hi") })
		first := expect[*contracts.Send](p)
		_ = p.conn.CloseNow() // the answer is lost

		p = s.next()
		expect[*contracts.Resume](p)
		greetWith(attached("conn_1", "e1", "replay"))(p)
		again := expect[*contracts.Send](p)
		if again.ID != first.ID || string(again.Message) != string(first.Message) {
			t.Errorf("got %s %s, want %s %s again", again.ID, again.Message, first.ID, first.Message)
		}
		p.send(&contracts.Result{ID: &again.ID, Seq: 2, Cursor: 3})
		if got := <-done; got.err != nil || got.result.Cursor != 3 {
			t.Errorf("got %+v, want cursor 3", got)
		}
	})
}

func TestCommandIsNotRiskedOnAnotherConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, p := driving(t)
		done := background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "hi") })
		expect[*contracts.Send](p)
		_ = p.conn.CloseNow()
		p = s.next()
		expect[*contracts.Resume](p)
		greetWith(attached("conn_2", "e1", "replay"))(p) // it does not remember our ids
		if got := <-done; !errors.Is(got.err, ErrAnswerLost) {
			t.Errorf("got %+v, want ErrAnswerLost", got)
		}
	})
}

func TestUnsentCommandWaitsForTheNextConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, p := driving(t)
		_ = p.conn.CloseNow()
		wantKind(t, c, KindDisconnected)
		done := background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "later") })
		p = s.next()
		expect[*contracts.Resume](p)
		greetWith(attached("conn_2", "e1", "replay"))(p) // another connection: it was never sent
		f := expect[*contracts.Send](p)
		p.send(&contracts.Result{ID: &f.ID, Seq: 2, Cursor: 3})
		if got := <-done; got.err != nil {
			t.Errorf("got %v, want a result", got.err)
		}
	})
}

func TestLeaseFrameMayFollowDialAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		served := make(chan *peer)
		go func() {
			p := <-s.peers
			followed()(p)
			f := expect[*contracts.TakeControl](p)
			p.send(&contracts.Result{ID: &f.ID, Seq: 2})
			served <- p
		}()
		c, err := Dial(t.Context(), "ws://fake", WithDialer(s.dial))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.TakeControl(t.Context()); err != nil {
			t.Fatalf("got %v, want the answer of the server", err)
		}
		_ = (<-served).conn.CloseNow()
		_ = c.Close(false)
	})
}

func TestTakeoverIsNeverSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, p := driving(t)
		done := background(func() (contracts.Result, error) { return c.TakeControl(t.Context()) })
		expect[*contracts.TakeControl](p)
		_ = p.conn.CloseNow()
		if got := <-done; !errors.Is(got.err, ErrAnswerLost) {
			t.Errorf("got %+v, want ErrAnswerLost", got)
		}
		wantKind(t, c, KindDisconnected)
		if _, err := c.TakeControl(t.Context()); !errors.Is(err, ErrNotConnected) {
			t.Errorf("while disconnected: got %v, want ErrNotConnected", err)
		}
		s.next()
	})
}

func TestAtMostThirtyTwoCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, p := driving(t)
		var done []<-chan outcome
		for range contracts.MaxUnanswered + 1 {
			done = append(done, background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "hi") }))
		}
		var ids []string
		for range contracts.MaxUnanswered {
			ids = append(ids, expect[*contracts.Send](p).ID)
		}
		synctest.Wait()
		extra := make(chan string, 1)
		go func() { extra <- expect[*contracts.Send](p).ID }()
		synctest.Wait()
		select {
		case <-extra:
			t.Fatalf("got %d unanswered frames, want at most %d", contracts.MaxUnanswered+1, contracts.MaxUnanswered)
		default:
		}
		p.send(&contracts.Result{ID: &ids[0], Seq: 2})
		ids = append(ids, <-extra)
		for i := range ids[1:] {
			p.send(&contracts.Result{ID: &ids[i+1], Seq: 2})
		}
		for _, d := range done {
			if got := <-d; got.err != nil {
				t.Error(got.err)
			}
		}
	})
}

func TestCallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, p := driving(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := background(func() (contracts.Result, error) { return c.Prompt(ctx, "hi") })
		f := expect[*contracts.Send](p)
		if got := <-done; !errors.Is(got.err, context.DeadlineExceeded) {
			t.Errorf("got %v, want deadline exceeded", got.err)
		}
		p.send(&contracts.Result{ID: &f.ID, Seq: 2}, status(3, "still here")) // the connection survives
		wantStatus(t, c, 3, "still here")
	})
}

func TestCallThatWasGivenUpIsNotSentLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, p := driving(t)
		s.setDown(true)
		_ = p.conn.CloseNow()
		wantKind(t, c, KindDisconnected)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Prompt(ctx, "given up"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want deadline exceeded", err)
		}
		done := background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "wanted") })
		s.setDown(false)
		p = s.next()
		expect[*contracts.Resume](p)
		greetWith(attached("conn_1", "e1", "replay"))(p)
		f := expect[*contracts.Send](p)
		if want := `{"type":"prompt","content":"wanted"}`; string(f.Message) != want {
			t.Errorf("got message %s, want %s", f.Message, want)
		}
		p.send(&contracts.Result{ID: &f.ID, Seq: 2})
		if got := <-done; got.err != nil {
			t.Error(got.err)
		}
	})
}

func TestCancelledCallLeavesTheOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, p := driving(t)
		before := background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "before") })
		first := expect[*contracts.Send](p)
		ctx, cancel := context.WithCancel(t.Context())
		given := background(func() (contracts.Result, error) { return c.Prompt(ctx, "given up") })
		expect[*contracts.Send](p)
		after := background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "after") })
		last := expect[*contracts.Send](p)
		cancel()
		if got := <-given; !errors.Is(got.err, context.Canceled) {
			t.Errorf("got %v, want context canceled", got.err)
		}
		p.send(&contracts.Result{ID: &first.ID, Seq: 2, Cursor: 3}, &contracts.Result{ID: &last.ID, Seq: 4, Cursor: 4})
		for cursor, done := range map[uint64]<-chan outcome{3: before, 4: after} {
			if got := <-done; got.err != nil || got.result.Cursor != cursor {
				t.Errorf("got %+v, want cursor %d", got, cursor)
			}
		}
	})
}

// TestCommandLostBeforeTheLastConnectionIsNotRepeated loses the first answer, and
// then the second connection before the command was written on it again.
func TestCommandLostBeforeTheLastConnectionIsNotRepeated(t *testing.T) {
	table := newCalls()
	table.link(false)
	c := &call{id: "1", frame: []byte("prompt"), repeat: true, done: make(chan answer, 1)}
	if err := table.add(c); err != nil || table.next() == nil {
		t.Fatalf("the command was not written: %v", err)
	}
	table.unlink()
	table.link(true) // the same connection continues and is lost at once
	table.unlink()
	table.link(false) // another connection, which does not know the id
	if frame := table.next(); frame != nil {
		t.Errorf("%q is written again, want it written once", frame)
	}
	select {
	case got := <-c.done:
		if !errors.Is(got.err, ErrAnswerLost) {
			t.Errorf("got %v, want ErrAnswerLost", got.err)
		}
	default:
		t.Error("the caller still waits")
	}
}

func TestLeaseChangeReachesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, p := driving(t)
		thief := "conn_2"
		p.send(&contracts.LeaseChange{ControllerConnectionID: &thief, Generation: 4, Reason: contracts.LeaseTakenOver},
			&contracts.ControlRequest{ConnectionID: "conn_3", Reason: "my turn"})
		u := wantKind(t, c, KindControl)
		if f, ok := u.Control.(*contracts.LeaseChange); !ok || f.Reason != contracts.LeaseTakenOver {
			t.Errorf("got %+v, want a take-over", u.Control)
		}
		if a := c.Attached(); a.ControllerLeaseGranted || *a.ControllerConnectionID != thief {
			t.Errorf("Attached: got %+v, want the lease at %s", a, thief)
		}
		if f, ok := wantKind(t, c, KindControl).Control.(*contracts.ControlRequest); !ok || f.ConnectionID != "conn_3" {
			t.Errorf("got %+v, want the request of conn_3", f)
		}
	})
}

func TestCloseSaysGoodbye(t *testing.T) {
	for keep, code := range map[bool]websocket.StatusCode{false: websocket.StatusNormalClosure, true: websocket.StatusGoingAway} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			c, p := s.connect(followed(), withBuffer(1))
			left := make(chan *contracts.Bye, 1)
			go func() {
				left <- expect[*contracts.Bye](p)
				_ = p.conn.Close(code, "")
			}()
			began := time.Now()
			if err := c.Close(keep); err != nil {
				t.Fatal(err)
			}
			if f := <-left; f.Keep != keep {
				t.Errorf("got keep %v, want %v", f.Keep, keep)
			}
			if waited := time.Since(began); waited != 0 {
				t.Errorf("Close took %v although the server answered at once", waited)
			}
			if _, err := c.Next(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("Next: got %v, want ErrClosed", err)
			}
			if _, err := c.Prompt(t.Context(), "hi"); err == nil {
				t.Error("Prompt: got no error after Close")
			}
			for range c.Updates(t.Context()) {
				t.Error("Updates: got an update after Close")
			}
		})
	}
}

func TestCloseDoesNotWaitForADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, _ := s.connect(followed())
		began := time.Now()
		_ = c.Close(false)
		if waited := time.Since(began); waited > closeTimeout {
			t.Errorf("Close took %v, want at most %v", waited, closeTimeout)
		}
	})
}

func TestCloseWhileDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, p := driving(t)
		s.setDown(true)
		_ = p.conn.CloseNow()
		wantKind(t, c, KindDisconnected)
		done := background(func() (contracts.Result, error) { return c.Prompt(t.Context(), "never") })
		synctest.Wait()
		_ = c.Close(false)
		if got := <-done; !errors.Is(got.err, ErrClosed) || errors.Is(got.err, ErrAnswerLost) {
			t.Errorf("got %v, want ErrClosed and no doubt about its execution", got.err)
		}
	})
}
