package hub_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
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
