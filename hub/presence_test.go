package hub_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/session"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// crowd attaches viewers that take no notice of one another.
func (r *room) crowd(n int) {
	for range n {
		r.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
	}
	time.Sleep(time.Second) // of the bubble's time: the news of the crowd is out
}

// folds returns the state that lines make. They begin with a snapshot.
func (r *room) folds(lines []string) contracts.State {
	r.t.Helper()
	state := session.New()
	for _, line := range lines {
		switch f := r.decode(line).(type) {
		case *contracts.SnapshotEnvelope:
			snap, err := (&contracts.Decoder{}).Snapshot(f.Snapshot)
			if err != nil {
				r.t.Fatal(err)
			}
			state.Restore(snap)
		case *contracts.MessageEnvelope:
			ev, err := (&contracts.Decoder{}).Event(f.Message)
			if err != nil {
				r.t.Fatal(err)
			}
			state.Apply(ev)
		}
	}
	return state.Snapshot(0).State
}

// people describes who is in a state, as far as a crowd is told.
func people(st contracts.State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d, %s drives:", st.ConnectionCount, st.ControllerConnectionID.Get())
	for _, c := range st.Connections {
		name := ""
		if c.ClientInfo != nil {
			name = c.ClientInfo.Name
		}
		fmt.Fprintf(&b, " %s %s %q %t;", c.ConnectionID, c.Role, name, c.ControllerLeaseGranted)
	}
	return b.String()
}

// kept is the number of bytes in the bodies of a store.
func kept(t *testing.T, store journal.Store) (bytes int) {
	t.Helper()
	if err := store.Read(0, func(e journal.Entry) bool { bytes += len(e.Body); return true }); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// TestComingAndGoingInACrowd lets viewers come and go among 20, all of which a
// list names, and among 100. The others learn of each in a few bytes, and the
// journal does not grow.
func TestComingAndGoingInACrowd(t *testing.T) {
	for _, size := range []int{20, 100} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			store := journal.NewMemory(journal.MemoryOptions{})
			inRoom(t, hub.Options{Store: store, HeartbeatInterval: time.Hour, LeaseTTL: time.Hour}, func(t *testing.T, r *room) {
				r.attach(contracts.Attach{Role: contracts.RoleController}, silent)
				r.crowd(size / 2)
				witness, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer})
				r.crowd(size / 2)
				seen := r.arrived(witness)
				before := kept(t, store)
				const changes = 100
				for range changes / 2 {
					guest, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
					time.Sleep(time.Second)
					r.send(guest, `{"type":"ws.bye","keep":false}`)
					time.Sleep(time.Second)
				}
				told := r.arrived(witness)
				if len(told) != changes {
					t.Errorf("got %d messages, want %d", len(told), changes)
				}
				for _, line := range told {
					if body := r.decode(line).(*contracts.MessageEnvelope).Message; len(body) > 300 {
						t.Errorf("got %d bytes, want at most 300: %s", len(body), body)
					}
				}
				if grown := kept(t, store) - before; grown > 10*changes {
					t.Errorf("the journal grew by %d bytes, want at most 10 a change", grown)
				}
				if got, want := people(r.folds(append(seen, told...))), people(r.Snapshot().State); got != want {
					t.Errorf("folded:\n got %s\nwant %s", got, want)
				}
			})
		})
	}
}

// TestACrowdThatChangesAtOnceIsListedAnew lets several of those that a list
// names come and go between two messages.
func TestACrowdThatChangesAtOnceIsListedAnew(t *testing.T) {
	for _, size := range []int{12, 100} {
		inRoom(t, hub.Options{HeartbeatInterval: time.Hour}, func(t *testing.T, r *room) {
			witness, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer})
			var guests []*memconn.Peer
			for range size {
				guest, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer}, `{"type":"hello","client_info":{"name":"guest"}}`)
				guests = append(guests, guest)
			}
			time.Sleep(time.Second)
			for _, guest := range guests[:size/2] {
				r.send(guest, `{"type":"ws.bye","keep":false}`)
			}
			r.attach(contracts.Attach{Role: contracts.RoleController}, `{"type":"hello","client_info":{"name":"late"}}`)
			time.Sleep(time.Second)
			st := r.folds(r.arrived(witness))
			if got, want := people(st), people(r.Snapshot().State); got != want {
				t.Errorf("folded:\n got %s\nwant %s", got, want)
			}
			if want := min(size/2+2, contracts.MaxListed); len(st.Connections) != want {
				t.Errorf("got %d listed, want %d", len(st.Connections), want)
			}
		})
	}
}

// TestHandOverInACrowdIsToldBeforeWhatItsWinnerDoes attaches a controller that
// finds the lease free, in a crowd that has just been told of others.
func TestHandOverInACrowdIsToldBeforeWhatItsWinnerDoes(t *testing.T) { // D5
	inRoom(t, hub.Options{HeartbeatInterval: time.Hour}, func(t *testing.T, r *room) {
		r.crowd(20)
		witness, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer})
		r.arrived(witness)
		r.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		winner, told := r.attach(contracts.Attach{Role: contracts.RoleController}, silent)
		r.until(winner, `"hello_ok"`)
		r.send(winner, `{"type":"prompt","content":"hi"}`)
		for _, line := range r.arrived(witness) {
			if strings.Contains(line, `"controller_connection_id":"`+told.ConnectionID+`"`) {
				return
			}
			if strings.Contains(line, `"response_start"`) {
				break
			}
		}
		t.Error("the answer came before the news of who drives")
	})
}

// TestWhoReadsFromTheStoreLearnsWhoIsHere freezes a viewer until others have come
// and gone, and what it missed is in the store alone.
func TestWhoReadsFromTheStoreLearnsWhoIsHere(t *testing.T) {
	withSoloist(t, hub.Options{WindowBytes: 16 << 10, HeartbeatInterval: time.Hour}, func(t *testing.T, s *soloist) {
		first, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		s.crowd(12)
		slow, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer})
		seen := s.arrived(slow)
		slow.Freeze()
		s.begin()
		synctest.Wait() // a write is blocked
		s.attach(contracts.Attach{Role: contracts.RoleController}, `{"type":"hello","client_info":{"name":"new"}}`)
		time.Sleep(time.Second)
		s.send(first, `{"type":"ws.bye","keep":false}`)
		time.Sleep(time.Second)
		s.say(0, 1000, 100) // beyond the window
		slow.Thaw()
		rest := s.arrived(slow)
		s.cursors(rest)
		if got, want := people(s.folds(append(seen, rest...))), people(s.Snapshot().State); got != want {
			t.Errorf("folded:\n got %s\nwant %s", got, want)
		}
	})
}

// TestWhoLagsAgainAndAgainIsSentFewLists lets a viewer of a crowd lag by about what is
// in memory, so that it reads from the store and from memory by turns.
func TestWhoLagsAgainAndAgainIsSentFewLists(t *testing.T) {
	opts := hub.Options{WindowBytes: 2 << 20, MaxPrivateBytes: 10 << 10, HeartbeatInterval: time.Hour}
	withSoloist(t, opts, func(t *testing.T, s *soloist) {
		s.crowd(12)
		conn, slow := memconn.New(memconn.Options{Buffer: 16 << 10})
		s.serve(conn, slow, contracts.Attach{Role: contracts.RoleViewer}, `{"type":"hello"}`)
		seen := s.arrived(slow)
		s.begin()
		const lag, step, steps = 70, 12, 40 // messages of 16 KiB: first more than what is in memory, at last less
		s.say(0, lag, 16<<10)
		for i := range steps {
			s.say(lag+step*i, step, 16<<10)
			for read := uint64(0); read+lag < s.Cursor()+uint64(i/2); {
				line, err := slow.Next(t.Context())
				if err != nil {
					why, _ := slow.Closed()
					t.Fatalf("in step %d: got %v, closed because of %v; want a connection that stays", i, err, why)
				}
				seen = append(seen, line)
				_, _ = fmt.Sscanf(line, `{"type":"message","cursor":%d`, &read) // another frame has no cursor
				synctest.Wait()
			}
		}
		seen = append(seen, s.arrived(slow)...)
		s.cursors(seen)
		if got, want := people(s.folds(seen)), people(s.Snapshot().State); got != want {
			t.Errorf("folded:\n got %s\nwant %s", got, want)
		}
		lists := strings.Count(strings.Join(seen, "\n"), `"type":"connection_info"`)
		if lists < 2 || lists > 1+step*steps/60 {
			t.Errorf("got %d lists of connections, want one when the viewer came and one at most for 60 messages", lists)
		}
	})
}

// TestWhoComesBackAfterARestartLearnsWhoIsHere resumes with the cursor of an
// earlier process, of whose crowd nobody else comes back.
func TestWhoComesBackAfterARestartLearnsWhoIsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := journal.NewMemory(journal.MemoryOptions{})
		r := openRoom(t, hub.Options{Store: lasting{store}, HeartbeatInterval: time.Hour})
		r.crowd(12)
		witness, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer})
		seen := r.arrived(witness)
		cursor := int64(r.Cursor())
		r.suspend()

		r = openRoom(t, hub.Options{Store: lasting{store}, HeartbeatInterval: time.Hour})
		defer r.close()
		again, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer, Cursor: &cursor})
		if got, want := people(r.folds(append(seen, r.arrived(again)...))), people(r.Snapshot().State); got != want {
			t.Errorf("folded:\n got %s\nwant %s", got, want)
		}
	})
}

// The list says who is connected, in what role and since when, also after a restart.
func TestConnectionsSayWhoIsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store})
		ann := contracts.Principal{ID: "user_ann", Name: "Ann Lee"}
		began := time.Now()
		_, driver := r.attach(contracts.Attach{Role: contracts.RoleController, Principal: ann}, helloPeople)
		time.Sleep(time.Minute)
		bob := contracts.Principal{ID: "share_1", Name: "Bob", Role: contracts.RoleApprover}
		r.attach(contracts.Attach{Role: contracts.RoleApprover, Principal: bob}, `{"type":"hello","role":"approver"}`)
		synctest.Wait()
		list, err := r.Connections(contracts.Caller{Principal: bob})
		if err != nil || list.Count != 2 || len(list.Connections) != 2 {
			t.Fatalf("got %+v, %v; want two connections", list, err)
		}
		since := func(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
		wantEqual(t, "the driver", list.Connections[0], contracts.ConnectionEntry{
			Author: contracts.Author{Principal: "user_ann", Name: "Ann Lee", ClaimedName: "Ann",
				ClientInfo: &contracts.ClientInfo{Name: "lantern"}, ConnectionID: driver.ConnectionID},
			Role: contracts.RoleController, Since: since(began), Attached: true, Controller: true,
		})
		other := list.Connections[1]
		if other.Author.Name != "Bob" || other.Role != contracts.RoleApprover || other.Controller || other.Since != since(began.Add(time.Minute)) {
			t.Errorf("got %+v, want the approver", other)
		}
		gone := contracts.Caller{Principal: contracts.Principal{ID: "late", Expires: time.Now().Add(-time.Second)}}
		if _, err := r.Connections(gone); err == nil {
			t.Error("got the list with a credential that has expired")
		}
		r.suspend()

		again := openRoom(t, hub.Options{Store: store})
		defer again.close()
		list, err = again.Connections(contracts.Caller{Principal: ann})
		if err != nil || len(list.Connections) != 1 {
			t.Fatalf("got %+v, %v; want the driver", list, err)
		}
		if c := list.Connections[0]; c.Attached || c.Since != since(began) || c.Author.Name != "Ann Lee" {
			t.Errorf("got %+v, want the driver without a socket", c)
		}
	})
}
