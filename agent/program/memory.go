package program

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
	"strings"
)

const (
	memoryName = "program-session.json"
	maxMemory  = 64 << 10 // bytes of the file
	maxSession = 256      // bytes of the id of a conversation
)

// A memory is what is stored of a conversation, so that the next server can continue it.
type memory struct {
	Session string `json:"session_id"`
	Dir     string `json:"cwd"`
	Program string `json:"program"` // a digest of the command line, which may contain secrets
}

// memoryOf returns the memory of a conversation.
func (a *Agent) memoryOf(session string) memory {
	sum := sha256.Sum256([]byte(a.dialect.Name + "\x00" + strings.Join(a.opts.Argv, "\x00")))
	return memory{Session: session, Dir: a.opts.Dir, Program: hex.EncodeToString(sum[:])}
}

// recall reads the id of the conversation that an earlier server had with the same
// program in the same directory.
func (a *Agent) recall() {
	if a.dialect.Resume != nil && a.opts.StateDir != "" {
		m, err := readMemory(filepath.Join(a.opts.StateDir, memoryName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.opts.Log.Warn("cannot read the agent session", "error", err)
		}
		if m.Session != "" && m == a.memoryOf(m.Session) {
			a.session, a.prompted = m.Session, true
			return
		}
	}
	if a.host.Restored() {
		a.note(textNewConversation)
	}
}

func readMemory(path string) (m memory, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	err = json.NewDecoder(io.LimitReader(f, maxMemory)).Decode(&m)
	return m, err
}

// remember stores the id of the conversation of a process that was prompted. If it
// cannot be stored, clients are told.
func (a *Agent) remember(p *Process) {
	p.mu.Lock()
	session := p.session
	p.mu.Unlock()
	a.mu.Lock()
	known := a.dialect.Resume == nil || a.session == session
	a.session, a.prompted = session, true
	a.mu.Unlock()
	if known || a.opts.StateDir == "" {
		return
	}
	if err := a.writeMemory(a.memoryOf(session)); err != nil {
		a.opts.Log.Warn("cannot save the agent session", "error", err)
		a.noteOnce("The agent's session cannot be kept: after a restart of the server it starts a new conversation")
	}
}

// writeMemory replaces the file atomically; only its owner can read it.
func (a *Agent) writeMemory(m memory) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the session: %w", err)
	}
	if err := os.MkdirAll(a.opts.StateDir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(a.opts.StateDir, memoryName)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
