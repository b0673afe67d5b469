package auth

import (
	"sync"
	"time"
)

// Forget ends the tickets and cookies of a principal, and what its requests have authorized
// so far: Alive is false until a later request has a credential of the principal.
func (g *Authenticator) Forget(principalID string) {
	g.forgotten.add(principalID, g.opts.Now())
	g.tickets.forget(principalID)
	g.logins.forget(principalID)
	if g.cookies.forget(principalID) {
		_ = g.cookies.save() // has been logged
	}
}

const (
	forgottenTTL = 10 * time.Minute // longer than a request is being answered
	maxForgotten = 4096             // beyond it any is dropped
)

// forgotten are the principals of Forget that have not come back.
type forgotten struct {
	mu sync.Mutex
	at map[string]time.Time // of Forget, by id
}

func (f *forgotten) add(id string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for other, at := range f.at {
		if now.Sub(at) >= forgottenTTL || len(f.at) >= maxForgotten {
			delete(f.at, other)
		}
	}
	f.at[id] = now
}

func (f *forgotten) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.at[id]
	return ok
}

// returned notes that a request that came at a time has a credential of the principal.
func (f *forgotten) returned(id string, came time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, ok := f.at[id]; ok && !came.Before(at) {
		delete(f.at, id)
	}
}
