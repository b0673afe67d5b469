package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	shareFileVersion = 1
	maxShareFile     = 2 << 20 // bytes; far more than maxShares shares need
)

// A shareFile is the content of the file. It has the hashes of the tokens, so
// that a reader of the file cannot use the shares.
type shareFile struct {
	Version int          `json:"version"`
	Shares  []savedShare `json:"shares"`
}

type savedShare struct {
	ID        string         `json:"id"`
	SHA256    string         `json:"sha256"` // of the token, in hex
	Scope     string         `json:"scope,omitempty"`
	SessionID string         `json:"session_id"`
	Role      contracts.Role `json:"role"`
	Label     string         `json:"label,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
	ExpiresAt time.Time      `json:"expires_at"`
}

// readShares returns the shares in the file, or none if it does not exist. A
// file that is not understood is an error: otherwise revoked shares could
// return, and shares could be lost silently.
func readShares(path string) ([]*share, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the share file: %w", err)
	}
	defer f.Close()
	if err := checkPrivate(f); err != nil {
		return nil, fmt.Errorf("share file %s: %w", path, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxShareFile))
	if err != nil {
		return nil, fmt.Errorf("read the share file: %w", err)
	}
	var file shareFile
	if err := json.Unmarshal(b, &file); err != nil {
		return nil, fmt.Errorf("share file %s: malformed JSON", path)
	}
	if file.Version != shareFileVersion || len(file.Shares) > maxShares {
		return nil, fmt.Errorf("share file %s: version %d with %d shares is not understood", path, file.Version, len(file.Shares))
	}
	var list []*share
	for i, saved := range file.Shares {
		one, ok := saved.share()
		if !ok {
			return nil, fmt.Errorf("share file %s: share %d is malformed", path, i)
		}
		list = append(list, one)
	}
	return list, nil
}

func (s *savedShare) share() (*share, bool) {
	one := &share{
		id: s.ID, scope: s.Scope, session: s.SessionID, role: s.Role, label: s.Label,
		made: s.CreatedAt.UTC(), expires: s.ExpiresAt.UTC(),
	}
	if now, ok := CurrentScope(s.Scope); ok {
		one.scope = now
	}
	hash, err := hex.DecodeString(s.SHA256)
	copy(one.hash[:], hash)
	return one, err == nil && len(hash) == sha256.Size && validID(s.ID) && validID(s.SessionID) &&
		(s.Scope == "" || validScope(s.Scope)) && validLabel(s.Label) && !s.ExpiresAt.IsZero() &&
		(s.Role == contracts.RoleViewer || s.Role == contracts.RoleController)
}

// writeShares replaces the file. A reader sees all of the old file or all of
// the new one, also after a crash.
func writeShares(path string, list []*share) (err error) {
	file := shareFile{Version: shareFileVersion, Shares: []savedShare{}}
	for _, one := range list {
		file.Shares = append(file.Shares, savedShare{
			ID: one.id, SHA256: hex.EncodeToString(one.hash[:]), Scope: one.scope, SessionID: one.session,
			Role: one.role, Label: one.label, CreatedAt: one.made, ExpiresAt: one.expires,
		})
	}
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
