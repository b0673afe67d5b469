package hub_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A witness is an observer that writes down what it is told.
type witness struct {
	mu       sync.Mutex
	said     []string
	entries  int
	bytes    int
	earliest time.Time
}

func (w *witness) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

func (w *witness) Attached(role contracts.Role, transport string) { w.note("+%s %s", role, transport) }
func (w *witness) Detached(role contracts.Role, transport string) { w.note("-%s %s", role, transport) }
func (w *witness) Refused(code contracts.Code)                    { w.note("refused %s", code) }
func (w *witness) Reset(why contracts.ResetReason)                { w.note("reset %s", why) }
func (w *witness) LeaseMoved(why contracts.LeaseReason)           { w.note("lease %s", why) }
func (w *witness) RunEnded(time.Time)                             { w.note("run ended") }

func (w *witness) Appended(entries, bytes int, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries, w.bytes = w.entries+entries, w.bytes+bytes
}

func (w *witness) Accepted(cmd contracts.Command, trace string, at time.Time) {
	w.note("accepted %s %s", cmd.CommandType(), trace)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.earliest.IsZero() {
		w.earliest = at
	}
}

func (w *witness) Published(ev contracts.Event, _ time.Time) { w.note("%s", ev.EventType()) }

// heard returns what it was told so far, but for who is present, and forgets it.
func (w *witness) heard() (said []string) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	said, w.said = w.said, nil
	return slices.DeleteFunc(said, func(s string) bool { return s == "connection_info" })
}

// told counts how often the room's observer was told something.
func (r *room) told(what string) (n int) {
	r.witness.mu.Lock()
	defer r.witness.mu.Unlock()
	for _, said := range r.witness.said {
		if said == what {
			n++
		}
	}
	return n
}

// observed runs a test in a room with a witness who has seen its start.
func observed(t *testing.T, opts hub.Options, test func(t *testing.T, r *room, w *witness)) {
	w := &witness{}
	opts.Observer = w
	inRoom(t, opts, func(t *testing.T, r *room) {
		wantEqual(t, "start", w.heard(), []string{"ready", "session_info"})
		test(t, r, w)
	})
}

func TestObserverIsToldWhatHappensInOrder(t *testing.T) {
	observed(t, hub.Options{}, func(t *testing.T, r *room, w *witness) {
		alice, bob := r.guest("a"), r.guest("b")
		said := func(what string, want ...string) {
			t.Helper()
			if got := w.heard(); !slices.Equal(got, want) {
				t.Errorf("%s:\n got %q\nwant %q", what, got, want)
			}
		}
		alice.subscribes(asController)
		said("subscribe", "lease granted")
		stream := alice.follows(alice.place(-1))
		said("stream", "+controller sse")
		alice.by.Trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		alice.posts(`{"type":"prompt","content":"hi"}`)
		said("prompt", "accepted prompt "+alice.by.Trace, "raw_agent_event", "raw_agent_event", "response_start", "response_chunk", "response_end", "raw_agent_event", "run ended")
		bob.refusedPost(`{"type":"init"}`, contracts.CodeStaleConnection)
		said("refusal", "refused stale_connection")
		socket, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer})
		said("socket", "+viewer ws")
		r.send(socket, `{"type":"interrupt"}`)
		said("refusal on a socket", "refused access_denied")
		bob.connects(byForce)
		said("take-over", "lease taken_over")
		bob.disconnects()
		said("disconnect", "lease released")
		alice.posts(`{"type":"interrupt"}`)
		said("claim", "accepted interrupt "+alice.by.Trace, "lease granted")
		r.guest("v").follows(from(1 << 40))
		said("reset", "+viewer sse", "reset replay_gap")
		stream.Close()
		said("the end of a stream", "-controller sse")
		time.Sleep(subTTL)
		said("silence", "lease expired")
		socket.Close()
		said("the end of a socket", "-viewer ws")
		_, _, err := r.Connect(&contracts.AttachRequest{ConnectionID: "conn_gone"}, bob.by)
		wantCode(t, err, contracts.CodeStaleConnection)
		wantCode(t, r.MayStream(contracts.StreamRequest{SubscriptionID: "sub_gone"}, bob.by), contracts.CodeStaleSubscription)
		said("refusals", "refused stale_connection", "refused stale_subscription")
		if w.entries != int(r.Cursor()) || w.bytes == 0 {
			t.Errorf("got %d entries of %d bytes, want %d", w.entries, w.bytes, r.Cursor())
		}
	})
}

func TestObserverIsToldOfUtilitiesAndLocalClients(t *testing.T) {
	b := &toolbox{}
	observed(t, hub.Options{Utilities: b, Shared: true}, func(t *testing.T, r *room, w *witness) {
		alice := r.guest("a")
		alice.connects(contracts.AttachRequest{Capabilities: able})
		alice.by.Trace = "00-trace-01"
		alice.posts(startC1)
		if got, want := w.heard(), []string{"lease granted", "accepted utility_command_start 00-trace-01", "utility_command_started"}; !slices.Equal(got, want) {
			t.Errorf("utility: got %q, want %q", got, want)
		}
		alice.disconnects()
		w.heard()
		conn, local := memconn.New(memconn.Options{Bare: true})
		served := make(chan error, 1)
		go func() { served <- r.Serve(context.Background(), conn, hub.WireBare, &contracts.Attach{}) }() // ends with its input
		if got, want := w.heard(), []string{"+controller stdio", "lease granted"}; !slices.Equal(got, want) {
			t.Errorf("local client: got %q, want %q", got, want)
		}
		r.send(local, `{"type":"hello","role":"viewer"}`)
		if got, want := w.heard(), []string{"accepted hello ", "lease released"}; !slices.Equal(got, want) {
			t.Errorf("a viewer after all: got %q, want %q", got, want)
		}
		local.Close()
		<-served
		<-r.Done()
		if got := strings.Join(w.heard(), " "); !strings.Contains(got, "-controller stdio") {
			t.Errorf("the end: got %q, want the client gone", got)
		}
	})
}

func TestObserverIsToldTheTime(t *testing.T) {
	observed(t, hub.Options{}, func(t *testing.T, r *room, w *witness) {
		alice := r.guest("a")
		alice.connects(asController)
		time.Sleep(time.Second)
		alice.posts(`{"type":"init"}`)
		if !w.earliest.Equal(time.Now()) {
			t.Errorf("got %v, want %v", w.earliest, time.Now())
		}
	})
}
