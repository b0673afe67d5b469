package hub

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Directory holds the sessions of one process. It opens each at most once,
// also when two clients ask for it at the same time (A83). It is safe for
// concurrent use.
type Directory struct {
	// Open makes and starts the hub of a session. create is false when only a
	// session that was kept may be opened; ErrUnknownSession says there is none.
	Open func(ctx context.Context, id string, create bool) (*Hub, error)
	// Max is how many sessions may be open; zero means 1,024.
	Max int
	Log *slog.Logger

	mu     sync.Mutex
	hubs   map[string]*place
	ended  map[string]bool // shut down by a client; at most maxEnded
	closed bool
	wg     sync.WaitGroup
}

// ErrUnknownSession means that a session neither is open nor was kept.
var ErrUnknownSession = &contracts.Error{Code: contracts.CodeStaleSession, Message: "Headless session not found"}

// maxEnded bounds how many shut down sessions are remembered; beyond it they
// can be opened again.
const maxEnded = 4096

// A place is a session that is open or being opened. hub and err are set
// before ready is closed.
type place struct {
	ready chan struct{}
	hub   *Hub
	err   error
}

// Get returns the session's hub, opening it if it has to.
func (d *Directory) Get(ctx context.Context, id string, create bool) (*Hub, error) {
	p, opener, err := d.place(id, create)
	if err != nil {
		return nil, err
	}
	if opener {
		go d.open(context.WithoutCancel(ctx), id, create, p) // ends with the session; Suspend waits for it
	}
	select {
	case <-p.ready:
		return p.hub, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (d *Directory) place(id string, create bool) (p *place, opener bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, false, goingAway
	}
	if p = d.hubs[id]; p != nil {
		return p, false, nil
	}
	if d.ended[id] && !create {
		return nil, false, ErrUnknownSession // what a client shut down stays down until somebody asks for it anew (A76)
	}
	delete(d.ended, id)
	limit := d.Max
	if limit <= 0 {
		limit = 1024
	}
	if len(d.hubs) >= limit {
		return nil, false, &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many sessions"}
	}
	if d.hubs == nil {
		d.hubs = map[string]*place{}
	}
	p = &place{ready: make(chan struct{})}
	d.hubs[id] = p
	d.wg.Add(1)
	return p, true, nil
}

// open opens the session for everybody who waits for it and forgets it when it
// has ended. One that could not be opened is forgotten before that is told: who
// is told may try again.
func (d *Directory) open(ctx context.Context, id string, create bool, p *place) {
	p.hub, p.err = d.Open(ctx, id, create)
	if p.err != nil {
		d.forget(id)
		close(p.ready)
		return
	}
	close(p.ready)
	<-p.hub.Done()
	if err := p.hub.Close(context.Background()); err != nil && d.Log != nil {
		d.Log.Error("close session", "session", id, "err", err)
	}
	if p.hub.failure() == nil {
		d.retire(id)
	}
	d.forget(id)
}

// retire remembers that a session was ended.
func (d *Directory) retire(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ended) >= maxEnded {
		clear(d.ended)
	}
	if d.ended == nil {
		d.ended = map[string]bool{}
	}
	d.ended[id] = true
}

func (d *Directory) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.hubs, id)
	d.wg.Done()
}

// Suspend suspends every session and refuses new ones. It returns when all have
// ended.
func (d *Directory) Suspend(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	var open []*place
	for _, p := range d.hubs {
		open = append(open, p)
	}
	d.mu.Unlock()
	errs := make([]error, len(open))
	var wg sync.WaitGroup
	for i, p := range open {
		wg.Go(func() {
			if <-p.ready; p.err == nil {
				errs[i] = p.hub.Suspend(ctx)
			}
		})
	}
	wg.Wait()
	d.wg.Wait()
	return errors.Join(errs...)
}
