package hub_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

func TestUnsubscribingTheLastEndsTheConnection(t *testing.T) { // A9 to A12
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		first, second := alice.subscribes(asController), alice.subscribes(asController)
		if first.ConnectionID != second.ConnectionID || first.SubscriptionID == second.SubscriptionID {
			t.Errorf("got %+v and %+v, want two subscriptions of one connection", first, second)
		}
		if err := r.Unsubscribe(first.SubscriptionID, alice.by); err != nil {
			t.Fatal(err)
		}
		r.wantHolder(alice.by.ConnectionID)
		if st := r.Snapshot().State; st.ConnectionCount != 1 || st.SubscriberCount != 1 {
			t.Errorf("got %d connections, %d subscriptions, want one of each", st.ConnectionCount, st.SubscriberCount)
		}
		wantCode(t, r.Unsubscribe(first.SubscriptionID, alice.by), contracts.CodeStaleSubscription)
		cursor := int64(r.Cursor())
		if err := r.Unsubscribe(second.SubscriptionID, alice.by); err != nil {
			t.Fatal(err)
		}
		if st := r.Snapshot().State; st.ConnectionCount+st.SubscriberCount != 0 || r.controller() != "" {
			t.Errorf("got %+v, want nobody", st)
		}
		r.wantSnapshots(cursor, 1)
		_, err := r.Heartbeat(alice.by)
		wantCode(t, err, contracts.CodeStaleConnection)
	})
}

// wantSnapshots fails unless n snapshots were published after a cursor.
func (r *room) wantSnapshots(cursor int64, n int) {
	r.t.Helper()
	reader := r.guest("reader")
	peer := reader.follows(from(cursor))
	defer peer.Close()
	got := 0
	for _, line := range r.arrived(peer) {
		if strings.HasPrefix(line, `{"type":"snapshot"`) {
			got++
		}
	}
	if got != n {
		r.t.Errorf("snapshots after cursor %d: got %d, want %d", cursor, got, n)
	}
}

func TestDisconnectEndsAllSubscriptionsInTheirOrder(t *testing.T) { // A9, A15
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		first, second, third := alice.subscribes(asController), alice.subscribes(asController), alice.subscribes(asController)
		stream := alice.follows(alice.place(-1))
		viewer := r.guest("v").follows(contracts.StreamRequest{})
		r.arrived(viewer)
		cursor := int64(r.Cursor())
		got := alice.disconnects()
		wantEqual(t, "answer", got, contracts.DisconnectAnswer{
			Success: true, ConnectionID: first.ConnectionID,
			Subscriptions: []string{first.SubscriptionID, second.SubscriptionID, third.SubscriptionID},
		})
		r.wantEnd(stream, contracts.CodeSuperseded)
		r.wantSnapshots(cursor, 1)
		r.wantHolder("")
		bob := r.guest("b")
		bob.connects(asController)
		bob.posts(`{"type":"prompt","content":"after"}`)
		r.until(viewer, `"content":"after"`) // the session goes on
	})
}

func TestDisconnectingAViewerLeavesTheLease(t *testing.T) { // A14
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice, bob := r.guest("a"), r.guest("b")
		alice.subscribes(asController)
		bob.subscribes(asViewer)
		cursor := int64(r.Cursor())
		if got := bob.disconnects(); *got.ControllerConnectionID != alice.by.ConnectionID {
			t.Errorf("got %+v, want the controller named", got)
		}
		r.wantHolder(alice.by.ConnectionID)
		r.wantSnapshots(cursor, 1)
	})
}

func TestDisconnectIsRepeatable(t *testing.T) { // A16, A17
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice, mallory := r.guest("a"), r.guest("m")
		alice.connects(asController)
		id := alice.by.ConnectionID
		want := contracts.DisconnectAnswer{Success: true, ConnectionID: id, Subscriptions: []string{}}
		wantEqual(t, "without subscriptions", alice.disconnects(), want)
		wantEqual(t, "again", alice.disconnects(), want)
		mallory.by.ConnectionID = id
		_, err := r.Disconnect(mallory.by)
		wantCode(t, err, contracts.CodeStaleConnection)
		wrong := alice.by
		wrong.Token = "guessed"
		_, err = r.Disconnect(wrong)
		wantCode(t, err, contracts.CodeStaleConnection)
		bob := r.guest("b")
		bob.subscribes(asController)
		want.ControllerConnectionID = &bob.by.ConnectionID
		bob.follows(bob.place(-1)) // stays
		for range 20 {             // nearly ten minutes
			time.Sleep(29 * time.Second)
			bob.beats()
		}
		wantEqual(t, "much later", alice.disconnects(), want)
		time.Sleep(21 * time.Second)
		_, err = r.Disconnect(alice.by)
		wantCode(t, err, contracts.CodeStaleConnection)
	})
}

func TestFormerConnectionsAreForgottenBeyondABound(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		first, second := r.guest("a"), r.guest("a")
		first.connects(asViewer)
		first.disconnects()
		second.connects(asViewer)
		second.disconnects()
		for range 1023 {
			g := r.guest("a")
			g.connects(asViewer)
			g.disconnects()
		}
		second.disconnects()
		_, err := r.Disconnect(first.by)
		wantCode(t, err, contracts.CodeStaleConnection)
	})
}

func TestConnectionHasAtMostEightSubscriptions(t *testing.T) { // D10
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		var ids []string
		for range 8 {
			ids = append(ids, alice.subscribes(asController).SubscriptionID)
		}
		cursor := r.Cursor()
		_, _, err := r.Subscribe(&contracts.AttachRequest{}, alice.by)
		wantCode(t, err, contracts.CodeRateLimited)
		if r.Cursor() != cursor {
			t.Errorf("got cursor %d, want nothing published since %d", r.Cursor(), cursor)
		}
		wantEqual(t, "subscriptions", alice.disconnects().Subscriptions, ids)
	})
}

func TestOptOutsBelongToTheSubscription(t *testing.T) { // A8, A53
	status, info := []contracts.Notification{contracts.NotifyStatus}, []contracts.Notification{contracts.NotifyConnectionInfo}
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.connects(contracts.AttachRequest{OptOutNotifications: status})
		inherits := alice.subscribes(contracts.AttachRequest{})
		plain := alice.follows(alice.place(-1))
		owns := alice.subscribes(contracts.AttachRequest{OptOutNotifications: info})
		own := alice.follows(alice.place(-1))
		wantEqual(t, "inherited", inherits.OptOutNotifications, status)
		wantEqual(t, "own", owns.OptOutNotifications, info)
		wantEqual(t, "the connection's", r.entry(alice.by.ConnectionID).OptOutNotifications, status)
		both := func(want [2][2]bool) { // status and connection_info of each
			t.Helper()
			r.arrived(plain)
			r.arrived(own)
			alice.posts(`{"type":"init"}`) // a status
			alice.beats()
			r.guest("v").subscribes(asViewer) // a connection_info
			for i, peer := range []*memconn.Peer{plain, own} {
				seen := strings.Join(r.arrived(peer), "\n")
				for j, kind := range []string{"status", "connection_info"} {
					if got := strings.Contains(seen, `"message":{"type":"`+kind+`"`); got != want[i][j] {
						t.Errorf("stream %d: got %s %t, want %t", i, kind, got, want[i][j])
					}
				}
			}
		}
		both([2][2]bool{{false, true}, {true, false}})
		alice.posts(`{"type":"hello","opt_out_notifications":["connection_info"]}`) // of all of them, at once
		both([2][2]bool{{true, false}, {true, false}})
		alice.posts(`{"type":"hello"}`)
		both([2][2]bool{{true, true}, {true, true}})
		alice.connects(contracts.AttachRequest{OptOutNotifications: status})
		both([2][2]bool{{false, true}, {false, true}})
	})
}

func TestRenewingWithoutNewOptOutsKeepsThoseOfTheSubscription(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.connects(asController)
		alice.subscribes(contracts.AttachRequest{OptOutNotifications: []contracts.Notification{}})
		alice.subscribes(contracts.AttachRequest{OptOutNotifications: []contracts.Notification{contracts.NotifyStatus}})
		stream := alice.follows(alice.place(-1))
		alice.connects(contracts.AttachRequest{ClientInfo: &contracts.ClientInfo{Name: "renewed"}})
		r.arrived(stream)
		alice.posts(`{"type":"init"}`)
		if seen := r.arrived(stream); slices.ContainsFunc(seen, func(line string) bool { return strings.Contains(line, `"status"`) }) {
			t.Errorf("got %q, want no status", seen)
		}
	})
}

func TestUnusedHolderIsAdoptedOnceByItsOwn(t *testing.T) { // 1.7, A36
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		made := alice.connects(asController).ConnectionID
		anew := func(principal string, req contracts.AttachRequest) (string, error) {
			got, _, err := r.Subscribe(&req, r.guest(principal).by)
			if err != nil {
				return "", err
			}
			return got.ConnectionID, nil
		}
		_, err := anew("m", asController)
		wantCode(t, err, contracts.CodeControllerLeaseHeld)
		if id, err := anew("m", byForce); err != nil || id == made {
			t.Errorf("a stranger by force: got %s, %v, want a connection of its own", id, err)
		}
		alice.connects(byForce)
		if id, err := anew("a", asViewer); err != nil || id == made {
			t.Errorf("as viewer: got %s, %v, want a connection of its own", id, err)
		}
		if id, err := anew("a", asController); err != nil || id != made {
			t.Errorf("got %s, %v, want %s adopted", id, err, made)
		}
		if _, err = anew("a", asController); err == nil {
			t.Error("got it adopted twice, want refused")
		}
		wantCode(t, err, contracts.CodeControllerLeaseHeld)
		r.wantHolder(made)
	})
}

func TestHolderThatHadASubscriptionIsNotAdopted(t *testing.T) { // A36
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		peer, told := r.attach(contracts.Attach{Role: contracts.RoleController, Principal: contracts.Principal{ID: "a"}})
		r.until(peer, `"hello_ok"`)
		_, _, err := r.Subscribe(&contracts.AttachRequest{}, r.guest("a").by)
		wantCode(t, err, contracts.CodeControllerLeaseHeld)
		r.wantHolder(told.ConnectionID)
	})
}

func TestAdoptionKeepsWhatTheConnectionNegotiated(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.connects(contracts.AttachRequest{ClientInfo: &contracts.ClientInfo{Name: "maker"}, OptOutNotifications: []contracts.Notification{contracts.NotifyStatus}})
		got, token, err := r.Subscribe(&contracts.AttachRequest{}, r.guest("a").by)
		if err != nil || token != "" {
			t.Fatalf("got %q, %v, want it adopted under its old secret", token, err)
		}
		if c := r.entry(got.ConnectionID); c.ClientInfo.Name != "maker" || len(got.OptOutNotifications) != 1 {
			t.Errorf("got %+v and opt-outs %v, want those of the connection", c, got.OptOutNotifications)
		}
	})
}

func TestRoleOfAConnectionCannotChange(t *testing.T) { // A18
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		const text = "Headless connection role does not match subscription role"
		alice, bob := r.guest("a"), r.guest("b")
		alice.subscribes(asController)
		bob.subscribes(asViewer)
		cursor := r.Cursor()
		for g, req := range map[*guest]contracts.AttachRequest{alice: asViewer, bob: asController} {
			_, _, err := r.Connect(&req, g.by)
			wantRefusal(t, err, contracts.CodeRoleConflict, text)
			_, _, err = r.Subscribe(&req, g.by)
			wantRefusal(t, err, contracts.CodeRoleConflict, text)
			by := g.by // a header says so too
			by.Role = req.Role
			_, _, err = r.Connect(&contracts.AttachRequest{}, by)
			wantRefusal(t, err, contracts.CodeRoleConflict, text)
		}
		alice.refusedPost(`{"type":"hello","role":"viewer"}`, contracts.CodeRoleConflict)
		if r.Cursor() != cursor {
			t.Errorf("got cursor %d, want nothing published since %d", r.Cursor(), cursor)
		}
		r.wantHolder(alice.by.ConnectionID)
	})
}

func TestViewersMayNotBeAskedNorBringTools(t *testing.T) { // A19, A20
	caps := func(kinds ...contracts.RequestType) *contracts.AttachCapabilities {
		return &contracts.AttachCapabilities{ServerRequests: kinds}
	}
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		for _, tt := range []struct {
			req  contracts.AttachRequest
			want string // empty: admitted
		}{
			{contracts.AttachRequest{Role: contracts.RoleViewer, Capabilities: caps(contracts.RequestUserInput)}, "viewer headless connections cannot negotiate user_input requests"},
			{contracts.AttachRequest{Role: contracts.RoleViewer, Capabilities: caps(contracts.RequestMCPElicitation)}, "viewer headless connections cannot negotiate mcp_elicitation requests"},
			{contracts.AttachRequest{Role: contracts.RoleViewer, Capabilities: caps(contracts.RequestApproval, contracts.RequestClientTool, contracts.RequestToolRetry)}, ""}, // and gains nothing by it
			{contracts.AttachRequest{Role: contracts.RoleViewer, Capabilities: caps(contracts.RequestClientTool), EnableClientTools: true}, "viewer headless connections cannot enable client-side tools"},
			{contracts.AttachRequest{EnableClientTools: true}, "client_tool capability is required when enableClientTools is true"},
			{contracts.AttachRequest{EnableClientTools: true, Capabilities: caps(contracts.RequestClientTool)}, ""},
			{contracts.AttachRequest{ProtocolVersion: strings.Repeat("x", 257)}, "protocol_version, client_info and display_name may have at most 256 bytes each"},
		} {
			for what, attach := range map[string]func() (string, error){
				"connect": func() (string, error) {
					got, _, err := r.Connect(&tt.req, r.guest("a").by)
					if err != nil {
						return "", err
					}
					return got.ConnectionID, nil
				},
				"subscribe": func() (string, error) {
					got, _, err := r.Subscribe(&tt.req, r.guest("a").by)
					if err != nil {
						return "", err
					}
					return got.ConnectionID, nil
				},
			} {
				id, err := attach()
				switch {
				case tt.want != "":
					wantRefusal(t, err, contracts.CodeBadRequest, tt.want)
				case err != nil:
					t.Errorf("%s %+v: got %v, want admitted", what, tt.req, err)
				default:
					g := r.guest("a")
					g.by.ConnectionID = id
					g.disconnects()
				}
				if n := r.Snapshot().State.ConnectionCount; n != 0 {
					t.Errorf("%s %+v: got %d connections, want none left", what, tt.req, n)
				}
			}
		}
	})
}

func TestSessionIsBoundedForRequestsToo(t *testing.T) { // D10
	inRoom(t, hub.Options{MaxConnections: 3, MaxControllers: 2}, func(t *testing.T, r *room) {
		holder := r.guest("a")
		holder.connects(asController)
		second := r.guest("b")
		second.connects(byForce)
		third := r.guest("c") // takes the place of the one that does not hold the lease
		third.connects(byForce)
		_, err := r.Heartbeat(holder.by)
		wantCode(t, err, contracts.CodeStaleConnection)
		for _, g := range []*guest{second, third} {
			g.beats()
		}
		r.guest("v").follows(contracts.StreamRequest{})
		second.subscribes(byForce)
		second.follows(second.place(-1))
		third.subscribes(byForce)
		third.follows(third.place(-1))
		synctest.Wait()
		wantCode(t, r.MayStream(contracts.StreamRequest{}, r.guest("w").by), contracts.CodeOverloaded)
		peer, ended := r.guest("w").streams(contracts.StreamRequest{})
		wantCode(t, <-ended, contracts.CodeOverloaded)
		if why, closed := peer.Closed(); closed {
			t.Errorf("got the connection closed, %v, want it left to who refuses", why)
		}
		_, _, err = r.Connect(&asViewer, r.guest("w").by)
		wantCode(t, err, contracts.CodeOverloaded)
	})
}
