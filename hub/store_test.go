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
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/session"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// A balky store fails as it is told, and lets Sync wait. The fields but the
// store are for the test to change while the hub sleeps.
type balky struct {
	journal.Store
	appending, syncing, closing error
	closed                      bool

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

func (b *balky) Close() error {
	b.closed = true
	return errors.Join(b.closing, b.Store.Close())
}

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
		if n := s.told("reset " + string(contracts.ResetLagged)); n != 1 {
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
				if why, closed := alice.Closed(); !closed || why == nil || why.Code != contracts.CodeRuntimeNotReady || !strings.Contains(why.Message, "disk") {
					t.Errorf("got %v, %t, want closed with runtime_not_ready and a text about the disk", why, closed)
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
		err = h.Start(t.Context())
		if !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
		wantCode(t, err, contracts.CodeRuntimeNotReady)
		if !store.closed {
			t.Error("got the store open, want it closed, so that the session can be opened again")
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A partition is a store on a disk that may be full. One may be open at a time.
type partition struct {
	lasting
	full, open *bool
}

func (p partition) Append(entries []journal.Entry) error {
	if *p.full {
		return errors.New("no space left on device")
	}
	return p.lasting.Append(entries)
}

func (p partition) Close() error {
	*p.open = false
	return p.lasting.Close()
}

// A disk that is full again and again ends the session each time, and each time
// the session goes on from where it was once there is room.
func TestSessionGoesOnWhenTheDiskHasRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full, open bool
		var agent *player
		kept := lasting{journal.NewMemory(journal.MemoryOptions{})}
		d := &hub.Directory{Open: func(ctx context.Context, key hub.Key, _ hub.OpenOptions) (*hub.Hub, error) {
			if open {
				return nil, journal.ErrLocked
			}
			open = true
			agent = newPlayer(nil)
			h, err := hub.New(hub.Options{SessionID: key.ID, Cwd: "/", Agent: agent, Store: partition{kept, &full, &open}})
			if err != nil {
				return nil, err
			}
			return h, h.Start(ctx)
		}}
		cursor := uint64(0)
		for round := range 12 {
			h, err := get(d, t.Context(), "a", true)
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if h.Cursor() <= cursor {
				t.Errorf("round %d: got cursor %d, want beyond %d", round, h.Cursor(), cursor)
			}
			cursor = h.Cursor()
			full = true
			if err := agent.host.Publish(t.Context(), &contracts.Status{Message: "x"}); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			<-h.Done()
			for range 3 {
				synctest.Wait()
				_, err := get(d, t.Context(), "a", false)
				wantCode(t, err, contracts.CodeRuntimeNotReady)
				if strings.Contains(err.Error(), "locked") {
					t.Errorf("round %d: got %v, want the store closed", round, err)
				}
			}
			full = false
		}
		if err := d.Suspend(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A session whose oldest entries were deleted is not taken for one that began
// where the others begin.
func TestMissingBeginningIsReported(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{})
	if err := store.Append([]journal.Entry{{Cursor: 7, Kind: journal.Note, Body: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	_, err := hub.New(hub.Options{SessionID: "s", Cwd: "/", Agent: &echo{}, Store: store})
	if !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("got %v, want %v", err, journal.ErrCorrupt)
	}
}

// A counted store counts checkpoints, and the bytes of everything.
type counted struct {
	journal.Store
	checkpoints, bytes int
}

func (c *counted) Append(entries []journal.Entry) error {
	for _, e := range entries {
		c.bytes += len(e.Body)
		if e.Kind == journal.Checkpoint {
			c.checkpoints++
		}
	}
	return c.Store.Append(entries)
}

// A checkpoint that cannot be made is not tried again with the next entry: it
// takes long, and will fail again.
func TestCheckpointThatFailsIsNotTriedAtOnceAgain(t *testing.T) {
	log := &logged{}
	store := &counted{Store: journal.NewMemory(journal.MemoryOptions{})}
	state := session.New().Snapshot(7)
	state.State.LastErrorType = "unsound" // no event can bring it
	opts := hub.Options{
		Store: store, Log: log.logger(), CheckpointBytes: 10_000, HeartbeatInterval: time.Hour,
		Restored: &contracts.Restored{Cursor: 7, Ready: true, Snapshot: state},
	}
	withSoloist(t, opts, func(t *testing.T, s *soloist) {
		for range 1000 {
			if err := s.agent.host.Publish(t.Context(), &contracts.Status{Message: strings.Repeat("x", 100)}); err != nil {
				t.Fatal(err)
			}
		}
		tried := strings.Count(log.text(), "encode checkpoint")
		if most := 1 + store.bytes/opts.CheckpointBytes; tried < most/2 || tried > most {
			t.Errorf("got %d attempts in %d bytes, want about %d", tried, store.bytes, most)
		}
	})
}

// A state that is larger than the interval between checkpoints is not written
// more often than everything else together.
func TestLargeStateIsNotWrittenMostOfTheTime(t *testing.T) {
	store := &counted{Store: journal.NewMemory(journal.MemoryOptions{})}
	withSoloist(t, hub.Options{Store: store, CheckpointBytes: 1000, HeartbeatInterval: time.Hour}, func(t *testing.T, s *soloist) {
		s.begin()
		s.say(0, 1, 30_000) // the text of a response that goes on is part of the state
		before := store.checkpoints
		s.say(1, 1000, 100)
		if got := store.checkpoints - before; got < 1 || got > 8 {
			t.Errorf("got %d checkpoints of 30,000 bytes and more in 1,000 events of 100, want a few", got)
		}
	})
}

// However few events there are, checkpoints let those go that have become old.
func TestCheckpointsComeWithAge(t *testing.T) {
	store := &counted{Store: journal.NewMemory(journal.MemoryOptions{})}
	withSoloist(t, hub.Options{Store: store, CheckpointAge: time.Hour, HeartbeatInterval: 100 * time.Hour}, func(t *testing.T, s *soloist) {
		for minute := range 600 {
			time.Sleep(time.Minute)
			if err := s.agent.host.Publish(t.Context(), &contracts.Status{Message: "x"}); err != nil {
				t.Fatal(err)
			}
			if got, want := store.checkpoints, (minute+1)/60; got != want {
				t.Fatalf("after %d minutes: got %d checkpoints, want %d", minute+1, got, want)
			}
		}
	})
}
