package hub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// logged keeps what a logger was given.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) wants(t *testing.T, text string) {
	t.Helper()
	if got := l.text(); !strings.Contains(got, text) {
		t.Errorf("log: got %s, want a line with %s", got, text)
	}
}

// A soloist is a room whose agent the test plays by hand.
type soloist struct {
	*room
	agent *player
}

// withSoloist runs a test in a bubble with an agent that stays silent.
func withSoloist(t *testing.T, opts hub.Options, test func(t *testing.T, s *soloist)) {
	synctest.Test(t, func(t *testing.T) {
		agent := newPlayer(nil)
		opts.Agent = agent
		s := &soloist{openRoom(t, opts), agent}
		defer s.close()
		test(t, s)
	})
}

// say publishes n chunks of a response, each with its number, padded to size.
func (s *soloist) say(from, n, size int) {
	s.t.Helper()
	for i := from; i < from+n; i++ {
		text := fmt.Sprintf("%d;", i)
		text += strings.Repeat(".", max(0, size-len(text)))
		if err := s.agent.host.Publish(context.Background(), &contracts.ResponseChunk{ResponseID: "r", Content: text}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// begin opens the response that say continues.
func (s *soloist) begin() {
	s.t.Helper()
	if err := s.agent.host.Publish(context.Background(), &contracts.ResponseStart{ResponseID: "r"}); err != nil {
		s.t.Fatal(err)
	}
}

// end closes it.
func (s *soloist) end() {
	s.t.Helper()
	if err := s.agent.host.Publish(context.Background(), &contracts.ResponseEnd{
		ResponseID: "r", Usage: contracts.Usage{ModelID: "m", Provider: "p"}, ToolsSummary: contracts.ToolsSummary{ToolsUsed: []string{}},
	}); err != nil {
		s.t.Fatal(err)
	}
}

// chunks returns the text of the response in what a client read, the number of
// frames that carried it, and the last cursor. The cursors must grow.
func (s *soloist) chunks(texts string) (all string, frames int, last uint64) {
	s.t.Helper()
	for line := range strings.Lines(texts) {
		m, ok := s.decode(line).(*contracts.MessageEnvelope)
		if !ok {
			continue
		}
		if m.Cursor <= last {
			s.t.Errorf("cursor: got %d after %d, want a larger one", m.Cursor, last)
		}
		last = m.Cursor
		ev, err := (&contracts.Decoder{}).Event(m.Message)
		if err != nil {
			s.t.Fatal(err)
		}
		if c, ok := ev.(*contracts.ResponseChunk); ok {
			all += c.Content
			frames++
		}
	}
	return all, frames, last
}

// numbered is what say said, without the padding.
func numbered(from, n int) string {
	var b strings.Builder
	for i := from; i < from+n; i++ {
		fmt.Fprintf(&b, "%d;", i)
	}
	return b.String()
}

func unpadded(s string) string { return strings.ReplaceAll(s, ".", "") }

// silent is a hello of a client that wants nothing beside the session.
const silent = `{"type":"hello","opt_out_notifications":["heartbeat","status","connection_info"]}`

func TestFrozenViewerHoldsUpNobodyAndReadsItAllLater(t *testing.T) { // D1, D5
	opts := hub.Options{WindowBytes: 64 << 10, HeartbeatInterval: time.Hour}
	withSoloist(t, opts, func(t *testing.T, s *soloist) {
		quick, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		slow, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		s.until(slow, `"hello_ok"`)
		s.until(quick, `"hello_ok"`)
		slow.Freeze()
		s.begin()
		const said, size = 5000, 100 // well beyond the window
		began := time.Now()
		s.say(0, said, size)
		s.end()
		quickly, _, _ := s.chunks(s.until(quick, `"response_end"`))
		if unpadded(quickly) != numbered(0, said) {
			t.Errorf("quick viewer: got %d bytes, want all in order", len(quickly))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("got %v of waiting for the frozen viewer, want none", took)
		}
		slow.Thaw()
		slowly, merged, _ := s.chunks(s.until(slow, `"response_end"`))
		if slowly != quickly {
			t.Errorf("slow viewer: got %d bytes, want the %d of the quick one", len(slowly), len(quickly))
		}
		if merged > said/2 {
			t.Errorf("slow viewer: got %d frames, want far fewer than %d", merged, said)
		}
		if n := s.Metrics().SlowConsumers.Load(); n != 0 {
			t.Errorf("slow consumers: got %d, want none closed", n)
		}
	})
}

func TestBlockedWriteClosesAndResumesExactly(t *testing.T) { // D5
	withSoloist(t, hub.Options{HeartbeatInterval: time.Hour}, func(t *testing.T, s *soloist) {
		slow, told := s.attach(contracts.Attach{Role: contracts.RoleController}, silent)
		s.until(slow, `"hello_ok"`)
		s.begin()
		s.say(0, 10, 0)
		first, _, last := s.chunks(s.until(slow, `"9;"`))
		slow.Freeze()
		s.say(10, 10, 0)
		time.Sleep(contracts.DefaultWriteTimeout - time.Millisecond)
		synctest.Wait()
		if _, closed := slow.Closed(); closed {
			t.Error("closed before the write timeout, want open")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if why, closed := slow.Closed(); !closed || why == nil || why.Code != contracts.CodeSlowConsumer || !why.Code.Retryable() {
			t.Errorf("got %v, %t, want closed with slow_consumer, which says come back", why, closed)
		}
		if n := s.Metrics().SlowConsumers.Load(); n != 1 {
			t.Errorf("slow consumers: got %d, want 1", n)
		}
		s.say(20, 10, 0)
		s.end()

		cursor := int64(last)
		att, _ := comeBack(told)
		att.Cursor = &cursor
		again, back := s.attach(att, `{"type":"ws.resume","connection_token":"`+told.ConnectionToken+`"}`, silent)
		if back.Resume != "replay" || back.ConnectionID != told.ConnectionID {
			t.Errorf("got %+v, want connection %s and a replay", back, told.ConnectionID)
		}
		rest, _, _ := s.chunks(s.until(again, `"response_end"`))
		if first+rest != numbered(0, 30) {
			t.Errorf("got %s and %s, want 0 to 29 without a hole", first, rest)
		}
	})
}

func TestClientThatLeavesIsNotCountedAsSlow(t *testing.T) {
	withSoloist(t, hub.Options{HeartbeatInterval: time.Hour}, func(t *testing.T, s *soloist) {
		viewer, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		s.until(viewer, `"hello_ok"`)
		viewer.Freeze()
		s.begin()
		synctest.Wait() // a write is blocked
		if n := s.Followers(); n != 1 {
			t.Errorf("followers: got %d, want 1", n)
		}
		viewer.Close()
		synctest.Wait()
		if n := s.Followers(); n != 0 {
			t.Errorf("followers: got %d, want none", n)
		}
		if n := s.Metrics().SlowConsumers.Load(); n != 0 {
			t.Errorf("slow consumers: got %d, want none", n)
		}
	})
}

// A broken connection is one whose peer has left, as its next write finds out.
type broken struct{ hub.Conn }

func (broken) Write([]byte) error { return fmt.Errorf("write: %w", syscall.ECONNRESET) }

func TestClientThatResetsItsConnectionIsNotCountedAsSlow(t *testing.T) {
	withSoloist(t, hub.Options{HeartbeatInterval: time.Hour}, func(t *testing.T, s *soloist) {
		conn, viewer := memconn.New(memconn.Options{})
		s.serve(broken{conn}, viewer, contracts.Attach{Role: contracts.RoleViewer}, silent)
		synctest.Wait()
		if _, closed := viewer.Closed(); !closed {
			t.Error("the connection is open, want it closed")
		}
		if n := s.Metrics().SlowConsumers.Load(); n != 0 {
			t.Errorf("slow consumers: got %d, want none", n)
		}
	})
}

func TestTooManyUnreadAnswersCloseTheConnection(t *testing.T) {
	opts := hub.Options{MaxPrivateBytes: 4 << 10, HeartbeatInterval: time.Hour}
	withSoloist(t, opts, func(t *testing.T, s *soloist) {
		greedy, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		other, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		s.until(greedy, `"hello_ok"`)
		greedy.Freeze()
		sent := 0
		for ; sent < 1000; sent++ {
			if err := greedy.Send(`{"type":"ws.ping","id":"p"}`); err != nil {
				break
			}
			synctest.Wait()
		}
		if why, closed := greedy.Closed(); !closed || why == nil || why.Code != contracts.CodeSlowConsumer {
			t.Errorf("after %d pings: got %v, %t, want closed with slow_consumer", sent, why, closed)
		}
		if sent > 4<<10/20 { // no pong is shorter than 20 bytes
			t.Errorf("got %d unread answers kept, want at most 4 KiB of them", sent)
		}
		if n := s.Metrics().SlowConsumers.Load(); n != 1 {
			t.Errorf("slow consumers: got %d, want 1", n)
		}
		s.send(other, `{"type":"ws.ping","id":"p"}`)
		s.until(other, `"ws.pong"`)
	})
}

// overtake freezes a viewer and lets retention remove what it has not read.
func overtake(s *soloist) *memconn.Peer {
	slow, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
	s.until(slow, `"hello_ok"`)
	s.begin()
	slow.Freeze()
	s.say(0, 1, 0)
	synctest.Wait() // a write is blocked
	s.say(1, 1999, 200)
	return slow
}

func tight() hub.Options {
	return hub.Options{
		WindowBytes: 16 << 10, HeartbeatInterval: time.Hour,
		Store: journal.NewMemory(journal.MemoryOptions{RetainBytes: 64 << 10}),
	}
}

func TestViewerOvertakenByRetentionStartsOver(t *testing.T) { // D5
	withSoloist(t, tight(), func(t *testing.T, s *soloist) {
		slow := overtake(s)
		slow.Thaw()
		reset := s.last(s.until(slow, `"type":"reset"`)).(*contracts.ResetEnvelope)
		if reset.Reason != contracts.ResetLagged {
			t.Errorf("reason: got %s, want lagged", reset.Reason)
		}
		snap, err := (&contracts.Decoder{}).Snapshot(reset.Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		if got := unpadded(snap.State.CurrentResponse.Text); got != numbered(0, 2000) {
			t.Errorf("got %d bytes of text, want all that was missed", len(got))
		}
		s.say(2000, 3, 0)
		if got, _, _ := s.chunks(s.until(slow, `"2002;"`)); got != numbered(2000, 3) {
			t.Errorf("got %s after the reset, want what follows", got)
		}
		if n := s.told("reset " + string(contracts.ResetLagged)); n != 1 {
			t.Errorf("resets: got %d, want 1", n)
		}
	})
}

// What was private before a reset comes before it: its cursors lie below that of
// the reset.
func TestViewerOvertakenDuringItsReplayIsGreetedBeforeTheReset(t *testing.T) { // A48
	withSoloist(t, tight(), func(t *testing.T, s *soloist) {
		s.begin()
		s.say(0, 10, 200)
		beginning := int64(0)
		conn, slow := memconn.New(memconn.Options{})
		slow.Freeze()
		s.serve(conn, slow, contracts.Attach{Role: contracts.RoleViewer, Cursor: &beginning}, silent, `{"type":"ws.ping"}`)
		synctest.Wait() // a write is blocked
		s.say(10, 1990, 200)
		slow.Thaw()
		s.attached(slow)
		seen := s.until(slow, `"type":"reset"`)
		s.say(2000, 1, 0)
		seen += s.until(slow, `"2000;"`)
		lines := strings.Split(strings.TrimSpace(seen), "\n")
		s.cursors(lines)
		if got := greetings(lines); len(got) != 1 {
			t.Errorf("got %d hello_ok, want 1", len(got))
		}
		if got := strings.Count(seen, `"ws.pong"`); got != 1 {
			t.Errorf("got %d pongs, want 1", got)
		}
	})
}

// In a crowd a snapshot serves many, but not one that is itself beyond what is
// kept: its reader would only be reset again.
func TestCrowdIsNotResetToWhatRetentionHasOvertaken(t *testing.T) {
	withSoloist(t, tight(), func(t *testing.T, s *soloist) {
		for range 10 {
			s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		}
		slow, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		s.until(slow, `"hello_ok"`)
		slow.Freeze()
		s.begin()
		synctest.Wait() // a write is blocked
		s.say(0, 600, 200)
		slow.Thaw()
		seen := s.until(slow, `"type":"reset"`)
		s.say(600, 1, 0)
		seen += s.until(slow, `"600;"`)
		if n := strings.Count(seen, `"type":"reset"`); n != 1 {
			t.Errorf("got %d resets, want 1", n)
		}
	})
}

func TestLocalClientHoldsUpTheAgentAndLosesNothing(t *testing.T) {
	opts := hub.Options{MaxBacklog: 8 << 10, WindowBytes: 16 << 10, HeartbeatInterval: time.Hour}
	withSoloist(t, opts, func(t *testing.T, s *soloist) {
		conn, local := memconn.New(memconn.Options{Bare: true, Buffer: 1 << 10})
		served := make(chan error, 1)
		go func() { served <- s.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{}) }() // ends with its input
		s.until(local, `"session_info"`)
		local.Freeze()
		s.begin()
		said := make(chan int, 1)
		const most, size = 1000, 100
		go func() { // ends when all is said
			s.say(0, most, size)
			said <- most
		}()
		time.Sleep(time.Hour) // it would wait for ever
		select {
		case <-said:
			t.Errorf("got %d chunks said while the client was frozen, want the agent to wait", most)
		default:
		}
		if kept := s.Cursor(); kept > 8<<10/size+20 {
			t.Errorf("got %d entries ahead of the client, want about 8 KiB of them", kept)
		}
		local.Thaw()
		var got strings.Builder
		for line := range strings.Lines(s.until(local, `"999;`)) {
			ev, err := (&contracts.Decoder{}).Event([]byte(strings.TrimSpace(line)))
			if err != nil {
				t.Fatal(err)
			}
			if c, ok := ev.(*contracts.ResponseChunk); ok {
				got.WriteString(c.Content)
			}
		}
		if unpadded(got.String()) != numbered(0, most) {
			t.Errorf("got %d bytes, want all of it in order", got.Len())
		}
		<-said
		local.Close()
		<-served
	})
}

// A local client cannot be reset. It must not believe that it has seen it all.
func TestLocalClientOvertakenByRetentionIsClosed(t *testing.T) {
	opts := tight()
	opts.MaxBacklog = 1 << 30
	withSoloist(t, opts, func(t *testing.T, s *soloist) {
		conn, local := memconn.New(memconn.Options{Bare: true})
		served := make(chan error, 1)
		go func() { served <- s.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{}) }() // ends with the overtaking
		s.until(local, `"session_info"`)
		local.Freeze()
		s.begin()
		synctest.Wait() // a write is blocked
		s.say(0, 2000, 200)
		local.Thaw()
		<-served
		if why, closed := local.Closed(); !closed || why == nil || why.Code != contracts.CodeSlowConsumer {
			t.Errorf("got %v, %t, want closed with slow_consumer", why, closed)
		}
	})
}

func TestFrameThatCannotBeReadIsRefusedAndCounted(t *testing.T) { // A116
	withSoloist(t, hub.Options{}, func(t *testing.T, s *soloist) {
		viewer, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		s.until(viewer, `"hello_ok"`)
		if err := viewer.SendBad(&contracts.Error{Code: contracts.CodePayloadTooLarge, Message: "too long"}); err != nil {
			t.Fatal(err)
		}
		refusal := s.last(s.until(viewer, `"ws.error"`)).(*contracts.Refusal)
		if refusal.Seq != 2 || refusal.Code != contracts.CodePayloadTooLarge {
			t.Errorf("got %+v, want the second frame refused as too large", refusal)
		}
		if n := s.told("refused " + string(contracts.CodePayloadTooLarge)); n != 1 {
			t.Errorf("refusals: got %d, want 1", n)
		}
	})
}

func TestWaitingAgentCanBeInterrupted(t *testing.T) {
	withSoloist(t, hub.Options{MaxBacklog: 1 << 10}, func(t *testing.T, s *soloist) {
		conn, local := memconn.New(memconn.Options{Bare: true, Buffer: 1 << 10})
		served := make(chan error, 1)
		go func() { served <- s.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{}) }() // ends with its input
		s.until(local, `"session_info"`)
		local.Freeze()
		ctx, stop := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		result := make(chan error, 1)
		go func() { // ends with ctx
			for {
				if err := s.agent.host.Publish(ctx, &contracts.Status{Message: strings.Repeat("x", 500)}); err != nil {
					result <- err
					return
				}
			}
		}()
		synctest.Wait()
		stop(enough)
		if err := <-result; !errors.Is(err, enough) {
			t.Errorf("got %v, want %v", err, enough)
		}
		local.Thaw()
		local.Close()
		<-served
	})
}

// A frame for one client says where it belongs in the order of events. A client
// that was slow to read must see the same order.
func TestPrivateFrameIsNotOvertakenByLaterEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRoom(t, hub.Options{})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		bob, told := r.attach(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater})
		synctest.Wait()
		r.until(bob, `"hello_ok"`)
		r.until(alice, told.ConnectionID)
		alice.Freeze()
		r.send(alice, `{"type":"ws.ping","id":"p"}`)
		synctest.Wait() // its answer is being written
		r.send(bob, `{"type":"ws.take_control","id":"t"}`)
		r.until(bob, `"ws.result","id":"t"`)
		alice.Thaw()
		seen := r.until(alice, `"type":"snapshot"`)
		lease, graph := strings.Index(seen, `"ws.lease"`), strings.Index(seen, `"connection_info"`)
		if lease < 0 || graph < lease {
			t.Errorf("got %s, want ws.lease before the connection graph that follows it", seen)
		}
		r.close()
	})
}

func TestOptOutsAreLeftOut(t *testing.T) { // R31, R32
	withSoloist(t, hub.Options{}, func(t *testing.T, s *soloist) {
		events := []contracts.Event{
			&contracts.Status{Message: "s"},
			&contracts.RawAgentEvent{EventKind: "agent_start", Event: []byte(`{"type":"agent_start"}`)},
			&contracts.ResponseStart{ResponseID: "last"},
		}
		for _, tt := range []struct {
			hello string
			wants []string
			not   []string
		}{
			{`{"type":"hello"}`, []string{`"status"`, `"connection_info"`}, []string{"raw_agent_event\""}},
			{`{"type":"hello","capabilities":{"raw_agent_events":true},"opt_out_notifications":["status"]}`, []string{`"raw_agent_event"`}, []string{`"type":"status"`}},
			{`{"type":"hello","opt_out_notifications":["status","connection_info","compaction","heartbeat"]}`, nil, []string{`"type":"status"`, `"type":"connection_info"`, `"type":"heartbeat"`}},
		} {
			peer, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, tt.hello)
			before := s.until(peer, `"hello_ok"`)
			time.Sleep(time.Minute)
			if err := s.agent.host.Publish(t.Context(), events...); err != nil {
				t.Fatal(err)
			}
			seen := s.until(peer, `"response_start"`)
			_, after, _ := strings.Cut(before, "\n")
			_, seenLive, _ := strings.Cut(after, `"hello_ok"`)
			seen += seenLive
			for _, want := range tt.wants {
				if !strings.Contains(seen, want) {
					t.Errorf("%s: got %s, want %s", tt.hello, seen, want)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(seen, not) {
					t.Errorf("%s: got %s, want no %s", tt.hello, seen, not)
				}
			}
			peer.Close()
		}
	})
}

func TestHeartbeatsRepeatTheCursorAndSilenceIsFatal(t *testing.T) {
	withSoloist(t, hub.Options{HeartbeatInterval: 15 * time.Second}, func(t *testing.T, s *soloist) {
		viewer, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer})
		s.until(viewer, `"connection_info"`)
		for range 3 {
			began := time.Now()
			beat := s.last(s.until(viewer, `"type":"heartbeat"`)).(*contracts.HeartbeatEnvelope)
			if beat.Cursor != s.Cursor() {
				t.Errorf("cursor: got %d, want %d", beat.Cursor, s.Cursor())
			}
			if gap := time.Since(began); gap < 13*time.Second || gap > 16*time.Second {
				t.Errorf("got a heartbeat after %v, want one every 15 s", gap)
			}
		}
		viewer.Mute()
		time.Sleep(44 * time.Second)
		synctest.Wait()
		if _, closed := viewer.Closed(); closed {
			t.Error("closed within three intervals of silence, want open")
		}
		time.Sleep(17 * time.Second)
		synctest.Wait()
		if why, closed := viewer.Closed(); !closed || why == nil || why.Code != contracts.CodeTimeout {
			t.Errorf("got %v, %t, want closed with timeout", why, closed)
		}
	})
}

// A client needs time for what lies before a ping in the buffers on the way.
func TestClientMayBeSilentWhileItReads(t *testing.T) {
	withSoloist(t, hub.Options{HeartbeatInterval: 3 * time.Second}, func(t *testing.T, s *soloist) {
		viewer, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer})
		s.until(viewer, `"connection_info"`)
		viewer.Mute()
		s.begin()
		s.say(0, 3, contracts.WritePart) // takes the slowest client that is served 30 s
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if _, closed := viewer.Closed(); closed {
			t.Error("closed within the time to read, want open")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if why, closed := viewer.Closed(); !closed || why == nil || why.Code != contracts.CodeTimeout {
			t.Errorf("got %v, %t, want closed with timeout", why, closed)
		}
	})
}

func TestPresenceIsCoalescedInACrowd(t *testing.T) {
	withSoloist(t, hub.Options{HeartbeatInterval: time.Hour}, func(t *testing.T, s *soloist) {
		alice, _ := s.attach(contracts.Attach{Role: contracts.RoleController})
		s.until(alice, `"hello_ok"`)
		const crowd = 500
		for range crowd {
			s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		}
		time.Sleep(time.Second)
		seen := s.until(alice, fmt.Sprintf(`"connection_count":%d`, crowd+1))
		if told := strings.Count(seen, `"type":"connection_info"`); told > 12 {
			t.Errorf("got %d messages about %d joins, want a few", told, crowd)
		}
		if listed := len(s.Snapshot().State.Connections); listed != contracts.MaxListed {
			t.Errorf("got %d connections listed, want %d", listed, contracts.MaxListed)
		}
		if s.Snapshot().State.Connections[0].Role != contracts.RoleController {
			t.Error("got a viewer listed first, want the controller")
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	withSoloist(t, hub.Options{MaxConnections: 2}, func(t *testing.T, s *soloist) {
		for range 2 {
			s.attach(contracts.Attach{Role: contracts.RoleViewer})
		}
		wantCode(t, s.Admit(contracts.Attach{}), contracts.CodeOverloaded)
		conn, peer := memconn.New(memconn.Options{})
		s.send(peer, `{"type":"hello"}`)
		wantCode(t, s.Serve(t.Context(), conn, hub.WireEnvelope, &contracts.Attach{Role: contracts.RoleViewer}), contracts.CodeOverloaded)
		s.rest(peer)
	})
}

func TestClientThatSaysNothingIsSentAway(t *testing.T) { // A113
	withSoloist(t, hub.Options{HandshakeTimeout: 10 * time.Second}, func(t *testing.T, s *soloist) {
		conn, peer := memconn.New(memconn.Options{})
		began := time.Now()
		err := s.Serve(t.Context(), conn, hub.WireEnvelope, &contracts.Attach{Role: contracts.RoleViewer})
		if took := time.Since(began); err == nil || errors.Is(err, io.EOF) || took != 10*time.Second {
			t.Errorf("got %v after %v, want an error after 10 s", err, took)
		}
		if why, closed := peer.Closed(); !closed || why == nil || why.Code != contracts.CodeTimeout {
			t.Errorf("got %v, %t, want closed with timeout", why, closed)
		}
	})
}

func TestServerThatLeavesClosesConnections(t *testing.T) {
	withSoloist(t, hub.Options{}, func(t *testing.T, s *soloist) {
		conn, peer := memconn.New(memconn.Options{})
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { // ends with ctx
			served <- s.Serve(ctx, conn, hub.WireEnvelope, &contracts.Attach{Role: contracts.RoleViewer})
		}()
		s.send(peer, `{"type":"hello"}`)
		s.until(peer, `"hello_ok"`)
		stop()
		<-served
		if why, closed := peer.Closed(); !closed || why == nil || why.Code != contracts.CodeGoingAway {
			t.Errorf("got %v, %t, want closed with going_away", why, closed)
		}
	})
}

// A hesitant agent looks at each prompt for as long as the test wants.
type hesitant struct {
	*player
	looks chan struct{} // unbuffered; each look takes one
}

func (a *hesitant) Check(string) error {
	<-a.looks
	return &contracts.Error{Code: contracts.CodeBadRequest, Message: "no"}
}

// A countedConn counts the frames that the server took from it.
type countedConn struct {
	*memconn.Conn
	frames atomic.Int64
}

func (c *countedConn) ReadFrame() ([]byte, error) {
	text, err := c.Conn.ReadFrame()
	if err == nil {
		c.frames.Add(1)
	}
	return text, err
}

// TestServerHoldsOneUnansweredFrame has a client ignore MaxUnanswered: what the
// server has not answered yet stays in the socket.
func TestServerHoldsOneUnansweredFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := &hesitant{newPlayer(nil), make(chan struct{})}
		room := openRoom(t, hub.Options{Agent: agent})
		defer room.close()
		inner, peer := memconn.New(memconn.Options{})
		conn := &countedConn{Conn: inner}
		room.serve(conn, peer, contracts.Attach{Role: contracts.RoleController}, `{"type":"hello"}`)
		room.until(peer, `"hello_ok"`)
		const many = 4 * contracts.MaxUnanswered
		for i := range many {
			room.send(peer, fmt.Sprintf(`{"type":"ws.send","id":"%d","message":{"type":"prompt","content":"hi"}}`, i))
		}
		for i := range many {
			synctest.Wait()
			if got, want := conn.frames.Load(), int64(i+2); got != want { // hello, those answered, and one
				t.Fatalf("after %d answers: got %d frames taken, want %d", i, got, want)
			}
			agent.looks <- struct{}{}
			answer := room.last(room.until(peer, `"ws.error"`)).(*contracts.Refusal)
			if answer.ID == nil || *answer.ID != fmt.Sprint(i) {
				t.Fatalf("got the answer %+v, want that to %d", answer, i)
			}
		}
	})
}
