package hub_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// TestSnapshotsOnTheirWayAreBounded attaches viewers that do not read, one after
// another, while the state changes. It has 128 KiB of text.
func TestSnapshotsOnTheirWayAreBounded(t *testing.T) {
	const bound = 1 << 20
	memory := hub.NewMemory(hub.MemoryOptions{SnapshotBytes: bound})
	withSoloist(t, hub.Options{Memory: memory, HeartbeatInterval: time.Hour, SubscriptionTTL: time.Hour}, func(t *testing.T, s *soloist) {
		s.begin()
		s.say(0, 16, 8<<10)
		frozen := map[*memconn.Peer]int{} // and what had been said when it came
		for i := range 40 {
			conn, peer := memconn.New(memconn.Options{})
			peer.Freeze()
			s.serve(conn, peer, contracts.Attach{Role: contracts.RoleViewer}, silent)
			synctest.Wait()
			frozen[peer] = 16 + i
			s.say(16+i, 1, 0)
			time.Sleep(50 * time.Millisecond)
			got := memory.Snapshots()
			if i == 0 && got > 192<<10 {
				t.Errorf("got %d bytes for one snapshot, want its text once", got)
			}
			if got > bound+bound/2 {
				t.Fatalf("after %d viewers: got %d bytes of snapshots, want about %d", i+1, got, bound)
			}
		}
		s.end()
		for peer, said := range frozen {
			peer.Thaw()
			lines := strings.Split(strings.TrimSpace(s.until(peer, `"response_end"`)), "\n")
			s.cursors(lines)
			folded := s.folds(lines[:len(lines)-1])
			if folded.CurrentResponse == nil || !strings.HasSuffix(unpadded(folded.CurrentResponse.Text), numbered(16, 40)) {
				t.Fatalf("the viewer that came after %d chunks has not got the text", said)
			}
		}
	})
	if got := memory.Snapshots(); got != 0 {
		t.Errorf("got %d bytes of snapshots after the session, want none", got)
	}
}

// A departing viewer need not be written the snapshot that waits for it.
func TestSnapshotOfAViewerThatLeavesIsGivenUp(t *testing.T) {
	memory := hub.NewMemory(hub.MemoryOptions{})
	withSoloist(t, hub.Options{Memory: memory, HeartbeatInterval: time.Hour}, func(t *testing.T, s *soloist) {
		s.begin()
		s.say(0, 16, 8<<10)
		for range 20 {
			conn, peer := memconn.New(memconn.Options{})
			peer.Freeze()
			s.serve(conn, peer, contracts.Attach{Role: contracts.RoleViewer}, silent)
			synctest.Wait()
			peer.Close()
			time.Sleep(time.Second)
			s.say(0, 1, 0)
		}
		if got := memory.Snapshots(); got != 0 {
			t.Errorf("got %d bytes of snapshots for nobody, want none", got)
		}
	})
}
