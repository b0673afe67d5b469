package hub

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Key names a session. Whoever authenticates for one scope cannot reach the
// sessions of another, nor learn whether they exist (A84).
type Key struct{ Scope, ID string }

// A Wish says what may be done to find a session, and what a new one is like.
type Wish struct {
	Create bool            // one that is unknown may be made
	Init   *contracts.Init // what a session that this makes begins with; nil for nothing
}

// A Directory holds the sessions of one process. It opens each at most once,
// also when two clients ask for it at the same time (A83). It is safe for
// concurrent use.
type Directory struct {
	// Open makes and starts the hub of a session. Without Wish.Create only one
	// that was kept may be opened; ErrUnknownSession says there is none.
	Open func(ctx context.Context, key Key, wish Wish) (*Hub, error)
	// Max is how many sessions may be open; zero means 1,024.
	Max int
	Log *slog.Logger

	mu     sync.Mutex
	hubs   map[Key]*place
	ended  map[Key]bool // shut down by a client; at most maxEnded
	closed bool
	life   context.Context // until Suspend: bounds what opens sessions
	end    context.CancelFunc
	wg     sync.WaitGroup
}

// maxEnded bounds how many shut down sessions are remembered; beyond it they
// can be opened again.
const maxEnded = 4096

// A place is a session that is open or being opened. hub and err are set
// before ready is closed.
type place struct {
	ready chan struct{}
	gone  chan struct{} // closed once the directory has forgotten it
	hub   *Hub
	err   error
}

// Get returns the session's hub. opened says that this call made it, and not
// another one at the same time.
func (d *Directory) Get(ctx context.Context, key Key, wish Wish) (h *Hub, opened bool, err error) {
	for {
		p, opener, err := d.place(key, wish.Create)
		if err != nil {
			return nil, false, err
		}
		if opener {
			go d.open(context.WithoutCancel(ctx), key, wish, p) // ends with the session; Suspend waits for it
		}
		if err := await(ctx, p.ready); err != nil {
			return nil, false, err
		}
		if p.err != nil || opener || !p.hub.lifeNow().rests() {
			return p.hub, opener, p.err
		}
		if err := await(ctx, p.gone); err != nil { // it goes to sleep just now, and can be woken once it has
			return nil, false, err
		}
	}
}

// await waits until done is closed or ctx ends. What is done already counts, even
// if ctx has ended.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// List returns the sessions that are open.
func (d *Directory) List() map[Key]*Hub {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make(map[Key]*Hub, len(d.hubs))
	for key, p := range d.hubs {
		select {
		case <-p.ready:
			if p.err == nil {
				list[key] = p.hub
			}
		default: // being opened
		}
	}
	return list
}

func (d *Directory) place(id Key, create bool) (p *place, opener bool, err error) {
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
	limit := d.Max
	if limit <= 0 {
		limit = 1024
	}
	if len(d.hubs) >= limit {
		return nil, false, &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many sessions"}
	}
	if d.hubs == nil {
		d.hubs = map[Key]*place{}
		d.life, d.end = context.WithCancel(context.Background())
	}
	delete(d.ended, id)
	p = &place{ready: make(chan struct{}), gone: make(chan struct{})}
	d.hubs[id] = p
	d.wg.Add(1)
	return p, true, nil
}

// open opens the session for everybody who waits for it and forgets it when it
// has ended. One that could not be opened is forgotten before that is told: who
// is told may try again.
func (d *Directory) open(ctx context.Context, key Key, wish Wish, p *place) {
	defer close(p.gone)
	ctx, stop := context.WithCancel(ctx)
	opened := context.AfterFunc(d.life, stop)
	p.hub, p.err = d.Open(ctx, key, wish)
	opened() // from here on the hub ends by itself
	if p.err != nil {
		d.forget(key)
		close(p.ready)
		return
	}
	close(p.ready)
	<-p.hub.Done()
	if err := p.hub.Close(context.Background()); err != nil && d.Log != nil {
		d.Log.Error("close session", "session", key.ID, "err", err)
	}
	if p.hub.lifeNow().over() {
		d.retire(key)
	}
	d.forget(key)
}

// retire remembers that a session was ended.
func (d *Directory) retire(id Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ended) >= maxEnded {
		clear(d.ended)
	}
	if d.ended == nil {
		d.ended = map[Key]bool{}
	}
	d.ended[id] = true
}

// Retired reports whether a session was ended by a client, so that it is only
// found again by who asks for it anew.
func (d *Directory) Retired(key Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended[key]
}

func (d *Directory) forget(id Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.hubs, id)
	d.wg.Done()
}

// Suspend suspends every session, gives up those that are being opened, and
// refuses new ones. It returns when all have ended.
func (d *Directory) Suspend(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	if d.end != nil {
		d.end()
	}
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
