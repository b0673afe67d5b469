package hub_test

import (
	"context"
	"fmt"
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

const helloPeople = `{"type":"hello","client_info":{"name":"lantern"},"display_name":"Ann\u202e","capabilities":{"people":true,"raw_agent_events":true}}`

// events returns the events in the lines of a socket.
func (r *room) events(texts string) (events []contracts.Event) {
	r.t.Helper()
	for line := range strings.Lines(texts) {
		if m, ok := r.decode(line).(*contracts.MessageEnvelope); ok {
			ev, err := (&contracts.Decoder{Strict: true}).Event(m.Message)
			if err != nil {
				r.t.Fatal(err)
			}
			events = append(events, ev)
		}
	}
	return events
}

// eventOf returns the only event of a type.
func eventOf[E contracts.Event](t *testing.T, events []contracts.Event) (one E) {
	t.Helper()
	var all []E
	for _, ev := range events {
		if e, ok := ev.(E); ok {
			all = append(all, e)
		}
	}
	if len(all) != 1 {
		t.Fatalf("got %d of %T, want 1", len(all), one)
	}
	return all[0]
}

func TestPromptIsShownWithItsAuthor(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		ann := contracts.Principal{ID: "user_ann", Name: "Ann Lee"}
		watcher, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer}, helloPeople)
		stranger, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer})
		author, me := r.attach(contracts.Attach{Role: contracts.RoleController, Principal: ann}, helloPeople)
		r.send(author, `{"type":"prompt","content":"go","attachments":["notes/plan.md","`+strings.Repeat("x", 300)+`"]}`)
		events := r.events(r.until(watcher, `"agent_end"`))
		got := eventOf[*contracts.PromptAccepted](t, events)
		if i := slices.Index(events, contracts.Event(got)); i+1 == len(events) || events[i+1].EventType() != "raw_agent_event" {
			t.Errorf("got %v after the prompt, want agent_start", events[i+1:])
		}
		want := contracts.Author{
			Principal: "user_ann", Name: "Ann Lee", ClaimedName: "Ann", ClientInfo: &contracts.ClientInfo{Name: "lantern"}, ConnectionID: me.ConnectionID,
		}
		wantEqual(t, "author", got.Author, want)
		wantEqual(t, "attachments", got.Attachments, []string{"plan.md", strings.Repeat("x", contracts.MaxLabelBytes)})
		if got.PromptID == "" || got.Content != "go" || got.Truncated || got.Timestamp == "" {
			t.Errorf("got %+v", got)
		}
		hello := eventOf[*contracts.HelloOK](t, r.events(r.until(author, helloOK)))
		if !hello.ServerCapabilities.People || !hello.Capabilities.People {
			t.Errorf("got %+v, want people", hello)
		}
		if seen := r.until(stranger, `"response_end"`); strings.Contains(seen, "people") || strings.Contains(seen, "prompt_accepted") {
			t.Errorf("a client that did not ask got %s", seen)
		}
	})
}

func TestLongPromptIsShownCut(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.subscribes(contracts.AttachRequest{Role: contracts.RoleController, Capabilities: &contracts.AttachCapabilities{People: true}, DisplayName: "Al"})
		stream := alice.follows(alice.place(-1))
		alice.posts(`{"type":"prompt","content":"` + strings.Repeat(`\u0001`, 150_000) + `"}`)
		got := eventOf[*contracts.PromptAccepted](t, r.events(strings.Join(r.arrived(stream), "\n")))
		if len(got.Content) != contracts.MaxPromptBytes || !got.Truncated || got.Author.ClaimedName != "Al" {
			t.Errorf("got %d bytes, truncated %t, by %+v", len(got.Content), got.Truncated, got.Author)
		}
	})
}

// crashed returns a store as the next process finds it after a crash.
func crashed(t *testing.T, store journal.Store) journal.Store {
	t.Helper()
	next, err := copyStore(store)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// asking is an agent that asks for one approval in each run.
func asking() *player {
	n := 0
	return newPlayer(func(ctx context.Context, host contracts.Host, _ contracts.Work) error {
		n++
		_, err := host.Ask(ctx, question(contracts.RequestApproval, fmt.Sprint("q", n)), contracts.AskOptions{})
		return err
	})
}

func TestAnswerIsShownWithItsAuthor(t *testing.T) {
	inRoom(t, hub.Options{Agent: asking()}, func(t *testing.T, r *room) {
		watcher, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer}, helloPeople)
		author, me := r.attach(contracts.Attach{Role: contracts.RoleController, Principal: contracts.Principal{ID: "user_ann"}}, `{"type":"hello"}`)
		r.send(author, `{"type":"prompt","content":"go"}`)
		r.until(watcher, `"server_request"`)
		r.send(author, `{"type":"tool_response","call_id":"q1","approved":true}`)
		events := r.events(r.until(watcher, `"agent_end"`))
		got := eventOf[*contracts.ServerRequestResolved](t, events)
		want := contracts.ServerRequestResolved{
			RequestID: "q1", RequestType: contracts.RequestApproval, CallID: "q1", Resolution: contracts.VerdictApproved,
			Reason: "Approved", ResolvedBy: contracts.ResolvedByUser, Timestamp: got.Timestamp,
			Author: &contracts.Author{Principal: "user_ann", Name: "user_ann", ConnectionID: me.ConnectionID},
		}
		wantEqual(t, "answer", *got, want)
		if got := eventOf[*contracts.ServerRequestResolved](t, r.events(r.until(author, `"response_end"`))); got.Author != nil || got.Timestamp != "" {
			t.Errorf("without people: got %+v, want no author", got)
		}

		r.send(author, `{"type":"prompt","content":"go"}`)
		r.until(watcher, `"server_request"`)
		if _, _, err := r.Decide("q2", false, "no", "", contracts.Principal{ID: "share_1", Name: "guest"}); err != nil {
			t.Fatal(err)
		}
		got = eventOf[*contracts.ServerRequestResolved](t, r.events(r.until(watcher, `"agent_end"`)))
		wantEqual(t, "author of a decision", *got.Author, contracts.Author{Principal: "share_1", Name: "guest"})

		r.send(author, `{"type":"prompt","content":"go"}`)
		r.until(watcher, `"server_request"`)
		r.send(author, `{"type":"interrupt"}`) // ends the question without an answer
		got = eventOf[*contracts.ServerRequestResolved](t, r.events(r.until(watcher, `"agent_end"`)))
		if got.Author != nil {
			t.Errorf("interrupted: got %+v, want no author", got)
		}
	})
}

// An answer whose event has no room for the author is shown without the author.
func TestLongAnswerIsShownWithoutItsAuthor(t *testing.T) {
	inRoom(t, hub.Options{Agent: asking()}, func(t *testing.T, r *room) {
		watcher, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer}, helloPeople)
		author, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.send(author, `{"type":"prompt","content":"go"}`)
		r.until(watcher, `"server_request"`)
		reason := strings.Repeat("x", contracts.MaxEventBytes-200)
		if _, _, err := r.Decide("q1", false, reason, "", contracts.Principal{ID: "share_1", Name: "guest"}); err != nil {
			t.Fatal(err)
		}
		got := eventOf[*contracts.ServerRequestResolved](t, r.events(r.until(watcher, `"agent_end"`)))
		if got.Reason != reason || got.Author != nil {
			t.Errorf("got a reason of %d bytes by %+v, want %d by nobody", len(got.Reason), got.Author, len(reason))
		}
		if st := r.Snapshot().State; len(st.PendingRequests) > 0 {
			t.Errorf("got %+v, want nothing pending", st.PendingRequests)
		}
	})
}

func TestEachMoveOfControlIsShown(t *testing.T) {
	inRoom(t, hub.Options{}, func(t *testing.T, r *room) {
		watcher, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer}, helloPeople)
		moved := func(from, to string, why contracts.LeaseReason) {
			t.Helper()
			var got *contracts.ControlChanged
			for got == nil {
				for _, ev := range r.events(r.until(watcher, `"control_changed"`)) {
					if ev, ok := ev.(*contracts.ControlChanged); ok {
						got = ev
					}
				}
			}
			name := func(a *contracts.Author) string {
				if a == nil {
					return ""
				}
				return a.Principal
			}
			if name(got.From) != from || name(got.To) != to || got.Reason != why {
				t.Errorf("got %+v to %+v, %s; want %q to %q, %s", got.From, got.To, got.Reason, from, to, why)
			}
		}
		as := func(id string) contracts.Attach {
			return contracts.Attach{Role: contracts.RoleController, Principal: contracts.Principal{ID: id}, Takeover: contracts.TakeoverForce}
		}
		ann, _ := r.attach(as("ann"))
		moved("", "ann", contracts.LeaseGranted)
		bob, _ := r.attach(as("bob"))
		moved("ann", "bob", contracts.LeaseTakenOver)
		r.send(bob, `{"type":"ws.release_control"}`)
		moved("bob", "", contracts.LeaseReleased)
		r.send(ann, `{"type":"init"}`)
		moved("", "ann", contracts.LeaseGranted)
		r.send(ann, `{"type":"ws.bye"}`)
		moved("ann", "", contracts.LeaseReleased)
		late, _ := r.attach(contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater}, `{"type":"hello","role":"controller"}`)
		moved("", "", contracts.LeaseGranted)
		late.Close()
		time.Sleep(contracts.DefaultLeaseTTL + contracts.DefaultSubscriptionTTL)
		moved("", "", contracts.LeaseExpired)
	})
}

func TestSnapshotsHaveThePeopleForThoseWhoAsk(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{})
	opts := hub.Options{Store: store, CheckpointBytes: 1} // each transaction makes a checkpoint
	inRoom(t, opts, func(t *testing.T, r *room) {
		alice := r.guest("a")
		withPeople := contracts.AttachRequest{Role: contracts.RoleController, Capabilities: &contracts.AttachCapabilities{People: true}}
		alice.subscribes(withPeople)
		answer := alice.posts(`{"type":"prompt","content":"first"}`)
		check := func(what string, snap *contracts.Snapshot, want bool) {
			t.Helper()
			people := snap.State.People
			if !want && people != nil {
				t.Errorf("%s: got %+v, want none", what, people)
			}
			if want && (people == nil || len(people.Prompts) != 1 || people.Prompts[0].Content != "first" || people.Controller == nil || people.Controller.Principal != "a") {
				t.Errorf("%s: got %+v, want the prompt and its author", what, people)
			}
		}
		check("answer", stateIn(t, answer.Snapshot), true)
		state, err := r.State()
		if err != nil {
			t.Fatal(err)
		}
		check("state", stateIn(t, state), false)
		synctest.Wait()
		attached := func(r *room, hello string) *contracts.Snapshot {
			t.Helper()
			p, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer}, hello)
			defer p.Close()
			frame, ok := r.last(r.until(p, `"type":"snapshot"`)).(*contracts.SnapshotEnvelope)
			if !ok {
				t.Fatal("got no snapshot")
			}
			return stateIn(t, frame.Snapshot)
		}
		for _, want := range []bool{true, false, true} {
			hello := `{"type":"hello"}`
			if want {
				hello = helloPeople
			}
			check("snapshot", attached(r, hello), want)
		}
		bob := r.guest("b")
		plain := contracts.AttachRequest{Role: contracts.RoleViewer}
		check("answer to another", stateIn(t, bob.subscribes(plain).Snapshot), false)

		opts.Store = crashed(t, store)
		next := openRoom(t, opts)
		defer next.close()
		check("after a restart", attached(next, helloPeople), true)
	})
}

// The local client cannot come back, so the next process says that it lost control.
func TestControllerOfAnEarlierProcessIsCorrected(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{})
	inRoom(t, hub.Options{Store: store}, func(t *testing.T, r *room) {
		conn, peer := memconn.New(memconn.Options{})
		go func() { _ = r.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{}) }() // ends with the peer
		r.send(peer, `{"type":"hello","capabilities":{"people":true}}`)
		r.until(peer, helloOK)
		r.send(peer, `{"type":"prompt","content":"go"}`)
		got := r.until(peer, `"response_end"`)
		if !strings.Contains(got, `"type":"prompt_accepted"`) || !strings.Contains(got, `"author":{"principal":"","name":"local","connection_id":"local"}`) {
			t.Errorf("got %s, want the prompt with its author", got)
		}
		if holder := r.Snapshot().State.People.Controller; holder == nil || holder.ConnectionID != "local" {
			t.Errorf("got %+v, want the local client", holder)
		}
		next := openRoom(t, hub.Options{Store: crashed(t, store)})
		defer next.close()
		people := next.Snapshot().State.People
		if people.Controller != nil || len(people.Prompts) != 1 {
			t.Errorf("got %+v, want the prompt and no controller", people)
		}
	})
}
