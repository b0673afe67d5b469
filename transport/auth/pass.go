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

// A pass is a secret that stands for a principal for a while: a ticket or a
// cookie.
type pass struct {
	key     [sha256.Size]byte // hash: a lookup's duration says nothing about the secret
	holder  contracts.Principal
	origin  string // canonical; empty admits every origin that is allowed at all
	expires time.Time
}

// passes are those still valid. All live equally long, so that the order in
// which they were made is that in which they expire.
type passes struct {
	ttl  time.Duration
	most int // beyond, the oldest is forgotten

	mu    sync.Mutex
	order *list.List                          // of *pass, oldest first; at most most
	byKey map[[sha256.Size]byte]*list.Element // into order
}

func newPasses(ttl time.Duration, most int) passes {
	return passes{ttl: ttl, most: most, order: list.New(), byKey: map[[sha256.Size]byte]*list.Element{}}
}

// newSecret returns 256 random bits as text.
func newSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails: it ends the program rather
	return base64.RawURLEncoding.EncodeToString(secret)
}

// add makes a pass and returns its secret, which is kept nowhere.
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

// find returns the pass with a secret if it is still valid.
func (p *passes) find(secret string, now time.Time) (found pass, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.byKey[sha256.Sum256([]byte(secret))]
	if !ok {
		return pass{}, false
	}
	if found = *e.Value.(*pass); !now.Before(found.expires) {
		p.remove(e)
		return pass{}, false
	}
	return found, true
}

// take is find, and the pass is no more.
func (p *passes) take(secret string, now time.Time) (taken pass, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.byKey[sha256.Sum256([]byte(secret))]
	if !ok {
		return pass{}, false
	}
	p.remove(e)
	taken = *e.Value.(*pass)
	return taken, now.Before(taken.expires)
}

// remove needs the lock.
func (p *passes) remove(e *list.Element) {
	delete(p.byKey, p.order.Remove(e).(*pass).key)
}
