package hub_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A party is a room with controllers, the first of whom holds the lease.
type party struct {
	*room
	peers []*memconn.Peer
	told  []contracts.Attached
	heard []string // by client: texts read while waiting for an answer
	calls int      // ids used by asks
}

// inParty runs a test in a bubble with n controllers who attached a second
// apart and have read their greetings.
func inParty(t *testing.T, n int, opts hub.Options, test func(t *testing.T, p *party)) {
	synctest.Test(t, func(t *testing.T) {
		p := &party{room: openRoom(t, opts)}
		defer p.close()
		for i := range n {
			p.joins(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater}, fmt.Sprint("client-", i))
			time.Sleep(time.Second)
		}
		test(t, p)
	})
}

func (p *party) joins(att contracts.Attach, name string) {
	peer, told := p.attach(att, `{"type":"hello","client_info":{"name":"`+name+`"}}`)
	p.until(peer, `"hello_ok"`)
	p.peers, p.told, p.heard = append(p.peers, peer), append(p.told, told), append(p.heard, "")
}

func (p *party) id(i int) string { return p.told[i].ConnectionID }

// accepted sends a control frame and wants it accepted.
func (p *party) accepted(i int, kind, rest string) {
	p.t.Helper()
	answer := p.asks(i, kind, rest)
	if !strings.Contains(answer, `"type":"ws.result"`) {
		p.t.Errorf("%s: got %s, want it accepted", kind, answer)
	}
}

// refused sends a control frame and wants it refused.
func (p *party) refused(i int, kind, rest string, code contracts.Code) {
	p.t.Helper()
	answer := p.asks(i, kind, rest)
	if !strings.Contains(answer, `"type":"ws.error"`) || !strings.Contains(answer, `"code":"`+string(code)+`"`) {
		p.t.Errorf("%s: got %s, want it refused with %s", kind, answer, code)
	}
}

// asks sends a control frame and returns its answer.
func (p *party) asks(i int, kind, rest string) string {
	p.t.Helper()
	p.calls++
	id := fmt.Sprintf(`"id":"call-%d"`, p.calls)
	p.send(p.peers[i], `{"type":"ws.`+kind+`",`+id+rest+`}`)
	p.heard[i] += p.until(p.peers[i], id)
	lines := strings.Split(strings.TrimSpace(p.heard[i]), "\n")
	return lines[len(lines)-1]
}

// sees returns the next text with want, which the client may have read already,
// and what came before it.
func (p *party) sees(i int, want string) string {
	p.t.Helper()
	seen := ""
	for line := range strings.Lines(p.heard[i]) {
		seen += line
		if strings.Contains(line, want) {
			p.heard[i] = strings.TrimPrefix(p.heard[i], seen)
			return seen
		}
	}
	p.heard[i] = ""
	return seen + p.until(p.peers[i], want)
}

// hears wants a client to be told of a change of the lease.
func (p *party) hears(i int, granted bool, why contracts.LeaseReason) *contracts.LeaseChange {
	p.t.Helper()
	got := p.last(p.sees(i, `"ws.lease"`)).(*contracts.LeaseChange)
	if got.Granted != granted || got.Reason != why {
		p.t.Errorf("client %d: got %+v, want granted %t because %s", i, got, granted, why)
	}
	return got
}

// holds fails unless client i holds the lease; -1 stands for nobody.
func (p *party) holds(i int) {
	p.t.Helper()
	got, want := p.Snapshot().State.ControllerConnectionID.Get(), ""
	if i >= 0 {
		want = p.id(i)
	}
	if got != want {
		p.t.Errorf("holder: got %q, want %q", got, want)
	}
}

func with(id string) string { return `,"connection_id":"` + id + `"` }

func TestHeldLeaseRefusesAnotherController(t *testing.T) { // A24
	inParty(t, 1, hub.Options{}, func(t *testing.T, p *party) {
		cursor := p.Cursor()
		att := contracts.Attach{Role: contracts.RoleController}
		err := p.Admit(att)
		wantCode(t, err, contracts.CodeControllerLeaseHeld)
		if refusal, ok := errors.AsType[*contracts.Error](err); ok && refusal.Metadata["controller_connection_id"] != p.id(0) {
			t.Errorf("metadata: got %v, want the holder %s", refusal.Metadata, p.id(0))
		}
		conn, peer := memconn.New(memconn.Options{})
		p.send(peer, `{"type":"hello"}`)
		wantCode(t, p.Serve(t.Context(), conn, hub.WireEnvelope, &att), contracts.CodeControllerLeaseHeld)
		if bye := p.last(p.rest(peer)).(*contracts.Goodbye); bye.Code != 4409 || bye.Resume {
			t.Errorf("farewell: got %+v, want 4409 and no return", bye)
		}
		if p.Cursor() != cursor {
			t.Errorf("got %d entries about a refused controller, want none", p.Cursor()-cursor)
		}
		p.holds(0)
	})
}

func TestAttachingWithForceTakesTheLease(t *testing.T) { // A25
	inParty(t, 1, hub.Options{}, func(t *testing.T, p *party) {
		force := contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverForce}
		if err := p.Admit(force); err != nil {
			t.Errorf("got %v, want admitted", err)
		}
		p.joins(force, "bob")
		if !p.told[1].ControllerLeaseGranted {
			t.Errorf("got %+v, want the lease at once", p.told[1])
		}
		p.holds(1)
		lost := p.hears(0, false, contracts.LeaseTakenOver)
		if id := lost.ControllerConnectionID; id == nil || *id != p.id(1) || lost.Generation != 2 {
			t.Errorf("got %+v, want the new holder %s in generation 2", lost, p.id(1))
		}
		if seen := p.sees(0, `"type":"snapshot"`); !strings.Contains(seen, p.id(1)) {
			t.Errorf("got %s, want the state after the hand-over", seen)
		}
	})
}

func TestAttachingLaterWaitsForTheLease(t *testing.T) {
	inParty(t, 2, hub.Options{}, func(t *testing.T, p *party) {
		if p.told[1].ControllerLeaseGranted {
			t.Errorf("got %+v, want attached without the lease", p.told[1])
		}
		p.holds(0)
		p.refused(1, "send", `,"message":{"type":"init"}`, contracts.CodeControllerLeaseHeld)
		p.accepted(0, "release_control", "")
		p.hears(0, false, contracts.LeaseReleased)
		p.holds(-1) // nobody asked for it
		p.accepted(1, "send", `,"message":{"type":"init"}`)
		p.holds(1) // a free lease goes to whoever acts
	})
}

func TestHolderIsAskedAndMayGrant(t *testing.T) {
	inParty(t, 3, hub.Options{}, func(t *testing.T, p *party) {
		p.accepted(1, "ask_control", `,"reason":"my turn"`)
		got := p.last(p.sees(0, `"ws.control_request"`)).(*contracts.ControlRequest)
		if got.ConnectionID != p.id(1) || got.Reason != "my turn" || got.ClientInfo == nil || got.ClientInfo.Name != "client-1" {
			t.Errorf("got %+v, want the question of client 1 with its reason", got)
		}
		p.sees(2, `"client-1 asks for control"`)
		p.refused(2, "grant_control", with(p.id(1)), contracts.CodeControllerLeaseHeld)
		p.refused(0, "grant_control", with(p.id(2)), contracts.CodeRequestNotFound)
		p.refused(0, "grant_control", with("conn_nobody"), contracts.CodeRequestNotFound)
		p.holds(0)
		p.accepted(0, "grant_control", with(p.id(1)))
		p.hears(1, true, contracts.LeaseGranted)
		p.holds(1)
		p.refused(1, "grant_control", with(p.id(1)), contracts.CodeRequestNotFound) // its wish was fulfilled
	})
}

func TestHolderIsToldWhichPersonAsks(t *testing.T) {
	inParty(t, 1, hub.Options{}, func(t *testing.T, p *party) {
		peer, told := p.attach(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverForce},
			`{"type":"hello","capabilities":{"people":true}}`)
		p.until(peer, `"hello_ok"`)
		p.peers, p.told, p.heard = append(p.peers, peer), append(p.told, told), append(p.heard, "")
		author := func(holder, asker int) *contracts.Author {
			p.accepted(asker, "ask_control", "")
			return p.last(p.sees(holder, `"ws.control_request"`)).(*contracts.ControlRequest).Author
		}
		if got := author(1, 0); got == nil || got.ConnectionID != p.id(0) {
			t.Errorf("got the author %+v, want that of client 0", got)
		}
		p.accepted(1, "grant_control", with(p.id(0)))
		if got := author(0, 1); got != nil {
			t.Errorf("got the author %+v for a holder without the capability people, want none", got)
		}
	})
}

func TestHolderMayDeny(t *testing.T) {
	inParty(t, 2, hub.Options{}, func(t *testing.T, p *party) {
		p.accepted(1, "ask_control", "")
		p.refused(1, "deny_control", with(p.id(1)), contracts.CodeControllerLeaseHeld)
		p.accepted(0, "deny_control", with(p.id(1))+`,"reason":"busy"`)
		if got := p.hears(1, false, contracts.LeaseDenied); got.Message != "busy" || *got.ControllerConnectionID != p.id(0) {
			t.Errorf("got %+v, want the reason and the holder", got)
		}
		p.refused(0, "deny_control", with(p.id(1)), contracts.CodeRequestNotFound)
		p.accepted(0, "release_control", "")
		p.holds(-1) // who was denied waits no more
	})
}

func TestReleasedLeaseGoesToWhoeverAskedFirst(t *testing.T) {
	inParty(t, 4, hub.Options{}, func(t *testing.T, p *party) {
		for _, i := range []int{3, 1, 2} {
			p.accepted(i, "ask_control", "")
			time.Sleep(time.Second)
		}
		p.accepted(0, "release_control", "")
		p.hears(3, true, contracts.LeaseGranted)
		p.holds(3)
		p.send(p.peers[3], `{"type":"ws.bye"}`) // leaving frees the lease too
		p.hears(1, true, contracts.LeaseGranted)
		p.peers[2].Close() // it waits no more
		synctest.Wait()
		p.accepted(1, "release_control", "")
		p.holds(-1)
	})
}

func TestFreeLeaseIsGrantedToWhoeverAsks(t *testing.T) {
	inParty(t, 2, hub.Options{}, func(t *testing.T, p *party) {
		p.accepted(0, "release_control", "")
		p.accepted(0, "release_control", "") // again, which changes nothing
		p.refused(0, "grant_control", with(p.id(1)), contracts.CodeRequestNotFound)
		p.accepted(1, "ask_control", "")
		p.hears(1, true, contracts.LeaseGranted)
		p.accepted(1, "ask_control", "") // the holder has nobody to ask
		p.holds(1)
	})
}

func TestControlMayBeTakenByForce(t *testing.T) {
	inParty(t, 2, hub.Options{}, func(t *testing.T, p *party) {
		p.accepted(1, "take_control", "")
		p.holds(1)
		if got := p.hears(0, false, contracts.LeaseTakenOver); got.Generation != 2 {
			t.Errorf("generation: got %d, want 2", got.Generation)
		}
		p.accepted(1, "take_control", "") // it is the holder: no new generation
		p.accepted(0, "take_control", "")
		if got := p.hears(0, true, contracts.LeaseTakenOver); got.Generation != 3 {
			t.Errorf("generation: got %d, want 3", got.Generation)
		}
	})
}

func TestLeaseOfASilentHolderGoesToWhoeverAsked(t *testing.T) { // A31
	inParty(t, 2, hub.Options{LeaseTTL: 20 * time.Second}, func(t *testing.T, p *party) {
		p.accepted(1, "ask_control", "")
		p.peers[0].Mute()
		p.hears(1, true, contracts.LeaseGranted)
		p.hears(0, false, contracts.LeaseExpired)
		p.holds(1)
	})
}

func TestDetachedHolderKeepsTheLeaseForAWhile(t *testing.T) {
	inParty(t, 2, hub.Options{SubscriptionTTL: 10 * time.Second}, func(t *testing.T, p *party) {
		p.send(p.peers[0], `{"type":"ws.bye","keep":true}`)
		p.rest(p.peers[0])
		time.Sleep(9 * time.Second)
		p.holds(0)
		time.Sleep(2 * time.Second)
		p.holds(-1)
	})
}

func TestLeaseExpiryFollowsTheLastSignOfLife(t *testing.T) { // A32, ruling 10
	inParty(t, 1, hub.Options{LeaseTTL: 40 * time.Second}, func(t *testing.T, p *party) {
		time.Sleep(5 * time.Second)
		for _, id := range []string{`,"id":"p"`, ""} {
			p.send(p.peers[0], `{"type":"ws.ping"`+id+`}`)
			want := time.Now().Add(40 * time.Second).UTC().Format("2006-01-02T15:04:05.000Z")
			pong := p.last(p.until(p.peers[0], `"ws.pong"`)).(*contracts.Pong)
			if pong.LeaseExpiresAt == nil || *pong.LeaseExpiresAt != want {
				t.Errorf("lease_expires_at: got %v, want %s", pong.LeaseExpiresAt, want)
			}
			if (pong.ID == nil) != (id == "") {
				t.Errorf("id: got %v, want the one sent", pong.ID)
			}
		}
	})
}

func TestViewerCredentialCannotBecomeController(t *testing.T) {
	inParty(t, 0, hub.Options{}, func(t *testing.T, p *party) {
		watcher := contracts.Principal{ID: "w", Role: contracts.RoleViewer}
		for _, att := range []contracts.Attach{
			{Principal: watcher, Role: contracts.RoleController},
			{Principal: watcher},
		} {
			conn, peer := memconn.New(memconn.Options{})
			p.send(peer, `{"type":"hello","role":"controller"}`)
			wantCode(t, p.Serve(t.Context(), conn, hub.WireEnvelope, &att), contracts.CodeAccessDenied)
			p.rest(peer)
		}
		p.joins(contracts.Attach{Principal: watcher}, "watcher")
		if p.told[0].Role != contracts.RoleViewer {
			t.Errorf("role: got %s, want viewer", p.told[0].Role)
		}
		for _, kind := range []string{"take_control", "ask_control", "release_control"} {
			p.refused(0, kind, "", contracts.CodeAccessDenied)
		}
		p.refused(0, "grant_control", with("c"), contracts.CodeAccessDenied)
		p.refused(0, "deny_control", with("c"), contracts.CodeAccessDenied)
		p.refused(0, "send", `,"message":{"type":"hello","role":"controller"}`, contracts.CodeRoleConflict)
		p.holds(-1)
	})
}

func TestViewerThatKeepsTryingIsClosed(t *testing.T) {
	inParty(t, 0, hub.Options{}, func(t *testing.T, p *party) {
		p.joins(contracts.Attach{Role: contracts.RoleViewer}, "watcher")
		for range 9 {
			p.refused(0, "take_control", "", contracts.CodeAccessDenied)
		}
		time.Sleep(time.Minute) // a new minute, a new count
		for range 10 {
			p.refused(0, "take_control", "", contracts.CodeAccessDenied)
		}
		if bye := p.last(p.rest(p.peers[0])).(*contracts.Goodbye); bye.Code != 4403 {
			t.Errorf("farewell: got %+v, want 4403", bye)
		}
	})
}

// TestRefusedReadsDoNotCloseAController reads ten files that it may not read. Its
// commands would end with its connection.
func TestRefusedReadsDoNotCloseAController(t *testing.T) {
	inParty(t, 1, hub.Options{Utilities: &toolbox{}}, func(t *testing.T, p *party) {
		p.accepted(0, "send", `,"message":{"type":"hello","capabilities":{"utility_operations":["file_read"]}}`)
		for range 30 {
			p.refused(0, "send", `,"message":{"type":"utility_file_read","read_id":"r","path":"forbidden"}`, contracts.CodeAccessDenied)
		}
		p.holds(0)
	})
}

// The prompt is read while its sender drives, and waits for the old run to end.
// Meanwhile somebody else takes the lease: the fence refuses the prompt.
func TestPromptReadBeforeATakeoverIsRefusedAfterIt(t *testing.T) { // D7
	stopping := make(chan struct{})
	agent := newPlayer(nil)
	agent.play = func(ctx context.Context, _ contracts.Host, _ contracts.Work) error {
		<-ctx.Done()
		<-stopping // an agent that takes its time
		return context.Cause(ctx)
	}
	inParty(t, 2, hub.Options{Agent: agent}, func(t *testing.T, p *party) {
		stopping = make(chan struct{}) // of this bubble
		p.accepted(0, "send", `,"message":{"type":"prompt","content":"one"}`)
		p.accepted(0, "send", `,"message":{"type":"interrupt"}`)
		p.send(p.peers[0], `{"type":"ws.send","id":"late","message":{"type":"prompt","content":"two"}}`)
		synctest.Wait() // it is read, and waits
		p.accepted(1, "take_control", "")
		close(stopping)
		seen := p.until(p.peers[0], `"id":"late"`)
		if !strings.Contains(seen, string(contracts.CodeControllerLeaseHeld)) || strings.Contains(seen, `"ws.result","id":"late"`) {
			t.Errorf("got %s, want the prompt refused", seen)
		}
		p.holds(1)
	})
}

func TestTooManyControllersAreRefused(t *testing.T) {
	inParty(t, 2, hub.Options{MaxControllers: 2}, func(t *testing.T, p *party) {
		conn, peer := memconn.New(memconn.Options{})
		p.send(peer, `{"type":"hello"}`)
		err := p.Serve(t.Context(), conn, hub.WireEnvelope, &contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverForce})
		wantCode(t, err, contracts.CodeRateLimited)
		p.rest(peer)
		p.holds(0)
		p.joins(contracts.Attach{Role: contracts.RoleViewer}, "viewers are not counted")
	})
}

// The holders of a share cannot take all places of controllers.
func TestSharesLeaveRoomForControllers(t *testing.T) {
	inParty(t, 3, hub.Options{MaxControllers: 4}, func(t *testing.T, p *party) {
		conn, peer := memconn.New(memconn.Options{})
		p.send(peer, `{"type":"hello"}`)
		share := contracts.Principal{ID: "share", SessionID: p.SessionID()}
		err := p.Serve(t.Context(), conn, hub.WireEnvelope, &contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater, Principal: share})
		wantCode(t, err, contracts.CodeRateLimited)
		p.rest(peer)
		p.joins(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater}, "the owner has a place")
	})
}

// A local is a client on standard input and output beside others.
func (p *party) local() (peer *memconn.Peer, served chan error) {
	conn, peer := memconn.New(memconn.Options{Bare: true})
	served = make(chan error, 1)
	go func() { served <- p.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{}) }() // ends with its input
	return peer, served
}

func TestLocalClientHandsTheLeaseOverAndGetsItBack(t *testing.T) {
	inParty(t, 0, hub.Options{Shared: true}, func(t *testing.T, p *party) {
		local, served := p.local()
		all := ""
		until := func(want string) string {
			seen := p.until(local, want)
			all += seen
			return seen
		}
		p.send(local, `{"type":"hello","client_info":{"name":"terminal"}}`)
		until(`"hello_ok"`)
		p.joins(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater}, "bob")
		if p.told[0].ControllerLeaseGranted {
			t.Fatal("got the lease of the local client, want it kept")
		}
		time.Sleep(time.Hour) // an open pipe is a sign of life
		p.accepted(0, "ask_control", "")
		until(`"bob asks for control"`)
		p.send(local, `{"type":"ws.grant_control","id":"g","connection_id":"`+p.id(0)+`"}`)
		until(`"ws.result","id":"g"`)
		p.hears(0, true, contracts.LeaseGranted)
		p.send(local, `{"type":"prompt","content":"mine"}`)
		until(`"Controller lease is currently held by another connection"`)
		p.send(local, `{"type":"ws.take_control","id":"t"}`)
		until(`"ws.result","id":"t"`)
		p.hears(0, false, contracts.LeaseTakenOver)
		p.send(local, `{"type":"ws.grant_control","id":"x","connection_id":"nobody"}`)
		if seen := until(`"type":"error"`); !strings.Contains(seen, "no connection of that id asks for control") {
			t.Errorf("got %s, want the refusal as an error message", seen)
		}
		if got := strings.Count(all, `"type":"ws.`); got != 2 {
			t.Errorf("got %d control frames in %s, want the answers to the two that were accepted", got, all)
		}
		local.Close()
		if err := <-served; err != nil && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		<-p.Done() // the end of its input is the end of the session (R19)
	})
}

func TestLocalClientAloneKnowsNoControlFrames(t *testing.T) {
	inParty(t, 0, hub.Options{}, func(t *testing.T, p *party) {
		local, served := p.local()
		p.send(local, `{"type":"ws.release_control","id":"r"}`)
		if seen := p.until(local, `"type":"error"`); !strings.Contains(seen, "protocol") {
			t.Errorf("got %s, want a protocol error", seen)
		}
		second, refused := p.local()
		wantCode(t, <-refused, contracts.CodeRoleConflict)
		p.rest(second)
		local.Close()
		<-served
	})
}

func TestLocalClientThatTurnsOutToBeAViewerFreesTheLease(t *testing.T) {
	inParty(t, 0, hub.Options{Shared: true}, func(t *testing.T, p *party) {
		local, served := p.local()
		p.send(local, `{"type":"hello","role":"viewer"}`)
		p.until(local, `"hello_ok"`)
		p.joins(contracts.Attach{Role: contracts.RoleController}, "bob")
		p.holds(0)
		local.Close()
		<-served
	})
}

func TestControlIsNotGrantedToWhoLeft(t *testing.T) {
	inParty(t, 2, hub.Options{}, func(t *testing.T, p *party) {
		p.accepted(1, "ask_control", "")
		p.peers[1].Close()
		synctest.Wait()
		p.refused(0, "grant_control", with(p.id(1)), contracts.CodeRequestNotFound)
		p.holds(0)
	})
}

func TestNewHolderLearnsWhoAsks(t *testing.T) {
	inParty(t, 3, hub.Options{}, func(t *testing.T, p *party) {
		p.accepted(2, "ask_control", "")
		p.accepted(1, "take_control", "")
		got := p.last(p.sees(1, `"ws.control_request"`)).(*contracts.ControlRequest)
		if got.ConnectionID != p.id(2) {
			t.Errorf("got %+v, want the question of client 2", got)
		}
		p.accepted(1, "grant_control", with(p.id(2)))
		p.holds(2)
	})
}

// TestNewClientReplacesItsPredecessorThatIsGone has the holder's socket break
// without a goodbye, as when a terminal is closed, and a new client arrive.
func TestNewClientReplacesItsPredecessorThatIsGone(t *testing.T) {
	ada, bob := contracts.Principal{ID: "ada"}, contracts.Principal{ID: "bob"}
	for _, test := range []struct {
		about string
		by    contracts.Principal
		name  string
		how   contracts.Takeover
		gone  bool // the holder's socket
		want  bool
	}{
		{"the same one", ada, "term", contracts.TakeoverLater, true, true},
		{"the same one that would be refused", ada, "term", contracts.TakeoverRefuse, true, true},
		{"another name", ada, "other", contracts.TakeoverLater, true, false},
		{"no name", ada, "", contracts.TakeoverLater, true, false},
		{"another principal", bob, "term", contracts.TakeoverLater, true, false},
		{"the holder is there", ada, "term", contracts.TakeoverLater, false, false},
	} {
		t.Run(test.about, func(t *testing.T) {
			inParty(t, 0, hub.Options{}, func(t *testing.T, p *party) {
				p.joins(contracts.Attach{Principal: ada, Role: contracts.RoleController}, "term")
				if test.gone {
					p.peers[0].Close()
				}
				synctest.Wait()
				att := contracts.Attach{Principal: test.by, Role: contracts.RoleController, Takeover: test.how}
				if err := p.Admit(att); err != nil {
					t.Fatalf("before hello: %v", err)
				}
				p.joins(att, test.name)
				if !test.want {
					p.holds(0)
					return
				}
				p.holds(1)
				if !p.told[1].ControllerLeaseGranted {
					t.Errorf("got %+v, want the lease granted", p.told[1])
				}
			})
		})
	}
}

func TestAnotherNameIsRefusedAfterHello(t *testing.T) {
	inParty(t, 0, hub.Options{}, func(t *testing.T, p *party) {
		att := contracts.Attach{Principal: contracts.Principal{ID: "ada"}, Role: contracts.RoleController}
		p.joins(att, "term")
		p.peers[0].Close()
		synctest.Wait()
		conn, peer := memconn.New(memconn.Options{})
		p.serve(conn, peer, att, `{"type":"hello","client_info":{"name":"other"}}`)
		if got := p.rest(peer); !strings.Contains(got, `"code":"controller_lease_held"`) {
			t.Errorf("got %s, want controller_lease_held", got)
		}
		p.holds(0)
	})
}

// TestClientThatReturnsReplacesNobody has both clients of a person lose their
// sockets, and the one that watched return first.
func TestClientThatReturnsReplacesNobody(t *testing.T) {
	inParty(t, 0, hub.Options{}, func(t *testing.T, p *party) {
		att := contracts.Attach{Principal: contracts.Principal{ID: "ada"}, Role: contracts.RoleController, Takeover: contracts.TakeoverLater}
		p.joins(att, "term")
		p.joins(att, "term")
		p.peers[0].Close()
		p.peers[1].Close()
		synctest.Wait()
		att.ConnectionID = p.id(1)
		_, told := p.attach(att, `{"type":"ws.resume","connection_token":"`+p.told[1].ConnectionToken+`"}`, `{"type":"hello","client_info":{"name":"term"}}`)
		if told.ConnectionID != p.id(1) {
			t.Fatalf("got %+v, want the connection of before", told)
		}
		p.holds(0)
	})
}
