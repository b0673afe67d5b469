package hub_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
)

func TestConnectMakesAConnectionWithoutASubscription(t *testing.T) { // A3
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		got := alice.connects(contracts.AttachRequest{}) // a controller unless it says otherwise
		if !got.ControllerLeaseGranted || got.Role != contracts.RoleController || *got.ControllerConnectionID != got.ConnectionID {
			t.Errorf("got %+v, want a controller with the lease", got)
		}
		if want := wireTime(time.Now().Add(contracts.DefaultLeaseTTL)); *got.LeaseExpiresAt != want {
			t.Errorf("lease expires: got %s, want %s", *got.LeaseExpiresAt, want)
		}
		wantEqual(t, "session and interval", []any{got.SessionID, got.HeartbeatIntervalMS}, []any{"s", int64(15000)})
		for _, snap := range []*contracts.Snapshot{stateIn(t, got.Snapshot), r.Snapshot()} {
			st := snap.State
			if st.ConnectionCount != 1 || st.SubscriberCount != 0 || st.ControllerConnectionID.Get() != got.ConnectionID {
				t.Errorf("state: got %d connections, %d subscriptions, controller %s, want 1, 0 and %s",
					st.ConnectionCount, st.SubscriberCount, st.ControllerConnectionID.Get(), got.ConnectionID)
			}
		}
	})
}

func TestRoleIsThatOfTheBodyThenOfTheHeaderThenOfTheCredential(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		for _, tt := range []struct {
			body, header, credential, want contracts.Role
		}{
			{"", "", "", contracts.RoleController},
			{"", "", contracts.RoleViewer, contracts.RoleViewer},
			{"", contracts.RoleViewer, "", contracts.RoleViewer},
			{contracts.RoleController, contracts.RoleViewer, "", contracts.RoleController},
			{contracts.RoleViewer, contracts.RoleController, "", contracts.RoleViewer},
		} {
			g := r.guest("a")
			g.by.Role, g.by.Principal.Role = tt.header, tt.credential
			if got := g.connects(contracts.AttachRequest{Role: tt.body}).Role; got != tt.want {
				t.Errorf("body %q, header %q, credential %q: got %s, want %s", tt.body, tt.header, tt.credential, got, tt.want)
			}
			g.disconnects()
		}
		viewer := r.guest("a")
		viewer.by.Principal.Role = contracts.RoleViewer
		_, _, err := viewer.Connect(&asController, viewer.by)
		wantRefusal(t, err, contracts.CodeAccessDenied, "this credential only allows viewing")
	})
}

func TestConnectAgainKeepsTheConnection(t *testing.T) { // A4
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		first := alice.connects(asController)
		time.Sleep(time.Minute / 2)
		again, token, err := r.Connect(&contracts.AttachRequest{ConnectionID: first.ConnectionID}, r.guest("a").by)
		if err != nil || again.ConnectionID != first.ConnectionID || !again.ControllerLeaseGranted || token != "" {
			t.Errorf("got %+v, %q, %v, want connection %s with its lease and no other secret", again, token, err, first.ConnectionID)
		}
		if again.LeaseExpiresAt == nil || *again.LeaseExpiresAt <= *first.LeaseExpiresAt {
			t.Errorf("lease expires: got %v, want later than %v", again.LeaseExpiresAt, *first.LeaseExpiresAt)
		}
		if n := r.Snapshot().State.ConnectionCount; n != 1 {
			t.Errorf("connections: got %d, want 1", n)
		}
	})
}

func TestStrangersConnectionIsAsGoodAsUnknown(t *testing.T) { // A5, A6, A41
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		before, cursor := r.Snapshot(), r.Cursor()
		mallory := r.guest("m")
		const none = "Headless connection not found"
		for _, id := range []string{alice.by.ConnectionID, "conn_nobody"} {
			req := contracts.AttachRequest{ConnectionID: id}
			_, _, err := r.Connect(&req, mallory.by)
			wantRefusal(t, err, contracts.CodeStaleConnection, none)
			_, _, err = r.Subscribe(&req, mallory.by)
			wantRefusal(t, err, contracts.CodeStaleConnection, none)
			mallory.by.ConnectionID = id // and in a header
			_, _, err = r.Subscribe(&contracts.AttachRequest{}, mallory.by)
			wantRefusal(t, err, contracts.CodeStaleConnection, none)
			_, err = r.Heartbeat(mallory.by)
			wantRefusal(t, err, contracts.CodeStaleConnection, none)
			_, err = r.Disconnect(mallory.by)
			wantRefusal(t, err, contracts.CodeStaleConnection, none)
			_, err = r.Send([]byte(`{"type":"init"}`), "", mallory.by)
			wantRefusal(t, err, contracts.CodeStaleConnection, none)
			mallory.by.ConnectionID = ""
		}
		for _, id := range []string{alice.by.SubscriptionID, "sub_nobody"} {
			wantRefusal(t, r.Unsubscribe(id, mallory.by), contracts.CodeStaleSubscription, "Headless subscriber not found")
			by := mallory.by
			by.SubscriptionID = id
			_, err := r.Heartbeat(by)
			wantRefusal(t, err, contracts.CodeStaleConnection, none)
			_, err = r.Disconnect(by)
			wantRefusal(t, err, contracts.CodeStaleConnection, none)
		}
		if after := r.Snapshot(); r.Cursor() != cursor || still(t, after) != still(t, before) {
			t.Errorf("got %+v at %d, want nothing changed since %d", after.State, r.Cursor(), cursor)
		}
	})
}

func TestMetadataIsReplacedFieldByField(t *testing.T) { // A7
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		say := func(req contracts.AttachRequest) *contracts.ConnectionState {
			alice.connects(req)
			return r.entry(alice.by.ConnectionID)
		}
		want := contracts.ConnectionState{
			ClientProtocolVersion: contracts.ProtocolVersion,
			ClientInfo:            &contracts.ClientInfo{Name: "one", Version: "1"},
			Capabilities:          &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestUserInput}, RawAgentEvents: true},
			OptOutNotifications:   []contracts.Notification{contracts.NotifyStatus},
		}
		check := func(what string, got *contracts.ConnectionState) {
			t.Helper()
			wantEqual(t, what, contracts.ConnectionState{
				ClientProtocolVersion: got.ClientProtocolVersion, ClientInfo: got.ClientInfo,
				Capabilities: got.Capabilities, OptOutNotifications: got.OptOutNotifications,
			}, want)
		}
		caps := contracts.AttachCapabilities(*want.Capabilities)
		check("all given", say(contracts.AttachRequest{
			ProtocolVersion: want.ClientProtocolVersion, ClientInfo: want.ClientInfo, Capabilities: &caps, OptOutNotifications: want.OptOutNotifications,
		}))
		check("nothing given", say(contracts.AttachRequest{}))
		want.ClientInfo = &contracts.ClientInfo{Name: "two"}
		check("client info", say(contracts.AttachRequest{ClientInfo: want.ClientInfo}))
		want.Capabilities = &contracts.Capabilities{ServerRequests: []contracts.RequestType{contracts.RequestToolRetry}}
		caps = contracts.AttachCapabilities(*want.Capabilities)
		check("capabilities", say(contracts.AttachRequest{Capabilities: &caps}))
		want.OptOutNotifications = []contracts.Notification{contracts.NotifyCompaction}
		check("opt-outs", say(contracts.AttachRequest{OptOutNotifications: want.OptOutNotifications}))
		want.OptOutNotifications = nil
		check("no opt-outs any more", say(contracts.AttachRequest{OptOutNotifications: []contracts.Notification{}}))
		want.ClientProtocolVersion = "2020-01-01"
		check("version", say(contracts.AttachRequest{ProtocolVersion: want.ClientProtocolVersion}))
		if got := r.Snapshot().State.LastStatus; got == nil || !strings.Contains(*got, "2020-01-01") {
			t.Errorf("last status: got %v, want the other version told", got)
		}
	})
}

func TestNewConnectionInheritsNothing(t *testing.T) { // A21
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		r.guest("a").subscribes(contracts.AttachRequest{
			ProtocolVersion: contracts.ProtocolVersion, ClientInfo: &contracts.ClientInfo{Name: "first"},
			Capabilities: &contracts.AttachCapabilities{RawAgentEvents: true}, OptOutNotifications: []contracts.Notification{contracts.NotifyStatus},
		})
		bob := r.guest("a")
		bob.subscribes(asViewer)
		got := r.entry(bob.by.ConnectionID)
		if got.ClientInfo != nil || got.Capabilities != nil || got.OptOutNotifications != nil || got.ClientProtocolVersion != "" {
			t.Errorf("got %+v, want nothing of the first", got)
		}
	})
}

func TestConnectionsShownAreThoseThere(t *testing.T) { // 4.2, 4.3, 1.6 ruling 7
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		watcher := r.guest("w").follows(contracts.StreamRequest{})
		r.arrived(watcher)
		alice := r.guest("a")
		alice.connects(contracts.AttachRequest{ClientInfo: &contracts.ClientInfo{Name: "first"}})
		info := r.info(r.arrived(watcher))
		if info.ConnectionID != alice.by.ConnectionID || info.ClientInfo.Name != "first" || *info.ConnectionCount != 2 || info.ControllerConnectionID.Get() != alice.by.ConnectionID {
			t.Errorf("connect: got %+v, want it about %s, which controls", info, alice.by.ConnectionID)
		}
		got := alice.subscribes(asController)
		info = r.info(r.arrived(watcher))
		if len(info.Connections) != 2 || info.Connections[0].SubscriptionCount != 1 || info.Connections[0].AttachedSubscriptionCount != 0 {
			t.Errorf("subscribe: got %+v, want a subscription that is not attached", info)
		}
		if *got.ControllerSubscriptionID != got.SubscriptionID {
			t.Errorf("controller's subscription: got %s, want %s", *got.ControllerSubscriptionID, got.SubscriptionID)
		}
		second := alice.subscribes(asController)
		alice.follows(alice.place(-1))
		r.arrived(watcher)
		st := r.Snapshot().State // the first that is attached stands for the connection
		if c := r.entry(alice.by.ConnectionID); c.SubscriptionCount != 2 || c.AttachedSubscriptionCount != 1 || st.ControllerSubscriptionID.Get() != second.SubscriptionID {
			t.Errorf("got %+v and subscription %s, want two, the second attached: %s", c, st.ControllerSubscriptionID.Get(), second.SubscriptionID)
		}
		bob := r.guest("b")
		if got := bob.subscribes(asViewer); *got.ControllerConnectionID != alice.by.ConnectionID || *got.ControllerSubscriptionID != second.SubscriptionID || got.ControllerLeaseGranted { // A2
			t.Errorf("viewer: got %+v, want it to name the controller", got)
		}
	})
}

// info returns the last connection_info among lines.
func (r *room) info(lines []string) *contracts.ConnectionInfo {
	r.t.Helper()
	for i := len(lines) - 1; i >= 0; i-- {
		if m, ok := r.decode(lines[i]).(*contracts.MessageEnvelope); ok && typeOf(m.Message) == "connection_info" {
			ev, err := (&contracts.Decoder{}).Event(m.Message)
			if err != nil {
				r.t.Fatal(err)
			}
			return ev.(*contracts.ConnectionInfo)
		}
	}
	r.t.Fatalf("got %q, want a connection_info", lines)
	return nil
}

func TestSubscriptionAnswerIsClosed(t *testing.T) { // A1, A13
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		got := alice.subscribes(contracts.AttachRequest{Role: contracts.RoleController, OptOutNotifications: []contracts.Notification{contracts.NotifyHeartbeat}})
		text, err := contracts.EncodeBody(&got)
		if err != nil {
			t.Fatal(err)
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(text, &keys); err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "granted", got.ControllerLeaseGranted, true)
		for _, key := range []string{
			"connection_id", "subscription_id", "opt_out_notifications", "role", "controller_lease_granted",
			"controller_subscription_id", "controller_connection_id", "lease_expires_at", "heartbeat_interval_ms", "snapshot",
		} {
			if _, there := keys[key]; !there {
				t.Errorf("got %s, want the key %s", text, key)
			}
			delete(keys, key)
		}
		if len(keys) > 0 {
			t.Errorf("got the keys %v too many", keys)
		}
		bye := alice.disconnects()
		text, err = contracts.EncodeBody(&bye)
		want := fmt.Sprintf(`{"success":true,"connection_id":%q,"controller_connection_id":null,"disconnected_subscription_ids":[%q]}`, got.ConnectionID, got.SubscriptionID)
		if err != nil || strings.TrimSpace(string(text)) != want {
			t.Errorf("got %s, %v, want %s", text, err, want)
		}
	})
}

func TestIdsAreLongAndRandom(t *testing.T) { // A22
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		seen := map[string]bool{}
		for range 4 {
			got := alice.subscribes(asController)
			for prefix, id := range map[string]string{"conn_": got.ConnectionID, "sub_": got.SubscriptionID, "": alice.by.Token} {
				if bits := 4 * (len(id) - len(prefix)); !strings.HasPrefix(id, prefix) || bits < 128 {
					t.Errorf("got %s, want %s and 128 bits", id, prefix)
				}
				seen[id] = true
			}
		}
		if len(seen) != 4+2 {
			t.Errorf("got %d different ids, want one connection, its secret and four subscriptions", len(seen))
		}
	})
}

func TestRefusedControllerLeavesNoTrace(t *testing.T) { // A23, A24, A34
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice, bob := r.guest("a"), r.guest("b")
		alice.subscribes(asController)
		before, cursor := r.Snapshot(), r.Cursor()
		for what, attach := range map[string]func() error{
			"connect":   func() error { _, _, err := r.Connect(&contracts.AttachRequest{}, bob.by); return err },
			"subscribe": func() error { _, _, err := r.Subscribe(&contracts.AttachRequest{}, bob.by); return err },
		} {
			err := attach()
			wantRefusal(t, err, contracts.CodeControllerLeaseHeld, "Controller lease is already held by another connection")
			if refusal, ok := err.(*contracts.Error); !ok || refusal.Metadata["controller_connection_id"] != alice.by.ConnectionID {
				t.Errorf("%s: got %v, want the holder in the metadata", what, err)
			}
		}
		if after := r.Snapshot(); r.Cursor() != cursor || still(t, after) != still(t, before) {
			t.Errorf("got %+v at %d, want nothing changed since %d", after.State, r.Cursor(), cursor)
		}
		if n := r.told("refused " + string(contracts.CodeControllerLeaseHeld)); n != 2 {
			t.Errorf("refusals: got %d, want 2", n)
		}
	})
}

func TestOneOfTwoControllersAtTheSameTimeIsAdmitted(t *testing.T) { // A33
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		var wg sync.WaitGroup
		refused := make(chan error, 8)
		for i := range 8 {
			wg.Go(func() {
				if _, _, err := r.Subscribe(&contracts.AttachRequest{}, r.guest(fmt.Sprint(i)).by); err != nil {
					refused <- err
				}
			})
		}
		wg.Wait()
		close(refused)
		n := 0
		for err := range refused {
			n++
			wantCode(t, err, contracts.CodeControllerLeaseHeld)
		}
		if n != 7 {
			t.Errorf("refused: got %d of 8, want 7", n)
		}
	})
}

func TestTakeOverByRequestIsToldToAll(t *testing.T) { // A25 to A28
	for what, take := range map[string]func(g *guest) (granted bool, holder *string){
		"connect": func(g *guest) (bool, *string) {
			a := g.connects(byForce)
			return a.ControllerLeaseGranted, a.ControllerConnectionID
		},
		"subscribe": func(g *guest) (bool, *string) {
			a := g.subscribes(byForce)
			return a.ControllerLeaseGranted, a.ControllerConnectionID
		},
	} {
		t.Run(what, func(t *testing.T) {
			inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
				alice, bob := r.guest("a"), r.guest("b")
				alice.subscribes(asController)
				stream := alice.follows(alice.place(-1))
				r.arrived(stream)
				if granted, holder := take(bob); !granted || *holder != bob.by.ConnectionID {
					t.Errorf("got granted %t, holder %s, want it at once", granted, *holder)
				}
				seen := r.arrived(stream)
				if info := r.info(seen); info.ControllerConnectionID.Get() != bob.by.ConnectionID {
					t.Errorf("connection_info: got %+v, want the new holder", info)
				}
				snap, _ := r.snapshotIn(seen[len(seen)-1])
				if snap.State.ControllerConnectionID.Get() != bob.by.ConnectionID {
					t.Errorf("snapshot: got %+v, want the new holder", snap.State)
				}
				if got := alice.beats(); got.ControllerLeaseGranted || *got.ControllerConnectionID != bob.by.ConnectionID {
					t.Errorf("heartbeat: got %+v, want no lease and the new holder", got)
				}
				_, err := r.Send([]byte(`{"type":"prompt","content":"no"}`), "", alice.by)
				wantRefusal(t, err, contracts.CodeControllerLeaseHeld, "Controller lease is currently held by another connection")
				bob.posts(`{"type":"prompt","content":"yes"}`)
				r.until(stream, `"content":"yes"`) // the old holder goes on watching
			})
		})
	}
}
