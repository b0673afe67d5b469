package hub_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// picky is an agent that says beforehand what it cannot serve.
type picky struct{ echo }

func (*picky) Check(content string) error {
	if content == "unfit" {
		return &contracts.Error{Code: contracts.CodeBadRequest, Message: "not with me"}
	}
	return nil
}

// TestMessagesAreCheckedInOrder puts together what is wrong with a message, from
// the last thing that is looked at to the first: each is told only while
// nothing before it is wrong (1.12).
func TestMessagesAreCheckedInOrder(t *testing.T) {
	const (
		unable   = `{"type":"utility_file_read","read_id":"r","path":"x"}`
		nonsense = `{"type":"nonsense"}`
	)
	inRoom(t, hub.Options{Agent: &picky{}}, func(t *testing.T, r *room) {
		alice, bob, viewer, mallory := r.guest("a"), r.guest("a"), r.guest("a"), r.guest("m")
		alice.subscribes(asController)
		bob.subscribes(byForce)
		alice.connects(byForce)
		viewer.subscribes(asViewer)
		mallory.subscribes(asViewer)
		mine := alice.by
		not := func(change func(by *contracts.Caller)) contracts.Caller {
			by := mine
			change(&by)
			return by
		}
		for _, tt := range []struct {
			what string
			text string
			by   contracts.Caller
			code contracts.Code
			want string
		}{
			{"state", `{"type":"server_request_response","request_type":"approval","request_id":"none","approved":true}`, mine, contracts.CodeRequestNotFound, ""},
			{"state", `{"type":"prompt","content":"unfit"}`, mine, contracts.CodeBadRequest, "not with me"},
			{"capability", unable, mine, contracts.CodeUnsupportedCapability, ""},
			{"missing key", `{"type":"prompt"}`, mine, contracts.CodeBadRequest, ""},
			{"type", nonsense, mine, contracts.CodeBadRequest, ""},
			{"no JSON", `{`, mine, contracts.CodeBadRequest, ""},
			{"lease before message", nonsense, bob.by, contracts.CodeControllerLeaseHeld, "Controller lease is currently held by another connection"},
			{"lease before capability", unable, bob.by, contracts.CodeControllerLeaseHeld, ""},
			{"lease before fitness", `{"type":"prompt","content":"unfit"}`, bob.by, contracts.CodeControllerLeaseHeld, ""},
			{"role before message", nonsense, viewer.by, contracts.CodeAccessDenied, "Viewer headless connections cannot send messages"},
			{"role: hello", `{"type":"hello"}`, viewer.by, contracts.CodeAccessDenied, ""}, // A38
			{"role: interrupt", `{"type":"interrupt"}`, viewer.by, contracts.CodeAccessDenied, ""},
			{"role of the connection, whatever the header", nonsense, func() contracts.Caller { // A39
				by := viewer.by
				by.Role = contracts.RoleController
				return by
			}(), contracts.CodeAccessDenied, ""},
			{"role in the header", nonsense, not(func(by *contracts.Caller) { by.Role = contracts.RoleViewer }), contracts.CodeAccessDenied, ""},
			{"role of the credential", nonsense, not(func(by *contracts.Caller) { by.Principal.Role = contracts.RoleViewer }), contracts.CodeAccessDenied, ""},
			{"role in the header, and no connection", nonsense, contracts.Caller{Principal: mine.Principal, Role: contracts.RoleViewer}, contracts.CodeAccessDenied, "Viewer headless connections cannot send messages"},
			{"role of the credential, and no connection", nonsense, contracts.Caller{Principal: contracts.Principal{ID: "a", Role: contracts.RoleViewer}}, contracts.CodeAccessDenied, ""},
			{"role in the header, and an unknown subscription", nonsense, contracts.Caller{Principal: mine.Principal, Role: contracts.RoleViewer, SubscriptionID: "sub_nobody"}, contracts.CodeAccessDenied, ""},
			{"subscription of another connection", nonsense, not(func(by *contracts.Caller) { by.SubscriptionID = viewer.by.SubscriptionID }), contracts.CodeAccessDenied, "Headless subscription does not belong to the message connection"},
			{"owner before role", nonsense, not(func(by *contracts.Caller) { by.SubscriptionID, by.ConnectionID = "", mallory.by.ConnectionID }), contracts.CodeStaleConnection, "Headless connection not found"},
			{"secret before role", nonsense, func() contracts.Caller {
				by := viewer.by
				by.SubscriptionID, by.Token = "", "guessed"
				return by
			}(), contracts.CodeStaleConnection, ""},
			{"unknown connection", nonsense, not(func(by *contracts.Caller) { by.SubscriptionID, by.ConnectionID = "", "conn_nobody" }), contracts.CodeStaleConnection, "Headless connection not found"},
			{"nobody, while the lease is held", nonsense, not(func(by *contracts.Caller) { by.SubscriptionID, by.ConnectionID = "", "" }), contracts.CodeStaleConnection, "Headless connection not found"},
			{"unknown subscription", nonsense, not(func(by *contracts.Caller) { by.SubscriptionID = "sub_nobody" }), contracts.CodeStaleSubscription, "Headless subscriber not found"},
			{"somebody's subscription", nonsense, not(func(by *contracts.Caller) { by.SubscriptionID = mallory.by.SubscriptionID }), contracts.CodeStaleSubscription, "Headless subscriber not found"},
			{"somebody's subscription alone", nonsense, not(func(by *contracts.Caller) { by.ConnectionID, by.SubscriptionID = "", mallory.by.SubscriptionID }), contracts.CodeStaleSubscription, ""},
			{"somebody's subscription and connection", nonsense, not(func(by *contracts.Caller) {
				by.ConnectionID, by.SubscriptionID = mallory.by.ConnectionID, mallory.by.SubscriptionID
			}), contracts.CodeStaleSubscription, ""},
		} {
			cursor := r.Cursor()
			_, err := r.Send([]byte(tt.text), "", tt.by)
			wantCode(t, err, tt.code)
			if err != nil && tt.want != "" && err.Error() != tt.want {
				t.Errorf("%s: got %q, want %q", tt.what, err, tt.want)
			}
			if t.Failed() || r.Cursor() != cursor {
				t.Fatalf("%s: got cursor %d, want nothing published since %d", tt.what, r.Cursor(), cursor)
			}
		}
		r.Quiesce(t.Context(), "")
		_, err := r.Send([]byte(nonsense), "", contracts.Caller{}) // readiness before everything
		wantRefusal(t, err, contracts.CodeRuntimeNotReady, "hosted runner is draining")
		if _, _, err = r.Subscribe(&asViewer, contracts.Caller{ConnectionID: "conn_nobody"}); err == nil {
			t.Error("got a subscription of a session that is draining")
		}
		wantRefusal(t, err, contracts.CodeRuntimeNotReady, "hosted runner is not accepting new attachments")
	})
}

func TestSubscriptionOrConnectionAloneSaysWhoSends(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		conn, sub := alice.by.ConnectionID, alice.by.SubscriptionID
		for _, ids := range [][2]string{{conn, ""}, {"", sub}, {conn, sub}, {"conn_gone", sub}} { // a subscription knows its connection
			alice.by.ConnectionID, alice.by.SubscriptionID = ids[0], ids[1]
			alice.posts(`{"type":"init"}`)
		}
	})
}

func TestAnswerShowsWhatTheMessageDid(t *testing.T) { // 1.12
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		got := alice.posts(`{"type":"init","approval_mode":"auto"}`)
		snap := stateIn(t, got.Snapshot)
		wantEqual(t, "answer", contracts.MessageAnswer{
			OK: got.OK, Success: got.Success, Accepted: got.Accepted, Cursor: got.Cursor, Execution: got.Execution, PublishedMessages: got.PublishedMessages, Message: got.Message,
		}, contracts.MessageAnswer{
			OK: true, Success: true, Accepted: true, Cursor: r.Cursor(), Execution: "runtime_handled", PublishedMessages: 1, Message: "handled",
		})
		if snap.Cursor != got.Cursor || *snap.State.LastStatus != "Initialized: approval_mode" || len(snap.LastInit) == 0 {
			t.Errorf("snapshot: got %+v, want init done at cursor %d", snap, got.Cursor)
		}
		if got := alice.posts(`{"type":"prompt","content":"hi"}`); got.PublishedMessages != 2 { // what the agent says comes later
			t.Errorf("prompt: got %d messages, want the start of the run", got.PublishedMessages)
		}
		synctest.Wait()
		if got := alice.posts(`{"type":"hello"}`); got.Execution != "transport_only" {
			t.Errorf("hello: got %s, want transport_only", got.Execution)
		}
	})
}

func TestBusyRunIsNotDisturbed(t *testing.T) { // A71
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		stream := alice.follows(alice.place(-1))
		alice.posts(`{"type":"prompt","content":"ask"}`)
		r.until(stream, `"server_request"`)
		_, err := r.Send([]byte(`{"type":"prompt","content":"second"}`), "", alice.by)
		wantCode(t, err, contracts.CodeRuntimeBusy)
		wrong := `{"type":"server_request_response","request_type":"user_input","request_id":"r1","content":[]}`
		_, err = r.Send([]byte(wrong), "", alice.by)
		wantCode(t, err, contracts.CodeRequestTypeMismatch)
		got := alice.posts(`{"type":"server_request_response","request_type":"approval","request_id":"r1","approved":true}`)
		if st := stateIn(t, got.Snapshot).State; len(st.PendingRequests) != 0 {
			t.Errorf("got %+v, want the question answered", st.PendingRequests)
		}
		r.until(stream, `"content":"ask"`)
	})
}

func TestFreeLeaseIsTakenByAnAcceptedMessageAlone(t *testing.T) { // A30, A35
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice, bob := r.guest("a"), r.guest("b")
		alice.connects(asController)
		bob.connects(byForce)
		bob.disconnects()
		r.wantHolder("")
		_, err := r.Send([]byte(`{"type":"init"}`), "", contracts.Caller{Principal: alice.by.Principal})
		wantCode(t, err, contracts.CodeStaleConnection)
		for text, code := range map[string]contracts.Code{
			`{"type":"nonsense"}`: contracts.CodeBadRequest,
			`{"type":"server_request_response","request_type":"approval","request_id":"none","approved":true}`: contracts.CodeRequestNotFound,
			`{"type":"utility_file_read","read_id":"r","path":"x"}`:                                            contracts.CodeUnsupportedCapability,
		} {
			alice.refusedPost(text, code)
			r.wantHolder("")
		}
		alice.posts(`{"type":"hello"}`) // greets, and drives nothing
		r.wantHolder("")
		alice.posts(`{"type":"interrupt"}`)
		r.wantHolder(alice.by.ConnectionID)
	})
}

func TestInterruptOverHTTPCancelsAndThenShowsTheState(t *testing.T) { // A69
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(asController)
		stream := alice.follows(alice.place(-1))
		alice.posts(`{"type":"prompt","content":"ask"}`)
		r.until(stream, `"server_request"`)
		alice.posts(`{"type":"interrupt"}`)
		seen := r.until(stream, `{"type":"snapshot"`)
		if !strings.Contains(seen, `"resolution":"cancelled"`) {
			t.Errorf("got %s, want the cancellation first", seen)
		}
		snap, _ := r.snapshotIn(lastLine(seen))
		if len(snap.State.PendingRequests) != 0 {
			t.Errorf("got %+v, want nothing pending", snap.State.PendingRequests)
		}
	})
}

func lastLine(texts string) string {
	lines := strings.Split(strings.TrimSpace(texts), "\n")
	return lines[len(lines)-1]
}

func TestNewPromptWaitsForTheInterruptedRun(t *testing.T) {
	leave := make(chan struct{})
	agent := newPlayer(func(ctx context.Context, host contracts.Host, work contracts.Work) error {
		if work.Content == "first" {
			<-ctx.Done()
			time.Sleep(time.Second)
			close(leave)
		}
		return nil
	})
	synctest.Test(t, func(t *testing.T) {
		leave = make(chan struct{})
		r := openRoom(t, hub.Options{Agent: agent})
		alice := r.guest("a")
		alice.connects(asController)
		alice.posts(`{"type":"prompt","content":"first"}`)
		alice.posts(`{"type":"interrupt"}`)
		alice.posts(`{"type":"prompt","content":"second"}`)
		select {
		case <-leave:
		default:
			t.Error("got the second run before the first had ended")
		}
		r.close()
	})
}

// hasty is an agent whose runs end at once, or never.
type hasty struct{ *player }

func (h hasty) Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	info, err := h.player.Start(ctx, host)
	info.Immediate = true
	return info, err
}

func TestAnswerWaitsAMomentForAnAgentThatIsDoneAtOnce(t *testing.T) {
	inRoom(t, hub.Options{Agent: hasty{newPlayer(func(ctx context.Context, host contracts.Host, work contracts.Work) error {
		if work.Content == "slow" {
			<-ctx.Done()
			return nil
		}
		return host.Publish(ctx, &contracts.Status{Message: "did " + work.Content})
	})}}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.connects(asController)
		if st := stateIn(t, alice.posts(`{"type":"prompt","content":"it"}`).Snapshot).State; *st.LastStatus != "did it" {
			t.Errorf("got status %q, want that of the run", *st.LastStatus)
		}
		synctest.Wait()
		began := time.Now()
		alice.posts(`{"type":"prompt","content":"slow"}`)
		if took := time.Since(began); took <= 0 || took > time.Second {
			t.Errorf("got the answer after %v, want it after a moment", took)
		}
	})
}

func TestUnknownKeysAreCountedOrRefused(t *testing.T) { // A64, D13
	for _, strict := range []bool{false, true} {
		inRoom(t, hub.Options{Strict: strict}, func(t *testing.T, r *room) {
			alice := r.guest("a")
			alice.connects(asController)
			_, err := r.Send([]byte(`{"type":"init","more":1}`), "", alice.by)
			if strict {
				wantCode(t, err, contracts.CodeBadRequest)
			} else if err != nil {
				t.Errorf("got %v, want the key ignored", err)
			}
			if got, want := r.Metrics().UnknownKeys.Load() > 0, !strict; got != want {
				t.Errorf("unknown keys counted: got %t, want %t", got, want)
			}
		})
	}
}

func TestFailedSessionTakesNoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &balky{Store: journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store})
		alice := r.guest("a")
		alice.subscribes(asController)
		store.appending = errors.New("disk full")
		for range 2 { // the first was accepted before the store was asked, and is not kept
			_, err := r.Send([]byte(`{"type":"init"}`), "", alice.by)
			wantCode(t, err, contracts.CodeRuntimeNotReady)
		}
		_, _, err := r.Connect(&asViewer, r.guest("v").by)
		wantCode(t, err, contracts.CodeRuntimeNotReady)
		wantCode(t, r.MayStream(contracts.StreamRequest{}, r.guest("v").by), contracts.CodeRuntimeNotReady)
		<-r.Done()
		r.close()
	})
}

func TestConnectionThatCannotBeKeptIsRefused(t *testing.T) { // D4
	synctest.Test(t, func(t *testing.T) {
		store := &balky{Store: journal.NewMemory(journal.MemoryOptions{})}
		r := openRoom(t, hub.Options{Store: store})
		store.appending = errors.New("disk full")
		_, _, err := r.Subscribe(&asController, r.guest("a").by)
		wantCode(t, err, contracts.CodeRuntimeNotReady)
		<-r.Done()
		r.close()
	})
}

// With the group commit nothing is told before it is on the disk, answers
// included.
func TestAnswersWaitForTheGroupCommit(t *testing.T) { // D4
	for name, ask := range map[string]func(r *room, by contracts.Caller) error{
		"send": requests[0].do,
		"subscribe": func(r *room, by contracts.Caller) error {
			_, _, err := r.Subscribe(&asViewer, contracts.Caller{})
			return err
		},
		"connect": func(r *room, by contracts.Caller) error {
			_, _, err := r.Connect(&asViewer, contracts.Caller{})
			return err
		},
		"state": func(r *room, by contracts.Caller) error {
			go func() { _, _ = r.Send([]byte(`{"type":"init"}`), "", by) }() // ends like it
			time.Sleep(time.Millisecond)                                     // of the bubble's time: it is on its way
			_, err := r.State()
			return err
		},
	} {
		for _, syncing := range []error{nil, errors.New("disk on fire")} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &balky{Store: journal.NewMemory(journal.MemoryOptions{})}
					r := openRoom(t, hub.Options{Store: store, GroupCommit: true})
					alice := r.guest("a")
					alice.connects(asController)
					synctest.Wait()
					release := store.hold()
					answered := make(chan error, 1)
					go func() { answered <- ask(r, alice.by) }() // ends once the store has synced
					time.Sleep(2 * time.Millisecond)
					synctest.Wait()
					select {
					case err := <-answered:
						t.Errorf("got %v before the store has synced", err)
					default:
					}
					store.syncing = syncing
					release()
					if err := <-answered; syncing == nil && err != nil {
						t.Errorf("got %v, want it answered", err)
					} else if syncing != nil {
						wantCode(t, err, contracts.CodeRuntimeNotReady)
					}
					synctest.Wait()
					store.syncing = nil
					r.close()
				})
			})
		}
	}
}
