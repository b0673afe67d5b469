package auth

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	sharePrefix      = "mshare_" // prefix of the token
	shareOwner       = "share_"  // prefix of the principal's id
	defaultShareTTL  = 24 * time.Hour
	maxShareTTL      = 30 * 24 * time.Hour
	maxShares        = 1024 // live shares
	maxSharesOfScope = 256  // live shares, so that one scope cannot use up all
	maxLabel         = 64   // bytes
)

// A share admits its bearer to one session. The file has shares in this form: it has
// the hashes of the tokens, so that a reader of the file cannot use them.
type share struct {
	// Static.
	ID        string         `json:"id"`              // 24 hex digits
	SHA256    string         `json:"sha256"`          // of the token, in hex
	Scope     string         `json:"scope,omitempty"` // of the principal that made it
	SessionID string         `json:"session_id"`
	Role      contracts.Role `json:"role"` // viewer or controller
	Label     string         `json:"label,omitempty"`
	CreatedAt time.Time      `json:"created_at"` // in UTC
	ExpiresAt time.Time      `json:"expires_at"` // in UTC

	// Guarded by shares.mu.
	revoked bool // and not yet removed from the file
}

// live reports whether the share is valid at now. The caller holds shares.mu.
func (s *share) live(now time.Time) bool { return !s.revoked && now.Before(s.ExpiresAt) }

// bearer returns the principal of the bearer.
func (s *share) bearer() contracts.Principal {
	p := contracts.Principal{ID: shareOwner + s.ID, Scope: s.Scope, SessionID: s.SessionID, Expires: s.ExpiresAt}
	if s.Role == contracts.RoleViewer {
		p.Role = s.Role
	}
	return p
}

// isShare reports whether p came with a share token. No other principal has
// this prefix.
func isShare(p contracts.Principal) bool { return strings.HasPrefix(p.ID, shareOwner) }

// shares are the shares of the server. A change is written to the disk before
// it is announced. The writer holds a lock of its own, so that no request waits
// for the disk.
type shares struct {
	// Static.
	path string // empty keeps them in memory
	log  *slog.Logger

	changing   sync.Mutex // held while shares change; locked before mu
	saveFailed bool       // the last write of the file failed; guarded by changing

	mu     sync.Mutex
	byID   map[string]*share // at most maxShares that are live
	byHash map[string]*share
}

// openShares reads the live shares from the file at path.
func openShares(path string, now time.Time, log *slog.Logger) (*shares, error) {
	s := &shares{path: path, log: log, byID: map[string]*share{}, byHash: map[string]*share{}}
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

// The caller of put and drop holds mu, or has the only reference to s.

func (s *shares) put(one *share)  { s.byID[one.ID], s.byHash[one.SHA256] = one, one }
func (s *shares) drop(one *share) { delete(s.byID, one.ID); delete(s.byHash, one.SHA256) }

// holder returns the principal of a share token.
func (s *shares) holder(token string, now time.Time) (contracts.Principal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byHash[hashOfToken(token)]
	if one == nil || !one.live(now) {
		return contracts.Principal{}, false
	}
	return one.bearer(), true
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
	return slices.DeleteFunc(s.all(now), func(one *share) bool { return one.Scope != scope || one.SessionID != session })
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
	slices.SortFunc(all, func(a, b *share) int { return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	return all
}

func hashOfToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// mint completes a share with its id and hash, stores it and returns its token.
func (s *shares) mint(one *share, now time.Time) (token string, err error) {
	id := make([]byte, 12)
	_, _ = rand.Read(id) // never fails; it ends the program instead
	token = sharePrefix + newSecret()
	one.ID, one.SHA256 = hex.EncodeToString(id), hashOfToken(token)

	s.changing.Lock()
	defer s.changing.Unlock()
	all := s.all(now)
	ofScope := 0
	for _, other := range all {
		if other.Scope == one.Scope {
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
// If the file cannot be written, the share admits nobody any more, but would
// after a restart; a second revoke tries to write again.
func (s *shares) revoke(scope, session, id string, now time.Time) (found bool, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	one := s.byID[id]
	found = one != nil && one.Scope == scope && one.SessionID == session && now.Before(one.ExpiresAt)
	if found {
		one.revoked = true
	}
	s.mu.Unlock()
	if !found {
		return false, nil
	}
	return true, s.save(s.all(now), now)
}

var errNotSaved = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "shares cannot be kept: the server's disk is full or cannot be written to"}

// save writes all to the file, then removes the shares that are not live. The
// caller holds changing.
func (s *shares) save(all []*share, now time.Time) error {
	if s.path != "" {
		err := writeShares(s.path, all)
		switch {
		case err != nil && !s.saveFailed:
			s.log.Error("shares cannot be kept", "err", err)
		case err == nil && s.saveFailed:
			s.log.Info("shares can be kept again")
		}
		if s.saveFailed = err != nil; s.saveFailed {
			return errNotSaved
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

const (
	shareFileVersion = 1
	maxShareFile     = 2 << 20 // bytes; far more than maxShares shares need
)

// A shareFile is the content of the file.
type shareFile struct {
	Version int      `json:"version"`
	Shares  []*share `json:"shares"`
}

// readShares returns the shares in the file, or none if it does not exist. A
// file that is not understood is an error: otherwise revoked shares could
// return, and shares could be lost silently.
func readShares(path string) ([]*share, error) {
	b, shared, err := readFile("share file", path, maxShareFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case shared != nil:
		return nil, fmt.Errorf("share file %s: %w", path, shared)
	}
	var file shareFile
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, fmt.Errorf("share file %s: malformed JSON", path)
	}
	if file.Version != shareFileVersion || len(file.Shares) > maxShares {
		return nil, fmt.Errorf("share file %s: version %d with %d shares is not understood", path, file.Version, len(file.Shares))
	}
	for i, one := range file.Shares {
		if one == nil || !one.valid() {
			return nil, fmt.Errorf("share file %s: share %d is malformed", path, i)
		}
		if now, ok := CurrentScope(one.Scope); ok {
			one.Scope = now
		}
		one.CreatedAt, one.ExpiresAt = one.CreatedAt.UTC(), one.ExpiresAt.UTC()
	}
	return file.Shares, nil
}

// valid reports whether a share in a file can be understood.
func (s *share) valid() bool {
	hash, err := hex.DecodeString(s.SHA256)
	return err == nil && len(hash) == sha256.Size && contracts.ValidID(s.ID) && contracts.ValidID(s.SessionID) &&
		(s.Scope == "" || validScope(s.Scope)) && validLabel(s.Label) && !s.ExpiresAt.IsZero() &&
		(s.Role == contracts.RoleViewer || s.Role == contracts.RoleController)
}

// writeShares replaces the file. A reader sees all of the old file or all of
// the new one, also after a crash.
func writeShares(path string, list []*share) (err error) {
	file := shareFile{Version: shareFileVersion, Shares: append([]*share{}, list...)} // never null
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		panic(err) // cannot fail: strings and times with four-digit years
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the share file: %w", err)
	}
	f, err := os.CreateTemp(dir, ".shares-*") // mode 0600
	if err != nil {
		return fmt.Errorf("make the share file: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the share file: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return syncDir(dir)
}

// syncDir makes a rename in dir durable. Windows has no such call.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the folder of the share file: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync the folder of the share file: %w", err)
	}
	return nil
}
