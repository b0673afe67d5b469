package hub_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// name is what a client calls itself, as long as it may be.
func name(i int) *contracts.ClientInfo {
	return &contracts.ClientInfo{Name: fmt.Sprint(i) + strings.Repeat("n", 240)}
}

// size is how many bytes lines have.
func size(lines []string) (n int) {
	for _, line := range lines {
		n += len(line)
	}
	return n
}

// A client that renames itself over HTTP without end is refused, and neither the
// others nor the journal notice much of it.
func TestConnectionThatChangesWithoutEndIsRefused(t *testing.T) {
	store := journal.NewMemory(journal.MemoryOptions{})
	inRoom(t, hub.Options{Store: store, HeartbeatInterval: time.Hour, LeaseTTL: time.Hour}, func(t *testing.T, r *room) {
		witness, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer})
		mallory := r.guest("m")
		mallory.connects(asViewer)
		r.arrived(witness)
		before, refused := kept(t, store), 0
		for i := range 1000 {
			_, _, err := r.Connect(&contracts.AttachRequest{
				ConnectionID: mallory.by.ConnectionID, Role: contracts.RoleViewer, ClientInfo: name(i), ProtocolVersion: fmt.Sprint("p", i),
			}, mallory.by)
			if err != nil {
				wantCode(t, err, contracts.CodeRateLimited)
				refused++
			}
		}
		if refused < 950 {
			t.Errorf("got %d of 1000 refused, want nearly all", refused)
		}
		if told := len(r.arrived(witness)); told > 100 {
			t.Errorf("the others got %d messages", told)
		}
		if grown := kept(t, store) - before; grown > 16<<10 {
			t.Errorf("the journal grew by %d bytes", grown)
		}
		if _, _, err := r.Connect(&contracts.AttachRequest{ConnectionID: mallory.by.ConnectionID, Role: contracts.RoleViewer}, mallory.by); err != nil {
			t.Errorf("got %v for a request that changes nothing, want it answered", err)
		}
	})
}

// Viewers that come and go do not make the others get the whole state, or long
// lists, each time.
func TestViewersThatComeAndGoCostTheOthersLittle(t *testing.T) {
	for _, crowd := range []int{0, 60} {
		t.Run(fmt.Sprint(crowd), func(t *testing.T) {
			inRoom(t, hub.Options{HeartbeatInterval: time.Hour, LeaseTTL: time.Hour, SubscriptionTTL: time.Hour}, func(t *testing.T, r *room) {
				for i := range crowd {
					r.guest("m").subscribes(contracts.AttachRequest{Role: contracts.RoleViewer, ClientInfo: name(i)})
				}
				witness, _ := r.attach(contracts.Attach{Role: contracts.RoleViewer})
				time.Sleep(10 * time.Second)
				seen := r.arrived(witness)
				const seconds = 60
				var told []string
				for i := range 20 * seconds {
					a, b := r.guest("m"), r.guest("m")
					a.subscribes(contracts.AttachRequest{Role: contracts.RoleViewer, ClientInfo: name(2 * i)})
					b.subscribes(contracts.AttachRequest{Role: contracts.RoleViewer, ClientInfo: name(2*i + 1)})
					for _, g := range []*guest{a, b} {
						if err := r.Unsubscribe(g.by.SubscriptionID, g.by); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(50 * time.Millisecond)
					told = append(told, r.arrived(witness)...)
				}
				time.Sleep(10 * time.Second)
				told = append(told, r.arrived(witness)...)
				if got := size(told) / seconds; got > 80<<10 {
					t.Errorf("got %d bytes a second, want at most 80 KiB", got)
				}
				if got, want := people(r.folds(append(seen, told...))), people(r.Snapshot().State); got != want {
					t.Errorf("folded:\n got %s\nwant %s", got, want)
				}
			})
		})
	}
}
