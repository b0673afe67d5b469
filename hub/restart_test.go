package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// lasting is a store in memory that outlives the hub that closes it, as files
// outlive their process.
type lasting struct{ journal.Store }

func (lasting) Close() error { return nil }

// eachStore runs a test whose session is opened more than once, in memory with
// fake time and in files with real time. open returns the session's store as the
// next process finds it.
func eachStore(t *testing.T, test func(t *testing.T, open func() journal.Store)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := lasting{journal.NewMemory(journal.MemoryOptions{})}
			test(t, func() journal.Store { return store })
		})
	})
	t.Run("file", func(t *testing.T) {
		dir := t.TempDir()
		test(t, func() journal.Store { return openFile(t, dir, journal.FileOptions{}) })
	})
}

func openFile(t *testing.T, dir string, opts journal.FileOptions) *journal.File {
	t.Helper()
	store, err := journal.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// crash returns a copy of a store's directory: what a process that dies now
// leaves behind, but for the epoch, which a copy has of its own.
func crash(t *testing.T, dir string) string {
	t.Helper()
	image := t.TempDir()
	if err := os.CopyFS(image, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return image
}

// comeBack is what a client says to continue its connection.
func comeBack(a contracts.Attached) (contracts.Attach, []string) {
	att := contracts.Attach{Role: a.Role, ConnectionID: a.ConnectionID}
	return att, []string{`{"type":"ws.resume","connection_token":"` + a.ConnectionToken + `"}`, `{"type":"hello"}`}
}

// A client that comes back as a new one, of the same principal and name, need not
// wait for its predecessor of before the restart.
func TestNewClientReplacesItsPredecessorAfterARestart(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() journal.Store) {
		att := contracts.Attach{Principal: contracts.Principal{ID: "ada"}, Role: contracts.RoleController}
		const hello = `{"type":"hello","client_info":{"name":"term"}}`
		r := openRoom(t, hub.Options{Store: open()})
		alice, _ := r.attach(att, hello)
		r.until(alice, `"hello_ok"`)
		r.suspend()

		r = openRoom(t, hub.Options{Store: open()})
		defer r.close()
		_, told := r.attach(att, hello)
		if !told.ControllerLeaseGranted {
			t.Errorf("got %+v, want the lease granted", told)
		}
	})
}

func TestControllerFindsItsConnectionAndLeaseAfterRestart(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() journal.Store) {
		r := openRoom(t, hub.Options{Store: open()})
		alice, before := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.until(alice, `"hello_ok"`)
		cursor, epoch := int64(r.Cursor()), r.Epoch()
		r.suspend()

		r = openRoom(t, hub.Options{Store: open()})
		defer r.close()
		if r.Epoch() != epoch || int64(r.Cursor()) <= cursor {
			t.Errorf("journal: got epoch %s at %d, want %s beyond %d", r.Epoch(), r.Cursor(), epoch, cursor)
		}
		att, first := comeBack(before)
		att.Cursor, att.Epoch = &cursor, epoch
		alice, after := r.attach(att, first...)
		if after.ConnectionID != before.ConnectionID || !after.ControllerLeaseGranted || after.Resume != "replay" {
			t.Errorf("got %+v, want connection %s with its lease and a replay", after, before.ConnectionID)
		}
		r.send(alice, `{"type":"ws.send","id":"1","message":{"type":"prompt","content":"hi"}}`)
		r.until(alice, `"ws.result","id":"1"`)
	})
}

func TestWrongTokenDoesNotBringTheLeaseBack(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() journal.Store) {
		r := openRoom(t, hub.Options{Store: open()})
		_, alice := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.suspend()

		r = openRoom(t, hub.Options{Store: open()})
		defer r.close()
		alice.ConnectionToken = "guessed"
		att, first := comeBack(alice)
		att.Takeover = contracts.TakeoverLater
		_, mallory := r.attach(att, first...)
		if mallory.ConnectionID == alice.ConnectionID || mallory.ControllerLeaseGranted {
			t.Errorf("got %+v, want a new connection without the lease", mallory)
		}
		if got := mallory.ControllerConnectionID; got == nil || *got != alice.ConnectionID {
			t.Errorf("holder: got %v, want %s", got, alice.ConnectionID)
		}
	})
}

func TestLeaseOfAHolderThatStaysAwayAfterRestartIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store})
		r.attach(contracts.Attach{Role: contracts.RoleController})
		r.suspend()

		r = openRoom(t, hub.Options{Store: store, SubscriptionTTL: 30 * time.Second})
		defer r.close()
		bob := contracts.Attach{Role: contracts.RoleController}
		if err := r.Admit(bob); err == nil {
			t.Error("got admitted, want refused while the holder may come back")
		}
		time.Sleep(31 * time.Second)
		if err := r.Admit(bob); err != nil {
			t.Errorf("got %v, want admitted", err)
		}
	})
}

// TestNobodyIsWaitedForWhoCannotComeBack goes on with a session whose address
// went with its process.
func TestNobodyIsWaitedForWhoCannotComeBack(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() journal.Store) {
		r := openRoom(t, hub.Options{Store: open()})
		_, alice := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.suspend()

		r = openRoom(t, hub.Options{Store: open(), NoReturn: true})
		if n := r.Summary().Connections; n != 0 {
			t.Errorf("got %d connections, want none", n)
		}
		_, bob := r.attach(contracts.Attach{Role: contracts.RoleController})
		if !bob.ControllerLeaseGranted {
			t.Errorf("got %+v, want the lease", bob)
		}
		r.suspend()

		r = openRoom(t, hub.Options{Store: open()}) // alice is forgotten for good, and bob is not
		defer r.close()
		att, first := comeBack(alice)
		att.Takeover = contracts.TakeoverLater
		if _, got := r.attach(att, first...); got.ConnectionID == alice.ConnectionID || got.ControllerConnectionID == nil || *got.ControllerConnectionID != bob.ConnectionID {
			t.Errorf("got %+v, want a new connection while %s holds the lease", got, bob.ConnectionID)
		}
	})
}

// A frozen holder cannot say goodbye in time. It must not lose its place by
// that.
func TestFrozenControllerKeepsItsLeaseThroughSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store})
		peer, alice := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.until(peer, `"hello_ok"`)
		peer.Freeze()
		r.suspend()
		synctest.Wait()

		r = openRoom(t, hub.Options{Store: store})
		defer r.close()
		att, first := comeBack(alice)
		if _, got := r.attach(att, first...); got.ConnectionID != alice.ConnectionID || !got.ControllerLeaseGranted {
			t.Errorf("got %+v, want connection %s with its lease", got, alice.ConnectionID)
		}
	})
}

func TestSendRepeatedAfterRestartIsAnsweredAlikeAndRunsOnce(t *testing.T) { // A72
	for _, checkpoint := range []int{0, 1} { // hardly ever, and after every step
		t.Run(fmt.Sprintf("checkpoint=%d", checkpoint), func(t *testing.T) {
			eachStore(t, func(t *testing.T, open func() journal.Store) {
				r := openRoom(t, hub.Options{Store: open(), CheckpointBytes: checkpoint})
				alice, attached := r.attach(contracts.Attach{Role: contracts.RoleController})
				sends := []string{
					`{"type":"ws.send","id":"init","message":{"type":"init","approval_mode":"prompt"}}`,
					`{"type":"ws.send","id":"ask","message":{"type":"prompt","content":"ask"}}`,
					`{"type":"ws.send","id":"answer","message":{"type":"server_request_response","request_id":"r1","request_type":"approval","approved":true}}`,
				}
				var want []contracts.Result
				for i, frame := range sends {
					r.send(alice, frame)
					want = append(want, *r.last(r.until(alice, `"ws.result"`)).(*contracts.Result))
					if i == 1 {
						r.until(alice, `"type":"server_request"`)
					}
				}
				r.until(alice, `"response_end"`)
				r.suspend()

				r = openRoom(t, hub.Options{Store: open(), CheckpointBytes: checkpoint})
				defer r.close()
				att, first := comeBack(attached)
				alice, _ = r.attach(att, first...)
				r.until(alice, `"hello_ok"`)
				cursor := r.Cursor()
				for i, frame := range sends {
					r.send(alice, frame)
					got := r.last(r.until(alice, `"ws.`)).(*contracts.Result)
					if *got.ID != *want[i].ID || got.Cursor != want[i].Cursor {
						t.Errorf("answer to %s: got %s at %d, want %s at %d", frame, *got.ID, got.Cursor, *want[i].ID, want[i].Cursor)
					}
				}
				if r.Cursor() != cursor {
					t.Errorf("got %d entries by repeated frames, want none", r.Cursor()-cursor)
				}
			})
		})
	}
}

// busy is an agent in the middle of everything: an open response, a running
// tool, one that ended, a question of each kind that a client without
// capabilities can leave open.
func busy() *player {
	return newPlayer(func(ctx context.Context, host contracts.Host, work contracts.Work) error {
		err := host.Publish(ctx,
			&contracts.ResponseStart{ResponseID: "resp_1"},
			&contracts.ResponseChunk{ResponseID: "resp_1", Content: work.Content},
			&contracts.ToolCall{CallID: "done", Tool: "bash", Args: []byte(`{}`)},
			&contracts.ToolStart{CallID: "done"},
			&contracts.ToolEnd{CallID: "done", Success: true},
			&contracts.ToolCall{CallID: "t1", Tool: "bash", Args: []byte(`{}`)},
			&contracts.ToolStart{CallID: "t1"},
			&contracts.ToolOutput{CallID: "t1", Content: "half"},
		)
		if err != nil {
			return err
		}
		_, err = host.Ask(ctx, &contracts.ServerRequest{
			RequestID: "q1", RequestType: contracts.RequestApproval, CallID: "q1", Tool: "bash", Args: []byte(`{}`), Reason: "test",
		}, contracts.AskOptions{})
		return err
	})
}

// still is what a snapshot says beside its cursor and who is attached just now.
func still(t *testing.T, snap *contracts.Snapshot) string {
	t.Helper()
	s := *snap
	s.Cursor = 0
	s.State.Connections = []contracts.ConnectionState{}
	s.State.ControllerSubscriptionID = contracts.Null()
	text, err := contracts.EncodeSnapshot(&s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRestoreYieldsTheSnapshotOfTheCrash(t *testing.T) {
	for _, checkpoint := range []int{1, 2000, 0} {
		t.Run(fmt.Sprintf("checkpoint=%d", checkpoint), func(t *testing.T) {
			dir := t.TempDir()
			r := openRoom(t, hub.Options{Store: openFile(t, dir, journal.FileOptions{}), CheckpointBytes: checkpoint, Agent: busy()})
			defer r.close()
			alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
			r.send(alice, `{"type":"init","system_prompt":"be brief"}`)
			r.send(alice, `{"type":"prompt","content":"go"}`)
			r.until(alice, `"type":"server_request"`)

			h, err := hub.New(hub.Options{SessionID: "s", Cwd: "/", Agent: &echo{}, Store: openFile(t, crash(t, dir), journal.FileOptions{})})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := still(t, h.Snapshot()), still(t, r.Snapshot()); got != want {
				t.Errorf("restored state:\n got %s\nwant %s", got, want)
			}
			if err := h.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCheckpointsLetOldEntriesGo(t *testing.T) {
	dir := t.TempDir()
	small := journal.FileOptions{SegmentBytes: 16 << 10, RetainBytes: 32 << 10}
	store := openFile(t, dir, small)
	r := openRoom(t, hub.Options{Store: store, CheckpointBytes: 4 << 10})
	alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
	r.send(alice, `{"type":"init","system_prompt":"be brief"}`)
	prompt := `{"type":"ws.send","id":"%d","message":{"type":"prompt","content":"` + strings.Repeat("x", 2<<10) + `"}}`
	for i := range 30 {
		r.send(alice, fmt.Sprintf(prompt, i))
		r.until(alice, `"response_end"`)
	}
	if err := store.Sync(); err != nil {
		t.Fatal(err)
	}
	if first, last := store.Bounds(); first == 1 {
		t.Errorf("got entries 1 to %d kept, want the oldest gone", last)
	}
	h, err := hub.New(hub.Options{SessionID: "s", Cwd: "/", Agent: &echo{}, Store: openFile(t, crash(t, dir), small)})
	if err != nil {
		t.Fatal(err)
	}
	got := h.Snapshot()
	if !strings.Contains(string(got.LastInit), "be brief") {
		t.Errorf("last init: got %s, want the one from before the entries that are kept", got.LastInit)
	}
	if a, b := still(t, got), still(t, r.Snapshot()); a != b {
		t.Errorf("restored state:\n got %s\nwant %s", a, b)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	r.close()
}

// A client that leaves the epoch out is known by its cursor to come from an
// earlier one.
func TestCursorWithoutEpochIsResetAfterTheEpochChanged(t *testing.T) {
	dir := t.TempDir()
	r := openRoom(t, hub.Options{Store: openFile(t, dir, journal.FileOptions{})})
	old, epoch := int64(r.Cursor()), r.Epoch()
	r.suspend()

	r = openRoom(t, hub.Options{Store: openFile(t, crash(t, dir), journal.FileOptions{})})
	defer r.close()
	if r.Epoch() == epoch {
		t.Fatal("got the epoch of the original in a copy, want another")
	}
	own := int64(r.Cursor())
	for _, tt := range []struct {
		cursor int64
		resume string
	}{{0, "replay"}, {1, "reset"}, {old - 1, "reset"}, {old, "reset"}, {old + 1, "reset"}, {own - 1, "replay"}, {own, "replay"}} {
		_, at := r.attach(contracts.Attach{Role: contracts.RoleViewer, Cursor: &tt.cursor})
		if at.Resume != tt.resume {
			t.Errorf("cursor %d: got %s, want %s", tt.cursor, at.Resume, tt.resume)
		}
	}
	start := int64(0)
	if _, at := r.attach(contracts.Attach{Role: contracts.RoleViewer, Cursor: &start, Epoch: epoch}); at.Resume != "reset" {
		t.Errorf("cursor 0 of the old epoch: got %s, want reset", at.Resume)
	}
}

func TestRunCutByACrashIsClosed(t *testing.T) {
	for _, checkpoint := range []int{0, 1} {
		t.Run(fmt.Sprintf("checkpoint=%d", checkpoint), func(t *testing.T) {
			dir := t.TempDir()
			r := openRoom(t, hub.Options{Store: openFile(t, dir, journal.FileOptions{}), CheckpointBytes: checkpoint, Agent: busy()})
			defer r.close()
			alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
			r.send(alice, `{"type":"prompt","content":"go"}`)
			r.until(alice, `"type":"server_request"`)

			image := openFile(t, crash(t, dir), journal.FileOptions{})
			cursor := int64(image.EpochStart())
			next := openRoom(t, hub.Options{Store: image, CheckpointBytes: checkpoint})
			defer next.close()
			bob, _ := next.attach(contracts.Attach{Role: contracts.RoleViewer, Cursor: &cursor}, `{"type":"hello","capabilities":{"raw_agent_events":true}}`)
			seen := next.until(bob, `"hello_ok"`)
			for _, want := range []string{
				`"type":"tool_end","call_id":"t1"`, `"type":"response_end","response_id":"resp_1"`,
				`"The server restarted during the run"`, `"event_type":"agent_end"`,
			} {
				if strings.Count(seen, want) != 1 {
					t.Errorf("got %s, want %s once", seen, want)
				}
			}
			if strings.Contains(seen, `"call_id":"q1"`) || strings.Contains(seen, `"call_id":"done"`) {
				t.Errorf("got %s, want neither the waiting call nor the one that ended closed", seen)
			}
			state := next.Snapshot().State
			if len(state.PendingApprovals) != 1 || state.CurrentResponse != nil || len(state.ActiveTools) != 0 {
				t.Errorf("got %+v, want nothing open but the question", state)
			}
			if ms := state.LastResponseDurationMS; ms == nil || *ms > time.Hour.Milliseconds() {
				t.Errorf("duration: got %v ms, want what passed since the response began", ms)
			}
			if ms := state.LastTTFTMS; ms == nil || *ms > *state.LastResponseDurationMS { // R40
				t.Errorf("time to the first chunk: got %v ms, want one within the duration", ms)
			}
		})
	}
}

// A run that only waited for an answer is not broken by a crash.
func TestWaitingRunGoesOnAfterACrash(t *testing.T) {
	const broken, waits = "The server restarted during the run", "The server restarted: the run goes on once its question is answered"
	for _, running := range []bool{false, true} { // a call beside the one that waits
		agent := newPuppet()
		dir := t.TempDir()
		r := openRoom(t, hub.Options{Store: openFile(t, dir, journal.FileOptions{}), Agent: resumer{agent}})
		defer r.close()
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, `{"type":"prompt","content":"go"}`)
		agent.orders <- agent.publish(&contracts.ResponseStart{ResponseID: "resp_1"})
		if running {
			agent.orders <- agent.publish(&contracts.ToolCall{CallID: "t1", Tool: "bash", Args: []byte(`{}`)}, &contracts.ToolStart{CallID: "t1"})
		}
		agent.orders <- agent.ask(question(contracts.RequestApproval, "q1"), contracts.AskOptions{})
		r.until(alice, `"type":"server_request"`)

		image := openFile(t, crash(t, dir), journal.FileOptions{})
		cursor := int64(image.EpochStart())
		next := openRoom(t, hub.Options{Store: image, Agent: resumer{newPuppet()}})
		defer next.close()
		bob, _ := next.attach(contracts.Attach{Role: contracts.RoleViewer, Cursor: &cursor})
		seen := next.until(bob, `"hello_ok"`)
		if strings.Contains(seen, broken) != running || strings.Contains(seen, waits) == running {
			t.Errorf("running %t: got %s, want either that the run was broken or that it goes on", running, seen)
		}
		if strings.Count(seen, `"response_end"`) != 1 || len(next.Snapshot().State.PendingApprovals) != 1 {
			t.Errorf("running %t: got %s, want the end of the response and the question", running, seen)
		}
	}
}

func TestDeadlineOfAQuestionIsAbsolute(t *testing.T) { // D8
	for _, checkpoint := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			store := lasting{journal.NewMemory(journal.MemoryOptions{})}
			opts := hub.Options{
				Store: store, CheckpointBytes: checkpoint,
				RequestTimeout: map[contracts.RequestType]time.Duration{contracts.RequestApproval: time.Hour},
			}
			r := openRoom(t, opts)
			alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
			r.send(alice, `{"type":"prompt","content":"ask"}`)
			r.until(alice, `"type":"server_request"`)
			asked := time.Now()
			r.suspend()
			time.Sleep(30 * time.Minute)

			opts.RequestTimeout = nil
			r = openRoom(t, opts)
			defer r.close()
			time.Sleep(time.Hour - time.Since(asked) - time.Second)
			if got := len(r.Snapshot().State.PendingApprovals); got != 1 {
				t.Errorf("a second before the deadline: got %d pending, want 1", got)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if got := len(r.Snapshot().State.PendingApprovals); got != 0 {
				t.Errorf("at the deadline: got %d pending, want none", got)
			}
		})
	}
}

func TestQuestionThatExpiredWhileDownIsResolvedAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, `{"type":"prompt","content":"ask"}`)
		r.until(alice, `"type":"server_request"`)
		cursor := int64(r.Cursor())
		r.suspend()
		time.Sleep(2 * time.Hour)

		r = openRoom(t, hub.Options{Store: store})
		defer r.close()
		synctest.Wait()
		bob, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer, Cursor: &cursor})
		seen := r.until(bob, `"hello_ok"`)
		for _, want := range []string{`"reason":"Approval request timed out"`, `"type":"tool_end","call_id":"r1"`} {
			if strings.Count(seen, want) != 1 {
				t.Errorf("got %s, want %s once", seen, want)
			}
		}
	})
}

func TestLocalClientIsShownTheQuestionsOfTheProcessBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := lasting{journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, `{"type":"prompt","content":"ask"}`)
		r.until(alice, `"type":"server_request"`)
		r.send(alice, `{"type":"ws.bye"}`)
		r.rest(alice)
		r.suspend()
		time.Sleep(time.Second)

		r = openRoom(t, hub.Options{Store: store})
		defer r.close()
		conn, local := memconn.New(memconn.Options{Bare: true})
		served := make(chan error, 1)
		go func() { served <- r.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{}) }() // ends with its input
		r.until(local, `"type":"server_request","request_id":"r1"`)
		r.send(local, `{"type":"tool_response","call_id":"r1","approved":true}`)
		r.until(local, `"type":"server_request_resolved","request_id":"r1"`)
		local.Close()
		<-served
		<-r.Done()
	})
}

// Answers are remembered up to a bound. A frame repeated later than that is a
// new one.
func TestOldAnswersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRoom(t, hub.Options{})
		defer r.close()
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		send := func(id int) uint64 {
			r.send(alice, fmt.Sprintf(`{"type":"ws.send","id":"%d","message":{"type":"init"}}`, id))
			return r.last(r.until(alice, `"ws.result"`)).(*contracts.Result).Cursor
		}
		first, second := send(0), send(1)
		for id := 2; id <= 1024; id++ {
			send(id)
		}
		if got := send(1); got != second {
			t.Errorf("the oldest answer kept: got cursor %d, want %d", got, second)
		}
		if got := send(0); got <= first {
			t.Errorf("an answer beyond the bound: got cursor %d, want it done again", got)
		}
	})
}

func TestInitSurvivesRestart(t *testing.T) {
	for _, checkpoint := range []int{0, 1} {
		t.Run(fmt.Sprintf("checkpoint=%d", checkpoint), func(t *testing.T) {
			eachStore(t, func(t *testing.T, open func() journal.Store) {
				r := openRoom(t, hub.Options{Store: open(), CheckpointBytes: checkpoint})
				alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
				r.send(alice, `{"type":"ws.send","id":"1","message":{"type":"init","system_prompt":"be brief","approval_mode":"auto"}}`)
				r.until(alice, `"ws.result","id":"1"`)
				r.suspend()

				agent := newPlayer(nil)
				r = openRoom(t, hub.Options{Store: open(), CheckpointBytes: checkpoint, Agent: agent})
				defer r.close()
				if got := agent.host.ApprovalMode(); got != contracts.ApprovalAuto {
					t.Errorf("approval mode: got %s, want auto", got)
				}
				if init := <-agent.inits; init.SystemPrompt == nil || *init.SystemPrompt != "be brief" {
					t.Errorf("system prompt: got %v, want be brief", init.SystemPrompt)
				}
				var last contracts.Init
				if err := json.Unmarshal(r.Snapshot().LastInit, &last); err != nil || last.ApprovalMode != contracts.ApprovalAuto {
					t.Errorf("last init: got %s, %v, want it in the snapshot", r.Snapshot().LastInit, err)
				}
			})
		})
	}
}

// Whatever a dying machine left of the last writes, the session opens with
// nothing half done, and goes on.
func TestTruncatedJournalIsSurvived(t *testing.T) {
	for _, checkpoint := range []int{0, 1500} { // the second begins a new segment on the way
		dir := t.TempDir()
		r := openRoom(t, hub.Options{Store: openFile(t, dir, journal.FileOptions{}), CheckpointBytes: checkpoint, Agent: busy()})
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(alice, `{"type":"init","system_prompt":"be brief"}`)
		r.send(alice, `{"type":"prompt","content":"go"}`)
		r.until(alice, `"type":"server_request"`)
		image := crash(t, dir)
		r.close()
		info, err := os.Stat(newestSegment(t, image))
		if err != nil {
			t.Fatal(err)
		}
		for cut := int64(1); cut < info.Size(); cut += 131 {
			openTruncated(t, crash(t, image), info.Size()-cut)
		}
	}
}

func newestSegment(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(names) == 0 {
		t.Fatalf("got segments %v, %v, want some", names, err)
	}
	return slices.Max(names)
}

func openTruncated(t *testing.T, dir string, size int64) {
	t.Helper()
	if err := os.Truncate(newestSegment(t, dir), size); err != nil {
		t.Fatal(err)
	}
	r := openRoom(t, hub.Options{Store: openFile(t, dir, journal.FileOptions{})})
	defer r.close()
	s := r.Snapshot().State
	if s.CurrentResponse != nil || s.IsResponding || len(s.ActiveTools) != 0 || !s.IsReady {
		t.Errorf("cut to %d bytes: got %+v, want nothing open", size, s)
	}
	if tracked := len(s.TrackedTools); tracked != len(s.PendingApprovals) {
		t.Errorf("cut to %d bytes: got %d tools and %d questions, want none without the other", size, tracked, len(s.PendingApprovals))
	}
	bob, _ := r.attach(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverForce})
	r.send(bob, `{"type":"prompt","content":"next"}`)
	r.until(bob, `"response_end"`)
}

func TestSuspendTellsClientsToComeBackAndCloseDoesNot(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*room)
		want contracts.Goodbye
		code contracts.Code // of the close
	}{
		{"suspend", (*room).suspend, contracts.Goodbye{Code: 1001, Reason: "going_away", Resume: true, RetryAfterMS: 1000}, contracts.CodeGoingAway},
		{"close", (*room).close, contracts.Goodbye{Code: 1000, Reason: "normal"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := openRoom(t, hub.Options{})
				alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
				tt.end(r)
				bye, ok := r.last(r.rest(alice)).(*contracts.Goodbye)
				if !ok || *bye != tt.want {
					t.Errorf("farewell: got %+v, want %+v", bye, tt.want)
				}
				why, closed := alice.Closed()
				if !closed || why != nil && why.Code != tt.code || why == nil && tt.code != "" {
					t.Errorf("close: got %v, %t, want %q", why, closed, tt.code)
				}
				<-r.Done()
				if err := r.Admit(contracts.Attach{}); err == nil {
					t.Error("got admitted to a session that has ended, want refused")
				}
			})
		})
	}
}

func TestCorruptEntryStopsTheSession(t *testing.T) {
	for _, e := range []journal.Entry{
		{Kind: journal.Message, Body: []byte(`{"type":"nonsense"}`)},
		{Kind: journal.Note, Body: []byte(`{`)},
		{Kind: journal.Note, Body: []byte(`{"command":{"type":"nonsense"}}`)},
		{Kind: journal.Note, Body: []byte(`{"attach":{"id":"c","token_sha256":"odd"}}`)},
		{Kind: journal.Checkpoint, Body: []byte(`{`)},
		{Kind: journal.Checkpoint, Body: []byte(`{"snapshot":{"state":{}},"requests":[{"request":null}]}`)},
		{Kind: journal.Checkpoint, Body: []byte(`{"snapshot":{"state":{}},"connections":[{"id":"c","token_sha256":"odd"}]}`)},
	} {
		store := journal.NewMemory(journal.MemoryOptions{})
		e.Cursor = 1
		if err := store.Append([]journal.Entry{e}); err != nil {
			t.Fatal(err)
		}
		if _, err := hub.New(hub.Options{SessionID: "s", Cwd: "/", Agent: &echo{}, Store: store}); err == nil {
			t.Errorf("entry %s: got a session, want an error", e.Body)
		}
	}
}

// forgetful is a player that cannot act on the answers to its predecessor's
// questions.
type forgetful struct{ *player }

func (f forgetful) Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	info, err := f.player.Start(ctx, host)
	info.Forgets = true
	return info, err
}

func TestQuestionThatNobodyCanUseIsWithdrawnAtTheRestart(t *testing.T) {
	dir := t.TempDir()
	r := openRoom(t, hub.Options{Store: openFile(t, dir, journal.FileOptions{}), Agent: forgetful{busy()}})
	defer r.close()
	alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
	r.send(alice, `{"type":"prompt","content":"go"}`)
	r.until(alice, `"type":"server_request"`)

	image := openFile(t, crash(t, dir), journal.FileOptions{})
	cursor := int64(image.EpochStart())
	next := openRoom(t, hub.Options{Store: image, Agent: forgetful{busy()}})
	defer next.close()
	bob, _ := next.attach(contracts.Attach{Role: contracts.RoleViewer, Cursor: &cursor}, `{"type":"hello","capabilities":{"raw_agent_events":true}}`)
	seen := next.until(bob, `"hello_ok"`)
	for _, want := range []string{`"resolution":"cancelled"`, "The program that asked has ended", `"type":"tool_end","call_id":"q1"`} {
		if strings.Count(seen, want) != 1 {
			t.Errorf("got %s, want %s once", seen, want)
		}
	}
	if state := next.Snapshot().State; len(state.PendingApprovals) > 0 || len(state.TrackedTools) > 0 {
		t.Errorf("got %+v, want nothing open", state)
	}
}

// In journals of an earlier version, each event about people has an entry of its own.
func TestJournalOfAnEarlierVersionGoesOn(t *testing.T) {
	text, err := os.ReadFile("testdata/journals/people-with-entries.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	store := journal.NewMemory(journal.MemoryOptions{})
	for line := range strings.Lines(string(text)) {
		var e struct {
			Kind  journal.Kind
			Class journal.Class
			Time  int64
			Body  string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		_, last := store.Bounds()
		entry := journal.Entry{Cursor: last + 1, Kind: e.Kind, Class: e.Class, Time: e.Time, Body: []byte(e.Body)}
		if err := store.Append([]journal.Entry{entry}); err != nil {
			t.Fatal(err)
		}
	}
	withPuppet(t, hub.Options{Store: store}, func(t *testing.T, h *hub.Hub, _ *puppet) {
		page, err := h.History(t.Context(), &contracts.HistoryRequest{}, contracts.Caller{})
		if err != nil || len(page.Entries) < 10 {
			t.Errorf("history: got %+v, %v, want the events", page, err)
		}
		rhea, otto := joinAs(t, h, "rhea", contracts.RoleApprover, false), joinAs(t, h, "otto", contracts.RoleApprover, false)
		refusedWith(t, "the second vote of rhea", rhea(decision("q2", true, "")), contracts.CodeAlreadyVoted)
		refusedWith(t, "another digest", otto(decision("q2", true, "sha256:x")), contracts.CodeDigestMismatch)
		refusedWith(t, "the second principal", otto(decision("q2", true, "sha256:5e7dfd987ba55e6fb51128fffefb38d9ef4a071d20c64281fe1dc273e038389e")), "")
		var audit hub.AuditReader
		if err := store.Read(0, func(e journal.Entry) bool {
			if _, why, err := audit.Read(e); why != "" || err != nil {
				t.Errorf("audit at entry %d: %s, %v", e.Cursor, why, err)
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if n, _ := audit.Head(); n < 6 {
			t.Errorf("the audit ends at record %d, want that it goes on", n)
		}
	})
}
