package ws

import (
	"sync"
	"time"
)

// maxPrincipals bounds how many principals rates remembers. Principals are
// authenticated, so that many at once means one process serves very many users.
const maxPrincipals = 4096

// rates limits how fast each principal may attach. Per principal it keeps one
// time: when the allowance would be whole again if nothing else came.
type rates struct {
	every time.Duration // between attachments in the long run; zero is no limit
	burst int           // attachments at once after a quiet time

	mu    sync.Mutex
	whole map[string]time.Time // at most maxPrincipals
}

func newRates(burst int, perSecond float64) *rates {
	r := &rates{burst: burst, whole: map[string]time.Time{}}
	if perSecond > 0 {
		r.every = time.Duration(float64(time.Second) / perSecond)
	}
	return r
}

// take counts one attachment of id and returns zero, or how long to wait.
func (r *rates) take(id string, now time.Time) time.Duration {
	if r.every == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	whole, known := r.whole[id]
	if whole.Before(now) {
		whole = now
	}
	whole = whole.Add(r.every)
	if wait := whole.Sub(now) - time.Duration(r.burst)*r.every; wait > 0 {
		return wait
	}
	if !known && len(r.whole) >= maxPrincipals {
		r.forget(now)
	}
	r.whole[id] = whole
	return 0
}

// forget makes room: it drops all whose allowance is whole, for whom nothing is
// lost, or else the one that is closest to it.
func (r *rates) forget(now time.Time) {
	var oldest string
	for id, whole := range r.whole {
		if !whole.After(now) {
			delete(r.whole, id)
		} else if oldest == "" || whole.Before(r.whole[oldest]) {
			oldest = id
		}
	}
	if len(r.whole) >= maxPrincipals {
		delete(r.whole, oldest)
	}
}
