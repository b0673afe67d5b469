package hub_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
)

// Fake time stands still while anybody runs, so that these are exact.
const (
	leaseTTL = contracts.DefaultLeaseTTL
	subTTL   = contracts.DefaultSubscriptionTTL
	instant  = time.Millisecond
)

// wantGone fails unless the guest's connection is unknown, or known.
func (g *guest) wantGone(gone bool) {
	g.t.Helper()
	synctest.Wait()
	if there := g.entry(g.by.ConnectionID) != nil; there == gone {
		g.t.Errorf("connection %s: got it there %t, want gone %t", g.by.ConnectionID, there, gone)
	}
}

func TestConnectionWithoutSubscriptionsExpiresExactly(t *testing.T) { // A31, 3.2
	for _, role := range []contracts.Role{contracts.RoleController, contracts.RoleViewer} {
		inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
			g := r.guest("a")
			g.connects(contracts.AttachRequest{Role: role})
			time.Sleep(leaseTTL - instant)
			g.wantGone(false)
			time.Sleep(instant)
			g.wantGone(true)
			r.wantHolder("")
			_, err := r.Heartbeat(g.by)
			wantCode(t, err, contracts.CodeStaleConnection)
		})
	}
}

func TestRequestsAreSignsOfLife(t *testing.T) { // A32, 3.2
	for what, sign := range map[string]func(g *guest){
		"heartbeat": func(g *guest) { g.beats() },
		"connect":   func(g *guest) { g.connects(contracts.AttachRequest{}) },
		"message":   func(g *guest) { g.posts(`{"type":"init"}`) },
		"hello":     func(g *guest) { g.posts(`{"type":"hello"}`) },
	} {
		t.Run(what, func(t *testing.T) {
			inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
				g := r.guest("a")
				g.connects(asController)
				for range 3 {
					time.Sleep(leaseTTL - instant)
					sign(g)
				}
				if got, want := g.beats().LeaseExpiresAt, wireTime(time.Now().Add(leaseTTL)); *got != want {
					t.Errorf("lease expires: got %s, want %s", *got, want)
				}
				time.Sleep(leaseTTL - instant)
				g.wantGone(false)
				r.wantHolder(g.by.ConnectionID)
				time.Sleep(instant)
				g.wantGone(true)
			})
		})
	}
}

func TestRefusalsAreNoSignOfLife(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		g, other := r.guest("a"), r.guest("b")
		g.connects(asController)
		time.Sleep(leaseTTL / 2)
		_, err := r.Send([]byte(`{"type":"nonsense"}`), "", g.by)
		wantCode(t, err, contracts.CodeBadRequest)
		_, _, err = r.Connect(&asViewer, g.by)
		wantCode(t, err, contracts.CodeRoleConflict)
		other.by.ConnectionID = g.by.ConnectionID
		_, err = r.Heartbeat(other.by)
		wantCode(t, err, contracts.CodeStaleConnection)
		time.Sleep(leaseTTL / 2)
		g.wantGone(true)
	})
}

func TestHeartbeatTouchesEverySubscriptionAndPublishesNothing(t *testing.T) { // 3.2, 1.13
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		g := r.guest("a")
		first, second := g.subscribes(asController), g.subscribes(asController)
		cursor := r.Cursor()
		beat := func(by contracts.Caller) {
			t.Helper()
			got, err := r.Heartbeat(by)
			want := wireTime(time.Now().Add(leaseTTL))
			if err != nil || got.ConnectionID != g.by.ConnectionID || *got.LeaseExpiresAt != want || got.HeartbeatIntervalMS != 15000 || !got.ControllerLeaseGranted {
				t.Errorf("got %+v, %v, want the lease until %s", got, err, want)
			}
		}
		by := contracts.Caller{Principal: g.by.Principal}
		for range 10 {
			time.Sleep(subTTL - instant)
			by.ConnectionID, by.SubscriptionID = g.by.ConnectionID, ""
			beat(by)
			time.Sleep(subTTL - instant)
			by.ConnectionID, by.SubscriptionID = "", first.SubscriptionID
			beat(by)
			time.Sleep(subTTL - instant)
			by.ConnectionID, by.SubscriptionID = g.by.ConnectionID, "sub_gone" // falls back
			beat(by)
			time.Sleep(subTTL - instant)
			by.ConnectionID, by.SubscriptionID = "conn_gone", second.SubscriptionID
			beat(by)
		}
		if r.Cursor() != cursor {
			t.Errorf("got cursor %d, want nothing published since %d", r.Cursor(), cursor)
		}
		wantEqual(t, "subscriptions", g.disconnects().Subscriptions, []string{first.SubscriptionID, second.SubscriptionID})
	})
}

func TestHeartbeatOfTwoThatDisagreeIsRefused(t *testing.T) { // 1.13
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		one, two := r.guest("a"), r.guest("a")
		one.subscribes(asController)
		two.subscribes(asViewer)
		by := one.by
		by.SubscriptionID = two.by.SubscriptionID
		_, err := r.Heartbeat(by)
		wantRefusal(t, err, contracts.CodeAccessDenied, "Headless subscription does not belong to the message connection")
		_, err = r.Disconnect(by)
		wantCode(t, err, contracts.CodeAccessDenied)
	})
}

func TestDetachedSubscriptionExpiresExactlyWithItsConnection(t *testing.T) { // A58
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		g := r.guest("a")
		g.subscribes(asController)
		time.Sleep(subTTL - instant)
		g.wantGone(false)
		stream := g.follows(g.place(-1)) // being followed is a sign of life
		time.Sleep(subTTL)
		stream.Close() // and so is leaving
		time.Sleep(subTTL - instant)
		g.wantGone(false)
		r.wantHolder(g.by.ConnectionID)
		time.Sleep(instant)
		g.wantGone(true)
		r.wantHolder("")
		_, ended := g.streams(g.place(-1))
		wantCode(t, <-ended, contracts.CodeStaleSubscription)
	})
}

func TestOneOfTwoSubscriptionsExpiresAlone(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		g := r.guest("a")
		g.subscribes(asController)
		g.follows(g.place(-1))
		time.Sleep(time.Second)
		lost := g.subscribes(asController) // a sign of life of the connection, but the first is attached
		time.Sleep(subTTL - instant)
		if n := r.entry(g.by.ConnectionID).SubscriptionCount; n != 2 {
			t.Errorf("got %d subscriptions, want 2", n)
		}
		time.Sleep(instant)
		synctest.Wait()
		if c := r.entry(g.by.ConnectionID); c.SubscriptionCount != 1 || c.AttachedSubscriptionCount != 1 {
			t.Errorf("got %+v, want the attached one alone", c)
		}
		wantCode(t, r.Unsubscribe(lost.SubscriptionID, g.by), contracts.CodeStaleSubscription)
		r.wantHolder(g.by.ConnectionID)
	})
}

// Nobody can say anything on a stream, so that an open one is no sign of the
// life of whoever drives. It is all that can be known of a viewer.
func TestLeaseOfASilentHolderOnAStreamExpiresExactly(t *testing.T) { // A31
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		g, v := r.guest("a"), r.guest("v")
		v.subscribes(asViewer)
		v.follows(v.place(-1))
		g.subscribes(asController)
		stream := g.follows(g.place(-1))
		r.arrived(stream)
		time.Sleep(leaseTTL - instant)
		synctest.Wait()
		r.wantHolder(g.by.ConnectionID)
		time.Sleep(instant)
		synctest.Wait()
		r.wantHolder("")
		seen := r.arrived(stream)
		if info := r.info(seen); info.ControllerConnectionID.Get() != "" || len(info.Connections) != 2 {
			t.Errorf("got %+v, want both there and nobody in control", info)
		}
		snap, _ := r.snapshotIn(seen[len(seen)-1])
		if snap.State.ControllerConnectionID.Get() != "" {
			t.Errorf("got %+v, want the state without a controller", snap.State)
		}
		time.Sleep(24 * time.Hour)
		g.wantGone(false) // a connection with a stream stays
		v.wantGone(false)
		if got := g.beats(); got.ControllerLeaseGranted {
			t.Errorf("got %+v, want a heartbeat not to claim what was lost", got)
		}
		g.posts(`{"type":"init"}`) // but a message does (A30)
		r.wantHolder(g.by.ConnectionID)
	})
}

func TestExpiryOfAViewerOnAStreamIsCountedFromNow(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		v, g := r.guest("v"), r.guest("a")
		v.subscribes(asViewer)
		v.follows(v.place(-1))
		g.subscribes(asController)
		g.follows(g.place(-1))
		seen := time.Now()
		time.Sleep(time.Hour)
		synctest.Wait()
		for who, want := range map[*guest]time.Time{v: time.Now(), g: seen} {
			if got, want := r.entry(who.by.ConnectionID).LeaseExpiresAt.Get(), wireTime(want.Add(leaseTTL)); got != want {
				t.Errorf("expires: got %s, want %s", got, want)
			}
		}
	})
}

func TestExpiredHolderMakesWayAtOnce(t *testing.T) { // 3.1: every check looks at the time as well
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice, bob := r.guest("a"), r.guest("b")
		alice.subscribes(asController)
		alice.follows(alice.place(-1))
		time.Sleep(leaseTTL) // whether or not the clock has had its turn
		if got := bob.subscribes(asController); !got.ControllerLeaseGranted {
			t.Errorf("got %+v, want the lease", got)
		}
		_, err := r.Send([]byte(`{"type":"init"}`), "", alice.by)
		wantCode(t, err, contracts.CodeControllerLeaseHeld)
	})
}

func TestLeaseOfAnExpiredConnectionGoesToWhoAsked(t *testing.T) { // D7
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		g := r.guest("a")
		g.connects(asController)
		peer, told := r.attach(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater})
		r.until(peer, `"hello_ok"`)
		r.send(peer, `{"type":"ws.ask_control"}`)
		time.Sleep(leaseTTL)
		r.until(peer, `"ws.lease"`) // whoever asked gets what nobody holds
		r.wantHolder(told.ConnectionID)
	})
}

func TestHeartbeatThatComesTooLateDoesNotSaveTheLease(t *testing.T) { // A31
	for range 20 { // whether the clock or the heartbeat comes first in that moment is for the scheduler to say
		inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
			alice := r.guest("a")
			alice.subscribes(asController)
			alice.follows(alice.place(-1))
			time.Sleep(leaseTTL)
			if got := alice.beats(); got.ControllerLeaseGranted || got.ControllerConnectionID != nil {
				t.Errorf("got %+v, want the lease gone", got)
			}
		})
	}
}
