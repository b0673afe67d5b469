package auth

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	sharePrefix      = "mshare_" // of the token
	shareOwner       = "share_"  // of the principal's id
	defaultShareTTL  = 24 * time.Hour
	maxShareTTL      = 30 * 24 * time.Hour
	maxShares        = 1024 // live ones
	maxSharesOfScope = 256  // of these, so that no scope uses up the others' share
	maxLabel         = 64   // bytes
)

// A share lets its bearer into one session.
type share struct {
	// Static.
	id      string            // 24 hex digits
	hash    [sha256.Size]byte // of the token
	scope   string            // of who minted it
	session string
	role    contracts.Role // viewer or controller
	label   string         // for people
	made    time.Time
	expires time.Time

	// Guarded by shares.mu.
	revoked bool // and not yet gone from the file
}

// live reports whether the share lets in at now. It needs the lock.
func (s *share) live(now time.Time) bool { return !s.revoked && now.Before(s.expires) }

// principal returns who the bearer is.
func (s *share) principal() contracts.Principal {
	p := contracts.Principal{ID: shareOwner + s.id, Scope: s.scope, SessionID: s.session, Expires: s.expires}
	if s.role == contracts.RoleViewer {
		p.Role = s.role
	}
	return p
}

// isShare reports whether p came with a share token. No other id begins like it.
func isShare(p contracts.Principal) bool { return strings.HasPrefix(p.ID, shareOwner) }

// shares are those that were minted. What changes them goes to the disk before
// it is told to anybody, under a lock of its own, so that no request waits for
// the disk.
type shares struct {
	// Static.
	path string // empty keeps them in memory
	log  *slog.Logger

	changing sync.Mutex // held by who changes them; taken before mu
	unkept   bool       // the file could not be written the last time; guarded by changing

	mu     sync.Mutex
	byID   map[string]*share // at most maxShares that are live
	byHash map[[sha256.Size]byte]*share
}

// openShares reads the shares in the file at path.
func openShares(path string, now time.Time, log *slog.Logger) (*shares, error) {
	s := &shares{path: path, log: log, byID: map[string]*share{}, byHash: map[[sha256.Size]byte]*share{}}
	if path == "" {
		return s, nil
	}
	list, err := readShares(path)
	if err != nil {
		return nil, err
	}
	for _, one := range list {
		if one.live(now) {
			s.put(one)
		}
	}
	return s, nil
}

// put and drop need mu, or nobody else who knows s.

func (s *shares) put(one *share)  { s.byID[one.id], s.byHash[one.hash] = one, one }
func (s *shares) drop(one *share) { delete(s.byID, one.id); delete(s.byHash, one.hash) }

// holder returns whom a token lets in.
func (s *shares) holder(token string, now time.Time) (contracts.Principal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byHash[sha256.Sum256([]byte(token))]
	if one == nil || !one.live(now) {
		return contracts.Principal{}, false
	}
	return one.principal(), true
}

// has reports whether the share of a principal is live.
func (s *shares) has(principalID string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byID[strings.TrimPrefix(principalID, shareOwner)]
	return one != nil && one.live(now)
}

// list returns the live shares of a session, the oldest first.
func (s *shares) list(scope, session string, now time.Time) []*share {
	return slices.DeleteFunc(s.all(now), func(one *share) bool { return one.scope != scope || one.session != session })
}

// all returns the live shares, the oldest first.
func (s *shares) all(now time.Time) []*share {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*share
	for _, one := range s.byID {
		if one.live(now) {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b *share) int { return cmp.Or(a.made.Compare(b.made), cmp.Compare(a.id, b.id)) })
	return all
}

// mint keeps a share that has all but an id and a hash, and returns its token.
func (s *shares) mint(one *share, now time.Time) (token string, err error) {
	id := make([]byte, 12)
	_, _ = rand.Read(id) // never fails: it ends the program rather
	token = sharePrefix + newSecret()
	one.id, one.hash = hex.EncodeToString(id), sha256.Sum256([]byte(token))

	s.changing.Lock()
	defer s.changing.Unlock()
	all := s.all(now)
	ofScope := 0
	for _, other := range all {
		if other.scope == one.scope {
			ofScope++
		}
	}
	if len(all) >= maxShares || ofScope >= maxSharesOfScope {
		return "", &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many shares: revoke some"}
	}
	if err := s.save(append(all, one), now); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(one)
	return token, nil
}

// revoke ends a share of a session at once, and returns false if there is none.
// If the file could not be written, the share does not let anybody in any more,
// but would after a restart: revoking it once more tries again.
func (s *shares) revoke(scope, session, id string, now time.Time) (found bool, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	one := s.byID[id]
	found = one != nil && one.scope == scope && one.session == session && now.Before(one.expires)
	if found {
		one.revoked = true
	}
	s.mu.Unlock()
	if !found {
		return false, nil
	}
	return true, s.save(s.all(now), now)
}

var errUnkept = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "shares cannot be kept: the server's disk is full or cannot be written to"}

// save writes all to the file, and forgets what is then neither there nor live.
// It needs changing.
func (s *shares) save(all []*share, now time.Time) error {
	if s.path != "" {
		err := writeShares(s.path, all)
		switch {
		case err != nil && !s.unkept:
			s.log.Error("shares cannot be kept", "err", err)
		case err == nil && s.unkept:
			s.log.Info("shares can be kept again")
		}
		if s.unkept = err != nil; s.unkept {
			return errUnkept
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.byID {
		if !one.live(now) {
			s.drop(one)
		}
	}
	return nil
}
