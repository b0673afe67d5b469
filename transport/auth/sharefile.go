package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/seed-028515a8/maestro/contracts"
)

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
