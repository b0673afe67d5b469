package hub_test

import (
	"context"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// A long prompt is kept once, and no longer than any other value.
func TestLongPromptIsKeptOnce(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{})
	inRoom(t, hub.Options{Store: store, Agent: newPlayer(func(context.Context, contracts.Host, contracts.Work) error { return nil })}, func(t *testing.T, r *room) {
		alice := r.guest("a")
		alice.connects(asController)
		before := kept(t, store)
		alice.posts(`{"type":"prompt","content":"` + strings.Repeat("x", 900<<10) + `"}`)
		if grown := kept(t, store) - before; grown > contracts.MaxValueBytes+4<<10 {
			t.Errorf("the journal grew by %d bytes, want at most %d and little more", grown, contracts.MaxValueBytes)
		}
	})
}
