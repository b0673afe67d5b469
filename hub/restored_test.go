package hub_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// restored is what another process starts from that continues a drained
// session, as a manifest brings it.
func restored(t *testing.T, q contracts.Quiesced) *contracts.Restored {
	t.Helper()
	from, err := restoredFrom(q)
	if err != nil {
		t.Fatal(err)
	}
	return from
}

func restoredFrom(q contracts.Quiesced) (*contracts.Restored, error) {
	text, err := contracts.EncodeSnapshot(q.Snapshot, 0)
	if err != nil {
		return nil, err
	}
	snap, err := (&contracts.Decoder{}).Snapshot(text)
	if err != nil {
		return nil, err
	}
	status := "Restored from snapshot"
	snap.State.LastStatus, snap.State.IsReady = &status, true
	from := &contracts.Restored{SessionID: "s", Cursor: q.Cursor, Snapshot: snap, Ready: true, LastStatus: status, Requests: q.Requests}
	if init := snap.LastInit; len(init) > 0 && string(init) != "null" {
		cmd, err := (&contracts.Decoder{}).Command(init)
		if err != nil {
			return nil, err
		}
		from.LastInit = cmd.(*contracts.Init)
	}
	return from, nil
}

// unfinished is what a session starts from whose flush failed or was skipped.
func unfinished(t *testing.T, q contracts.Quiesced) *contracts.Restored {
	from := restored(t, q)
	from.Ready, from.LastStatus, from.LastError, from.LastErrorType = false, "Restore interrupted before runtime flush completed", "disk on fire", contracts.ErrorProtocol
	from.Snapshot.State.LastStatus, from.Snapshot.State.IsReady = &from.LastStatus, false
	return from
}

// drained plays a session with a past and drains it.
func drained(t *testing.T) contracts.Quiesced {
	t.Helper()
	r := openRoom(t, hub.Options{})
	defer r.close()
	alice := r.guest("a")
	alice.subscribes(asController)
	alice.posts(`{"type":"init","system_prompt":"be brief","approval_mode":"fail"}`)
	alice.posts(`{"type":"prompt","content":"before"}`)
	synctest.Wait()
	q := r.quiesces()
	r.Conclude(true)
	return q
}

func TestRestoredSessionBeginsWhereItWasDrained(t *testing.T) { // A104, A106, 5.7
	synctest.Test(t, func(t *testing.T) {
		q := drained(t)
		agent := newPlayer(nil)
		r := openRoom(t, hub.Options{Restored: restored(t, q), Agent: agent})
		defer r.close()
		if r.Cursor() != q.Cursor || !r.Ready() || r.Draining() {
			t.Errorf("got cursor %d, ready %t, want %d: a restore consumes none", r.Cursor(), r.Ready(), q.Cursor)
		}
		if got := r.Summary().Updated; !got.Equal(time.Now()) {
			t.Errorf("updated %s, want when it was opened, %s", got, time.Now())
		}
		snap := r.Snapshot()
		st := snap.State
		if snap.Cursor != q.Cursor || *st.LastStatus != "Restored from snapshot" || !st.IsReady || st.ConnectionCount != 0 || st.Model != "player" || st.LastError != nil {
			t.Errorf("got %d: %+v, want the state of the drained session with the live agent", snap.Cursor, st)
		}
		var init contracts.Init
		if err := json.Unmarshal(snap.LastInit, &init); err != nil || *init.SystemPrompt != "be brief" {
			t.Errorf("last init: got %s, %v", snap.LastInit, err)
		}
		if init := <-agent.inits; init.SystemPrompt == nil || *init.SystemPrompt != "be brief" {
			t.Errorf("got the agent configured with %+v, want the last init", init)
		}
		if mode := agent.host.ApprovalMode(); mode != contracts.ApprovalFail {
			t.Errorf("approval mode: got %s, want that of the last init", mode)
		}
		if !agent.host.Restored() {
			t.Error("got the agent told that the session is new, want its ids taken")
		}
		alice := r.guest("a")
		if got := alice.subscribes(asController); !got.ControllerLeaseGranted {
			t.Errorf("got %+v, want the lease", got)
		}
		if got := alice.posts(`{"type":"init"}`); got.Cursor <= q.Cursor {
			t.Errorf("got cursor %d, want more than %d", got.Cursor, q.Cursor)
		}
	})
}

// resetsAll fails unless streams begin as in a session that was restored at
// cursor from (5.8).
func (r *room) resetsAll(from uint64) {
	r.t.Helper()
	at := func(n uint64) *int64 { c := int64(n); return &c }
	minus := int64(-1)
	for _, tt := range []struct {
		name string
		req  contracts.StreamRequest
		want contracts.ResetReason // empty: a snapshot
	}{
		{"zero", contracts.StreamRequest{Cursor: at(0)}, contracts.ResetRestored},
		{"the restored cursor", contracts.StreamRequest{Cursor: at(from)}, contracts.ResetRestored},
		{"the restored cursor of the old epoch", contracts.StreamRequest{Cursor: at(from), Epoch: "old"}, contracts.ResetRestored},
		{"negative", contracts.StreamRequest{Cursor: &minus}, contracts.ResetRestored},
		{"beyond, of the old epoch", contracts.StreamRequest{Cursor: at(1 << 40), Epoch: "old"}, contracts.ResetRestored},
		{"beyond", contracts.StreamRequest{Cursor: at(1 << 40)}, contracts.ResetGap},
		{"none", contracts.StreamRequest{}, ""},
	} {
		head := r.Cursor()
		peer := r.guest("v").follows(tt.req)
		lines := r.arrived(peer)
		snap, reason := r.snapshotIn(lines[0])
		if reason != tt.want || snap.Cursor != head {
			r.t.Errorf("%s: got %q at %d, want %q at %d", tt.name, reason, snap.Cursor, tt.want, head)
		}
		for _, c := range r.cursors(lines)[1:] {
			if c <= head {
				r.t.Errorf("%s: got cursor %d, want more than %d", tt.name, c, head)
			}
		}
		peer.Close()
		synctest.Wait()
	}
}

func TestRestoredSessionResetsThoseOfBefore(t *testing.T) { // A105, 5.8
	synctest.Test(t, func(t *testing.T) {
		q := drained(t)
		r := openRoom(t, hub.Options{Restored: restored(t, q)})
		defer r.close()
		first := r.guest("v").follows(from(0)) // the first item, before anything has happened
		snap, reason := r.snapshotIn(r.next(first))
		if reason != contracts.ResetRestored || snap.Cursor != q.Cursor || *snap.State.LastStatus != "Restored from snapshot" {
			t.Errorf("got %q, %+v, want the reset with the manifest's cursor %d", reason, snap, q.Cursor)
		}
		r.resetsAll(q.Cursor)
		alice := r.guest("a")
		alice.connects(asController)
		since := int64(r.Cursor())
		alice.posts(`{"type":"prompt","content":"after"}`)
		synctest.Wait()
		lines := r.arrived(r.guest("v").follows(from(since))) // whoever was here already reads on
		if !strings.Contains(lines[0], `"message"`) || !strings.Contains(strings.Join(lines, "\n"), `"content":"after"`) {
			t.Errorf("got %q, want a replay", lines)
		}
		r.resetsAll(q.Cursor) // with the state of now
	})
}

// What was restored once stays so through restarts of its process, whether or
// not anything has happened before.
func TestRestartOfARestoredSessionKeepsItsOrigin(t *testing.T) {
	for _, used := range []bool{false, true} {
		for _, checkpoint := range []int{0, 1} {
			t.Run(fmt.Sprintf("used=%t checkpoint=%d", used, checkpoint), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := drained(t)
					store := lasting{journal.NewMemory(journal.MemoryOptions{})}
					agent := newPlayer(nil)
					for i := range 3 {
						r := openRoom(t, hub.Options{Restored: restored(t, q), Store: store, CheckpointBytes: checkpoint, Agent: agent})
						if i > 0 && !used && r.Cursor() < q.Cursor {
							t.Errorf("got cursor %d, want %d at least", r.Cursor(), q.Cursor)
						}
						st := r.Snapshot().State
						if (i == 0 || !used) && *st.LastStatus != "Restored from snapshot" || !st.IsReady {
							t.Errorf("start %d: got %+v, want it restored and ready", i, st)
						}
						if mode := agent.host.ApprovalMode(); mode != contracts.ApprovalFail || !agent.host.Restored() {
							t.Errorf("start %d: got approval mode %s, restored %t", i, mode, agent.host.Restored())
						}
						<-agent.inits
						if used {
							r.resetsAll(q.Cursor)
							alice := r.guest("a")
							alice.connects(byForce)
							alice.disconnects()
						}
						r.suspend()
					}
				})
			})
		}
	}
}

func TestKeptQuestionsAreAnsweredInTheNextRunner(t *testing.T) { // D8
	for _, restarts := range []int{0, 1} {
		t.Run(fmt.Sprint("restarts=", restarts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q contracts.Quiesced
				func() {
					p := newPuppet()
					s := &stage{room: openRoom(t, hub.Options{Agent: resumer{p}}), agent: p}
					defer s.close()
					s.alice = s.guest("a")
					s.alice.connects(contracts.AttachRequest{Capabilities: &contracts.AttachCapabilities{ServerRequests: contracts.RequestTypes()}})
					s.alice.posts(`{"type":"prompt","content":"go"}`)
					s.works()
					q = s.quiesces()
				}()
				p := newPuppet()
				store := lasting{journal.NewMemory(journal.MemoryOptions{})}
				r := openRoom(t, hub.Options{Agent: resumer{p}, Restored: restored(t, q), Store: store})
				bob := r.guest("b")
				for range restarts {
					bob.connects(asController)
					bob.disconnects()
					r.suspend()
					p = newPuppet()
					r = openRoom(t, hub.Options{Agent: resumer{p}, Restored: restored(t, q), Store: store})
					bob = r.guest("b")
				}
				defer func() { r.close() }()
				if n := len(r.Snapshot().State.PendingRequests); n != 2 {
					t.Errorf("got %d questions, want both", n)
				}
				bob.connects(contracts.AttachRequest{Capabilities: &contracts.AttachCapabilities{ServerRequests: contracts.RequestTypes()}})
				bob.posts(`{"type":"server_request_response","request_type":"approval","request_id":"q1","approved":true}`)
				synctest.Wait()
				if got := p.learned()["q1"]; len(got) != 1 || got[0].Verdict != contracts.VerdictApproved || p.active() != 1 {
					t.Errorf("got %+v and %d runs, want the agent to act on the answer", got, p.active())
				}
				p.orders <- end(nil)
				bob.refusedPost(`{"type":"server_request_response","request_type":"approval","request_id":"q1","approved":true}`, contracts.CodeRequestNotFound)
				time.Sleep(24 * time.Hour)
				if n := len(r.Snapshot().State.PendingRequests); n != 1 {
					t.Errorf("got %d questions, want the one that never expires", n)
				}
			})
		})
	}
}

func TestKeptQuestionExpiresInTheNextRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		q := drained(t)
		from := restored(t, q)
		from.Requests = []contracts.KeptRequest{{Request: question(contracts.RequestApproval, "q1"), Opened: now, Deadline: now.Add(time.Minute)}}
		p := newPuppet()
		r := openRoom(t, hub.Options{Agent: resumer{p}, Restored: from})
		defer r.close()
		viewer := r.guest("v").follows(contracts.StreamRequest{})
		time.Sleep(time.Minute - instant)
		r.arrived(viewer)
		time.Sleep(instant)
		if seen := strings.Join(r.arrived(viewer), "\n"); !strings.Contains(seen, `"server_request_resolved","request_id":"q1"`) || !strings.Contains(seen, `timed out`) {
			t.Errorf("got %s, want it expired to the minute", seen)
		}
		p.orders <- end(nil)
	})
}

// bystander is an agent that must be left alone.
type bystander struct {
	echo
	t *testing.T
}

func (b *bystander) Configure(*contracts.Init) { b.t.Error("configured") }

func TestUnfinishedSessionIsThereToBeLookedAt(t *testing.T) { // A107, 5.7
	synctest.Test(t, func(t *testing.T) {
		q := drained(t)
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		for i := range 3 { // and stays so
			r := openRoom(t, hub.Options{Restored: unfinished(t, q), Agent: &bystander{t: t}, Store: store})
			if r.Ready() || r.Draining() {
				t.Errorf("start %d: got ready %t, draining %t, want neither", i, r.Ready(), r.Draining())
			}
			text, err := r.State()
			if err != nil {
				t.Fatal(err)
			}
			st := stateIn(t, text).State
			if st.IsReady || *st.LastStatus != "Restore interrupted before runtime flush completed" || *st.LastError != "disk on fire" || st.LastErrorType != contracts.ErrorProtocol {
				t.Errorf("start %d: got %+v, want it said why it is not ready", i, st)
			}
			alice := r.guest("a")
			_, _, err = r.Connect(&asController, alice.by)
			wantCode(t, err, contracts.CodeRuntimeNotReady)
			_, _, err = r.Subscribe(&asViewer, alice.by)
			wantCode(t, err, contracts.CodeRuntimeNotReady)
			_, err = r.Send([]byte(`{"type":"hello"}`), "", alice.by)
			wantRefusal(t, err, contracts.CodeRuntimeNotReady, "hosted runner is not ready")
			wantCode(t, r.Admit(contracts.Attach{}), contracts.CodeRuntimeNotReady)
			r.resetsAll(q.Cursor)
			r.suspend()
		}
	})
}

func TestUnfinishedSessionCanBeDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := drained(t)
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Restored: unfinished(t, q), Store: store})
		again := r.quiesces()
		if again.Active || again.Cursor <= q.Cursor {
			t.Errorf("got %+v, want nothing that would make it ready", again)
		}
		r.Conclude(true)
		r.suspend()
		r = openRoom(t, hub.Options{Restored: unfinished(t, q), Store: store})
		defer r.close()
		if st := r.Snapshot().State; r.Ready() || st.IsReady || *st.LastError != "disk on fire" {
			t.Errorf("got ready %t, %+v, want it as unfinished as before", r.Ready(), st)
		}
	})
}

func TestRestoredSessionHasAPastWhenItIsDrainedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := drained(t)
		r := openRoom(t, hub.Options{Restored: restored(t, q)})
		defer r.close()
		again := r.quiesces()
		if st := again.Snapshot.State; !again.Active || !st.IsReady || again.Cursor <= q.Cursor {
			t.Errorf("got %+v, want it restorable once more", again)
		}
		var init contracts.Init
		if err := json.Unmarshal(again.Snapshot.LastInit, &init); err != nil || *init.SystemPrompt != "be brief" {
			t.Errorf("last init: got %+v, %v", init, err)
		}
	})
}

// A store that has not come as far as the manifest is that of another life:
// neither may be lost.
func TestStoreThatEndsBeforeTheRestoredCursorIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := drained(t)
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store})
		r.suspend()
		_, err := hub.New(hub.Options{SessionID: "s", Cwd: "/", Agent: &echo{}, Store: store, Restored: restored(t, q)})
		if err == nil || !strings.Contains(err.Error(), "cannot continue") {
			t.Errorf("got %v, want it refused", err)
		}
	})
}

// Without a word about the start of the agent, the state has it all.
func TestQuietSessionConsumesNoCursorAtItsStart(t *testing.T) { // 2.2 rule 3
	synctest.Test(t, func(t *testing.T) {
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		for i := range 2 {
			r := openRoom(t, hub.Options{Quiet: true, Store: store})
			st := r.Snapshot().State
			if want := uint64(0); i == 0 && (r.Cursor() != want || *st.LastStatus != "Ready") || !st.IsReady || st.Model != "echo" || st.Cwd != "/" {
				t.Errorf("start %d: got cursor %d, %+v, want a state that is ready", i, r.Cursor(), st)
			}
			cursor := r.Cursor()
			r.suspend()
			if r.Cursor() != cursor {
				t.Errorf("got cursor %d, want %d", r.Cursor(), cursor)
			}
		}
	})
}
