package auth

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	ID        string         `json:"id"`              // 24 hex digits
	SHA256    string         `json:"sha256"`          // of the token, in hex
	Scope     string         `json:"scope,omitempty"` // of the principal that made it
	SessionID string         `json:"session_id"`
	Role      contracts.Role `json:"role"` // viewer, approver or controller
	Label     string         `json:"label,omitempty"`
	CreatedAt time.Time      `json:"created_at"`     // in UTC
	ExpiresAt time.Time      `json:"expires_at"`     // in UTC
	Usage     usage          `json:"usage,omitzero"` // when the file was written; the present one is in shares.usages
}

// bearer returns the principal of the bearer.
func (s *share) bearer() contracts.Principal {
	p := contracts.Principal{
		ID: shareOwner + s.ID, Name: cmp.Or(contracts.CleanLabel(s.Label, contracts.MaxLabelBytes), "guest"),
		Scope: s.Scope, SessionID: s.SessionID, Expires: s.ExpiresAt,
	}
	if s.Role != contracts.RoleController {
		p.Role = s.Role
	}
	return p
}

// isShare reports whether p came with a share token. No other principal has
// this prefix.
func isShare(p contracts.Principal) bool { return strings.HasPrefix(p.ID, shareOwner) }

// shares are the shares of the server. No request waits for the disk: readers load
// the list, and one writer at a time replaces it.
type shares struct {
	// Static.
	path string // empty keeps them in memory
	log  *slog.Logger

	list atomic.Pointer[[]*share] // those not revoked, the oldest first; replaced as a whole

	usages usages

	changing   sync.Mutex // held while shares change
	unsaved    []*share   // revoked, but still in the file; guarded by changing
	saveFailed bool       // the last write of the file failed; guarded by changing
}

// openShares reads the live shares from the file at path.
func openShares(path string, now time.Time, log *slog.Logger) (*shares, error) {
	s := &shares{path: path, log: log}
	list, err := readShares(path)
	list = slices.DeleteFunc(list, func(one *share) bool { return !now.Before(one.ExpiresAt) })
	s.list.Store(&list)
	s.usages.byID = make(map[string]*usage, len(list))
	for _, one := range list {
		s.usages.byID[one.ID] = new(one.Usage)
	}
	return s, err
}

// live returns the shares that are valid at now, the oldest first.
func (s *shares) live(now time.Time) (live []*share) {
	for _, one := range *s.list.Load() {
		if now.Before(one.ExpiresAt) {
			live = append(live, one)
		}
	}
	return live
}

// find returns the valid share for which is returns true, or nil.
func (s *shares) find(now time.Time, is func(*share) bool) *share {
	list := *s.list.Load()
	if i := slices.IndexFunc(list, is); i >= 0 && now.Before(list[i].ExpiresAt) {
		return list[i]
	}
	return nil
}

// has reports whether the share of a principal is valid.
func (s *shares) has(principalID string, now time.Time) bool {
	id := strings.TrimPrefix(principalID, shareOwner)
	return s.find(now, func(one *share) bool { return one.ID == id }) != nil
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
	live := s.live(now)
	ofScope := 0
	for _, other := range live {
		if other.Scope == one.Scope {
			ofScope++
		}
	}
	if len(live) >= maxShares || ofScope >= maxSharesOfScope {
		return "", &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many shares: revoke some"}
	}
	live = append(live, one)
	if err := s.save(live); err != nil {
		return "", err
	}
	s.list.Store(&live)
	return token, nil
}

// revoke ends a share of a session at once, and returns false if there is none.
// If the file cannot be written, the share admits nobody any more, but would
// after a restart; a second revoke tries to write again.
func (s *shares) revoke(scope, session, id string, now time.Time) (found bool, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	is := func(one *share) bool { return one.ID == id && one.Scope == scope && one.SessionID == session }
	live := s.live(now)
	if i := slices.IndexFunc(live, is); i >= 0 {
		s.unsaved = append(s.unsaved, live[i])
		live = slices.Delete(live, i, i+1)
		s.list.Store(&live)
	} else if !slices.ContainsFunc(s.unsaved, func(one *share) bool { return is(one) && now.Before(one.ExpiresAt) }) {
		return false, nil
	}
	return true, s.save(live)
}

var errNotSaved = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "shares cannot be kept: the server's disk is full or cannot be written to"}

// save writes the live shares to the file. The caller holds changing.
func (s *shares) save(live []*share) error {
	live = s.usages.keep(live)
	if s.path != "" {
		err := writeStored("share file", s.path, shareFile{shareFileVersion, append([]*share{}, live...)}) // never null
		switch {
		case err != nil && !s.saveFailed:
			s.log.Error("shares cannot be kept", "err", err)
		case err == nil && s.saveFailed:
			s.log.Info("shares can be kept again")
		}
		if s.saveFailed = err != nil; s.saveFailed {
			s.usages.changed.Store(true) // the next flush tries again
			return errNotSaved
		}
	}
	s.unsaved = nil
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
	var file shareFile
	if ok, err := readStored("share file", path, maxShareFile, &file); !ok {
		return nil, err
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
		s.Usage.Uses >= 0 && len(s.Usage.From) <= maxLabel && s.Usage.At.Year() < 10000 &&
		slices.Contains([]contracts.Role{contracts.RoleViewer, contracts.RoleApprover, contracts.RoleController}, s.Role)
}
