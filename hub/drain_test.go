package hub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// quiesces makes the session stand still, within a minute.
func (r *room) quiesces() contracts.Quiesced {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return r.Quiesce(ctx, "moving house")
}

// A stage is a room with a puppet, a controller who began a run, and a viewer on
// a stream.
type stage struct {
	*room
	agent  *puppet
	alice  *guest
	viewer *memconn.Peer
}

// onStage runs a test on a stage whose agent can act on old questions if keeps
// is set.
func onStage(t *testing.T, keeps bool, opts hub.Options, test func(t *testing.T, s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPuppet()
		opts.Agent = p
		if keeps {
			opts.Agent = resumer{p}
		}
		s := &stage{room: openRoom(t, opts), agent: p}
		defer s.close()
		s.alice = s.guest("a")
		s.alice.subscribes(contracts.AttachRequest{Capabilities: &contracts.AttachCapabilities{ServerRequests: contracts.RequestTypes()}})
		s.viewer = s.guest("v").follows(contracts.StreamRequest{})
		s.alice.posts(`{"type":"prompt","content":"go"}`)
		test(t, s)
	})
}

// does lets the agent do something.
func (s *stage) does(o order) {
	s.agent.orders <- o
	synctest.Wait()
}

// works leaves the agent in the middle of everything: a response, a tool that
// runs, one that ended, and two questions.
func (s *stage) works() {
	s.does(s.agent.publish(&contracts.ResponseStart{ResponseID: "resp"}, &contracts.ResponseChunk{ResponseID: "resp", Content: "half"},
		&contracts.ToolCall{CallID: "t1", Tool: "bash", Args: []byte(`{}`)}, &contracts.ToolStart{CallID: "t1"},
		&contracts.ToolCall{CallID: "t0", Tool: "bash", Args: []byte(`{}`)}, &contracts.ToolStart{CallID: "t0"}, &contracts.ToolEnd{CallID: "t0", Success: true}))
	s.does(s.agent.ask(question(contracts.RequestApproval, "q1"), contracts.AskOptions{}))
	s.does(s.agent.ask(question(contracts.RequestUserInput, "q2"), contracts.AskOptions{Timeout: -1}))
}

func TestDrainFencesSaysSoAndStopsWhatRuns(t *testing.T) { // 5.5 steps 3 to 8
	onStage(t, false, hub.Options{}, func(t *testing.T, s *stage) {
		s.works()
		s.arrived(s.viewer)
		before := s.Cursor()
		q := s.quiesces()
		if q.ActiveTools != 1 || q.TrackedTools != 3 || q.PendingRequests != 2 || !q.Active || q.FlushError != "" || len(q.Requests) != 0 {
			t.Errorf("got %+v, want what went on before anything was cancelled", q)
		}
		if q.Cursor != s.Cursor()+1 || q.Snapshot.ProtocolVersion != contracts.ProtocolVersion || q.Snapshot.State.Model != "puppet" || q.Snapshot.State.Provider != "test" {
			t.Errorf("got %+v, want the next cursor after %d", q, s.Cursor())
		}
		lines := s.arrived(s.viewer)
		for _, want := range []string{
			`"status","message":"Hosted runner is draining: moving house"`,
			`"request_id":"q1","request_type":"approval","call_id":"q1","resolution":"cancelled","reason":"Drained before request completed","resolved_by":"runtime"`,
			`"request_id":"q2","request_type":"user_input","call_id":"q2","resolution":"cancelled"`,
			`"tool_end","call_id":"t1"`, `"response_end"`, `"Run stopped because the runner is draining"`,
		} {
			if n := strings.Count(strings.Join(lines, "\n"), want); n != 1 {
				t.Errorf("got %s %d times, want once", want, n)
			}
		}
		if !strings.Contains(lines[0], "draining") {
			t.Errorf("got %s first, want it said before anything stops", lines[0])
		}
		if got := s.cursors(lines); got[0] <= before {
			t.Errorf("got cursor %d, want more than %d", got[0], before)
		}
		st := q.Snapshot.State
		if *st.LastStatus != "Drained" || !st.IsReady || st.IsResponding || st.CurrentResponse != nil || st.ConnectionCount+st.SubscriberCount != 0 ||
			len(st.Connections)+len(st.PendingRequests)+len(st.ActiveTools)+len(st.TrackedTools)+len(st.ActiveUtilityCommands)+len(st.ActiveFileWatches) != 0 ||
			st.ControllerConnectionID.Get() != "" || st.ClientInfo != nil || st.Capabilities != nil {
			t.Errorf("got %+v, want a session in which nothing runs", st)
		}
		if s.agent.active() != 0 {
			t.Error("got a run, want none")
		}
		if !s.Draining() || s.Ready() {
			t.Errorf("draining: got %t, ready %t", s.Draining(), s.Ready())
		}
		_, _, err := s.Connect(&asViewer, s.guest("w").by) // A89, A97
		wantRefusal(t, err, contracts.CodeRuntimeNotReady, "hosted runner is not accepting new attachments")
		_, err = s.Send([]byte(`{"type":"prompt","content":"late"}`), "", s.alice.by)
		wantRefusal(t, err, contracts.CodeRuntimeNotReady, "hosted runner is draining")
		wantCode(t, s.Admit(contracts.Attach{}), contracts.CodeRuntimeNotReady)
		s.alice.beats()
		if text, err := s.State(); err != nil || stateIn(t, text).Cursor != q.Cursor-1 {
			t.Errorf("state: got %s, %v, want it served", text, err)
		}
	})
}

func TestDrainLeavesQuestionsOpenThatAnAgentCanActOn(t *testing.T) { // D8
	for _, cancels := range []bool{false, true} {
		onStage(t, true, hub.Options{DrainCancels: cancels}, func(t *testing.T, s *stage) {
			s.works()
			opened := time.Now()
			s.arrived(s.viewer)
			q := s.quiesces()
			st := q.Snapshot.State
			seen := strings.Join(s.arrived(s.viewer), "\n")
			if cancels {
				if len(q.Requests)+len(st.PendingRequests) != 0 || strings.Count(seen, `"resolution":"cancelled"`) != 2 {
					t.Errorf("got %+v and %s, want both cancelled", q.Requests, seen)
				}
				return
			}
			want := []contracts.KeptRequest{
				{Request: question(contracts.RequestApproval, "q1"), Opened: opened, Deadline: opened.Add(time.Hour)},
				{Request: question(contracts.RequestUserInput, "q2"), Opened: opened},
			}
			for i := range q.Requests {
				want[i].Digest = contracts.RequestDigest(s.SessionID(), want[i].Request)
				q.Requests[i].Opened, q.Requests[i].Deadline = q.Requests[i].Opened.Round(0), q.Requests[i].Deadline.Round(0)
				want[i].Opened, want[i].Deadline = want[i].Opened.Round(0), want[i].Deadline.Round(0)
			}
			if !reflect.DeepEqual(q.Requests, want) {
				t.Errorf("got %+v, want %+v", q.Requests, want)
			}
			if len(st.PendingRequests) != 2 || len(st.TrackedTools) != 2 || len(st.ActiveTools) != 0 || strings.Contains(seen, "server_request_resolved") {
				t.Errorf("got %+v and %s, want both questions open and nothing else", st, seen)
			}
			if q.PendingRequests != 2 || len(s.agent.learned()) != 0 {
				t.Errorf("got %+v, learned %v, want nothing answered", q, s.agent.learned())
			}
		})
	}
}

func TestFinalSnapshotIsTheLastThingAndStreamsEndAfterIt(t *testing.T) { // A96, A100
	onStage(t, false, hub.Options{}, func(t *testing.T, s *stage) {
		s.works()
		socket, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer})
		q := s.quiesces()
		s.arrived(s.viewer)
		s.arrived(socket)
		s.Conclude(true)
		s.Conclude(true) // once is enough
		for _, p := range []*memconn.Peer{s.viewer, socket} {
			lines := s.arrived(p)
			if len(lines) != 1 {
				t.Fatalf("got %q, want the final snapshot alone", lines)
			}
			snap, _ := s.snapshotIn(lines[0])
			if st := snap.State; snap.Cursor != q.Cursor || st.IsReady || *st.LastStatus != "Drained" {
				t.Errorf("got %d: %+v, want it drained at %d", snap.Cursor, st, q.Cursor)
			}
		}
		s.alice.disconnects() // and whatever else happens, no number beyond is shown
		late := s.guest("late").follows(contracts.StreamRequest{})
		replay := s.guest("late").follows(from(0))
		time.Sleep(5*time.Second - instant)
		for _, p := range []*memconn.Peer{s.viewer, late, replay} {
			for _, c := range s.cursors(s.arrived(p)) {
				if c > q.Cursor {
					t.Errorf("got cursor %d, want none beyond %d", c, q.Cursor)
				}
			}
		}
		if s.Followers() != 4 {
			t.Errorf("got %d followers, want all still there", s.Followers())
		}
		time.Sleep(instant)
		for _, p := range []*memconn.Peer{s.viewer, socket, late, replay} {
			s.wantEnd(p, contracts.CodeGoingAway)
		}
		if s.Cursor() != q.Cursor {
			t.Errorf("cursor: got %d, want %d", s.Cursor(), q.Cursor)
		}
		if text, err := s.State(); err != nil || stateIn(t, text).Cursor != q.Cursor { // A97
			t.Errorf("state: got %s, %v, want it served", text, err)
		}
	})
}

// Nothing that happens between the freeze and the conclusion takes a number.
func TestFrozenCursorStaysWhateverHappens(t *testing.T) { // A100
	onStage(t, true, hub.Options{}, func(t *testing.T, s *stage) {
		s.does(s.agent.ask(question(contracts.RequestApproval, "q1"), contracts.AskOptions{Timeout: time.Minute}))
		bob := s.guest("b")
		bob.connects(byForce)
		bob.subscribes(byForce)
		stream := bob.follows(bob.place(-1))
		q := s.quiesces()
		for _, p := range []*memconn.Peer{s.viewer, stream} {
			s.arrived(p)
		}
		frozen := s.Cursor()
		watch := s.guest("w").follows(contracts.StreamRequest{}) // attaches
		s.guest("w").follows(contracts.StreamRequest{}).Close()  // and leaves
		s.alice.disconnects()                                    // goes
		s.Evict("b")                                             // is thrown out, with the lease
		if err := s.agent.host.Publish(t.Context(), &contracts.Status{Message: "late"}); err == nil {
			t.Error("got what the agent said too late published")
		}
		s.agent.host.Withdraw("none", contracts.VerdictFailed, "", contracts.ResolvedByRuntime)
		time.Sleep(2 * time.Hour) // everything that can expires
		lines := s.arrived(watch)
		snap, _ := s.snapshotIn(lines[0])
		if snap.Cursor != frozen {
			t.Errorf("got %d, want the state at %d", snap.Cursor, frozen)
		}
		for _, c := range append(s.cursors(lines), s.Cursor()) {
			if c > frozen {
				t.Errorf("got cursor %d, want none beyond %d", c, frozen)
			}
		}
		s.wantEnd(stream, contracts.CodeUnauthenticated)
		s.Conclude(true)
		if s.Cursor() != q.Cursor {
			t.Errorf("cursor: got %d, want %d", s.Cursor(), q.Cursor)
		}
	})
}

func TestSecondDrainHasTheSameFacts(t *testing.T) { // A98
	onStage(t, true, hub.Options{}, func(t *testing.T, s *stage) {
		s.works()
		first := s.quiesces()
		s.Conclude(true)
		time.Sleep(time.Hour)
		again := s.Quiesce(t.Context(), "for another reason")
		if !reflect.DeepEqual(again, first) {
			t.Errorf("got %+v, want %+v", again, first)
		}
	})
}

// A flushing agent brings something of its own to safety, if it can.
type flushing struct {
	*puppet
	fails error
	hangs bool
}

func (f *flushing) Flush(ctx context.Context) error {
	if f.hangs {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return f.fails
}

func TestFailedFlushCanBeTriedAgain(t *testing.T) { // A93, 5.5 step 6
	for _, tt := range []struct {
		name string
		set  func(a *flushing, s *balky)
		want string
	}{
		{"the agent fails", func(a *flushing, s *balky) { a.fails = errors.New("memory lost") }, "memory lost"},
		{"the agent hangs", func(a *flushing, s *balky) { a.hangs = true }, "drain_timeout: context deadline exceeded"},
		{"the disk fails", func(a *flushing, s *balky) { s.syncing = errors.New("disk on fire") }, "disk on fire"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, store := &flushing{puppet: newPuppet()}, &balky{Store: journal.NewMemory(journal.MemoryOptions{})}
				r := openRoom(t, hub.Options{Agent: a, Store: store})
				defer r.close()
				alice := r.guest("a")
				alice.subscribes(asController)
				viewer := r.guest("v").follows(contracts.StreamRequest{})
				alice.posts(`{"type":"prompt","content":"go"}`)
				tt.set(a, store)
				bad := r.quiesces()
				if bad.FlushError != tt.want {
					t.Errorf("got %q, want %q", bad.FlushError, tt.want)
				}
				if st := bad.Snapshot.State; st.IsReady || *st.LastStatus != "Drain interrupted before runtime flush completed" {
					t.Errorf("got %+v, want it not ready", st)
				}
				r.Conclude(false)
				if st := r.Snapshot().State; st.IsReady || *st.LastStatus != "Drain interrupted before runtime flush completed" {
					t.Errorf("got %+v, want it shown", st)
				}
				time.Sleep(time.Minute)
				if n := r.Followers(); n != 1 {
					t.Errorf("got %d followers, want the stream open for another attempt", n)
				}
				a.fails, a.hangs, store.syncing = nil, false, nil
				good := r.quiesces()
				if good.FlushError != "" || good.Cursor != bad.Cursor+1 || good.ActiveTools != bad.ActiveTools || !good.Active {
					t.Errorf("got %+v, want it flushed beyond %d", good, bad.Cursor)
				}
				r.arrived(viewer)
				r.Conclude(true)
				snap, _ := r.snapshotIn(r.next(viewer))
				if snap.Cursor != good.Cursor || *snap.State.LastStatus != "Drained" {
					t.Errorf("got %+v, want it drained at %d", snap, good.Cursor)
				}
				time.Sleep(5 * time.Second)
				r.wantEnd(viewer, contracts.CodeGoingAway)
			})
		})
	}
}

func TestWhatWillNotStopInterruptsTheDrain(t *testing.T) { // drain_timeout
	for name, opts := range map[string]func() (hub.Options, func()){
		"the agent": func() (hub.Options, func()) {
			deaf := make(chan struct{})
			return hub.Options{Agent: newPlayer(func(ctx context.Context, host contracts.Host, _ contracts.Work) error {
				err := host.Publish(ctx, &contracts.ResponseStart{ResponseID: "resp"},
					&contracts.ToolCall{CallID: "t1", Tool: "bash", Args: []byte(`{}`)}, &contracts.ToolStart{CallID: "t1"})
				<-deaf
				return err
			})}, func() { close(deaf) }
		},
		"the utilities": func() (hub.Options, func()) {
			b := &toolbox{stuck: true}
			return hub.Options{Utilities: b}, func() { b.stuck = false }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts, relent := opts()
				r := openRoom(t, opts)
				alice := r.guest("a")
				alice.connects(contracts.AttachRequest{Capabilities: able})
				alice.posts(`{"type":"prompt","content":"go"}`)
				synctest.Wait()
				began := time.Now()
				q := r.quiesces()
				if st := q.Snapshot.State; st.IsResponding || st.CurrentResponse != nil || len(st.ActiveTools)+len(st.TrackedTools) != 0 {
					t.Errorf("got %+v, want a state in which nothing runs whatever does", st)
				}
				if !strings.HasPrefix(q.FlushError, "drain_timeout: ") || time.Since(began) != time.Minute {
					t.Errorf("got %q after %v, want drain_timeout after a minute", q.FlushError, time.Since(began))
				}
				time.Sleep(time.Hour)
				relent()
				synctest.Wait()
				if q = r.quiesces(); q.FlushError != "" {
					t.Errorf("got %q, want the second attempt to do it", q.FlushError)
				}
				if st := q.Snapshot.State; st.IsResponding || len(st.ActiveTools) != 0 {
					t.Errorf("got %+v, want nothing running", st)
				}
				r.close()
			})
		})
	}
}

// A keeping agent can act on old questions too.
type keeping struct{ *flushing }

func (k keeping) Resume(ctx context.Context, req *contracts.ServerRequest, out contracts.Outcome) error {
	return resumer{k.puppet}.Resume(ctx, req, out)
}

// Between two attempts a question may reach its deadline. It is the next
// process that tells how it ended, so that state and questions agree.
func TestQuestionsOfAFrozenSessionWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &flushing{puppet: newPuppet(), fails: errors.New("not yet")}
		r := openRoom(t, hub.Options{Agent: keeping{a}})
		defer r.close()
		alice := r.guest("a")
		alice.connects(asController)
		alice.posts(`{"type":"prompt","content":"go"}`)
		a.orders <- a.ask(question(contracts.RequestApproval, "q1"), contracts.AskOptions{Timeout: time.Minute})
		synctest.Wait()
		r.quiesces()
		time.Sleep(time.Hour)
		a.fails = nil
		q := r.quiesces()
		if pending := q.Snapshot.State.PendingRequests; len(q.Requests) != 1 || len(pending) != 1 {
			t.Errorf("got %+v and %+v, want the question in both", q.Requests, pending)
		}
	})
}

func TestDrainOfASessionInWhichNothingHappened(t *testing.T) { // A92
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		q := r.quiesces()
		if st := q.Snapshot.State; q.Active || st.IsReady {
			t.Errorf("got %+v, want nothing to restore", q)
		}
	})
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		r.guest("a").connects(asViewer)
		if q := r.quiesces(); !q.Active {
			t.Errorf("got %+v, want that somebody came noticed", q)
		}
	})
}

func TestDrainOfASessionThatEndedHasNothingToSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRoom(t, hub.Options{})
		alice := r.guest("a")
		alice.connects(asController)
		alice.posts(`{"type":"shutdown"}`)
		<-r.Done()
		synctest.Wait()
		cursor := r.Cursor()
		q := r.Quiesce(t.Context(), "")
		if q.Active || q.FlushError != "" || q.Snapshot.State.IsReady {
			t.Errorf("got %+v, want nothing that could be restored", q)
		}
		r.Conclude(true)
		if r.Cursor() != cursor {
			t.Errorf("got cursor %d, want %d still", r.Cursor(), cursor)
		}
	})
}

func TestDrainWithoutAReasonSaysSo(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		viewer := r.guest("v").follows(contracts.StreamRequest{})
		r.arrived(viewer)
		r.Quiesce(t.Context(), "")
		if got, want := r.next(viewer), `"message":"Hosted runner is draining: platform_requested_drain"`; !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestProcessAfterADrainGoesOnUnderTheNextCursor(t *testing.T) {
	for _, concluded := range []bool{true, false} {
		t.Run(fmt.Sprint("concluded=", concluded), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := lasting{journal.NewMemory(journal.MemoryOptions{})}
				r := openRoom(t, hub.Options{Store: store})
				alice := r.guest("a")
				alice.subscribes(asController)
				alice.posts(`{"type":"prompt","content":"before"}`)
				synctest.Wait()
				q := r.quiesces()
				if concluded {
					r.Conclude(true)
				}
				r.suspend()
				r = openRoom(t, hub.Options{Store: store})
				defer r.close()
				if !r.Ready() || concluded && r.Cursor() <= q.Cursor {
					t.Errorf("got ready %t at %d, want it open beyond %d", r.Ready(), r.Cursor(), q.Cursor)
				}
				if text, err := r.State(); err != nil || !bytes.Contains(text, []byte(`"is_ready":true`)) {
					t.Errorf("got %s, %v, want it ready", text, err)
				}
			})
		})
	}
}

// TestRestartAfterADrainIsAnnouncedOnce opens a drained session again on the same
// store, and reads everything since.
func TestRestartAfterADrainIsAnnouncedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store})
		r.Quiesce(t.Context(), "")
		r.Conclude(true)
		cursor := int64(r.Cursor())
		r.close()

		r = openRoom(t, hub.Options{Store: store})
		defer r.close()
		viewer, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer, Cursor: &cursor})
		seen := r.until(viewer, `"hello_ok"`)
		for _, want := range []string{`"type":"ready"`, `"type":"session_info"`, `"message":"Ready"`} {
			if got := strings.Count(seen, want); got != 1 {
				t.Errorf("got %d times %s in %s, want once", got, want, seen)
			}
		}
	})
}
