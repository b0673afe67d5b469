package hub_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

const helloOK = `"type":"hello_ok"`

// greetings returns the lines with a hello_ok among lines.
func greetings(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, helloOK) })
}

func TestHelloIsAnsweredOnTheStreamsOfItsConnectionAlone(t *testing.T) { // A60
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice, bob := r.guest("a"), r.guest("a")
		alice.subscribes(asController)
		mine := []*memconn.Peer{alice.follows(alice.place(-1))}
		alice.subscribes(asController)
		mine = append(mine, alice.follows(alice.place(-1)))
		bob.subscribes(byForce)
		others := []*memconn.Peer{bob.follows(bob.place(-1)), r.guest("a").follows(contracts.StreamRequest{})}
		for _, p := range append(mine, others...) {
			r.arrived(p)
		}
		answer := alice.posts(`{"type":"hello","protocol_version":"2026-04-02","client_info":{"name":"me"},"capabilities":{"raw_agent_events":true}}`)
		for i, p := range mine {
			lines := r.arrived(p)
			if got := greetings(lines); len(got) != 1 || !strings.Contains(got[0], `"connection_id":"`+alice.by.ConnectionID+`"`) || !strings.Contains(got[0], `"name":"me"`) {
				t.Errorf("stream %d: got %q, want one hello_ok for %s", i, lines, alice.by.ConnectionID)
			}
			r.cursors(lines)
		}
		for i, p := range others {
			if lines := r.arrived(p); len(greetings(lines)) != 0 {
				t.Errorf("other stream %d: got %q, want no hello_ok", i, lines)
			} else if info := r.info(lines); info.ConnectionID != alice.by.ConnectionID || !info.Capabilities.RawAgentEvents {
				t.Errorf("other stream %d: got %+v, want the change shown", i, info)
			}
		}
		if c := r.entry(alice.by.ConnectionID); c.ClientInfo.Name != "me" || stateIn(t, answer.Snapshot).Cursor != answer.Cursor {
			t.Errorf("got %+v, want what hello said", c)
		}
		late := r.guest("v").follows(from(0)) // nor is it in the replay
		if lines := r.arrived(late); len(greetings(lines)) != 0 {
			t.Errorf("replay: got %q, want no hello_ok", lines)
		}
	})
}

// TestHelloBeforeTheStreamIsAnsweredOnIt says hello while nobody listens, and
// then follows in every way that there is. The answer comes once, after the
// opening, and in the order of cursors.
func TestHelloBeforeTheStreamIsAnsweredOnIt(t *testing.T) { // A48, A60
	for _, tt := range []struct {
		name string
		req  func(g *guest, before int64) contracts.StreamRequest
		want string // the first line after the opening
	}{
		{"from its place", func(g *guest, _ int64) contracts.StreamRequest { return g.place(-1) }, `"type":"message"`},
		{"from before", func(g *guest, before int64) contracts.StreamRequest { return g.place(before) }, `"type":"message"`},
		{"from its own cursor", func(g *guest, before int64) contracts.StreamRequest { return g.place(before + 3) }, `"type":"message"`},
		{"from the answer", func(g *guest, _ int64) contracts.StreamRequest { return g.place(int64(g.Cursor())) }, `"type":"message"`},
		{"from nowhere", func(g *guest, _ int64) contracts.StreamRequest { return g.place(1 << 40) }, `"type":"reset"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
				alice := r.guest("a")
				before := int64(stateIn(t, alice.subscribes(asController).Snapshot).Cursor)
				alice.posts(`{"type":"init"}`)
				alice.posts(`{"type":"hello"}`)
				alice.posts(`{"type":"init"}`)
				stream := alice.follows(tt.req(alice, before))
				lines := r.arrived(stream)
				if len(greetings(lines)) != 1 {
					t.Fatalf("got %q, want one hello_ok", lines)
				}
				if !strings.Contains(lines[0], tt.want) {
					t.Errorf("got %s first, want %s", lines[0], tt.want)
				}
				if cs := r.cursors(lines); tt.name == "from its own cursor" && cs[0] <= uint64(before)+3 {
					t.Errorf("got cursors %v, want none that the client knows", cs)
				}
				stream.Close()
				synctest.Wait()
				again := r.arrived(alice.follows(alice.place(-1)))
				if len(greetings(again)) != 0 {
					t.Errorf("the next stream: got %q, want it answered already", again)
				}
			})
		})
	}
}

func TestHelloBeforeASocketIsNotAnsweredTwice(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("")
		alice.subscribes(asController)
		alice.posts(`{"type":"hello"}`)
		att, first := comeBack(contracts.Attached{Role: contracts.RoleController, ConnectionID: alice.by.ConnectionID, ConnectionToken: alice.by.Token})
		peer, told := r.attach(att, first...) // ws.attached comes first, whatever waits
		if told.ConnectionID != alice.by.ConnectionID {
			t.Errorf("got connection %s, want %s", told.ConnectionID, alice.by.ConnectionID)
		}
		if lines := r.arrived(peer); len(greetings(lines)) != 1 {
			t.Errorf("got %q, want one hello_ok", lines)
		}
		if lines := r.arrived(alice.follows(alice.place(-1))); len(greetings(lines)) != 0 {
			t.Errorf("later: got %q, want none", lines)
		}
	})
}

// A frozen session has no more cursors to give, and those it gave are not given
// twice.
func TestHelloIsNotAnsweredBeyondTheFrozenCursor(t *testing.T) { // A100
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		alice.posts(`{"type":"hello"}`)
		r.quiesces()
		head := r.Cursor()
		for _, c := range r.cursors(r.arrived(alice.follows(alice.place(1 << 40)))) {
			if c > head {
				t.Errorf("got cursor %d, want none beyond %d", c, head)
			}
		}
	})
}

func TestWaitingAnswersToHelloAreBounded(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		for i := range 20 {
			alice.posts(fmt.Sprintf(`{"type":"hello","client_info":{"name":"%d"}}`, i))
		}
		lines := r.arrived(alice.follows(alice.place(-1)))
		r.cursors(lines)
		got := greetings(lines)
		if len(got) != 16 || !strings.Contains(got[0], `"name":"4"`) || !strings.Contains(got[15], `"name":"19"`) {
			t.Errorf("got %d, from %s, want the latest 16", len(got), got[0])
		}
	})
}

// A stream that has to start over while an answer waits for it gets both.
func TestHelloSurvivesAReset(t *testing.T) {
	inRoom(t, hub.Options{Store: journal.NewMemory(journal.MemoryOptions{RetainBytes: 100 << 10}), WindowBytes: 1 << 10}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		alice.posts(`{"type":"hello"}`)
		for range 100 {
			alice.posts(fmt.Sprintf(`{"type":"prompt","content":"%s"}`, strings.Repeat("x", 4<<10)))
			synctest.Wait()
		}
		lines := r.arrived(alice.follows(alice.place(-1)))
		if _, reason := r.snapshotIn(lines[0]); reason != contracts.ResetGap || len(greetings(lines)) != 1 {
			t.Errorf("got %q, want a reset and then hello_ok", lines)
		}
		r.cursors(lines)
	})
}

func TestHelloOfAnotherVersionIsLetInAndTold(t *testing.T) { // 1.12
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		stream := alice.follows(alice.place(-1))
		got := alice.posts(`{"type":"hello","protocol_version":"2020-01-01"}`)
		const want = "Client protocol 2020-01-01 attached to server " + contracts.ProtocolVersion
		if st := stateIn(t, got.Snapshot).State; *st.LastStatus != want {
			t.Errorf("got %q, want %q", *st.LastStatus, want)
		}
		r.until(stream, helloOK)
	})
}

// TestHelloThatChangesNothingIsToldToNobody repeats a hello, of another version
// than the server's, on a socket and in requests.
func TestHelloThatChangesNothingIsToldToNobody(t *testing.T) {
	inRoom(t, hub.Options{HeartbeatInterval: time.Hour}, func(t *testing.T, r *room) {
		const hello = `{"type":"hello","protocol_version":"1999-01-01","client_info":{"name":"me"},"opt_out_notifications":["connection_info","status"]}`
		alice := r.guest("a")
		mine := contracts.AttachRequest{Role: contracts.RoleController, ClientInfo: &contracts.ClientInfo{Name: "me"}}
		alice.connects(mine)
		other, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer})
		viewer, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer}, hello)
		r.until(viewer, `"hello_ok"`)
		r.arrived(other)
		for range 10 {
			r.send(viewer, hello)
			alice.connects(mine)
		}
		answers := r.arrived(viewer)
		if got := len(greetings(answers)); got != 10 {
			t.Errorf("got %d hello_ok in %q, want one for each hello", got, answers)
		}
		r.cursors(answers)
		if lines := r.arrived(other); len(lines) != 0 {
			t.Errorf("the other viewer got %q, want nothing", lines)
		}
		r.send(viewer, strings.Replace(hello, `"me"`, `"you"`, 1))
		if lines := r.arrived(other); len(lines) != 2 || r.info(lines).ClientInfo.Name != "you" {
			t.Errorf("the other viewer got %q, want connection_info and a status", lines)
		}
	})
}

// TestFramesOfViewersAreReadAtABoundedPace sends more than anybody has to say
// who only watches. Nothing is refused, and a controller is not slowed down.
func TestFramesOfViewersAreReadAtABoundedPace(t *testing.T) {
	inRoom(t, hub.Options{HeartbeatInterval: time.Hour, SubscriptionTTL: time.Hour}, func(t *testing.T, r *room) {
		flood := func(role contracts.Role, text, answer string, n int) time.Duration {
			peer, _ := r.attach(contracts.Attach{Role: role, Takeover: contracts.TakeoverLater}, silent)
			r.until(peer, `"hello_ok"`)
			began := time.Now()
			go func() { // ends when everything was read
				for range n {
					_ = peer.Send(text)
				}
			}()
			for range n {
				r.until(peer, answer)
			}
			return time.Since(began)
		}
		const ping, hello = `{"type":"ws.ping"}`, `{"type":"hello"}`
		if took := flood(contracts.RoleController, ping, `"ws.pong"`, 3000); took != 0 {
			t.Errorf("3,000 pings of a controller took %v, want no time", took)
		}
		if took := flood(contracts.RoleViewer, ping, `"ws.pong"`, 500); took != 0 {
			t.Errorf("500 pings of a viewer took %v, want no time", took)
		}
		if took := flood(contracts.RoleViewer, ping, `"ws.pong"`, 3000); took < 45*time.Second {
			t.Errorf("3,000 pings of a viewer took %v, want some 50 s", took)
		}
		before := r.Cursor()
		if took := flood(contracts.RoleViewer, hello, `"hello_ok"`, 100); took < 30*time.Second {
			t.Errorf("100 hellos of a viewer took %v, want some 40 s", took)
		}
		if grown := r.Cursor() - before; grown > 110 {
			t.Errorf("100 hellos took %d cursors, want one each", grown)
		}
	})
}
