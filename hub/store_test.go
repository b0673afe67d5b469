package hub_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/memconn"
	"github.com/seed-028515a8/maestro/journal"
)

// A balky store fails as it is told, and lets Sync wait. The fields but the
// store are for the test to change while the hub sleeps.
type balky struct {
	journal.Store
	appending, syncing, closing error

	mu   sync.Mutex
	gate chan struct{} // Sync returns once it is closed; nil: at once
}

func (b *balky) Append(entries []journal.Entry) error {
	if b.appending != nil {
		return b.appending
	}
	return b.Store.Append(entries)
}

func (b *balky) Sync() error {
	b.mu.Lock()
	gate := b.gate
	b.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return errors.Join(b.syncing, b.Store.Sync())
}

func (b *balky) Close() error { return errors.Join(b.closing, b.Store.Close()) }

// hold makes Sync wait until the returned function is called.
func (b *balky) hold() (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gate := make(chan struct{})
	b.gate = gate
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		close(gate)
		b.gate = nil
	}
}

// The snapshot of a reset may not be shown before it is safe. Until then the
// client has nothing to read, and nothing piles up.
func TestResetWaitsForTheGroupCommit(t *testing.T) {
	opts := tight()
	store := &balky{Store: opts.Store}
	opts.Store, opts.GroupCommit = store, true
	withSoloist(t, opts, func(t *testing.T, s *soloist) {
		slow := overtake(s)
		synctest.Wait()
		release := store.hold()
		s.say(2000, 1, 0)
		synctest.Wait()
		slow.Thaw()
		synctest.Wait()
		release()
		s.until(slow, `"type":"reset"`)
		s.say(2001, 1, 0)
		s.until(slow, `"2001;"`)
		if n := s.Metrics().Resets(contracts.ResetLagged); n != 1 {
			t.Errorf("resets: got %d, want 1", n)
		}
	})
}

func TestNothingIsShownBeforeItIsSynced(t *testing.T) { // D4
	store := &balky{Store: journal.NewMemory(journal.MemoryOptions{})}
	opts := hub.Options{Store: store, GroupCommit: true, HeartbeatInterval: time.Hour}
	withSoloist(t, opts, func(t *testing.T, s *soloist) {
		alice, _ := s.attach(contracts.Attach{Role: contracts.RoleController}, silent)
		s.until(alice, `"hello_ok"`)
		release := store.hold()
		s.begin()
		s.say(0, 3, 0)
		s.send(alice, `{"type":"ws.send","id":"1","message":{"type":"init","system_prompt":"x"}}`)
		late, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		synctest.Wait()
		for name, peer := range map[string]*memconn.Peer{"follower": alice, "newcomer": late} {
			if text, err := peer.Next(ended()); err == nil {
				t.Errorf("%s: got %s before the sync, want nothing", name, text)
			}
		}
		release()
		if got, _, _ := s.chunks(s.until(alice, `"ws.result","id":"1"`)); got != numbered(0, 3) {
			t.Errorf("got %s, want 0 to 2 after the sync", got)
		}
		seen := s.until(late, `"hello_ok"`)
		if got, _, _ := s.chunks(seen); got != "" || !strings.HasPrefix(seen, `{"type":"snapshot"`) {
			t.Errorf("newcomer: got %s, want the snapshot first, and no entry it covers", seen)
		}
	})
}

// ended returns a context that lets nobody wait.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestBrokenStoreEndsTheSessionAndShowsNothingUnstored(t *testing.T) { // D4
	broken := errors.New("disk on fire")
	for _, tt := range []struct {
		name  string
		group bool
		fail  func(*balky)
	}{
		{"append", false, func(b *balky) { b.appending = broken }},
		{"append in a group", true, func(b *balky) { b.appending = broken }},
		{"sync", true, func(b *balky) { b.syncing = broken }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := &balky{Store: journal.NewMemory(journal.MemoryOptions{})}
			log := &logged{}
			opts := hub.Options{Store: store, GroupCommit: tt.group, Log: log.logger(), HeartbeatInterval: time.Hour}
			withSoloist(t, opts, func(t *testing.T, s *soloist) {
				alice, _ := s.attach(contracts.Attach{Role: contracts.RoleController}, silent)
				s.until(alice, `"hello_ok"`)
				s.begin()
				synctest.Wait()
				cursor := s.Cursor()
				tt.fail(store)
				err := s.agent.host.Publish(t.Context(), &contracts.ResponseChunk{ResponseID: "r", Content: "lost"})
				if err != nil {
					t.Errorf("got %v, want the agent to learn of it as of any other end", err)
				}
				<-s.Done()
				synctest.Wait()
				if seen := s.rest(alice); strings.Contains(seen, "lost") || s.Cursor() != cursor {
					t.Errorf("got %s and cursor %d, want nothing beyond %d", seen, s.Cursor(), cursor)
				}
				if why, closed := alice.Closed(); !closed || why == nil || why.Code != contracts.CodeRuntimeFailed {
					t.Errorf("got %v, %t, want closed with runtime_failed", why, closed)
				}
				log.wants(t, "disk on fire")
				wantCode(t, s.Admit(contracts.Attach{}), contracts.CodeRuntimeNotReady)
				if err := s.agent.host.Publish(t.Context(), &contracts.Status{Message: "x"}); err == nil {
					t.Error("got published after the end, want an error")
				}
			})
		})
	}
}

func TestStoreThatFailsAtStartIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("disk on fire")
		store := &balky{Store: journal.NewMemory(journal.MemoryOptions{}), appending: broken}
		h, err := hub.New(hub.Options{SessionID: "s", Cwd: "/", Agent: &echo{}, Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Start(t.Context()); !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
