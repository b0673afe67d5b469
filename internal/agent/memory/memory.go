// Package memory stores which conversation the program of an agent had, so that the next
// server can continue it.
package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Texts for clients.
const (
	TextForgotten = "The agent starts a new conversation: it does not know what was said before"
	TextNotKept   = "The agent's session cannot be kept: after a restart of the server it starts a new conversation"
)

// Bounds in bytes.
const (
	maxFile    = 64 << 10
	maxSession = maxFile / 8 // an escape takes six bytes
)

// A Memory is what is stored of a conversation.
type Memory struct {
	Session string `json:"session_id"` // empty if the program was never prompted
	Dir     string `json:"cwd"`
	Program string `json:"program"` // a digest of the command line, which may contain secrets

	// Commands is a digest of the published commands of the program. They are not
	// published again after a restart.
	Commands string `json:"commands,omitempty"`
}

// Digest returns a hash that distinguishes lists of texts, such as command lines.
func Digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Read returns the memory in a file of a directory. It is empty if there is no file or if
// dir is empty.
func Read(dir, name string) (m Memory, err error) {
	if dir == "" {
		return m, nil
	}
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() > maxFile {
		return m, fmt.Errorf("%s is too long: %w", name, errors.Join(err, fs.ErrInvalid))
	}
	err = json.NewDecoder(f).Decode(&m)
	return m, err
}

// Write replaces a file of a directory atomically; only its owner can read it. It does
// nothing if dir is empty.
func (m Memory) Write(dir, name string) error {
	if dir == "" {
		return nil
	}
	if len(m.Session) > maxSession {
		return fmt.Errorf("its id has %d bytes", len(m.Session))
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the session: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
