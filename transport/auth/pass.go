package auth

import (
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A pass is a secret that stands for a principal for a limited time: a ticket
// or a cookie.
type pass struct {
	key     [sha256.Size]byte // a hash, so that the duration of a lookup says nothing about the secret
	holder  contracts.Principal
	origin  string // canonical; empty allows every allowed origin
	expires time.Time
}

// passes are the valid passes. All live equally long, so they expire in the
// order in which they were made.
type passes struct {
	ttl  time.Duration
	most int // beyond it the oldest is forgotten

	mu    sync.Mutex
	order *list.List                          // of *pass, oldest first; at most most
	byKey map[[sha256.Size]byte]*list.Element // into order
}

func newPasses(ttl time.Duration, most int) passes {
	return passes{ttl: ttl, most: most, order: list.New(), byKey: map[[sha256.Size]byte]*list.Element{}}
}

// newSecret returns 256 random bits as base64url text.
func newSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails; it ends the program instead
	return base64.RawURLEncoding.EncodeToString(secret)
}

// add makes a pass and returns its secret, which is not stored.
func (p *passes) add(holder contracts.Principal, origin string, now time.Time) (secret string, expires time.Time) {
	secret = newSecret()
	expires = now.Add(p.ttl)
	made := &pass{key: sha256.Sum256([]byte(secret)), holder: holder, origin: origin, expires: expires}
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.order.Front(); e != nil; e = p.order.Front() {
		if old := e.Value.(*pass); p.order.Len() < p.most && now.Before(old.expires) {
			break
		}
		p.remove(e)
	}
	p.byKey[made.key] = p.order.PushBack(made)
	return secret, expires
}

// find returns the valid pass with a secret, and removes it if it is used up.
func (p *passes) find(secret string, usedUp bool, now time.Time) (found pass, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.byKey[sha256.Sum256([]byte(secret))]
	if e == nil {
		return pass{}, false
	}
	found = *e.Value.(*pass)
	ok = now.Before(found.expires)
	if usedUp || !ok {
		p.remove(e)
	}
	return found, ok
}

// remove removes a pass. The caller holds mu.
func (p *passes) remove(e *list.Element) {
	delete(p.byKey, p.order.Remove(e).(*pass).key)
}
