package hub_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

// largeWrite is a size in bytes that only batches of a replay have.
const largeWrite = 16 << 10

// A paced connection takes its time for each batch of a replay.
type paced struct {
	hub.Conn
	takes   func(batch int) time.Duration // batches count from 1
	batches int
	now     *atomic.Int32 // connections that are written to, but for their first batch
	most    *atomic.Int32
}

func (p *paced) Write(frames []byte) error {
	if len(frames) < largeWrite {
		return p.Conn.Write(frames)
	}
	if p.batches++; p.batches > 1 {
		p.most.Store(max(p.most.Load(), p.now.Add(1)))
		defer p.now.Add(-1)
	}
	time.Sleep(p.takes(p.batches))
	return p.Conn.Write(frames)
}

// withReplays runs a test beside a long history that has left the window. replay attaches a
// viewer that reads it from the beginning.
func withReplays(t *testing.T, test func(s *soloist, replay func(takes func(batch int) time.Duration) *memconn.Peer, most *atomic.Int32)) {
	withSoloist(t, hub.Options{WindowBytes: 4 << 10, HeartbeatInterval: time.Hour}, func(_ *testing.T, s *soloist) {
		s.begin()
		s.say(0, 100, 10<<10)
		s.end()
		var now, most atomic.Int32
		test(s, func(takes func(int) time.Duration) *memconn.Peer {
			conn, peer := memconn.New(memconn.Options{Buffer: 4 << 20})
			s.serve(&paced{Conn: conn, takes: takes, now: &now, most: &most}, peer,
				contracts.Attach{Role: contracts.RoleViewer, Cursor: new(int64)}, silent)
			return peer
		}, &most)
	})
}

// Replays use no more processors than there are turns, also for writing.
func TestReplaysAreWrittenInTurn(t *testing.T) {
	withReplays(t, func(s *soloist, replay func(func(int) time.Duration) *memconn.Peer, most *atomic.Int32) {
		turns := max(1, runtime.GOMAXPROCS(0)/2)
		var viewers []*memconn.Peer
		for range turns + 8 {
			viewers = append(viewers, replay(func(int) time.Duration { return 100 * time.Microsecond }))
		}
		for _, v := range viewers {
			if all, _, _ := s.chunks(s.until(v, `"response_end"`)); unpadded(all) != numbered(0, 100) {
				t.Errorf("got %d bytes, want all in order", len(all))
			}
		}
		if got := most.Load(); got != int32(turns) {
			t.Errorf("replays that were written to at the same time: got %d, want %d", got, turns)
		}
	})
}

// A client that stops reading in a replay delays other replays by a millisecond.
func TestReplayThatHangsHoldsUpNoOther(t *testing.T) {
	withReplays(t, func(s *soloist, replay func(func(int) time.Duration) *memconn.Peer, _ *atomic.Int32) {
		var hung []*memconn.Peer
		for range max(1, runtime.GOMAXPROCS(0)/2) {
			hung = append(hung, replay(func(batch int) time.Duration {
				if batch == 3 {
					return time.Second
				}
				return 0
			}))
		}
		synctest.Wait()
		began := time.Now()
		s.until(replay(func(int) time.Duration { return 0 }), `"response_end"`)
		if took := time.Since(began); took > time.Millisecond {
			t.Errorf("the other replay took %v, want at most a millisecond", took)
		}
		for _, v := range hung {
			s.until(v, `"response_end"`)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("the replays that hang took %v, want a second", took)
		}
	})
}
