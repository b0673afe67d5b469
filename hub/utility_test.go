package hub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// A toolbox is utilities in memory: what is started runs until somebody ends it,
// and reading a file that is not called here fails: one called forbidden for want
// of rights.
type toolbox struct {
	publish func(ctx context.Context, events ...contracts.Event) error
	await   func(ctx context.Context, owner string) error

	mu      sync.Mutex
	running []tool
	done    int           // commands served
	calls   []string      // disown, stop and close, in their order
	gate    chan struct{} // Do waits until it is closed, if there is one
	stuck   bool          // Stop waits for its context
}

type tool struct {
	id, owner string
	watch     bool
}

func (b *toolbox) Operations() []contracts.UtilityOperation {
	return []contracts.UtilityOperation{contracts.OperationCommandExec, contracts.OperationFileWatch, contracts.OperationFileRead}
}

func (b *toolbox) Start(publish func(ctx context.Context, events ...contracts.Event) error, await func(context.Context, string) error) {
	b.publish, b.await = publish, await
}

func (b *toolbox) Do(ctx context.Context, owner string, cmd contracts.Command) error {
	b.mu.Lock()
	gate := b.gate
	b.done++
	b.mu.Unlock()
	if gate != nil {
		<-gate
	}
	switch c := cmd.(type) {
	case *contracts.UtilityCommandStart:
		b.add(tool{c.CommandID, owner, false})
		err := b.publish(ctx, &contracts.UtilityCommandStarted{CommandID: c.CommandID, Command: c.Command, ShellMode: contracts.ShellModeShell, TerminalMode: contracts.TerminalPipe, OwnerConnectionID: owner})
		if c.Command == "true" { // over before anybody looks
			b.remove(c.CommandID)
			err = errors.Join(err, b.publish(ctx, &contracts.UtilityCommandExited{CommandID: c.CommandID, Success: true}))
		}
		return err
	case *contracts.UtilityFileWatchStart:
		b.add(tool{c.WatchID, owner, true})
		return b.publish(ctx, &contracts.UtilityFileWatchStarted{WatchID: c.WatchID, RootDir: "/", DebounceMS: 100, OwnerConnectionID: owner})
	case *contracts.UtilityFileRead:
		if c.Path == "forbidden" {
			return &contracts.Error{Code: contracts.CodeAccessDenied, Message: "outside the workspace"}
		}
		if c.Path != "here" {
			return &contracts.Error{Code: contracts.CodeNotFound, Message: "no such file"}
		}
		return b.publish(ctx, &contracts.UtilityFileReadResult{ReadID: c.ReadID, Path: "/here", RelativePath: "here", Cwd: "/"})
	case *contracts.UtilityCommandTerminate:
		return b.end(ctx, func(t tool) bool { return t.id == c.CommandID }, "Terminated")
	}
	return nil
}

func (b *toolbox) add(t tool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = append(b.running, t)
}

func (b *toolbox) remove(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = slices.DeleteFunc(b.running, func(t tool) bool { return t.id == id })
}

// end ends what which chooses.
func (b *toolbox) end(ctx context.Context, which func(tool) bool, reason string) error {
	b.mu.Lock()
	var ended []contracts.Event
	for _, t := range b.running {
		switch {
		case !which(t):
		case t.watch:
			ended = append(ended, &contracts.UtilityFileWatchStopped{WatchID: t.id, Reason: reason})
		default:
			ended = append(ended, &contracts.UtilityCommandExited{CommandID: t.id, Reason: reason})
		}
	}
	b.running = slices.DeleteFunc(b.running, which)
	b.mu.Unlock()
	if len(ended) == 0 {
		return nil
	}
	return b.publish(ctx, ended...)
}

func (b *toolbox) called(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, what)
}

func (b *toolbox) Disown(owner string) {
	b.called("disown " + owner)
	_ = b.end(context.Background(), func(t tool) bool { return t.owner == owner }, "Owner gone") // fails once the hub has ended
}

func (b *toolbox) Stop(ctx context.Context, reason string) error {
	b.called("stop " + reason)
	if b.stuck {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return b.end(ctx, func(tool) bool { return true }, reason)
}

func (b *toolbox) Close(context.Context) error { b.called("close"); return nil }

// log returns the calls so far, disowned owners by what names calls them, and
// forgets them.
func (b *toolbox) log(names map[string]string) []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	for i, call := range calls {
		if id, ok := strings.CutPrefix(call, "disown "); ok && names[id] != "" {
			calls[i] = "disown " + names[id]
		}
	}
	return calls
}

// able are the capabilities of a client that uses everything.
var able = &contracts.AttachCapabilities{UtilityOperations: []contracts.UtilityOperation{
	contracts.OperationCommandExec, contracts.OperationFileSearch, contracts.OperationFileWatch, contracts.OperationFileRead,
}}

const (
	startC1 = `{"type":"utility_command_start","command_id":"c1","command":"sleep"}`
	startW1 = `{"type":"utility_file_watch_start","watch_id":"w1"}`
)

// withTools runs a test in a room with a toolbox and a controller that may use
// it.
func withTools(t *testing.T, opts hub.Options, test func(t *testing.T, r *room, b *toolbox, alice *guest)) {
	b := &toolbox{}
	opts.Utilities = b
	inRoom(t, opts, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.connects(contracts.AttachRequest{Capabilities: able, TakeControl: true})
		test(t, r, b, alice)
	})
}

func TestAnswerToAUtilityShowsWhatItStarted(t *testing.T) { // A66
	withTools(t, hub.Options{}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		got := alice.posts(startC1)
		st := stateIn(t, got.Snapshot).State
		if len(st.ActiveUtilityCommands) != 1 || st.ActiveUtilityCommands[0].OwnerConnectionID != alice.by.ConnectionID || got.PublishedMessages != 1 || got.Cursor != r.Cursor() {
			t.Errorf("got %+v with %+v, want the command and its owner", got, st.ActiveUtilityCommands)
		}
		st = stateIn(t, alice.posts(startW1).Snapshot).State
		if len(st.ActiveFileWatches) != 1 || st.ActiveFileWatches[0].OwnerConnectionID != alice.by.ConnectionID {
			t.Errorf("got %+v, want the watch and its owner", st.ActiveFileWatches)
		}
		st = stateIn(t, alice.posts(`{"type":"utility_command_start","command_id":"c2","command":"true"}`).Snapshot).State
		if n := len(st.ActiveUtilityCommands); n != 2 {
			t.Errorf("got %d commands, want the one that was over at once too", n)
		}
		st = stateIn(t, alice.posts(`{"type":"utility_command_terminate","command_id":"c1"}`).Snapshot).State
		if len(st.ActiveUtilityCommands) != 0 {
			t.Errorf("got %+v, want none", st.ActiveUtilityCommands)
		}
	})
}

func TestUtilityOverASocketIsShownAndThenAnswered(t *testing.T) {
	withTools(t, hub.Options{}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		peer, _ := r.attach(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverForce},
			`{"type":"hello","capabilities":{"utility_operations":["command_exec","file_read"]}}`)
		r.send(peer, `{"type":"ws.send","id":"1","message":`+startC1+`}`)
		if seen := r.until(peer, `"ws.result","id":"1"`); !strings.Contains(seen, `"utility_command_started"`) {
			t.Errorf("got %s, want the start before its answer", seen)
		}
		read := `{"type":"ws.send","id":"2","message":{"type":"utility_file_read","read_id":"r","path":"gone"}}`
		for range 2 { // the repeated one is refused from memory
			r.send(peer, read)
			if bad := r.last(r.until(peer, `"id":"2"`)).(*contracts.Refusal); bad.Code != contracts.CodeNotFound {
				t.Errorf("got %+v, want %s", bad, contracts.CodeNotFound)
			}
		}
		if b.done != 2 {
			t.Errorf("got %d commands served, want 2", b.done)
		}
	})
}

func TestFreeLeaseIsTakenByAUtilityToo(t *testing.T) { // A30
	withTools(t, hub.Options{}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		bob := r.guest("b")
		bob.connects(byForce)
		bob.disconnects()
		r.wantHolder("")
		alice.posts(startC1)
		r.wantHolder(alice.by.ConnectionID)
	})
}

func TestUtilityRefusalIsTheUtilitys(t *testing.T) {
	withTools(t, hub.Options{}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		alice.refusedPost(`{"type":"utility_file_read","read_id":"r","path":"gone"}`, contracts.CodeNotFound)
		if n := r.told("refused " + string(contracts.CodeNotFound)); n != 1 {
			t.Errorf("refusals: got %d, want 1", n)
		}
	})
}

func TestUtilityThatWasNotNegotiatedOrIsNotOfferedIsRefused(t *testing.T) { // A79
	search := `{"type":"utility_file_search","search_id":"s","query":"q"}`
	withTools(t, hub.Options{}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		bob := r.guest("b")
		bob.connects(contracts.AttachRequest{TakeControl: true, Capabilities: &contracts.AttachCapabilities{UtilityOperations: able.UtilityOperations[1:]}})
		bob.refusedPost(startC1, contracts.CodeUnsupportedCapability) // whatever others negotiated
		bob.refusedPost(search, contracts.CodeUnsupportedCapability)  // negotiated, and not offered
		if b.done != 0 {
			t.Errorf("got %d commands served, want none", b.done)
		}
	})
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.connects(contracts.AttachRequest{Capabilities: able})
		for _, text := range []string{startC1, startW1, search} {
			alice.refusedPost(text, contracts.CodeUnsupportedCapability)
		}
		alice.posts(`{"type":"utility_command_terminate","command_id":"c1"}`) // what does not run is ended
	})
}

// TestWhateverAConnectionStartedGoesWithIt ends connections in every way.
func TestWhateverAConnectionStartedGoesWithIt(t *testing.T) { // A12, 3.2
	for name, end := range map[string]func(r *room, g *guest){
		"disconnect":  func(r *room, g *guest) { g.disconnects() },
		"unsubscribe": func(r *room, g *guest) { g.subscribes(byForce); _ = r.Unsubscribe(g.by.SubscriptionID, g.by) },
		"silence":     func(r *room, g *guest) { time.Sleep(leaseTTL) },
		"a lost stream": func(r *room, g *guest) {
			g.subscribes(byForce)
			g.follows(g.place(-1)).Close()
			time.Sleep(subTTL)
		},
		"eviction": func(r *room, g *guest) { r.Evict("a") },
		"a goodbye": func(r *room, g *guest) {
			att, first := comeBack(contracts.Attached{Role: contracts.RoleController, ConnectionID: g.by.ConnectionID, ConnectionToken: g.by.Token})
			att.Principal.ID = "a"
			peer, _ := r.attach(att, first...)
			r.send(peer, `{"type":"ws.bye"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withTools(t, hub.Options{}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
				alice.posts(startC1)
				alice.posts(startW1)
				end(r, alice)
				wantEqual(t, "calls", b.log(map[string]string{alice.by.ConnectionID: "alice"}), []string{"disown alice"})
				if st := r.Snapshot().State; len(st.ActiveUtilityCommands)+len(st.ActiveFileWatches) != 0 {
					t.Errorf("got %+v, want nothing running", st)
				}
			})
		})
	}
}

func TestTakeOverLeavesUtilitiesToTheirOwner(t *testing.T) { // 3.4
	withTools(t, hub.Options{}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		alice.posts(startC1)
		r.guest("b").connects(byForce)
		if calls := b.log(nil); len(calls) != 0 || len(r.Snapshot().State.ActiveUtilityCommands) != 1 {
			t.Errorf("got %q, want the command left alone", calls)
		}
	})
}

// What is being started while its owner goes must not outlive it.
func TestUtilityStartedForWhoHasGoneIsEnded(t *testing.T) {
	withTools(t, hub.Options{}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		b.gate = make(chan struct{})
		posted := make(chan error, 1)
		go func() { _, err := r.Send([]byte(startC1), "", alice.by); posted <- err }() // ends when the gate opens
		synctest.Wait()
		alice.disconnects()
		close(b.gate)
		if err := <-posted; err != nil {
			t.Errorf("got %v, want it answered", err)
		}
		wantEqual(t, "calls", b.log(map[string]string{alice.by.ConnectionID: "alice"}), []string{"disown alice", "disown alice"})
		if n := len(r.Snapshot().State.ActiveUtilityCommands); n != 0 {
			t.Errorf("got %d commands, want none", n)
		}
	})
}

func TestWhatEndsARunOrASessionEndsUtilities(t *testing.T) { // 1.12, 5.5
	for _, tt := range []struct {
		name string
		end  func(r *room, g *guest)
		want []string
	}{
		{"interrupt", func(r *room, g *guest) { g.posts(`{"type":"interrupt"}`) }, []string{"stop Interrupted"}},
		{"cancel", func(r *room, g *guest) { g.posts(`{"type":"cancel"}`) }, []string{"stop Cancelled"}},
		{"drain", func(r *room, g *guest) {
			r.Quiesce(context.Background(), "")
		}, []string{"stop Drained"}},
		{"shutdown", func(r *room, g *guest) { g.posts(`{"type":"shutdown"}`); <-r.Done() }, []string{"stop Headless runtime shutdown", "close"}},
		{"close", func(r *room, g *guest) { r.close() }, []string{"stop Headless runtime shutdown", "close"}},
		{"suspend", func(r *room, g *guest) { r.suspend() }, []string{"stop Headless runtime shutdown", "close"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withTools(t, hub.Options{}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
				alice.posts(startC1)
				alice.posts(startW1)
				stream, ended := r.guest("v").streams(contracts.StreamRequest{})
				r.arrived(stream)
				tt.end(r, alice)
				calls := slices.DeleteFunc(b.log(nil), func(call string) bool { return strings.HasPrefix(call, "disown") }) // the stream's end
				wantEqual(t, "calls", calls, tt.want)
				seen := strings.Join(r.arrived(stream), "\n")
				reason := strings.TrimPrefix(tt.want[0], "stop ")
				for _, want := range []string{`"utility_command_exited","command_id":"c1"`, `"utility_file_watch_stopped","watch_id":"w1"`, fmt.Sprintf(`"reason":%q`, reason)} {
					if !strings.Contains(seen, want) {
						t.Errorf("got %s, want %s", seen, want)
					}
				}
				stream.Close()
				<-ended
			})
		})
	}
}

func TestUtilitiesThatDoNotStopHoldUpNobodyForLong(t *testing.T) {
	log := &logged{}
	withTools(t, hub.Options{Log: log.logger()}, func(t *testing.T, r *room, b *toolbox, alice *guest) {
		b.stuck = true
		alice.posts(startC1)
		began := time.Now()
		alice.posts(`{"type":"interrupt"}`)
		if took := time.Since(began); took != 0 {
			t.Errorf("got interrupted after %v, want at once", took)
		}
		time.Sleep(time.Minute)
		log.wants(t, "stop utilities")
	})
}

func TestUtilitiesOfADeadProcessAreEndedAtTheNextStart(t *testing.T) {
	for _, checkpoint := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			store := journal.NewMemory(journal.MemoryOptions{})
			b := &toolbox{}
			r := openRoom(t, hub.Options{Store: store, Utilities: b, CheckpointBytes: checkpoint})
			alice := r.guest("a")
			alice.connects(contracts.AttachRequest{Capabilities: able})
			alice.posts(startC1)
			alice.posts(startW1)
			crashed, err := copyStore(store)
			if err != nil {
				t.Fatal(err)
			}
			cursor := int64(r.Cursor())
			r.close()
			r = openRoom(t, hub.Options{Store: crashed, Utilities: &toolbox{}})
			defer r.close()
			if st := r.Snapshot().State; len(st.ActiveUtilityCommands)+len(st.ActiveFileWatches) != 0 {
				t.Errorf("got %+v, want nothing running", st)
			}
			seen := strings.Join(r.arrived(r.guest("v").follows(from(cursor))), "\n")
			for _, want := range []string{
				`"utility_command_exited","command_id":"c1","success":false,"exit_code":null,"signal":null,"reason":"Server restarted while utility command was still running"`,
				`"utility_file_watch_stopped","watch_id":"w1","reason":"Server restarted while file watch was still running"`,
			} {
				if strings.Count(seen, want) != 1 {
					t.Errorf("got %s, want once %s", seen, want)
				}
			}
		})
	}
}
