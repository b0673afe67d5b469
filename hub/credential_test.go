package hub_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// expiring returns a client whose credential ends in a while.
func (r *room) expiring(principal string, in time.Duration) *guest {
	g := r.guest(principal)
	g.by.Principal.Expires = time.Now().Add(in)
	return g
}

func TestConnectionsEndWithTheirCredential(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		short, long, forever := r.expiring("a", time.Minute), r.expiring("b", time.Hour), r.guest("c")
		socket, told := r.attach(contracts.Attach{Role: contracts.RoleController, Principal: short.by.Principal})
		r.until(socket, helloOK)
		short.subscribes(asViewer)
		stream := short.follows(short.place(-1))
		own := short.follows(contracts.StreamRequest{})
		long.subscribes(asViewer)
		later := long.follows(long.place(-1))
		forever.subscribes(asViewer)
		always := forever.follows(forever.place(-1))
		r.wantHolder(told.ConnectionID)
		time.Sleep(time.Minute - instant)
		synctest.Wait()
		if n := r.Followers(); n != 5 {
			t.Errorf("got %d followers, want all", n)
		}
		time.Sleep(instant)
		r.wantEnd(stream, contracts.CodeUnauthenticated)
		r.wantEnd(own, contracts.CodeUnauthenticated)
		bye := r.last(r.wantEnd(socket, contracts.CodeUnauthenticated)).(*contracts.Goodbye)
		if bye.Code != 4401 || bye.Resume {
			t.Errorf("got %+v, want 4401", bye)
		}
		r.wantHolder("")
		short.wantGone(true)
		long.wantGone(false)
		time.Sleep(time.Hour - time.Minute)
		r.wantEnd(later, contracts.CodeUnauthenticated)
		time.Sleep(24 * time.Hour)
		r.arrived(always)
		forever.wantGone(false)
	})
}

func TestCredentialThatHasEndedAttachesNothing(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.expiring("a", 0)
		for what, err := range map[string]error{
			"stream":    r.MayStream(contracts.StreamRequest{}, alice.by),
			"connect":   func() error { _, _, err := r.Connect(&asViewer, alice.by); return err }(),
			"subscribe": func() error { _, _, err := r.Subscribe(&asViewer, alice.by); return err }(),
		} {
			if refusal, ok := err.(*contracts.Error); !ok || refusal.Code != contracts.CodeUnauthenticated {
				t.Errorf("%s: got %v, want %s", what, err, contracts.CodeUnauthenticated)
			}
		}
	})
}

// A credential is renewed now and then. A connection lives as long as the latest
// that its owner has shown.
func TestRenewedCredentialKeepsTheConnection(t *testing.T) {
	for name, renew := range map[string]func(r *room, g *guest){
		"heartbeat": func(r *room, g *guest) { g.beats() },
		"message":   func(r *room, g *guest) { g.posts(`{"type":"init"}`) },
		"connect":   func(r *room, g *guest) { g.connects(contracts.AttachRequest{}) },
		"stream":    func(r *room, g *guest) { g.follows(g.place(-1)) },
		"socket": func(r *room, g *guest) {
			att, first := comeBack(contracts.Attached{Role: contracts.RoleController, ConnectionID: g.by.ConnectionID, ConnectionToken: g.by.Token})
			att.Principal = g.by.Principal
			r.attach(att, first...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
				alice := r.expiring("a", time.Minute)
				alice.subscribes(asController)
				alice.follows(alice.place(-1))
				time.Sleep(time.Minute / 2)
				alice.by.Principal.Expires = time.Now().Add(time.Hour)
				renew(r, alice)
				old := alice.by
				old.Principal.Expires = time.Now().Add(time.Minute / 2) // the earlier one is still good for a while
				if _, err := r.Heartbeat(old); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour - instant)
				alice.wantGone(false)
				time.Sleep(instant)
				alice.wantGone(true)
			})
		})
	}
}

func TestCredentialOfAConnectionEndsAfterARestartToo(t *testing.T) {
	for _, checkpoint := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			store := lasting{journal.NewMemory(journal.MemoryOptions{})}
			r := openRoom(t, hub.Options{Store: store, CheckpointBytes: checkpoint})
			alice := r.expiring("a", 20*time.Second)
			alice.subscribes(asController)
			r.suspend()
			r = openRoom(t, hub.Options{Store: store, CheckpointBytes: checkpoint})
			defer r.close()
			alice.room = r
			r.wantHolder(alice.by.ConnectionID)
			time.Sleep(20*time.Second - instant)
			alice.wantGone(false)
			time.Sleep(instant)
			alice.wantGone(true)
		})
	}
}

func TestEvictedPrincipalIsGone(t *testing.T) {
	log := &logged{}
	inRoom(t, hub.Options{Log: log.logger()}, func(t *testing.T, r *room) {
		alice, bob := r.guest("a"), r.guest("b")
		alice.subscribes(asController)
		stream := alice.follows(alice.place(-1))
		own := r.guest("a").follows(contracts.StreamRequest{})
		socket, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer, Principal: contracts.Principal{ID: "a"}})
		bob.subscribes(asViewer)
		other := bob.follows(bob.place(-1))
		r.Evict("nobody")
		r.arrived(other)
		r.Evict("a")
		r.wantEnd(stream, contracts.CodeUnauthenticated)
		r.wantEnd(own, contracts.CodeUnauthenticated)
		r.wantEnd(socket, contracts.CodeUnauthenticated)
		if st := r.Snapshot().State; st.ConnectionCount != 1 || r.controller() != "" {
			t.Errorf("got %+v, want the other alone", st)
		}
		time.Sleep(gathering) // that a stream has ended is told with other news
		if info := r.info(r.arrived(other)); len(info.Connections) != 1 {
			t.Errorf("got %+v, want it told", info)
		}
		_, err := r.Heartbeat(alice.by)
		wantCode(t, err, contracts.CodeStaleConnection)
		r.close()
		cursor := r.Cursor()
		r.Evict("b") // nothing is left to be done
		if text := log.text(); r.Cursor() != cursor || strings.Contains(text, "failed") {
			t.Errorf("got cursor %d after the end, want %d; logged %s", r.Cursor(), cursor, text)
		}
	})
}

// A credential may be revoked between its check and the attachment. Who revokes
// it evicts afterwards, so that one of the two finds it.
func TestRevokedCredentialAttachesNothing(t *testing.T) {
	revoked := map[string]bool{}
	inRoom(t, hub.Options{Alive: func(p contracts.Principal) bool { return !revoked[p.ID] }}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asViewer)
		revoked["a"] = true
		_, _, err := r.Connect(&asViewer, r.guest("a").by)
		wantCode(t, err, contracts.CodeUnauthenticated)
		_, _, err = r.Subscribe(&contracts.AttachRequest{}, alice.by)
		wantCode(t, err, contracts.CodeUnauthenticated)
		wantCode(t, r.MayStream(alice.place(-1), alice.by), contracts.CodeUnauthenticated)
		r.guest("b").subscribes(asViewer)
	})
}
