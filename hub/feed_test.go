package hub_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// withPuppet runs a test with a session of its own.
func withPuppet(t *testing.T, opts hub.Options, test func(t *testing.T, h *hub.Hub, agent *puppet)) {
	synctest.Test(t, func(t *testing.T) {
		agent := newPuppet()
		opts.SessionID, opts.Agent, opts.Cwd = "s", agent, "/"
		if opts.Store == nil {
			opts.Store = journal.NewMemory(journal.MemoryOptions{})
		}
		h, err := hub.New(opts)
		if err == nil {
			err = h.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = h.Close(context.Background()) }() // the test may have closed it
		test(t, h, agent)
	})
}

// drive makes a controller and returns what sends its commands.
func drive(t *testing.T, h *hub.Hub) func(command string) error {
	t.Helper()
	answer, token, err := h.Connect(&contracts.AttachRequest{}, contracts.Caller{Principal: contracts.Principal{ID: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	by := contracts.Caller{Principal: contracts.Principal{ID: "p"}, ConnectionID: answer.ConnectionID, Token: token}
	return func(command string) error { return h.Post([]byte(command), "", by, func([]byte) {}) }
}

// fed returns the events up to one of a type.
func fed(t *testing.T, f *hub.Follower, until string) (all []contracts.FedEvent) {
	t.Helper()
	for {
		feed, err := f.Next(t.Context())
		if err != nil {
			t.Fatalf("got %v after %d events, want %s", err, len(all), until)
		}
		for _, ev := range feed.Events {
			if n := len(all); n > 0 && ev.Cursor <= all[n-1].Cursor || ev.Time.IsZero() {
				t.Errorf("got cursor %d at %s after %d events, want a later one with its time", ev.Cursor, ev.Time, n)
			}
			if all = append(all, ev); ev.Event.EventType() == until {
				return all
			}
		}
	}
}

func TestFollowerIsNoClient(t *testing.T) {
	withPuppet(t, hub.Options{}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		before := h.Cursor()
		f := h.Follow("", 0)
		defer f.Close()
		fed(t, f, "session_info")
		if sum := h.Summary(); sum.Connections != 0 || h.Followers() != 0 || h.Cursor() != before {
			t.Errorf("got %+v at cursor %d, want no connection and no event", sum, h.Cursor())
		}
		send := drive(t, h)
		if err := send(`{"type":"prompt","content":"hello"}`); err != nil {
			t.Fatal(err)
		}
		raw := 0
		for _, ev := range fed(t, f, "raw_agent_event") {
			if _, ok := ev.Event.(*contracts.RawAgentEvent); ok {
				raw++
			}
		}
		if raw == 0 {
			t.Error("got no raw agent event")
		}
		agent.orders <- end(nil)
		fed(t, f, "response_start")
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := f.Next(t.Context()); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("got %v at the end, want EOF", err)
				}
				return
			}
		}
	})
}

func TestFollowerContinuesInTheNextProcess(t *testing.T) {
	dir := t.TempDir()
	store := func() journal.Store {
		s, err := journal.Open(dir, journal.FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	feed := contracts.Feed{}
	withPuppet(t, hub.Options{Store: store()}, func(t *testing.T, h *hub.Hub, _ *puppet) {
		var err error
		if feed, err = h.Follow("", 0).Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	withPuppet(t, hub.Options{Store: store()}, func(t *testing.T, h *hub.Hub, _ *puppet) {
		next, err := h.Follow(feed.Epoch, feed.Cursor).Next(t.Context())
		if err != nil || next.Reset != nil || len(next.Events) == 0 || next.Events[0].Cursor <= feed.Cursor {
			t.Errorf("got %+v, %v after %d, want what follows", next, err, feed.Cursor)
		}
	})
}

// A faultyStore reads some entries as a text that is no event, and then fails.
type faultyStore struct {
	journal.Store
	garbled, lost string
}

func (s *faultyStore) Read(after uint64, do func(journal.Entry) bool) error {
	var failed error
	err := s.Store.Read(after, func(e journal.Entry) bool {
		if s.lost != "" && bytes.Contains(e.Body, []byte(s.lost)) {
			failed = journal.ErrCorrupt
			return false
		}
		if s.garbled != "" && bytes.Contains(e.Body, []byte(s.garbled)) {
			e.Body = []byte(`{"type":`)
		}
		return do(e)
	})
	return cmp.Or(err, failed)
}

func TestFollowerGoesOnAfterDamage(t *testing.T) {
	store := &faultyStore{Store: journal.NewMemory(journal.MemoryOptions{})}
	withPuppet(t, hub.Options{Store: store}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		fed(t, h.Follow("", 0), "session_info")
		store.garbled = `"session_info"`
		f := h.Follow("", 0)
		feed, err := f.Next(t.Context())
		missing := 0
		for _, ev := range feed.Events {
			if ev.Event == nil {
				missing++
			}
		}
		if err != nil || missing == 0 || missing == len(feed.Events) || feed.Cursor != h.Cursor() {
			t.Errorf("got %d of %d events missing up to %d, %v; want one and the others", missing, len(feed.Events), feed.Cursor, err)
		}
		store.lost = store.garbled
		f = h.Follow("", 0)
		for feed, err = f.Next(t.Context()); err == nil && feed.Reset == nil; feed, err = f.Next(t.Context()) {
		}
		if err != nil || feed.Cursor != h.Cursor() {
			t.Errorf("got %+v, %v; want the state after entries that cannot be read", feed, err)
		}
	})
}

// TestSessionWhoseFirstWriteWasCutOff opens a store whose process was killed after it had
// reserved cursors and before it had written an entry.
func TestSessionWhoseFirstWriteWasCutOff(t *testing.T) {
	open := func(dir string) *journal.File {
		s, err := journal.Open(dir, journal.FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	dir, origin := t.TempDir(), t.TempDir()
	s := open(origin)
	if err := s.Append([]journal.Entry{{Cursor: 1, Kind: journal.Note, Time: 1}}); err != nil {
		t.Fatal(err)
	}
	meta, err := os.ReadFile(filepath.Join(origin, "meta.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "meta.json"), meta, 0o600)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		withPuppet(t, hub.Options{Store: open(dir)}, func(t *testing.T, h *hub.Hub, _ *puppet) {
			fed(t, h.Follow("", 0), "session_info")
		})
	}
}

func TestFollowerSeesWhatIsSynced(t *testing.T) {
	withPuppet(t, hub.Options{GroupCommit: true}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		f := h.Follow("", 0)
		defer f.Close()
		fed(t, f, "session_info")
		if err := agent.host.Publish(t.Context(), &contracts.Status{Message: "next"}); err != nil {
			t.Fatal(err)
		}
		if all := fed(t, f, "status"); all[len(all)-1].Cursor > h.Cursor() {
			t.Errorf("got cursor %d, want at most %d, which is visible", all[len(all)-1].Cursor, h.Cursor())
		}
	})
}

func TestFollowerIsTold(t *testing.T) {
	withPuppet(t, hub.Options{Store: journal.NewMemory(journal.MemoryOptions{RetainBytes: 4 << 10})}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		f := h.Follow("", 0)
		defer f.Close()
		fed(t, f, "session_info")
		for range 200 { // more than the store keeps
			if err := agent.host.Publish(t.Context(), &contracts.Status{Message: "a long message that takes space"}); err != nil {
				t.Fatal(err)
			}
		}
		for name, one := range map[string]*hub.Follower{"gap": f, "other epoch": h.Follow("another", 1)} {
			feed, err := one.Next(t.Context())
			if err != nil || feed.Reset == nil || feed.Epoch != h.Epoch() || feed.Cursor != feed.Reset.Cursor {
				t.Errorf("%s: got %+v, %v, want a reset", name, feed, err)
			}
		}
		if err := agent.host.Publish(t.Context(), &contracts.Status{Message: "next"}); err != nil {
			t.Fatal(err)
		}
		if all := fed(t, f, "status"); len(all) != 1 {
			t.Errorf("got %d events after the reset, want 1", len(all))
		}
		ctx, stop := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		stop(cause)
		if _, err := f.Next(ctx); !errors.Is(err, cause) {
			t.Errorf("got %v, want the cause", err)
		}
	})
}

func TestFirstDecisionCounts(t *testing.T) { // E31
	withPuppet(t, hub.Options{}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		send := drive(t, h) // it holds the lease
		if err := send(`{"type":"prompt","content":"x"}`); err != nil {
			t.Fatal(err)
		}
		for i, id := range []string{"one", "two"} {
			agent.orders <- agent.ask(question(contracts.RequestApproval, id), contracts.AskOptions{})
			synctest.Wait()
			if i == 1 {
				if err := send(`{"type":"tool_response","call_id":"two","approved":false}`); err != nil {
					t.Error(err)
				}
			}
			cursor, _, err := h.Decide(id, true, "fine", "", contracts.Principal{ID: "someone"})
			if lost := errors.Is(err, &contracts.Error{Code: contracts.CodeRequestNotFound}); i == 1 && !lost || i == 0 && (err != nil || cursor == 0) {
				t.Errorf("%s: got %d, %v", id, cursor, err)
			}
			synctest.Wait()
		}
		if _, _, err := h.Decide("three", true, "", "", contracts.Principal{ID: "someone"}); !errors.Is(err, &contracts.Error{Code: contracts.CodeRequestNotFound}) {
			t.Errorf("got %v for an unknown request", err)
		}
		got := agent.learned()
		if len(got["one"]) != 1 || got["one"][0].Verdict != contracts.VerdictApproved || got["one"][0].Reason != "fine" ||
			len(got["two"]) != 1 || got["two"][0].Verdict != contracts.VerdictDenied {
			t.Errorf("the agent got %+v, want the first answers", got)
		}
		agent.orders <- end(nil)
	})
}

func TestStopMeansOneRun(t *testing.T) {
	withPuppet(t, hub.Options{}, func(t *testing.T, h *hub.Hub, agent *puppet) {
		send := drive(t, h)
		seen := h.Cursor()
		if err := send(`{"type":"prompt","content":"x"}`); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if stopped, err := h.Stop(seen); stopped || err != nil || agent.active() != 1 {
			t.Errorf("got %t, %v for a run that began later, want false", stopped, err)
		}
		if stopped, err := h.Stop(h.Cursor()); !stopped || err != nil {
			t.Errorf("got %t, %v, want the run stopped", stopped, err)
		}
		synctest.Wait()
		if agent.active() != 0 {
			t.Error("the run goes on")
		}
		if stopped, err := h.Stop(h.Cursor()); stopped || err != nil {
			t.Errorf("got %t, %v without a run, want false", stopped, err)
		}
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Stop(h.Cursor()); err == nil {
			t.Error("got no error from an ended session")
		}
	})
}
