package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/seed-028515a8/maestro/agent"
	"github.com/seed-028515a8/maestro/agent/mcp"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/journal"
	"github.com/seed-028515a8/maestro/observe"
	"github.com/seed-028515a8/maestro/transport/auth"
	"github.com/seed-028515a8/maestro/utility"
	"github.com/seed-028515a8/maestro/workspace"
)

// sessions opens the sessions of a workspace: each has a hub with an agent, a journal
// and utilities.
type sessions struct {
	settings
	work     *workspace.Workspace
	shared   *utility.Shared // by the utilities of all sessions
	servers  []mcp.Server    // that agents may use
	observer *observe.Observer
	identity observe.Identity // added to the identity in the environment
	dir      string           // parent of the sessions' journals; empty keeps them in memory
	disk     disk             // of dir
	kept     catalog          // of the sessions in dir
	changed  func(hub.Key)    // called when the summary of a session changes; may be nil

	credentials atomic.Pointer[auth.Authenticator] // of clients on the network; nil: there are no such clients yet

	log *slog.Logger
}

func newSessions(s settings, log *slog.Logger) (*sessions, error) {
	servers, err := s.mcpServers(os.Getenv)
	if err != nil {
		return nil, err
	}
	work, err := workspace.Open(s.workspace)
	if err != nil {
		return nil, err
	}
	observer, err := observe.New(observe.Options{Version: version(), Revision: vcs()["vcs.revision"], Log: log})
	if err != nil {
		return nil, errors.Join(err, work.Close())
	}
	s.setPolicy()
	s.session.Memory = hub.NewMemory(hub.MemoryOptions{HistoryBytes: s.historyMemory})
	m := &sessions{settings: s, work: work, shared: new(utility.Shared), servers: servers, observer: observer, log: log}
	m.kept.folder, m.kept.most = m.scopeDir, 10*defaultKept
	return m, nil
}

// close closes the shared resources. Call it after the sessions have ended.
func (m *sessions) close(ctx context.Context) error {
	return errors.Join(m.observer.Shutdown(ctx), m.work.Close())
}

// workspaceDir returns the folder of the workspace's sessions below root.
func (m *sessions) workspaceDir(root string) string {
	return filepath.Join(root, "workspaces", folderOf(m.work.Root()))
}

// folderOf returns the name of the folder that belongs to a path.
func folderOf(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Base(path) + "-" + hex.EncodeToString(sum[:6])
}

// open opens and starts a session from its journal. It creates a session only with
// options.Create.
func (m *sessions) open(ctx context.Context, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
	return m.openAs(ctx, key, options, m.agent, m.runtime)
}

// openAs is open with another agent.
func (m *sessions) openAs(ctx context.Context, key hub.Key, options hub.OpenOptions, spec string, run agent.Options) (*hub.Hub, error) {
	h, err := m.start(ctx, key, options, spec, run)
	if refusal := m.refusal(err); refusal != nil {
		err = fmt.Errorf("%w: %w", refusal, err)
	}
	return h, err
}

// refusal returns the error for clients if a journal could not be opened, and nil for
// other errors. It has no paths, because clients must not see them.
func (m *sessions) refusal(err error) *contracts.Error {
	switch {
	case errors.Is(err, journal.ErrLocked):
		flag := "--workspace"
		if m.hosted {
			flag = "--workspace-root"
		}
		return &contracts.Error{
			Code:    contracts.CodeRuntimeOwnedElsewhere,
			Message: "the session is in use by another process: attach to that one, or give this one its own " + flag + " or --state-dir",
		}
	case errors.Is(err, journal.ErrCorrupt):
		return &contracts.Error{Code: contracts.CodeRuntimeFailed, Message: "the session's journal is damaged: its operator can repair it with maestro sessions repair"}
	case errors.Is(err, errJournal):
		return &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "the session's journal cannot be opened"}
	}
	return nil
}

// errJournal means that the journal could not be opened.
var errJournal = errors.New("open the session")

func (m *sessions) start(ctx context.Context, key hub.Key, options hub.OpenOptions, spec string, run agent.Options) (*hub.Hub, error) {
	store, err := m.store(key, options.Create)
	if err != nil {
		return nil, err
	}
	run.Dir, run.SessionID, run.Version = m.work.Root(), key.ID, version()
	if m.dir != "" {
		run.StateDir = filepath.Join(m.sessionDir(key), "agent")
	}
	run.Servers, run.Log = m.servers, m.log
	a, err := agent.Open(spec, run)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	use := m.tools
	use.Workspace, use.Shared, use.Journals, use.EnvPass, use.Log = m.work, m.shared, m.dir, run.EnvPass, m.log
	tools, err := utility.New(use)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	watcher := m.observer.Session(key.ID, m.identity)
	opts := m.session
	opts.SessionID, opts.Init, opts.Agent, opts.Store, opts.Utilities, opts.Observer = key.ID, options.Init, a, store, tools, watcher
	opts.Cwd, opts.GitBranch, opts.LoadAttachments, opts.Alive, opts.Log = m.work.Root(), m.work.GitBranch(), m.attachments, m.counts, m.log
	if m.changed != nil {
		opts.Changed = func() { m.changed(key) }
	}
	opts.GroupCommit = m.fsync && m.dir != ""
	opts.CheckpointBytes, opts.CheckpointAge = int(min(m.retainBytes/4, 8<<20)), m.retainAge/4
	h, err := hub.New(opts)
	if err != nil {
		watcher.Close()
		return nil, errors.Join(err, store.Close(), tools.Close(ctx))
	}
	watcher.Watch(func() (observe.Lag, observe.Totals) {
		m := h.Metrics()
		return observe.Lag(h.Lag()), observe.Totals{
			Merged: h.Merged(), SlowConsumers: m.SlowConsumers.Load(), Silent: m.Silent.Load(),
			AgentWaits: m.AgentWaits.Load(), CommandWaits: m.CommandWaits.Load(),
		}
	}, h.Snapshot())
	m.log.Info("session opened", "session", key.ID, "scope", key.Scope)
	go func() { // ends with the session
		<-h.Done()
		watcher.Close()
		m.kept.touch(key.Scope, key.ID)
		m.log.Info("session closed", "session", key.ID, "scope", key.Scope)
	}()
	return h, h.Start(ctx)
}

// admit sets what admits clients on the network.
func (m *sessions) admit(g *auth.Authenticator) { m.credentials.Store(g) }

// counts reports whether an accepted credential is still valid.
func (m *sessions) counts(p contracts.Principal) bool {
	g := m.credentials.Load()
	return g == nil || g.Alive(p)
}

// countsStill is counts for a principal that an earlier process may have stored.
func (m *sessions) countsStill(p contracts.Principal) bool {
	g := m.credentials.Load()
	return g == nil || g.StillAlive(p)
}

func (m *sessions) store(key hub.Key, create bool) (journal.Store, error) {
	if m.dir == "" {
		return journal.NewMemory(journal.MemoryOptions{}), nil
	}
	dir := m.sessionDir(key)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if !create {
			return nil, hub.ErrUnknownSession
		}
		if full, err := m.kept.full(key.Scope, m.maxKept); err != nil || full {
			return nil, cmp.Or[error](err, errTooMany)
		}
	}
	if !m.writable() {
		return nil, errFull // before an agent is started
	}
	store, err := journal.Open(dir, journal.FileOptions{RetainBytes: m.retainBytes, RetainAge: m.retainAge, Durable: m.fsync})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errJournal, err)
	}
	if why := store.Changed(); why != "" {
		m.log.Warn("the session has a new epoch: all its clients start over", "session", key.ID, "why", why)
	}
	m.kept.touch(key.Scope, key.ID)
	return store, nil
}

var (
	errFull    = &contracts.Error{Code: contracts.CodeRuntimeNotReady, Message: "sessions cannot be kept: the server's disk is full or cannot be written to"}
	errTooMany = &contracts.Error{Code: contracts.CodeRateLimited, Message: "too many sessions are kept; remove some from the state directory"}
)

// writable reports whether sessions can be kept.
func (m *sessions) writable() bool { return m.dir == "" || m.disk.check(m.dir, m.log) == nil }

// sessionDir returns the folder of a session's journal. The sessions of the owner are
// in one folder, those of each scope in another.
func (m *sessions) sessionDir(key hub.Key) string {
	return filepath.Join(m.scopeDir(key.Scope), sessionFolder(key.ID))
}

func sessionFolder(id string) string { return sessionPrefix + url.PathEscape(id) }

// sessionPrefix begins the name of a session's folder.
const sessionPrefix = "s-"

func (m *sessions) attachments(paths []string) ([]contracts.Attachment, []string) {
	files, failures := m.work.Attachments(paths)
	loaded := make([]contracts.Attachment, len(files))
	for i, f := range files {
		loaded[i] = contracts.Attachment(f)
	}
	return loaded, failures
}
