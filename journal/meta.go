package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// meta is what a file store must know about itself before it trusts its
// segments. It is replaced as a whole, and synced, before what it says
// becomes true.
type meta struct {
	Version  int    `json:"version"`
	Epoch    string `json:"epoch"`
	Boot     string `json:"boot"`     // the machine's boot id when Open was set
	Open     bool   `json:"open"`     // may have been appended to since it was last synced as a whole
	Unsynced bool   `json:"unsynced"` // entries may have been shown before they were synced
	Reserved uint64 `json:"reserved"` // if Unsynced, no cursor beyond it was shown
	Floor    uint64 `json:"floor"`    // cursors up to here may have been used and lost
	Synced   uint64 `json:"synced"`   // entries up to here were on stable storage
}

// errVersion means that a file was written by another version of this program.
var errVersion = errors.New("unknown journal format version")

const (
	metaName    = "meta.json"
	metaVersion = 1
	metaMax     = 4 << 10
)

// readMeta returns the meta file of dir, or nil if there is none.
func readMeta(dir string) (*meta, error) {
	path := filepath.Join(dir, metaName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > metaMax {
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrCorrupt, path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := new(meta)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	if m.Version != metaVersion {
		return nil, fmt.Errorf("%s: %w %d", path, errVersion, m.Version)
	}
	if len(m.Epoch) != epochSize {
		return nil, fmt.Errorf("%w: %s: epoch %q", ErrCorrupt, path, m.Epoch)
	}
	return m, nil
}

// write replaces the meta file of dir.
func (m *meta) write(dir string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, metaName)
	if err := writeSynced(path+".new", text); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(dir)
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
