package hub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
)

// A shelf is what a directory opens its sessions from.
type shelf struct {
	gate chan struct{} // closed when sessions may open; nil: at once

	mu     sync.Mutex
	opened []string // ids, in the order of the calls
	fail   error    // what opening fails with
}

func (s *shelf) open(ctx context.Context, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
	id, create := key.ID, options.Create
	s.mu.Lock()
	s.opened = append(s.opened, id)
	fail := s.fail
	s.mu.Unlock()
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if fail != nil {
		return nil, fail
	}
	if !create {
		return nil, hub.ErrUnknownSession
	}
	h, err := hub.New(hub.Options{SessionID: id, Cwd: "/", Agent: &echo{}, Store: journal.NewMemory(journal.MemoryOptions{})})
	if err != nil {
		return nil, err
	}
	return h, h.Start(ctx)
}

func (s *shelf) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.opened)
}

// get asks a directory for a session of the owner's.
func get(d *hub.Directory, ctx context.Context, id string, create bool) (*hub.Hub, error) {
	h, _, err := d.Get(ctx, hub.Key{ID: id}, hub.OpenOptions{Create: create})
	return h, err
}

// inDirectory runs a test in a bubble with a directory over a shelf.
func inDirectory(t *testing.T, s *shelf, test func(t *testing.T, d *hub.Directory)) {
	synctest.Test(t, func(t *testing.T) {
		d := &hub.Directory{Open: s.open}
		test(t, d)
		if err := d.Suspend(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// wantCode fails unless err is a refusal with code.
func wantCode(t *testing.T, err error, code contracts.Code) {
	t.Helper()
	if !errors.Is(err, &contracts.Error{Code: code}) {
		t.Errorf("got %v, want a refusal with code %s", err, code)
	}
}

func TestSessionIsOpenedOnceForAllWhoAsk(t *testing.T) { // A83
	s := &shelf{}
	inDirectory(t, s, func(t *testing.T, d *hub.Directory) {
		s.gate = make(chan struct{})
		got := make([]*hub.Hub, 16)
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				var err error
				if got[i], err = get(d, t.Context(), "a", true); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if s.calls() != 1 {
			t.Errorf("got %d openings, want 1", s.calls())
		}
		close(s.gate)
		wg.Wait()
		for _, h := range got {
			if h == nil || h != got[0] {
				t.Errorf("got %p, want the same hub %p for all", h, got[0])
			}
		}
	})
}

func TestUnknownSessionIsToldToAllAndNotRemembered(t *testing.T) {
	s := &shelf{}
	inDirectory(t, s, func(t *testing.T, d *hub.Directory) {
		s.gate = make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, err := get(d, t.Context(), "a", false)
				wantCode(t, err, contracts.CodeStaleSession)
				// Whoever was told may ask for it anew at once.
				if _, err = get(d, t.Context(), "a", true); err != nil {
					t.Errorf("got %v, want the session made", err)
				}
			})
		}
		synctest.Wait()
		close(s.gate)
		wg.Wait()
		if s.calls() != 2 {
			t.Errorf("got %d openings, want one that failed and one that did not", s.calls())
		}
	})
}

func TestSessionThatFailedToOpenMayBeTriedAgain(t *testing.T) {
	broken := errors.New("disk on fire")
	s := &shelf{fail: broken}
	inDirectory(t, s, func(t *testing.T, d *hub.Directory) {
		if _, err := get(d, t.Context(), "a", true); !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		if _, err := get(d, t.Context(), "a", true); err != nil {
			t.Errorf("got %v, want the session", err)
		}
	})
}

func TestWaiterThatLeavesDoesNotStopTheOpening(t *testing.T) {
	s := &shelf{}
	inDirectory(t, s, func(t *testing.T, d *hub.Directory) {
		s.gate = make(chan struct{})
		impatient, leave := context.WithCancelCause(t.Context())
		left := errors.New("client left")
		var wg sync.WaitGroup
		wg.Go(func() { // it is the first, so it asked for the opening
			if _, err := get(d, impatient, "a", true); !errors.Is(err, left) {
				t.Errorf("got %v, want %v", err, left)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := get(d, t.Context(), "a", true); err != nil {
				t.Errorf("got %v, want the session", err)
			}
		})
		synctest.Wait()
		leave(left)
		synctest.Wait()
		close(s.gate)
		wg.Wait()
	})
}

func TestDirectoryIsBounded(t *testing.T) {
	s := &shelf{}
	inDirectory(t, s, func(t *testing.T, d *hub.Directory) {
		d.Max = 2
		first, err := get(d, t.Context(), "a", true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := get(d, t.Context(), "b", true); err != nil {
			t.Fatal(err)
		}
		_, err = get(d, t.Context(), "c", true)
		wantCode(t, err, contracts.CodeRateLimited)
		if _, err := get(d, t.Context(), "a", false); err != nil {
			t.Errorf("got %v, want a session that is open to be found", err)
		}
		if err := first.Close(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if _, err := get(d, t.Context(), "c", true); err != nil {
			t.Errorf("got %v, want the place of the session that ended", err)
		}
	})
}

func TestEndedSessionStaysDownUntilMadeAnew(t *testing.T) { // A76
	s := &shelf{}
	inDirectory(t, s, func(t *testing.T, d *hub.Directory) {
		h, err := get(d, t.Context(), "a", true)
		if err != nil {
			t.Fatal(err)
		}
		alice, _ := (&room{Hub: h, t: t}).attach(contracts.Attach{Role: contracts.RoleController})
		(&room{Hub: h, t: t}).send(alice, `{"type":"shutdown"}`)
		<-h.Done()
		synctest.Wait()
		_, err = get(d, t.Context(), "a", false)
		wantCode(t, err, contracts.CodeStaleSession)
		if s.calls() != 1 {
			t.Errorf("got %d openings, want no attempt to open what was shut down", s.calls())
		}
		again, err := get(d, t.Context(), "a", true)
		if err != nil || again == h {
			t.Errorf("got %p, %v, want a new hub instead of %p", again, err, h)
		}
		if _, err := get(d, t.Context(), "a", false); err != nil {
			t.Errorf("got %v, want the session that was made anew", err)
		}
	})
}

func TestSuspendEndsAllSessionsAndAdmitsNoMore(t *testing.T) {
	s := &shelf{}
	synctest.Test(t, func(t *testing.T) {
		d := &hub.Directory{Open: s.open}
		var hubs []*hub.Hub
		for i := range 3 {
			h, err := get(d, t.Context(), fmt.Sprint(i), true)
			if err != nil {
				t.Fatal(err)
			}
			hubs = append(hubs, h)
		}
		s.gate = make(chan struct{})
		late := make(chan error, 1)
		go func() { // ends when the opening is given up: the gate stays shut
			_, err := get(d, context.Background(), "late", true)
			late <- err
		}()
		synctest.Wait()
		if err := d.Suspend(context.Background()); err != nil {
			t.Error(err)
		}
		_, err := get(d, t.Context(), "new", true)
		wantCode(t, err, contracts.CodeGoingAway)
		wantCode(t, <-late, contracts.CodeGoingAway) // the opening is given up
		for _, h := range hubs {
			<-h.Done()
			// Clients that were attaching come back, and find the session in the next process.
			wantCode(t, h.Admit(contracts.Attach{Role: contracts.RoleViewer}), contracts.CodeGoingAway)
		}
	})
}

// The memory of what was shut down is bounded. Beyond the bound an old session
// can be opened again, which asks the store.
func TestDirectoryForgetsWhatEndedLongAgo(t *testing.T) {
	s := &shelf{}
	inDirectory(t, s, func(t *testing.T, d *hub.Directory) {
		for i := range 4096 + 1 {
			h, err := get(d, t.Context(), fmt.Sprint(i), true)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		calls := s.calls()
		_, err := get(d, t.Context(), "0", false)
		wantCode(t, err, contracts.CodeStaleSession)
		if s.calls() != calls+1 {
			t.Errorf("got %d openings, want the oldest session looked for in its store", s.calls()-calls)
		}
		_, err = get(d, t.Context(), "4096", false)
		wantCode(t, err, contracts.CodeStaleSession)
		if s.calls() != calls+1 {
			t.Errorf("got %d openings, want the newest still known to have ended", s.calls()-calls)
		}
	})
}

// A session that ends on its own is closed by the directory, and what went
// wrong at that is logged.
func TestDirectoryLogsASessionThatCannotBeClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store := &logged{}, &balky{Store: journal.NewMemory(journal.MemoryOptions{})}
		d := &hub.Directory{Log: log.logger(), Open: func(ctx context.Context, key hub.Key, _ hub.OpenOptions) (*hub.Hub, error) {
			id := key.ID
			h, err := hub.New(hub.Options{SessionID: id, Cwd: "/", Agent: &echo{}, Store: store})
			if err != nil {
				return nil, err
			}
			return h, h.Start(ctx)
		}}
		h, err := get(d, t.Context(), "a", true)
		if err != nil {
			t.Fatal(err)
		}
		r := &room{Hub: h, t: t}
		alice, _ := r.attach(contracts.Attach{Role: contracts.RoleController})
		r.until(alice, `"hello_ok"`)
		synctest.Wait()
		store.appending, store.closing = errors.New("disk full"), errors.New("disk gone")
		r.send(alice, `{"type":"init"}`)
		<-h.Done()
		synctest.Wait()
		log.wants(t, "disk gone")
		if err := d.Suspend(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestSuspendReturnsTheErrorOfASessionThatOpensMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		store := &balky{Store: journal.NewMemory(journal.MemoryOptions{}), closing: errors.New("disk gone")}
		d := &hub.Directory{Open: func(context.Context, hub.Key, hub.OpenOptions) (*hub.Hub, error) {
			<-gate
			h, err := hub.New(hub.Options{SessionID: "a", Cwd: "/", Agent: &echo{}, Store: store})
			if err != nil {
				return nil, err
			}
			return h, h.Start(context.Background())
		}}
		go func() { _, _ = get(d, context.Background(), "a", true) }() // ends when the session is open
		synctest.Wait()
		time.AfterFunc(time.Second, func() { close(gate) })
		if err := d.Suspend(t.Context()); err == nil || err.Error() != "session a: disk gone" {
			t.Errorf("got %v, want that the store of session a cannot be closed", err)
		}
	})
}

// Open may ignore its context. Suspend then returns when its own ends, and the session is
// suspended as soon as it is open.
func TestSuspendDoesNotWaitForAnOpeningThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, late := make(chan struct{}), &shelf{}
		opened := make(chan *hub.Hub, 1)
		d := &hub.Directory{Open: func(_ context.Context, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
			<-gate
			h, err := late.open(context.Background(), key, options)
			opened <- h
			return h, err
		}}
		go func() { _, _ = get(d, context.Background(), "a", true) }() // ends when the session is open
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := d.Suspend(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "session a: it is still being opened") {
			t.Errorf("got %v, want that session a is still being opened", err)
		}
		close(gate)
		<-(<-opened).Closed()
	})
}
