package hub_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/testkit/memconn"
)

func TestLagIsThatOfTheWorstFollower(t *testing.T) {
	opts := hub.Options{WindowBytes: 16 << 10, HeartbeatInterval: time.Hour}
	withSoloist(t, opts, func(t *testing.T, s *soloist) {
		if got := s.Lag(); got != (hub.Lag{}) {
			t.Errorf("without followers: got %+v, want nothing", got)
		}
		slow, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		quick, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		s.until(quick, `"hello_ok"`)
		s.until(slow, `"hello_ok"`)
		s.begin()
		synctest.Wait()
		if got, want := s.Lag(), (hub.Lag{Followers: 2}); got != want {
			t.Errorf("when all have read all: got %+v, want %+v", got, want)
		}

		slow.Freeze()
		time.Sleep(time.Second)
		s.say(0, 450, 200) // the first of them is in a write that blocks
		time.Sleep(time.Second)
		quick.Freeze()
		s.say(450, 50, 200)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := s.Lag()
		if got.Followers != 2 || got.Behind != 2 || got.Entries != 500 || got.Age != 3*time.Second {
			t.Errorf("got %+v, want 2 of 2 followers, one of them 500 entries and 3s behind", got)
		}
		if got.Bytes < 500*200 || got.Bytes > 500*400 {
			t.Errorf("bytes: got %d, want somewhat more than the %d of the texts", got.Bytes, 500*200)
		}

		slow.Thaw()
		quick.Thaw()
		s.end()
		_, slowly, _ := s.chunks(s.until(slow, `"response_end"`))
		_, quickly, _ := s.chunks(s.until(quick, `"response_end"`))
		synctest.Wait()
		if got, want := s.Lag(), (hub.Lag{Followers: 2}); got != want {
			t.Errorf("when the slow one has read all: got %+v, want %+v", got, want)
		}
		if got, want := s.Merged(), uint64(500-slowly+500-quickly); got != want || got == 0 {
			t.Errorf("merged: got %d, want %d, for 500 entries came in %d and %d frames", got, want, slowly, quickly)
		}
	})
}

func TestLagBeyondRetentionIsStillKnown(t *testing.T) {
	withSoloist(t, tight(), func(t *testing.T, s *soloist) {
		slow := overtake(s)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := s.Lag()
		if got.Entries < 2000 || got.Bytes < 2000*200 || got.Age != 2*time.Second {
			t.Errorf("got %+v, want 2000 entries of 200 bytes, 2s old", got)
		}
		slow.Thaw()
		s.until(slow, `"type":"reset"`)
	})
}

func TestLagAfterTheEndIsNone(t *testing.T) {
	withSoloist(t, hub.Options{HeartbeatInterval: time.Hour}, func(t *testing.T, s *soloist) {
		viewer, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		s.until(viewer, `"hello_ok"`)
		s.close()
		synctest.Wait()
		if got := s.Lag(); got != (hub.Lag{}) {
			t.Errorf("got %+v, want nothing", got)
		}
	})
}

// hanging is a store whose Sync waits until it is let go. It counts what is read.
type hanging struct {
	journal.Store
	hang atomic.Bool
	free chan struct{}
	read atomic.Int64
}

func (h *hanging) Sync() error {
	if h.hang.Load() {
		<-h.free
	}
	return h.Store.Sync()
}

func (h *hanging) Read(after uint64, fn func(journal.Entry) bool) error {
	return h.Store.Read(after, func(e journal.Entry) bool {
		h.read.Add(1)
		return fn(e)
	})
}

// withHanging runs a test with a session that shows nothing that is not synced.
func withHanging(t *testing.T, test func(t *testing.T, s *soloist, store *hanging)) {
	store := &hanging{Store: journal.NewMemory(journal.MemoryOptions{}), free: make(chan struct{})}
	withSoloist(t, hub.Options{Store: store, GroupCommit: true, HeartbeatInterval: time.Hour}, func(t *testing.T, s *soloist) {
		store.free = make(chan struct{}) // of this bubble
		test(t, s, store)
	})
}

// A client that waits for its first state goes on from there: it is not behind
// by what the state holds.
func TestNewcomerIsNotBehind(t *testing.T) {
	withHanging(t, func(t *testing.T, s *soloist, store *hanging) {
		s.begin()
		s.say(0, 100, 10)
		synctest.Wait()
		store.hang.Store(true)
		s.say(100, 1, 10) // so that the state it begins with is not on disk yet
		conn, peer := memconn.New(memconn.Options{})
		s.serve(conn, peer, contracts.Attach{Role: contracts.RoleViewer}, silent)
		synctest.Wait()
		if got, want := s.Lag(), (hub.Lag{Followers: 1}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		close(store.free)
		s.until(peer, `"hello_ok"`)
	})
}

func TestLagLooksAtAFewVisibleEntriesOnly(t *testing.T) {
	withHanging(t, func(t *testing.T, s *soloist, store *hanging) {
		viewer, _ := s.attach(contracts.Attach{Role: contracts.RoleViewer}, silent)
		s.until(viewer, `"hello_ok"`)
		s.begin()
		synctest.Wait()
		viewer.Freeze()
		s.say(0, 10, 100)
		synctest.Wait()
		store.hang.Store(true)
		s.say(10, 1, 50_000)
		if got := s.Lag(); got.Entries != 10 || got.Bytes > 10*1000 {
			t.Errorf("got %+v, want the 10 that are on disk", got)
		}
		close(store.free)
		s.say(11, 1000, 100)
		synctest.Wait()
		store.read.Store(0)
		if got := s.Lag(); got.Entries != 1011 {
			t.Errorf("got %+v, want all 1011", got)
		}
		if n := store.read.Load(); n > 64 {
			t.Errorf("got %d entries read to estimate 1011, want at most 64", n)
		}
		viewer.Thaw()
		s.end()
		s.until(viewer, `"response_end"`)
	})
}
