package acp

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

// A memory is the stored state of a program's session, so that another process
// can continue it.
type memory struct {
	Session string `json:"session_id"` // empty if it was never prompted
	Dir     string `json:"cwd"`
	Program string `json:"program"` // a digest of the command line, which may contain secrets

	// Commands is a digest of the published commands of the program. They are
	// not published again after a restart.
	Commands string `json:"commands,omitempty"`
}

// digest returns a hash that distinguishes command lines.
func digest(argv []string) string {
	sum := sha256.Sum256([]byte(strings.Join(argv, "\x00")))
	return hex.EncodeToString(sum[:])
}

// memoryName is the name of the memory file in Options.StateDir.
const memoryName = "acp-session.json"

// maxMemory bounds the memory file, in bytes.
const maxMemory = 64 << 10

// recall reads the memory of an earlier server. The memory of another program,
// or of another directory, does not count. If there is none, an empty memory is
// written, so that the next server knows that no conversation was lost.
func (a *Agent) recall() {
	m, err := readMemory(a.opts.StateDir)
	switch {
	case err != nil:
		a.opts.Log.Warn("cannot read the agent session", "error", err)
	case m.Dir == a.opts.Dir && m.Program == digest(a.argv):
		a.memory, a.commands = m, m.Commands
		return
	}
	if err != nil || m.Session != "" || a.host.Restored() {
		a.note("The agent starts a new conversation: it does not know what was said before")
		return
	}
	if err := writeMemory(a.opts.StateDir, a.memoryOf("")); err != nil {
		a.opts.Log.Debug("cannot save the agent session", "error", err) // reported when there is a session
	}
}

// memoryOf returns the memory of a session. The caller holds a.mu, or is alone.
func (a *Agent) memoryOf(session string) memory {
	return memory{Session: session, Dir: a.opts.Dir, Program: digest(a.argv), Commands: a.commands}
}

func readMemory(dir string) (m memory, err error) {
	if dir == "" {
		return m, nil
	}
	f, err := os.Open(filepath.Join(dir, memoryName))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() > maxMemory {
		return m, fmt.Errorf("%s is too long: %w", memoryName, errors.Join(err, fs.ErrInvalid))
	}
	err = json.NewDecoder(f).Decode(&m)
	return m, err
}

// maxSession bounds a stored session id, in bytes.
const maxSession = maxMemory / 8 // an escape takes six bytes

// remember stores the id of a session that has been prompted. If it cannot be
// stored, clients are told.
func (a *Agent) remember(session string) {
	a.mu.Lock()
	m := a.memoryOf(session)
	if a.memory == m {
		a.mu.Unlock()
		return
	}
	a.memory = m
	a.mu.Unlock()
	if err := writeMemory(a.opts.StateDir, m); err != nil {
		a.opts.Log.Warn("cannot save the agent session", "error", err)
		a.noteOnce("The agent's session cannot be kept: after a restart of the server it starts a new conversation")
	}
}

// forget drops a session that cannot be continued, and tells clients. The file
// is replaced when there is another session to store.
func (a *Agent) forget(why error) {
	a.mu.Lock()
	a.memory = memory{}
	a.mu.Unlock()
	a.note("The agent starts a new conversation, because it could not go on with the earlier one: " + why.Error())
}

// session returns the id of the session to continue, "" if there is none.
func (a *Agent) session() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.memory.Session
}

// writeMemory replaces the file atomically; only its owner can read it. Without
// a directory it does nothing.
func writeMemory(dir string, m memory) error {
	if dir == "" {
		return nil
	}
	if len(m.Session) > maxSession {
		return fmt.Errorf("its id has %d bytes", len(m.Session))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, memoryName)
	if err := os.WriteFile(path+".new", append(encode(m), '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
