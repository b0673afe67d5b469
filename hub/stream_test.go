package hub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// cursors returns the cursors of the messages and snapshots among lines. They
// grow (A48).
func (r *room) cursors(lines []string) (list []uint64) {
	r.t.Helper()
	for _, line := range lines {
		if line == memconn.Comment || line == memconn.Opening {
			continue
		}
		var at uint64
		switch f := r.decode(line).(type) {
		case *contracts.MessageEnvelope:
			at = f.Cursor
		case *contracts.SnapshotEnvelope:
			at = stateIn(r.t, f.Snapshot).Cursor
		case *contracts.ResetEnvelope:
			at = stateIn(r.t, f.Snapshot).Cursor
		default:
			continue
		}
		if n := len(list); n > 0 && at <= list[n-1] {
			r.t.Errorf("cursors: got %d after %d", at, list[n-1])
		}
		list = append(list, at)
	}
	return list
}

// TestStreamBeginsWhereItsCursorSays is the table of 1.11: A42 to A46.
func TestStreamBeginsWhereItsCursorSays(t *testing.T) {
	const snapshot, reset, replay = "snapshot", "reset", "replay"
	at := func(n int64) *int64 { return &n }
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		for i := range 5 {
			alice.posts(fmt.Sprintf(`{"type":"prompt","content":"%d"}`, i))
			synctest.Wait()
		}
		head := int64(r.Cursor())
		whole := r.guest("v").follows(from(0))
		all := r.cursors(r.arrived(whole))
		whole.Close()
		synctest.Wait()
		for _, tt := range []struct {
			name string
			req  contracts.StreamRequest
			want string
		}{
			{"no cursor", contracts.StreamRequest{}, snapshot},
			{"no cursor but an epoch", contracts.StreamRequest{Epoch: r.Epoch()}, snapshot},
			{"zero", contracts.StreamRequest{Cursor: at(0)}, replay},
			{"the past", contracts.StreamRequest{Cursor: at(head / 2), Epoch: r.Epoch()}, replay},
			{"the present", contracts.StreamRequest{Cursor: at(int64(r.Cursor()))}, replay},
			{"negative", contracts.StreamRequest{Cursor: at(-999)}, reset},
			{"the future", contracts.StreamRequest{Cursor: at(1 << 40)}, reset},
			{"another epoch", contracts.StreamRequest{Cursor: at(head / 2), Epoch: "other"}, reset},
		} {
			before := r.Cursor()
			peer := r.guest("v").follows(tt.req)
			time.Sleep(gathering) // that a stream is there is told with other news
			got := r.arrived(peer)
			var want []uint64
			if tt.want == replay {
				for _, c := range all {
					if int64(c) > *tt.req.Cursor {
						want = append(want, c)
					}
				}
				seen := r.cursors(got)
				for _, c := range seen[min(len(want), len(seen)):] { // what came since, its own arrival at least
					if c <= uint64(head) {
						t.Errorf("%s: got %v, want %v first", tt.name, seen, want)
					}
				}
				if len(seen) < len(want)+1 || fmt.Sprint(seen[:len(want)]) != fmt.Sprint(want) {
					t.Errorf("%s: got %v, want %v and what came since", tt.name, seen, want)
				}
			} else {
				snap, reason := r.snapshotIn(got[0])
				if (reason == contracts.ResetGap) != (tt.want == reset) || snap.Cursor < before {
					t.Errorf("%s: got %s, want a %s at %d at least", tt.name, got[0], tt.want, before)
				}
				r.cursors(got)
			}
			peer.Close()
			synctest.Wait()
		}
	})
}

func TestStreamOlderThanWhatIsKeptBeginsWithAReset(t *testing.T) { // A44, D5
	inRoom(t, hub.Options{Store: journal.NewMemory(journal.MemoryOptions{RetainBytes: 100 << 10}), WindowBytes: 1 << 10}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		stream := alice.follows(alice.place(-1))
		stream.Close()
		synctest.Wait()
		for i := range 100 {
			alice.posts(fmt.Sprintf(`{"type":"prompt","content":"%d %s"}`, i, strings.Repeat("x", 4<<10)))
			synctest.Wait()
		}
		for _, req := range []contracts.StreamRequest{alice.place(-1), alice.place(1), from(1)} { // the first moves the subscription's place
			peer := alice.follows(req)
			if _, reason := r.snapshotIn(r.next(peer)); reason != contracts.ResetGap {
				t.Errorf("%+v: got reason %q, want %s", req, reason, contracts.ResetGap)
			}
			peer.Close()
			synctest.Wait()
		}
	})
}

func TestReattachedSubscriptionGetsWhatItMissed(t *testing.T) { // A58
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		shown := stateIn(t, alice.subscribes(asController).Snapshot).Cursor
		stream := alice.follows(alice.place(-1))
		var seen []string
		for i := range 5 {
			alice.posts(fmt.Sprintf(`{"type":"prompt","content":"<%d>"}`, i))
			if i%2 == 0 {
				seen = append(seen, r.arrived(stream)...)
				stream.Close()
				synctest.Wait()
				time.Sleep(subTTL - instant)
			} else {
				synctest.Wait()
				stream = alice.follows(alice.place(-1))
			}
		}
		stream = alice.follows(alice.place(-1))
		seen = append(seen, r.arrived(stream)...)
		if cs := r.cursors(seen); cs[0] <= shown {
			t.Errorf("got cursor %d first, want nothing that the answer at %d showed", cs[0], shown)
		}
		for i := range 5 {
			if n := strings.Count(strings.Join(seen, "\n"), fmt.Sprintf(`"content":"<%d>"`, i)); n != 1 {
				t.Errorf("answer %d: got it %d times, want once", i, n)
			}
		}
	})
}

func TestNamedCursorWinsOverThePlaceOfTheSubscription(t *testing.T) { // 1.11
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		cursor := int64(stateIn(t, alice.subscribes(asController).Snapshot).Cursor)
		stream := alice.follows(alice.place(-1))
		alice.posts(`{"type":"prompt","content":"again"}`)
		first := r.until(stream, `"response_end"`)
		stream = alice.follows(alice.place(cursor))
		if again := r.until(stream, `"response_end"`); !strings.HasPrefix(again, first) {
			t.Errorf("got\n%s\nwant all after cursor %d once more:\n%s", again, cursor, first)
		}
	})
}

func TestNewerStreamOfASubscriptionWins(t *testing.T) { // A61
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		old := alice.follows(alice.place(-1))
		r.arrived(old)
		frozen := alice.follows(alice.place(-1))
		r.wantEnd(old, contracts.CodeSuperseded)
		synctest.Wait()
		frozen.Freeze() // one that does not read does not stand in the way
		third := alice.follows(alice.place(-1))
		alice.posts(`{"type":"prompt","content":"hi"}`)
		r.until(third, `"response_end"`)
		if c := r.entry(alice.by.ConnectionID); c.SubscriptionCount != 1 || c.AttachedSubscriptionCount != 1 {
			t.Errorf("got %+v, want one subscription, attached", c)
		}
		time.Sleep(subTTL)
		alice.beats() // the end of the older ones does not count as that of the subscription
		r.until(third, `"heartbeat"`)
	})
}

func TestStreamOfItsOwnIsAViewerThatLeavesNoTrace(t *testing.T) { // A36
	for _, header := range []contracts.Role{"", contracts.RoleController} {
		inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
			before := r.Snapshot()
			g := r.guest("a")
			g.by.Role = header
			peer := g.follows(contracts.StreamRequest{})
			r.arrived(peer)
			r.wantHolder("")
			st := r.Snapshot().State
			if st.ConnectionCount != 1 || st.SubscriberCount != 1 || st.Connections[0].Role != contracts.RoleViewer {
				t.Errorf("got %+v, want one viewer", st)
			}
			holder := r.guest("a")
			holder.connects(asController) // unused, of the same principal
			second := g.follows(contracts.StreamRequest{})
			peer.Close()
			second.Close()
			synctest.Wait()
			r.wantHolder(holder.by.ConnectionID)
			holder.disconnects()
			if got, want := still(t, r.Snapshot()), still(t, before); got[strings.Index(got, `"state"`):] != want[strings.Index(want, `"state"`):] {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestStreamIsRefusedBeforeAnythingIsWritten(t *testing.T) { // A55
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		for _, g := range []*guest{r.guest("m"), alice} {
			id := alice.by.SubscriptionID
			if g == alice {
				id = "sub_nobody"
			}
			req := contracts.StreamRequest{SubscriptionID: id}
			cursor := r.Cursor()
			wantRefusal(t, r.MayStream(req, g.by), contracts.CodeStaleSubscription, "Headless subscriber not found")
			peer, ended := g.streams(req)
			wantRefusal(t, <-ended, contracts.CodeStaleSubscription, "Headless subscriber not found")
			if lines := r.arrived(peer); len(lines) > 0 {
				t.Errorf("got %q, want nothing written", lines)
			}
			if _, closed := peer.Closed(); closed || r.Cursor() != cursor {
				t.Errorf("got closed %t at cursor %d, want nothing done", closed, r.Cursor())
			}
		}
		if err := r.MayStream(alice.place(-1), alice.by); err != nil {
			t.Errorf("got %v, want allowed", err)
		}
		if n := r.told("refused " + string(contracts.CodeStaleSubscription)); n != 4 {
			t.Errorf("refusals: got %d, want 4", n)
		}
	})
}

func TestStreamOfItsOwnLeavesOutWhatItSays(t *testing.T) { // A53, A54, A56, A57
	agent := newPlayer(func(ctx context.Context, host contracts.Host, _ contracts.Work) error {
		return host.Publish(ctx, &contracts.Status{Message: "s"}, &contracts.Compaction{Summary: "c", FirstKeptEntryIndex: 1, TokensBefore: 2, Auto: true, Timestamp: "2026-04-20T09:15:45.120Z"},
			&contracts.RawAgentEvent{EventKind: "raw", Event: []byte(`{}`)})
	})
	kinds := []string{"status", "connection_info", "compaction", "heartbeat", "raw_agent_event"}
	inRoom(t, hub.Options{Agent: agent}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(contracts.AttachRequest{Capabilities: &contracts.AttachCapabilities{RawAgentEvents: true}})
		streams := []*memconn.Peer{alice.follows(alice.place(-1)), r.guest("v").follows(contracts.StreamRequest{})}
		wants := [][]bool{{true, true, true, true, true}, {true, true, true, true, false}} // raw events are negotiated
		for i, n := range []contracts.Notification{contracts.NotifyStatus, contracts.NotifyConnectionInfo, contracts.NotifyCompaction, contracts.NotifyHeartbeat} {
			streams = append(streams, r.guest("v").follows(contracts.StreamRequest{OptOuts: []contracts.Notification{n}}))
			want := []bool{true, true, true, true, false}
			want[i] = false
			wants = append(wants, want)
		}
		for _, s := range streams {
			r.arrived(s)
		}
		alice.posts(`{"type":"prompt","content":"go"}`)
		r.guest("w").connects(asViewer)
		time.Sleep(16 * time.Second)
		head := r.Cursor()
		for i, s := range streams {
			lines := r.arrived(s)
			all := strings.Join(lines, "\n")
			for j, kind := range kinds {
				if got := strings.Contains(all, `"type":"`+kind+`"`); got != wants[i][j] {
					t.Errorf("stream %d: got %s %t, want %t", i, kind, got, wants[i][j])
				}
			}
			if quiet := !wants[i][3]; quiet != (lines[len(lines)-1] == memconn.Comment) {
				t.Errorf("stream %d: got %s at the end, want a comment instead of a heartbeat: %t", i, lines[len(lines)-1], quiet)
			} else if beat := fmt.Sprintf(`{"type":"heartbeat","cursor":%d}`, head); !quiet && !strings.Contains(all, beat) {
				t.Errorf("stream %d: got %s, want %s", i, all, beat)
			}
		}
		if last := *r.Snapshot().State.LastStatus; last != "s" {
			t.Errorf("last status: got %q, want s whoever opted out", last)
		}
	})
}

func TestReplayLeavesOutTheSame(t *testing.T) { // 2.3
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		alice.posts(`{"type":"prompt","content":"hi"}`)
		alice.posts(`{"type":"init"}`)
		synctest.Wait()
		req := from(0)
		req.OptOuts = []contracts.Notification{contracts.NotifyStatus, contracts.NotifyConnectionInfo}
		all := strings.Join(r.arrived(r.guest("v").follows(req)), "\n")
		for _, kind := range []string{"status", "connection_info", "raw_agent_event"} {
			if strings.Contains(all, `"message":{"type":"`+kind+`"`) {
				t.Errorf("got %s, want no %s", all, kind)
			}
		}
		if !strings.Contains(all, `"response_end"`) {
			t.Errorf("got %s, want the rest", all)
		}
	})
}

func TestStreamThatDoesNotReadIsEndedAndItsSubscriptionStays(t *testing.T) { // 1.11 addition 6, A52
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice, v := r.guest("a"), r.guest("v")
		alice.subscribes(asController)
		v.subscribes(asViewer)
		conn, slow := memconn.New(memconn.Options{Stream: true, Buffer: 1 << 10})
		ended := make(chan error, 1)
		go func() { ended <- v.Stream(t.Context(), conn, v.place(-1), v.by) }() // ends with the write timeout
		r.arrived(slow)
		slow.Freeze()
		fast := alice.follows(alice.place(-1))
		began := time.Now()
		alice.posts(fmt.Sprintf(`{"type":"prompt","content":"%s"}`, strings.Repeat("x", 8<<10)))
		r.until(fast, `"response_end"`)
		if took := time.Since(began); took != 0 {
			t.Errorf("got the answer after %v, want nobody to wait for the slow one", took)
		}
		if err := <-ended; err == nil {
			t.Error("got the stream ended without a word")
		}
		if took := time.Since(began); took != contracts.DefaultWriteTimeout {
			t.Errorf("got it ended after %v, want %v", took, contracts.DefaultWriteTimeout)
		}
		synctest.Wait()
		again := v.follows(v.place(-1))
		r.until(again, `"response_end"`)
	})
}

func TestStreamEndsWithItsContextOrTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRoom(t, hub.Options{})
		alice := r.guest("a")
		alice.subscribes(asController)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		conn, peer := memconn.New(memconn.Options{Stream: true})
		ended := make(chan error, 1)
		go func() { ended <- r.Stream(ctx, conn, contracts.StreamRequest{}, alice.by) }() // ends with ctx
		r.arrived(peer)
		cancel()
		if err := <-ended; err == nil {
			t.Error("got the stream ended by its peer, want by its context")
		}
		r.wantEnd(peer, contracts.CodeGoingAway)
		last := alice.follows(alice.place(-1))
		alice.posts(`{"type":"shutdown"}`)
		if seen := r.wantEnd(last, ""); !strings.Contains(lastLine(seen), `"type":"snapshot"`) { // 3.6
			t.Errorf("got %s, want a final snapshot", seen)
		}
		<-r.Done()
		synctest.Wait()
		wantCode(t, r.MayStream(contracts.StreamRequest{}, alice.by), contracts.CodeStaleSession) // A76
		for _, req := range requests {
			if err := req.do(r, alice.by); !errors.Is(err, hub.ErrUnknownSession) {
				t.Errorf("%s: got %v, want %v", req.name, err, hub.ErrUnknownSession)
			}
		}
		if _, err := r.State(); !errors.Is(err, hub.ErrUnknownSession) {
			t.Errorf("state: got %v, want %v", err, hub.ErrUnknownSession)
		}
	})
}

func TestPanicInAStreamEndsThatStreamAlone(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		stream := alice.follows(alice.place(-1))
		conn, peer := memconn.New(memconn.Options{Stream: true})
		faulty := &faulty{Conn: conn}
		faulty.arm(false, true)
		if err := r.Stream(t.Context(), faulty, contracts.StreamRequest{}, alice.by); err == nil {
			t.Error("got a stream without an error")
		}
		r.wantEnd(peer, contracts.CodeInternal)
		alice.posts(`{"type":"prompt","content":"hi"}`)
		r.until(stream, `"response_end"`)
		if n := r.Snapshot().State.ConnectionCount; n != 1 {
			t.Errorf("connections: got %d, want the controller's alone", n)
		}
	})
}
