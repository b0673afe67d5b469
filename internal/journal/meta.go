package journal

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
)

// meta is the state of a file store outside its segments. It is replaced as a
// whole, and synced, before its content becomes true.
type meta struct {
	Version  int    `json:"version"`
	Journal  string `json:"journal"` // in the header of every segment, in all epochs
	Files    string `json:"files"`   // identities of this file and the lock file; a copy has others
	Epoch    string `json:"epoch"`
	Boot     string `json:"boot"`     // the machine's boot id when Open was set
	Open     bool   `json:"open"`     // entries may have been appended since everything was synced
	Unsynced bool   `json:"unsynced"` // entries may have been shown before they were synced
	Reserved uint64 `json:"reserved"` // if Unsynced, no greater cursor was shown
	Floor    uint64 `json:"floor"`    // cursors up to here may have been used and lost
	Synced   uint64 `json:"synced"`   // entries up to here are on stable storage
	Sum      uint32 `json:"sum"`      // CRC-32C of the JSON text in which it is zero
}

// encode returns the JSON of m with its checksum.
func (m meta) encode() []byte {
	m.Sum = 0
	m.Sum = crc32.Checksum(m.json(), castagnoli())
	return m.json()
}

func (m meta) json() []byte {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // it has only strings, numbers and booleans
	}
	return text
}

// errVersion means that another version of this program wrote the file.
var errVersion = errors.New("unknown journal format version")

const (
	metaName    = "meta.json"
	lockName    = "lock"
	metaVersion = 2
	metaMax     = 4 << 10
)

// readMeta returns the meta file of dir, or nil if there is none. copied reports
// whether it or the lock file is a copy, so that the original may have gone on; without
// a lock it is false.
func readMeta(dir string, lock *os.File) (m *meta, copied bool, err error) {
	path := filepath.Join(dir, metaName)
	f, err := openRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, metaMax+1))
	switch {
	case err != nil:
		return nil, false, err
	case len(text) > metaMax:
		return nil, false, fmt.Errorf("%w: %s has more than %d bytes", ErrCorrupt, path, metaMax)
	}
	m = new(meta)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, false, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	if m.Version != metaVersion {
		return nil, false, fmt.Errorf("%w: %s: %w %d", ErrCorrupt, path, errVersion, m.Version)
	}
	if !bytes.Equal(m.encode(), text) {
		return nil, false, fmt.Errorf("%w: %s does not have the checksum it states", ErrCorrupt, path)
	}
	return m, lock != nil && m.Files != identities(f, lock), nil
}

// write replaces the meta file of dir.
func (m *meta) write(dir string, lock *os.File) error {
	return replaceFile(filepath.Join(dir, metaName), true, func(f *os.File) []byte {
		m.Files = identities(f, lock)
		return m.encode()
	})
}

func identities(meta, lock *os.File) string { return identity(meta) + " " + identity(lock) }

// newEpoch returns a new epoch: the letter e and 128 random bits in hex.
func newEpoch() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return "e" + hex.EncodeToString(b[:])
}

// epochStart returns the cursor after which a new epoch begins. used is the newest
// cursor that may have been used in earlier epochs or in copies. The distance is
// random, so that cursors of different epochs do not overlap, and a cursor without
// its epoch is recognized as old. JavaScript counts exactly up to 2^53, which
// leaves room for 8,000 epochs.
func epochStart(used uint64) uint64 {
	return used + 1<<20 + mathrand.Uint64N(1<<40)
}
