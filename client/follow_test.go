package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/contracts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// followed is the usual beginning: attached with a snapshot at cursor 2.
func followed() func(*peer) {
	return greetWith(attached("conn_1", "e1", "snapshot"), &contracts.SnapshotEnvelope{Snapshot: snapshot(2)})
}

func TestFirstAttachAsksForASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed(), WithToken("secret"), WithRole(contracts.RoleController),
			WithSession("sess_a", true), WithTakeover(contracts.TakeoverForce))

		want := map[string]string{"role": "controller", "sessionId": "sess_a", "create": "1", "takeControl": "1",
			"cursor": "", "epoch": "", "connectionId": "", "turns": ""}
		for key, value := range want {
			if got := p.query.Get(key); got != value {
				t.Errorf("query %s: got %q, want %q", key, got, value)
			}
		}
		if got := p.header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("Authorization: got %q", got)
		}
		if a := wantKind(t, c, KindConnected).Attached; a.ConnectionID != "conn_1" || c.Attached().ConnectionID != "conn_1" {
			t.Errorf("got connections %q and %q, want conn_1", a.ConnectionID, c.Attached().ConnectionID)
		}
		u := wantKind(t, c, KindSnapshot)
		if u.Cursor != 2 || u.Epoch != "e1" || u.Snapshot.State.Model != "atlas" {
			t.Errorf("got snapshot %+v", u)
		}
		if got := c.State().Model; got != "atlas" {
			t.Errorf("State: got model %q, want atlas", got)
		}
	})
}

// TestTailStartsWithTheLatestEntries has a session of 7 entries.
func TestTailStartsWithTheLatestEntries(t *testing.T) {
	for _, test := range []struct {
		tail, skipped uint64
		resume        string
	}{{3, 4, "replay"}, {7, 0, "replay"}, {100, 0, "replay"}, {3, 7, "reset"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			first := greetWith(attached("conn_1", "e1", "snapshot"), &contracts.SnapshotEnvelope{Snapshot: snapshot(7)})
			c, _ := s.connect(func(p *peer) {
				first(p)
				before := p
				p = s.next()
				if _, _, err := before.conn.Read(t.Context()); err == nil {
					t.Error("the client holds its first connection while it continues it")
				}
				want := map[string]string{"connectionId": "conn_1", "epoch": "e1", "takeControl": "later",
					"cursor": strconv.FormatUint(7-min(test.tail, 7), 10)}
				for key, value := range want {
					if got := p.query.Get(key); got != value {
						t.Errorf("query %s: got %q, want %q", key, got, value)
					}
				}
				expect[*contracts.Resume](p)
				greetWith(attached("conn_1", "e1", test.resume))(p)
				if test.resume == "reset" {
					p.send(&contracts.ResetEnvelope{Reason: contracts.ResetGap, Snapshot: snapshot(3)})
				}
				p.send(message(7, &contracts.ResponseStart{ResponseID: "r1"}), message(8, &contracts.ResponseStart{ResponseID: "r2"}))
			}, WithRole(contracts.RoleController), WithTakeover(contracts.TakeoverForce), WithTail(test.tail))
			if c.Skipped() != test.skipped || c.State().Model != "atlas" {
				t.Errorf("tail %d: got %d entries skipped and %+v, want %d and the state", test.tail, c.Skipped(), c.State(), test.skipped)
			}
			wantKind(t, c, KindConnected)
			reset := test.resume == "reset"
			if reset {
				wantKind(t, c, KindReset)
			}
			if u := wantKind(t, c, KindEvent); u.Cursor != 7 || u.Replayed == reset || (c.State().CurrentResponse != nil) != reset {
				t.Errorf("got %+v and %+v, want what the state has already, unless a reset came", u, c.State().CurrentResponse)
			}
			wantKind(t, c, KindEvent)
			if st := c.State(); st.CurrentResponse == nil || st.CurrentResponse.ResponseID != "r2" {
				t.Errorf("got %+v, want the state of after the tail", st.CurrentResponse)
			}
		})
	}
}

func TestTailThatTheServerRefusesIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		failed := s.dialing(WithTail(1))
		p := s.next()
		s.refuse(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
		followed()(p)
		if e, ok := errors.AsType[*CloseError](<-failed); !ok || e.Status != http.StatusForbidden {
			t.Errorf("got %v, want status 403", e)
		}
	})
}

// TestLastChoiceOfWhereToBeginCounts gives several options that choose it.
func TestLastChoiceOfWhereToBeginCounts(t *testing.T) {
	cursor, history, tail := WithCursor("e1", 5), WithHistory(), WithTail(3)
	for _, test := range []struct {
		name          string
		opts          []Option
		cursor, epoch string
		tail          uint64
	}{
		{"tail, history", []Option{tail, history}, "0", "", 0},
		{"tail, cursor", []Option{tail, cursor}, "5", "e1", 0},
		{"cursor, history", []Option{cursor, history}, "0", "", 0},
		{"cursor, tail", []Option{cursor, tail}, "", "", 3},
		{"history, tail", []Option{history, tail}, "", "", 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			resume := "replay"
			if test.tail > 0 {
				resume = "snapshot"
			}
			c, _ := s.connect(func(p *peer) {
				if got := p.query.Get("cursor"); got != test.cursor {
					t.Errorf("%s: got cursor %q, want %q", test.name, got, test.cursor)
				}
				if p.query.Has("create") || p.query.Has("takeControl") {
					t.Errorf("%s: got query %v, want neither a new session nor a takeover", test.name, p.query)
				}
				if got := p.query.Get("epoch"); got != test.epoch {
					t.Errorf("%s: got epoch %q, want %q", test.name, got, test.epoch)
				}
				greetWith(attached("conn_1", "e1", resume), status(6, "a"), &contracts.SnapshotEnvelope{Snapshot: snapshot(7)})(p)
				if test.tail > 0 {
					p = s.next()
					expect[*contracts.Resume](p)
					greetWith(attached("conn_1", "e1", "replay"))(p)
				}
			}, test.opts...)
			if want := uint64(7-3) * min(test.tail, 1); c.Skipped() != want {
				t.Errorf("%s: got %d entries skipped, want %d", test.name, c.Skipped(), want)
			}
		})
	}
}

// TestTailOfASilentServerEnds has the state not come.
func TestTailOfASilentServerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		failed := s.dialing(WithTail(1))
		greetWith(attached("conn_1", "e1", "snapshot"))(s.next())
		if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want deadline exceeded", err)
		}
	})
}

func TestCallerEndsTheUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, _ := s.connect(followed())
		for _, want := range []Kind{KindConnected, KindSnapshot} {
			for u, err := range c.Updates(t.Context()) {
				if u.Kind != want || err != nil {
					t.Errorf("got a %s update and %v, want %s", u.Kind, err, want)
				}
				break
			}
		}
	})
}

func TestStateFollowsWhatNextReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed())
		p.send(message(3, &contracts.ResponseStart{ResponseID: "r1"}),
			message(4, &contracts.ResponseChunk{ResponseID: "r1", Content: "Hello"}))
		synctest.Wait()
		if c.State().IsReady {
			t.Error("the state is ahead of Next")
		}
		for range 4 {
			next(t, c)
		}
		st := c.State()
		if st.CurrentResponse == nil || st.CurrentResponse.Text != "Hello" {
			t.Errorf("got response %+v, want Hello", st.CurrentResponse)
		}
	})
}

func TestNothingIsShownTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed())
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		p.send(status(2, "old"), status(5, "five"), status(5, "again"), status(4, "older"),
			&contracts.SnapshotEnvelope{Snapshot: snapshot(5)}, &contracts.HeartbeatEnvelope{Cursor: 4},
			&contracts.HeartbeatEnvelope{Cursor: 5}, &contracts.HeartbeatEnvelope{Cursor: 9}, status(8, "eight"))
		wantStatus(t, c, 5, "five")
		for _, want := range []uint64{5, 9} { // the one at 4 is older than what was shown
			if u := wantKind(t, c, KindHeartbeat); u.Cursor != want {
				t.Errorf("got the heartbeat at %d, want that at %d", u.Cursor, want)
			}
		}
		wantStatus(t, c, 8, "eight") // a heartbeat does not advance: what it repeats may be on its way
	})
}

func TestResetIsAlwaysApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed())
		p.send(status(7, "seven"), &contracts.ResetEnvelope{Reason: contracts.ResetRestored, Snapshot: snapshot(3)}, status(4, "four"))
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		wantStatus(t, c, 7, "seven")
		if u := wantKind(t, c, KindReset); u.Reason != contracts.ResetRestored || u.Cursor != 3 {
			t.Errorf("got reset %q at %d, want restored_from_snapshot at 3", u.Reason, u.Cursor)
		}
		wantStatus(t, c, 4, "four")
	})
}

// TestStateOfANewEpochMayBeOlder has a server that lost its latest entries.
func TestStateOfANewEpochMayBeOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(greetWith(attached("conn_1", "e1", "snapshot"), &contracts.SnapshotEnvelope{Snapshot: snapshot(9)}))
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		_ = p.conn.CloseNow()
		wantKind(t, c, KindDisconnected)
		p = s.next()
		expect[*contracts.Resume](p)
		greetWith(attached("conn_2", "e2", "snapshot"), &contracts.SnapshotEnvelope{Snapshot: snapshot(4)}, status(5, "five"))(p)
		wantKind(t, c, KindConnected)
		if u := wantKind(t, c, KindSnapshot); u.Cursor != 4 || u.Epoch != "e2" || u.Replayed {
			t.Errorf("got %+v, want the snapshot at 4 of e2", u)
		}
		wantStatus(t, c, 5, "five")
	})
}

func TestLargeEntryIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed())
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		large := strings.Repeat("x", 1<<20)
		p.send(status(3, large))
		wantStatus(t, c, 3, large)
	})
}

func TestUnknownEventIsHandedOnUndecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed())
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		p.send(&contracts.MessageEnvelope{Cursor: 3, Message: []byte(`{"type":"hologram","x":1}`)}, status(4, "four"))
		if u := wantKind(t, c, KindUnknown); !strings.Contains(string(u.Body), "hologram") {
			t.Errorf("got body %s", u.Body)
		}
		wantStatus(t, c, 4, "four")
	})
}

func TestResumeContinuesExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed(), WithRole(contracts.RoleController), WithTakeover(contracts.TakeoverForce), WithSession("", true), WithTurns(3))
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		p.send(status(3, "three"))
		wantStatus(t, c, 3, "three")
		_ = p.conn.CloseNow() // the network goes away

		u := wantKind(t, c, KindDisconnected)
		if e, ok := errors.AsType[*CloseError](u.Err); !ok || e.Code != 1006 {
			t.Errorf("got cause %v, want 1006", u.Err)
		}
		p = s.next()
		want := map[string]string{"cursor": "3", "epoch": "e1", "connectionId": "conn_1", "sessionId": "sess_a", "takeControl": "later", "create": "", "turns": ""}
		for key, value := range want {
			if got := p.query.Get(key); got != value {
				t.Errorf("query %s: got %q, want %q", key, got, value)
			}
		}
		if r := expect[*contracts.Resume](p); r.ConnectionToken != "token-of-conn_1" {
			t.Errorf("got token %q", r.ConnectionToken)
		}
		expect[*contracts.Message](p) // hello
		p.send(attached("conn_1", "e1", "replay"), status(3, "three"), status(4, "four"),
			message(5, &contracts.HelloOK{ProtocolVersion: contracts.ProtocolVersion}), status(6, "six"))
		wantKind(t, c, KindConnected)
		if u := wantStatus(t, c, 4, "four"); !u.Replayed {
			t.Error("what was missed is not marked as replayed")
		}
		if u := wantKind(t, c, KindEvent); u.Replayed {
			t.Error("hello_ok is marked as replayed")
		}
		if u := wantStatus(t, c, 6, "six"); u.Replayed {
			t.Error("what is live is marked as replayed")
		}
	})
}

func TestGoneSessionIsStartedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed())
		go p.conn.Close(4404, "stale_session")
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		wantKind(t, c, KindDisconnected)
		p = s.next()
		for _, key := range []string{"cursor", "epoch", "connectionId"} {
			if p.query.Has(key) {
				t.Errorf("%s is presented to a server that does not know it", key)
			}
		}
		greetWith(attached("conn_9", "e9", "snapshot"), &contracts.SnapshotEnvelope{Snapshot: snapshot(1)})(p)
		wantKind(t, c, KindConnected)
		if u := wantKind(t, c, KindSnapshot); u.Cursor != 1 || u.Epoch != "e9" {
			t.Errorf("got snapshot at %s/%d, want e9/1", u.Epoch, u.Cursor)
		}
	})
}

// TestSessionThatIsNotMadeAgainEndsTheClient has the server refuse the client
// once more after it started over.
func TestSessionThatIsNotMadeAgainEndsTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed())
		tries := 0
		s.refuse(func(w http.ResponseWriter, _ *http.Request) {
			tries++
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":"Headless session not found","code":"stale_session"}`))
		})
		go p.conn.Close(4404, "stale_session")
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		wantKind(t, c, KindDisconnected)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		u, err := c.Next(ctx)
		if !errors.Is(err, &contracts.Error{Code: contracts.CodeStaleSession}) {
			t.Fatalf("got a %s update and %v, want the end because of stale_session", u.Kind, err)
		}
		if tries != 1 {
			t.Errorf("the client started over %d times, want once", tries)
		}
	})
}

// TestProxyThatRestartsIsWaitedFor has a proxy answer in the server's place.
func TestProxyThatRestartsIsWaitedFor(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c, p := driving(t)
				s.refuse(func(w http.ResponseWriter, _ *http.Request) {
					s.refuse(nil)
					http.Error(w, "<html>upstream</html>", status)
				})
				_ = p.conn.CloseNow()
				wantKind(t, c, KindDisconnected)
				if e, ok := errors.AsType[*CloseError](wantKind(t, c, KindDisconnected).Err); !ok || e.Status != status {
					t.Errorf("got %+v, want status %d", e, status)
				}
				p = s.next()
				if got := p.query.Get("cursor"); got != "2" {
					t.Errorf("the client comes back at cursor %q, want 2", got)
				}
				expect[*contracts.Resume](p)
				greetWith(attached("conn_1", "e1", "replay"))(p)
				wantKind(t, c, KindConnected)
			})
		})
	}
}

func TestServerOfAnotherProtocolIsRefused(t *testing.T) {
	for _, spoken := range [][]string{nil, {"maestro-headless.1999-01-01"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer(t)
			left := make(chan struct{})
			s.refuse(func(w http.ResponseWriter, r *http.Request) {
				if got, want := r.Header.Get("Sec-WebSocket-Protocol"), contracts.Subprotocol; got != want {
					t.Errorf("the client offers %q, want %q", got, want)
				}
				if len(spoken) > 0 { // as a server that does not look at what is offered
					r.Header.Set("Sec-WebSocket-Protocol", spoken[0])
				}
				conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: spoken})
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.CloseNow()
				_, _, _ = conn.Read(t.Context()) // until the client has left
				close(left)
			})
			_, err := Dial(t.Context(), "ws://fake", WithDialer(s.dial))
			if e, ok := errors.AsType[*CloseError](err); !ok || e.Code != 4426 {
				t.Errorf("a server that speaks %q: got %v, want 4426", spoken, err)
			}
			<-left
		})
	}
}

func TestStaleConnectionKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed())
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		s.refuse(func(w http.ResponseWriter, _ *http.Request) {
			s.refuse(nil)
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":"Headless connection not found","code":"stale_connection"}`))
		})
		_ = p.conn.CloseNow()
		wantKind(t, c, KindDisconnected)
		u := wantKind(t, c, KindDisconnected)
		if !errors.Is(u.Err, &contracts.Error{Code: contracts.CodeStaleConnection}) {
			t.Errorf("got %v, want stale_connection", u.Err)
		}
		p = s.next()
		if p.query.Has("connectionId") || p.query.Get("cursor") != "2" {
			t.Errorf("got query %v, want the cursor and no connection", p.query)
		}
	})
}

func TestBackoffDoublesToItsMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed())
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		s.setDown(true)
		_ = p.conn.CloseNow()
		full := 250 * time.Millisecond
		for range 10 {
			before := time.Now()
			got := wantKind(t, c, KindDisconnected).Retry
			if got > full || got < full/2 {
				t.Errorf("got a delay of %v, want at most %v and at least half of it", got, full)
			}
			time.Sleep(got)
			if waited := time.Since(before); waited > 10*time.Second {
				t.Errorf("waited %v", waited)
			}
			full = min(2*full, 10*time.Second)
		}
		s.setDown(false)
		followed()(func() *peer { p := s.next(); expect[*contracts.Resume](p); return p }())
		for u := next(t, c); u.Kind != KindConnected; u = next(t, c) {
			if u.Kind != KindDisconnected {
				t.Fatalf("got %s, want connected", u.Kind)
			}
		}
	})
}

func TestOnlyALongConnectionEndsTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed(), WithReconnect(Reconnect{First: time.Second, Max: 8 * time.Second}))
		for _, tt := range []struct{ stays, full time.Duration }{
			{0, time.Second}, {0, 2 * time.Second}, {7 * time.Second, 4 * time.Second}, {8 * time.Second, time.Second}, {0, 2 * time.Second},
		} {
			wantKind(t, c, KindConnected)
			wantKind(t, c, KindSnapshot)
			time.Sleep(tt.stays)
			_ = p.conn.CloseNow()
			if got := wantKind(t, c, KindDisconnected).Retry; got > tt.full || got < tt.full/2 {
				t.Errorf("after a connection of %v: got a delay of %v, want at most %v and at least half of it", tt.stays, got, tt.full)
			}
			p = s.next()
			expect[*contracts.Resume](p)
			followed()(p)
		}
	})
}

func TestServerNamesTheRetryTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed())
		p.send(&contracts.Goodbye{Code: 4503, Reason: "runtime_not_ready", Resume: true, RetryAfterMS: 60_000})
		go p.conn.Close(4503, "runtime_not_ready")
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		if got := wantKind(t, c, KindDisconnected).Retry; got != time.Minute {
			t.Errorf("got a delay of %v, want 1m0s", got)
		}
	})
}

func TestReconnectGivesUpAfterItsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed(), WithReconnect(Reconnect{Attempts: 2}))
		s.setDown(true)
		_ = p.conn.CloseNow()
		lost := 0
		for u, err := range c.Updates(t.Context()) {
			if err != nil {
				if e, ok := errors.AsType[*CloseError](err); !ok || e.Code != 1006 {
					t.Errorf("got %v, want 1006", err)
				}
				break
			}
			if u.Kind == KindDisconnected {
				lost++
			}
		}
		if lost != 2 {
			t.Errorf("got %d attempts, want 2", lost)
		}
	})
}

// TestCloseCodes holds the table of 9.5.
func TestCloseCodes(t *testing.T) {
	for _, test := range []struct {
		code   int
		reason contracts.Code
		want   step
	}{
		{1000, "", stepStop},
		{1001, contracts.CodeGoingAway, stepResume},
		{1003, "", stepStop},
		{1006, "", stepResume},
		{1007, "", stepStop},
		{1009, contracts.CodePayloadTooLarge, stepStop},
		{1011, contracts.CodeInternal, stepResume},
		{1011, contracts.CodeStaleConnection, stepNewConnection},
		{1013, contracts.CodeOverloaded, stepResume},
		{4400, contracts.CodeBadRequest, stepStop},
		{4401, contracts.CodeUnauthenticated, stepStop},
		{4403, contracts.CodeAccessDenied, stepStop},
		{4404, contracts.CodeStaleSession, stepStartOver},
		{4408, contracts.CodeTimeout, stepResume},
		{4409, contracts.CodeControllerLeaseHeld, stepStop},
		{4410, contracts.CodeSuperseded, stepStop},
		{4421, contracts.CodeRuntimeOwnedElsewhere, stepStop},
		{4426, contracts.CodeUpgradeRequired, stepStop},
		{4429, contracts.CodeSlowConsumer, stepResume},
		{4503, contracts.CodeRuntimeNotReady, stepResume},
	} {
		e := &CloseError{Code: test.code, Reason: test.reason}
		if got := stepAfter(e); got != test.want {
			t.Errorf("%d %s: got step %d, want %d", test.code, test.reason, got, test.want)
		}
	}
}

func TestFinalCloseCodesEndTheClient(t *testing.T) {
	for _, code := range []contracts.Code{
		"", contracts.CodeBadRequest, contracts.CodeUnauthenticated, contracts.CodeAccessDenied,
		contracts.CodeControllerLeaseHeld, contracts.CodeSuperseded, contracts.CodeUpgradeRequired,
	} {
		t.Run("code="+string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer(t)
				c, p := s.connect(followed())
				want := 1000
				if code != "" {
					want = code.CloseCode()
				}
				go p.conn.Close(websocket.StatusCode(want), string(code))
				wantKind(t, c, KindConnected)
				wantKind(t, c, KindSnapshot)
				_, err := c.Next(t.Context())
				if e, ok := errors.AsType[*CloseError](err); !ok || e.Code != want {
					t.Fatalf("got %v, want close code %d", err, want)
				}
				if code != "" && !errors.Is(err, &contracts.Error{Code: code}) {
					t.Errorf("%v is not a contracts.Error of code %s", err, code)
				}
				if _, err := c.Prompt(t.Context(), "hi"); err == nil {
					t.Error("a prompt was sent by a client that has ended")
				}
			})
		})
	}
}

func TestRefusedUpgradeIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		s.refuse(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"error":"Controller lease is already held by another connection","code":"controller_lease_held"}`))
		})
		_, err := Dial(t.Context(), "ws://fake", WithDialer(s.dial))
		e, ok := errors.AsType[*CloseError](err)
		if !ok || e.Code != 4409 || e.Status != http.StatusConflict || e.RetryAfter != 7*time.Second {
			t.Fatalf("got %#v, want 4409 after 7s", err)
		}
		if !errors.Is(err, &contracts.Error{Code: contracts.CodeControllerLeaseHeld}) {
			t.Errorf("%v is not controller_lease_held", err)
		}
		if want := "Controller lease is already held by another connection"; e.Message != want {
			t.Errorf("got %q, want %q", e.Message, want)
		}
	})
}

func TestFailedDialSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		s.refuse(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
		_, err := Dial(t.Context(), "ws://me:secret@fake/x?ticket=secret", WithDialer(s.dial))
		if got, want := fmt.Sprint(err), "attach to fake: not a Maestro server: status 200: from http://fake/x/api/headless/ws"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		server := s.server(nil)
		s.setDown(true)
		_, err = Dial(t.Context(), "ws://fake", WithDialer(s.dial))
		_, listed := server.Inbox(t.Context())
		for _, err := range []error{err, listed} {
			if got := fmt.Sprint(err); !strings.Contains(got, "cannot connect: ") || strings.Contains(got, "1006") {
				t.Errorf("got %s, want that it cannot connect", got)
			}
		}
	})
}

func TestRefusedHelloIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		failed := s.dialing()
		p := s.next()
		expect[*contracts.Message](p)
		p.send(&contracts.Refusal{Seq: 1, Message: "no such role", Code: contracts.CodeRoleConflict, ErrorType: contracts.CodeRoleConflict})
		go p.conn.Close(4409, "role_conflict")
		if err := <-failed; !errors.Is(err, &contracts.Error{Code: contracts.CodeRoleConflict}) || !strings.Contains(err.Error(), "no such role") {
			t.Errorf("got %v, want role_conflict: no such role", err)
		}
	})
}

// TestServerMayTakeAMinuteToOpenASession has an agent start slowly.
func TestServerMayTakeAMinuteToOpenASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		s.refuse(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Minute)
			s.refuse(nil)
			s.ServeHTTP(w, r)
		})
		c, _ := s.connect(followed())
		wantKind(t, c, KindConnected)
	})
}

func TestServerThatNeverAnswersIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		s.refuse(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		began := time.Now()
		_, err := Dial(t.Context(), "ws://fake", WithDialer(s.dial))
		if waited := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || waited != openTimeout {
			t.Errorf("got %v after %v, want deadline exceeded after %v", err, waited, openTimeout)
		}
	})
}

func TestSilentHandshakeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		began := time.Now()
		failed := s.dialing()
		expect[*contracts.Message](s.next())
		if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want deadline exceeded", err)
		}
		if got := time.Since(began); got != contracts.DefaultHandshakeTimeout {
			t.Errorf("gave up after %v, want %v", got, contracts.DefaultHandshakeTimeout)
		}
	})
}

func TestSilentServerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed())
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		go p.conn.Read(t.Context()) // takes pongs
		time.Sleep(40 * time.Second)
		if err := p.conn.Ping(t.Context()); err != nil {
			t.Fatalf("ping: %v", err)
		}
		began := time.Now()
		u := wantKind(t, c, KindDisconnected)
		if got := time.Since(began); got != 45*time.Second || !errors.Is(u.Err, errSilent) {
			t.Errorf("left after %v because of %v, want 45s after the ping because of silence", got, u.Err)
		}
	})
}

func TestServerThatIsSilentFromTheStartIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := driving(t)
		began := time.Now()
		u := wantKind(t, c, KindDisconnected)
		if got := time.Since(began); got != 45*time.Second || !errors.Is(u.Err, errSilent) {
			t.Errorf("left after %v because of %v, want after 45s because of silence", got, u.Err)
		}
	})
}

func TestSlowCallerHoldsTheServerBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed(), withBuffer(1000))
		sent := make(chan int, 1)
		go func() {
			for i := range 200 {
				p.send(status(uint64(i+3), strings.Repeat("x", 100)))
			}
			sent <- 200
		}()
		time.Sleep(time.Hour) // longer than any silence the client would bear
		select {
		case <-sent:
			t.Fatal("everything was taken from the server, want at most the buffer")
		default:
		}
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		for i := range 200 {
			wantStatus(t, c, uint64(i+3), strings.Repeat("x", 100))
		}
		<-sent
	})
}

// TestCallerMayBeSlowAtAReconnect has a full queue while the client connects again.
func TestCallerMayBeSlowAtAReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		c, p := s.connect(followed(), WithBuffer(1))
		wantKind(t, c, KindConnected)
		wantKind(t, c, KindSnapshot)
		_ = p.conn.CloseNow()
		p = s.next()
		expect[*contracts.Resume](p)
		greetWith(attached("conn_1", "e1", "replay"))(p)
		time.Sleep(time.Hour) // longer than any silence the client would bear
		wantKind(t, c, KindDisconnected)
		wantKind(t, c, KindConnected)
		p.send(status(3, "three"))
		wantStatus(t, c, 3, "three")
	})
}

func TestTokenFileIsReadForEachConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		_, p := s.connect(followed(), WithTokenFile(path))
		if got := p.header.Get("Authorization"); got != "Bearer first" {
			t.Errorf("got %q, want Bearer first", got)
		}
		write("second")
		_ = p.conn.CloseNow()
		if got := s.next().header.Get("Authorization"); got != "Bearer second" {
			t.Errorf("got %q, want Bearer second", got)
		}
	})
}

func TestHeadersAreSetForEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		mine := WithHeader(func(h http.Header) {
			calls++
			h.Set("Cookie", h.Get("Authorization")+fmt.Sprint(" user=", calls))
		})
		s := newFakeServer(t)
		_, p := s.connect(followed(), WithToken("t"), mine)
		want := func(header http.Header, call int) {
			t.Helper()
			if got, want := header.Get("Cookie"), fmt.Sprint("Bearer t user=", call); got != want {
				t.Errorf("got cookie %q, want %q", got, want)
			}
		}
		want(p.header, 1)
		_ = p.conn.CloseNow()
		want(s.next().header, 2)
		server := s.server(func(w http.ResponseWriter, r *http.Request) {
			want(r.Header, 3)
			_, _ = w.Write([]byte(`{}`))
		}, WithToken("t"), mine)
		if _, err := server.Inbox(t.Context()); err != nil || calls != 3 {
			t.Errorf("got %v after %d calls, want three requests with headers", err, calls)
		}
	})
}

func TestHeadersDoNotFollowARedirectToAnotherHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		var paths []string
		s.refuse(func(w http.ResponseWriter, r *http.Request) {
			paths = append(paths, r.Host+r.URL.Path)
			switch len(paths) {
			case 1:
				http.Redirect(w, r, "/again/ws", http.StatusFound)
			case 2:
				http.Redirect(w, r, "http://elsewhere/ws", http.StatusFound)
			default:
				http.NotFound(w, r)
			}
		})
		_, err := Dial(t.Context(), "ws://fake", WithDialer(s.dial))
		if e, ok := errors.AsType[*CloseError](err); !ok || e.Status != http.StatusFound {
			t.Errorf("got %v, want the redirect", err)
		}
		if want := []string{"fake/api/headless/ws", "fake/again/ws"}; !slices.Equal(paths, want) {
			t.Errorf("got requests for %q, want %q", paths, want)
		}
	})
}

func TestRedirectsMayAddTLSAndNotRemoveIt(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		before   int // requests
		followed bool
	}{
		{"http://h/", "https://h/", 1, true}, {"https://h/", "https://h/x", 1, true}, {"https://h/", "http://h/", 1, false},
		{"http://h/", "http://h/x", 9, true}, {"http://h/", "http://h/x", 10, false},
	} {
		from, to := httptest.NewRequest("GET", tt.from, nil), httptest.NewRequest("GET", tt.to, nil)
		if err := sameHost(to, slices.Repeat([]*http.Request{from}, tt.before)); (err == nil) != tt.followed {
			t.Errorf("%s to %s after %d requests: got %v, want followed %v", tt.from, tt.to, tt.before, err, tt.followed)
		}
	}
}

func TestTokenOutlivesItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t)
		_, p := s.connect(followed(), WithTokenFile(path))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		_ = p.conn.CloseNow()
		if got := s.next().header.Get("Authorization"); got != "Bearer first" {
			t.Errorf("got %q, want Bearer first", got)
		}
		if _, err := Dial(t.Context(), "ws://fake", WithDialer(s.dial), WithTokenFile(path)); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "cannot connect") {
			t.Errorf("got %v, want that the first connection needs the file", err)
		}
	})
}

func TestEndpointOfAURL(t *testing.T) {
	for _, test := range []struct{ base, address, ticket string }{
		{"http://h:1", "http://h:1/api/headless/ws", ""},
		{"ws://h:1/", "ws://h:1/api/headless/ws", ""},
		{"https://h/team", "https://h/team/api/headless/ws", ""},
		{"ws://h/api/headless/ws", "ws://h/api/headless/ws", ""},
		{"ws://h/api/headless/sessions/s1/ws", "ws://h/api/headless/sessions/s1/ws", ""},
		{"http://h:1/?ticket=abc#x", "http://h:1/api/headless/ws", "abc"},
		{"h:1", "", ""},
		{"ftp://h", "", ""},
		{"http://", "", ""},
	} {
		u, ticket, err := endpoint(test.base)
		switch {
		case test.address == "":
			if err == nil {
				t.Errorf("endpoint(%q): got %v, want an error", test.base, u)
			}
		case err != nil || u.String() != test.address || ticket != test.ticket:
			t.Errorf("endpoint(%q): got %v, %q, %v; want %s, %q", test.base, u, ticket, err, test.address, test.ticket)
		}
	}
}
