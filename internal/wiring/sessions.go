package wiring

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
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/seed-028515a8/maestro/agent"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/observe"
	"github.com/seed-028515a8/maestro/internal/transport/auth"
	"github.com/seed-028515a8/maestro/internal/workspace"
	"github.com/seed-028515a8/maestro/utility"
)

// Sessions opens the sessions of a workspace: each has a hub with an agent, a journal
// and utilities.
type Sessions struct {
	Observer *observe.Observer
	Dir      string // parent of the sessions' journals; empty keeps them in memory. Set it before the first use

	opts    Options
	work    *workspace.Workspace // nil if there is none
	shared  *utility.Shared      // by the utilities of all sessions
	disk    disk                 // of Dir
	kept    catalog              // of the sessions in Dir
	changed func(hub.Key)        // called when the summary of a session changes; may be nil

	authenticator atomic.Pointer[auth.Authenticator] // of clients on the network; nil before Admit

	log *slog.Logger
}

// NewSessions opens the workspace.
func NewSessions(opts Options) (*Sessions, error) {
	var work *workspace.Workspace
	var err error
	if opts.Workspace != "" {
		if work, err = workspace.Open(opts.Workspace); err != nil {
			return nil, err
		}
	}
	observer, err := observe.New(observe.Options{Version: Version(), Revision: opts.Revision, Log: opts.Log})
	if err != nil {
		return nil, errors.Join(err, closeWorkspace(work))
	}
	opts.MaxKept = cmp.Or(opts.MaxKept, DefaultKept)
	opts.Session.Memory = hub.NewMemory(hub.MemoryOptions{HistoryBytes: opts.HistoryMemory})
	m := &Sessions{opts: opts, work: work, shared: new(utility.Shared), Observer: observer, log: opts.Log}
	m.kept.folder, m.kept.most = m.scopeDir, 10*DefaultKept
	return m, nil
}

func closeWorkspace(w *workspace.Workspace) error {
	if w == nil {
		return nil
	}
	return w.Close()
}

// Close closes the shared resources. Call it after the sessions have ended.
func (m *Sessions) Close(ctx context.Context) error {
	return errors.Join(m.Observer.Shutdown(ctx), closeWorkspace(m.work))
}

// Root returns the workspace without symbolic links, and "/" if there is none.
func (m *Sessions) Root() string {
	if m.work == nil {
		return "/"
	}
	return m.work.Root()
}

// WorkspaceDir returns the folder of the workspace's sessions below root.
func (m *Sessions) WorkspaceDir(root string) string {
	return filepath.Join(root, "workspaces", FolderOf(m.Root()))
}

// FolderOf returns the name of the folder that belongs to a path.
func FolderOf(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Base(path) + "-" + hex.EncodeToString(sum[:6])
}

// Open opens and starts a session from its journal. It creates a session only with
// options.Create.
func (m *Sessions) Open(ctx context.Context, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
	return m.OpenAs(ctx, key, options, m.opts.Agent, m.opts.Runtime)
}

// OpenAs is Open with another agent.
func (m *Sessions) OpenAs(ctx context.Context, key hub.Key, options hub.OpenOptions, spec string, run agent.Options) (*hub.Hub, error) {
	h, err := m.start(ctx, key, options, spec, run)
	if refusal := m.refusal(err); refusal != nil {
		err = fmt.Errorf("%w: %w", refusal, err)
	}
	return h, err
}

// refusal returns the error for clients if a journal could not be opened, and nil for
// other errors. It has no paths, because clients must not see them.
func (m *Sessions) refusal(err error) *contracts.Error {
	switch {
	case errors.Is(err, journal.ErrLocked):
		own := "state directory"
		if m.opts.WorkspaceFlag != "" {
			own = m.opts.WorkspaceFlag + " or --state-dir"
		}
		return &contracts.Error{
			Code:    contracts.CodeRuntimeOwnedElsewhere,
			Message: "the session is in use by another server: attach to that one, or give this one its own " + own,
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

func (m *Sessions) start(ctx context.Context, key hub.Key, options hub.OpenOptions, spec string, run agent.Options) (h *hub.Hub, err error) {
	var parts []func(context.Context) error // close what was made, unless a hub takes it over
	defer func() {
		if h == nil {
			for _, closePart := range slices.Backward(parts) {
				err = errors.Join(err, closePart(ctx))
			}
		}
	}()
	store, err := m.store(key, options.Create)
	if err != nil {
		return nil, err
	}
	parts = append(parts, func(context.Context) error { return store.Close() })
	run.Dir, run.SessionID, run.Version, run.Log = m.Root(), key.ID, Version(), m.log
	if m.Dir != "" {
		run.StateDir = filepath.Join(m.SessionDir(key), "agent")
	}
	a, err := m.newAgent(ctx, key, spec, run)
	if err != nil {
		return nil, err
	}
	parts = append(parts, func(ctx context.Context) error { return m.closeAgent(ctx, key, a) })
	watcher := m.Observer.Session(key.ID, m.opts.Identity)
	parts = append(parts, func(context.Context) error { watcher.Close(); return nil })
	opts := m.opts.Session
	opts.SessionID, opts.Init, opts.Agent, opts.Store, opts.Observer = key.ID, options.Init, a, store, watcher
	opts.Cwd, opts.Alive, opts.Log = m.Root(), m.alive, m.log
	if m.work != nil {
		opts.GitBranch, opts.LoadAttachments = m.work.GitBranch(), m.attachments
	}
	if m.work != nil && !m.opts.NoUtilities {
		use := m.opts.Tools
		use.Workspace, use.Shared, use.Journals, use.EnvPass, use.Log = m.work, m.shared, m.Dir, run.EnvPass, m.log
		tools, err := utility.New(use)
		if err != nil {
			return nil, err
		}
		parts = append(parts, tools.Close)
		opts.Utilities = tools
	}
	if m.changed != nil {
		opts.Changed = func() { m.changed(key) }
	}
	opts.GroupCommit = m.opts.Fsync && m.Dir != ""
	opts.CheckpointBytes, opts.CheckpointAge = int(min(m.opts.RetainBytes/4, 8<<20)), m.opts.RetainAge/4
	if h, err = hub.New(opts); err != nil {
		return nil, err
	}
	m.watch(key, h, watcher)
	return h, h.Start(ctx)
}

// watch reports a session's metrics, and logs and notes its end.
func (m *Sessions) watch(key hub.Key, h *hub.Hub, watcher *observe.Session) {
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
}

// newAgent makes the agent of a session. If ctx has ended meanwhile, it closes the agent
// and returns an error.
func (m *Sessions) newAgent(ctx context.Context, key hub.Key, spec string, run agent.Options) (a contracts.Agent, err error) {
	if m.opts.NewAgent == nil {
		return agent.Open(spec, run)
	}
	defer m.contain(key, &err)
	a, err = m.opts.NewAgent(key, run)
	switch {
	case err != nil:
		return nil, err
	case a == nil:
		return nil, errors.New("Options.NewAgent returned no agent and no error")
	case ctx.Err() != nil:
		return nil, errors.Join(context.Cause(ctx), a.Close(ctx))
	}
	return a, nil
}

// closeAgent closes an agent that no hub has.
func (m *Sessions) closeAgent(ctx context.Context, key hub.Key, a contracts.Agent) (err error) {
	defer m.contain(key, &err)
	return a.Close(ctx)
}

// contain is deferred. It converts a panic of an agent, or of Options.NewAgent, into an error.
func (m *Sessions) contain(key hub.Key, err *error) {
	if p := recover(); p != nil {
		m.log.Error("the agent panicked", "session", key.ID, "panic", p, "stack", string(debug.Stack()))
		*err = fmt.Errorf("the agent failed: %v", p)
	}
}

// Admit sets the authenticator of clients on the network.
func (m *Sessions) Admit(g *auth.Authenticator) { m.authenticator.Store(g) }

// alive is [auth.Authenticator.Alive].
func (m *Sessions) alive(p contracts.Principal) bool {
	g := m.authenticator.Load()
	return g == nil || g.Alive(p)
}

// stillAlive is [auth.Authenticator.StillAlive].
func (m *Sessions) stillAlive(p contracts.Principal) bool {
	g := m.authenticator.Load()
	return g == nil || g.StillAlive(p)
}

func (m *Sessions) store(key hub.Key, create bool) (journal.Store, error) {
	if m.Dir == "" {
		return journal.NewMemory(journal.MemoryOptions{}), nil
	}
	dir := m.SessionDir(key)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if !create {
			return nil, hub.ErrUnknownSession
		}
		if full, err := m.kept.full(key.Scope, m.opts.MaxKept); err != nil || full {
			return nil, cmp.Or[error](err, errTooMany)
		}
	}
	if full := m.CheckWritable(); full != nil {
		return nil, full // before an agent is started
	}
	store, err := journal.Open(dir, journal.FileOptions{RetainBytes: m.opts.RetainBytes, RetainAge: m.opts.RetainAge, Durable: m.opts.Fsync})
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

// CheckWritable returns the refusal of clients if sessions cannot be kept, otherwise nil.
func (m *Sessions) CheckWritable() *contracts.Error {
	if m.Dir == "" || m.disk.check(m.Dir, m.log) == nil {
		return nil
	}
	return errFull
}

// SessionDir returns the folder of a session's journal. The sessions of the owner are
// in one folder, those of each scope in another.
func (m *Sessions) SessionDir(key hub.Key) string {
	return filepath.Join(m.scopeDir(key.Scope), sessionFolder(key.ID))
}

func sessionFolder(id string) string { return SessionPrefix + url.PathEscape(id) }

// SessionPrefix begins the name of a session's folder.
const SessionPrefix = "s-"

func (m *Sessions) attachments(paths []string) ([]contracts.Attachment, []string) {
	files, failures := m.work.Attachments(paths)
	loaded := make([]contracts.Attachment, len(files))
	for i, f := range files {
		loaded[i] = contracts.Attachment(f)
	}
	return loaded, failures
}
