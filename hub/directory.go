package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Key names a session. A principal of one scope can neither reach the sessions
// of another scope nor learn whether they exist (A84).
type Key struct{ Scope, ID string }

// OpenOptions says how [Directory.Get] may open a session.
type OpenOptions struct {
	Create bool            // create the session if it is unknown
	Init   *contracts.Init // the first command of a created session; nil for none
}

// A Directory holds the open sessions of a process. It opens each at most once,
// also if two clients ask for it at the same time (A83). It is safe for
// concurrent use.
type Directory struct {
	// Open makes and starts the hub of a session. Without OpenOptions.Create it
	// opens only a session that is stored, and otherwise returns ErrUnknownSession.
	Open func(ctx context.Context, key Key, options OpenOptions) (*Hub, error)
	// Max is how many sessions may be open; zero means 1,024. Get refuses more with
	// rate_limited.
	Max int
	Log *slog.Logger

	mu     sync.Mutex
	hubs   map[Key]*directoryEntry
	ended  map[Key]bool // ended by a client; at most maxEnded
	closed bool
	life   context.Context // ends with Suspend; limits the calls of Open
	end    context.CancelFunc
}

// maxEnded bounds how many ended sessions are remembered. At the bound all are
// forgotten and can be opened again.
const maxEnded = 4096

// A directoryEntry is a session that is open or being opened. hub and err are set
// before ready is closed.
type directoryEntry struct {
	ready   chan struct{}
	removed chan struct{} // closed when the entry has been removed
	hub     *Hub
	err     error
}

// Get returns the session's hub. opened reports whether this call opened it.
func (d *Directory) Get(ctx context.Context, key Key, options OpenOptions) (h *Hub, opened bool, err error) {
	for {
		p, opener, err := d.entry(key, options.Create)
		if err != nil {
			return nil, false, err
		}
		if opener {
			go d.open(context.WithoutCancel(ctx), key, options, p) // ends with the session
		}
		if err := await(ctx, p.ready); err != nil {
			return nil, false, err
		}
		if p.err != nil || opener {
			return p.hub, opener, p.err
		}
		if life := p.hub.lifeNow(); !life.suspended || life.failed != nil {
			return p.hub, false, nil
		}
		if err := await(ctx, p.removed); err != nil { // it is being suspended, and can be opened again afterwards
			return nil, false, err
		}
	}
}

// await waits until done is closed or ctx ends. If both are true at once, done
// wins.
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

func (d *Directory) entry(id Key, create bool) (p *directoryEntry, opener bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, false, errGoingAway
	}
	if p = d.hubs[id]; p != nil {
		return p, false, nil
	}
	if d.ended[id] && !create {
		return nil, false, ErrUnknownSession // a session that a client ended opens again only with Create (A76)
	}
	if len(d.hubs) >= positive(d.Max, 1024) {
		return nil, false, &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many sessions"}
	}
	if d.hubs == nil {
		d.hubs, d.ended = map[Key]*directoryEntry{}, map[Key]bool{}
		d.life, d.end = context.WithCancel(context.Background())
	}
	delete(d.ended, id)
	p = &directoryEntry{ready: make(chan struct{}), removed: make(chan struct{})}
	d.hubs[id] = p
	return p, true, nil
}

// open opens the session for all callers that wait for it, and removes its entry
// when it has ended. If the session cannot be opened, the entry is removed before
// the callers get the error, so that they can try again.
func (d *Directory) open(ctx context.Context, key Key, options OpenOptions, p *directoryEntry) {
	defer close(p.removed)
	ctx, stop := context.WithCancel(ctx)
	opened := context.AfterFunc(d.life, stop)
	p.hub, p.err = d.Open(ctx, key, options)
	opened() // an open hub is ended by Suspend, not by the context
	if p.err != nil && d.life.Err() != nil {
		p.err = errGoingAway // the cause is Suspend
	}
	if p.err != nil {
		d.forget(key, false)
		close(p.ready)
		return
	}
	close(p.ready)
	<-p.hub.Done()
	if err := p.hub.Close(context.Background()); err != nil && d.Log != nil {
		d.Log.Error("close session", "session", key.ID, "err", err)
	}
	life := p.hub.lifeNow()
	d.forget(key, !life.suspended && life.failed == nil)
}

// forget removes a session. ended says that a client ended it.
func (d *Directory) forget(key Key, ended bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.hubs, key)
	if ended {
		if len(d.ended) >= maxEnded {
			clear(d.ended)
		}
		d.ended[key] = true
	}
}

// Retired reports whether a client ended the session. Get then needs
// OpenOptions.Create to open it again.
func (d *Directory) Retired(key Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended[key]
}

// Suspend suspends all sessions, cancels those that are being opened, and refuses
// new ones. It returns when all have ended. If ctx ends first, it returns an error that
// names the sessions that are still being opened or have not ended in time. A session
// that opens later is suspended then.
func (d *Directory) Suspend(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	if d.end != nil {
		d.end()
	}
	open := maps.Clone(d.hubs)
	d.mu.Unlock()
	var errs []error
	var mu sync.Mutex // guards errs
	var wg sync.WaitGroup
	for key, p := range open {
		wg.Go(func() {
			if err := d.suspend(ctx, key, p); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("session %s: %w", key.ID, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// suspend waits until the session is open, suspends it, and waits until it is removed.
// If ctx ends before the session is open, suspend returns an error, and the session is
// suspended later.
func (d *Directory) suspend(ctx context.Context, key Key, p *directoryEntry) error {
	if err := await(ctx, p.ready); err != nil {
		go func() { // ends with the session
			if err := d.suspend(context.Background(), key, p); err != nil && d.Log != nil {
				d.Log.Error("suspend session", "session", key.ID, "err", err)
			}
		}()
		return fmt.Errorf("it is still being opened: %w", err)
	}
	var err error
	if p.err == nil {
		err = p.hub.Suspend(ctx)
		select {
		case <-p.hub.Closed():
		default:
			return err // another call is still ending the session
		}
	}
	<-p.removed
	return err
}
