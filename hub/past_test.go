package hub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

func stateAt(h *hub.Hub, cursor uint64) (*contracts.Snapshot, error) {
	text, err := h.StateAt(context.Background(), cursor, reader)
	if err != nil {
		return nil, err
	}
	return (&contracts.Decoder{}).Snapshot(text)
}

// sameMoment returns an error unless a state of the past is the one that the hub showed.
func sameMoment(past, then *contracts.Snapshot) error {
	if past.Cursor != then.Cursor {
		return fmt.Errorf("state as of cursor %d: got that of %d", then.Cursor, past.Cursor)
	}
	if got, want := shown(past, false)+known(past), shown(then, false)+known(then); got != want {
		return fmt.Errorf("state as of cursor %d:\n got %s\nwant %s", then.Cursor, got, want)
	}
	return nil
}

// known returns the people of a snapshot as JSON.
func known(snap *contracts.Snapshot) string {
	text, err := contracts.EncodeSnapshot(&contracts.Snapshot{State: contracts.State{People: snap.State.People}}, 0)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func TestStateOfRemovedHistoryIsTheOldestStored(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{RetainBytes: 64 << 10})
	prompts := []string{strings.Repeat("word ", 400), strings.Repeat("more ", 400), "last"}
	withOrator(t, hub.Options{Store: store, CheckpointBytes: 8 << 10}, prompts, func(t *testing.T, r *room, _ func(string) error) {
		first, _ := store.Bounds()
		past, err := stateAt(r.Hub, 2)
		if err != nil || first < 3 || past.Cursor < first || past.State.Cwd != "/" {
			t.Fatalf("got %+v and %v, want the oldest state from cursor %d on", past, err, first)
		}
		head := r.Snapshot()
		if now, err := stateAt(r.Hub, head.Cursor+100); err != nil || sameMoment(now, head) != nil {
			t.Errorf("got %v and %v, want the newest state for a cursor after it", err, sameMoment(now, head))
		}
	})
	withOrator(t, hub.Options{Store: journal.NewMemory(journal.MemoryOptions{RetainBytes: 64 << 10})}, prompts, func(t *testing.T, r *room, _ func(string) error) {
		refusal := new(contracts.Error)
		if _, err := stateAt(r.Hub, 2); !errors.As(err, &refusal) || refusal.Code != contracts.CodeNotFound {
			t.Errorf("got %v, want not_found: no checkpoint is stored", err)
		}
	})
}

func TestStateOfThePastIsForThoseWhoMayWatch(t *testing.T) {
	withOrator(t, hub.Options{}, []string{"one"}, func(t *testing.T, r *room, _ func(string) error) {
		by := reader
		by.Principal.Expires = time.Now().Add(-time.Second)
		if _, err := r.StateAt(t.Context(), 1, by); err == nil {
			t.Error("got the state, want a refusal of the expired credential")
		}
	})
}
