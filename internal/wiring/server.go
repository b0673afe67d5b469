package wiring

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/dialect"
	"github.com/seed-028515a8/maestro/internal/overview"
	"github.com/seed-028515a8/maestro/internal/transport/foreign"
	"github.com/seed-028515a8/maestro/internal/transport/hecate"
	"github.com/seed-028515a8/maestro/internal/transport/httpapi"
	"github.com/seed-028515a8/maestro/internal/transport/notify"
	"github.com/seed-028515a8/maestro/web"
)

// FirstSession is the id of the session that every server has.
const FirstSession = "main"

// A Server serves the sessions of one workspace to clients on the network. The open
// sessions are in a directory, the others on the disk.
type Server struct {
	*Network
	Sessions  *Sessions
	Directory *hub.Directory

	opts     ServerOptions
	overview *overview.Overview
	notifier *notify.Notifier // nil without notifications
	hecate   *hecate.Server
}

// NewServer opens the workspace. It listens on no address: the caller serves clients with
// [Network.Guard] or [Network.Handler].
func NewServer(opts ServerOptions) (*Server, error) {
	m, err := NewSessions(opts.Options)
	if err != nil {
		return nil, err
	}
	m.Dir = cmp.Or(opts.Dir, m.WorkspaceDir(opts.StateRoot))
	if err := m.migrateScopes(); err != nil {
		return nil, errors.Join(err, m.Close(context.Background()))
	}
	v := &Server{Sessions: m, opts: opts}
	if err := v.openLists(); err != nil {
		return nil, errors.Join(err, m.Close(context.Background()))
	}
	m.changed = v.overview.Changed
	v.Directory = &hub.Directory{Open: v.start, Max: opts.MaxSessions, Log: m.log}
	back := Backend{
		Find: v.Find, List: v.list, Evict: v.evict, Admit: m.Admit,
		Ready:     func() (refusal *contracts.Error, draining bool) { return m.CheckWritable(), false },
		Workspace: m.Root(), Dir: m.Dir, Observer: m.Observer,
		overview: v.overview, notifier: v.notifier, pages: opts.Pages, more: v.serveHecate,
	}
	if opts.Page {
		back.page = web.Handler()
	}
	if v.Network, err = NewNetwork(opts.Network, back); err != nil {
		v.closeLists()
		return nil, errors.Join(err, m.Close(context.Background()))
	}
	return v, nil
}

// openLists makes the overview, and what tells receivers of the questions in it.
func (v *Server) openLists() (err error) {
	var tell func(string, contracts.InboxEvent)
	if v.opts.Notify != "" {
		config, err := notify.LoadConfig(v.opts.Notify)
		if err != nil {
			return fmt.Errorf("--notify: %w", err)
		}
		v.notifier, err = notify.New(notify.Options{
			Config: config, Alive: v.Sessions.countsStill, Log: v.Sessions.log,
			PushFile: filepath.Join(v.Sessions.Dir, "push.json"), StateFile: filepath.Join(v.Sessions.Dir, "notify.json"),
			Looking: func(principalID string) bool { return v.overview.Looking(principalID) },
		})
		if err != nil {
			return fmt.Errorf("--notify: %w", err)
		}
		tell = v.notifier.Notify
	}
	v.overview, err = v.openOverview(tell)
	switch {
	case v.notifier == nil:
	case err != nil:
		v.notifier.Close()
	default:
		v.notifier.Start()
	}
	return err
}

func (v *Server) closeLists() {
	v.overview.Close()
	if v.notifier != nil {
		v.notifier.Close()
	}
}

// start opens a session, which the log of Hecate events follows from then on.
func (v *Server) start(ctx context.Context, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
	h, err := v.overview.Open(key, func() (*hub.Hub, error) { return v.Sessions.Open(ctx, key, options) })
	if err == nil {
		v.hecate.Opened(key.Scope, source{h})
	}
	return h, err
}

// OpenFirst opens the session that a client of another protocol names, else the first one.
func (v *Server) OpenFirst(ctx context.Context, p contracts.Principal, start dialect.Start) (foreign.Attach, error) {
	h, _, err := v.Find(ctx, httpapi.Wanted{ID: start.SessionID, Socket: true, Principal: p})
	if err != nil {
		return nil, err
	}
	return ServeForeign(h, p), nil
}

// Suspend suspends the sessions. Close does that too.
func (v *Server) Suspend(ctx context.Context) error { return v.Directory.Suspend(ctx) }

// Close suspends the sessions, ends the connections of clients and closes what the server
// uses. If ctx ends first, it cuts the connections.
func (v *Server) Close(ctx context.Context) error {
	err := errors.Join(v.Suspend(ctx), v.Network.Close(ctx), v.hecate.Close(ctx))
	v.closeLists()
	return errors.Join(err, v.Sessions.Close(ctx))
}

// Find opens the session that a client wants.
func (v *Server) Find(ctx context.Context, want httpapi.Wanted) (*hub.Hub, bool, error) {
	key := hub.Key{Scope: want.Principal.Scope, ID: want.ID}
	confined := want.Principal.Role != ""
	options := hub.OpenOptions{Create: want.Create && !confined}
	if req := want.Runtime; req != nil {
		if req.ApprovalMode != "" || req.ThinkingLevel != "" {
			options.Init = &contracts.Init{ApprovalMode: req.ApprovalMode, ThinkingLevel: req.ThinkingLevel}
		}
		if err := errors.Join(v.Sessions.isHere(req.WorkspaceRoot), hub.Vet(req, want.Principal, want.Role)); err != nil {
			return nil, false, err // before a session is created
		}
	}
	switch {
	case key.ID != "":
	case want.Create && confined:
		return nil, false, errMayNotCreate
	case want.Create:
		key.ID = newSessionID(want)
	case want.Socket:
		key.ID, options.Create = FirstSession, !confined
	default:
		return nil, false, hub.ErrUnknownSession
	}
	h, opened, err := v.Directory.Get(ctx, key, options)
	if _, plain := err.(*contracts.Error); err != nil && opened && !plain { // a plain refusal has no cause for the log
		v.Sessions.log.Error("session not opened", "session", key.ID, "err", err)
	}
	if want.Create && confined && errors.Is(err, hub.ErrUnknownSession) {
		err = errMayNotCreate
	}
	return h, opened, err
}

var errMayNotCreate = &contracts.Error{Code: contracts.CodeAccessDenied, Message: "this credential does not allow making sessions"}

// newSessionID returns the id of a new session. A repeated request with the same key
// gets the same id, also after a restart.
func newSessionID(want httpapi.Wanted) string {
	if want.Key == "" {
		return "sess_" + uuid.NewString()
	}
	sum := sha256.Sum256([]byte(want.Principal.Scope + "\x00" + want.Principal.ID + "\x00" + want.Key))
	return "sess_" + hex.EncodeToString(sum[:16])
}

// isHere refuses other workspaces than the server's.
func (m *Sessions) isHere(path string) error {
	if path == "" {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil || real != m.Root() {
		return &contracts.Error{Code: contracts.CodeBadRequest, Message: "Unknown workspace root"}
	}
	return nil
}

// Disconnect ends the connections, tickets and cookies of a principal.
func (v *Server) Disconnect(principalID string) {
	v.Auth.Forget(principalID) // first, so that none of them makes a connection
	v.acp.evict(principalID)   // before evict, so that the client is told the reason
	v.evict(principalID)
}

// evict ends the connections of a principal in all sessions.
func (v *Server) evict(principalID string) {
	for _, h := range v.Directory.List() {
		h.Evict(principalID)
	}
	v.overview.Evict(principalID)
}

// maxListedSessions bounds one listing.
const maxListedSessions = 1000

// list lists the sessions of a principal, the latest first.
func (v *Server) list(p contracts.Principal) *contracts.SessionList {
	open := map[string]bool{}
	all := []contracts.SessionEntry{}
	for key, h := range v.Directory.List() {
		if key.Scope == p.Scope && !v.overview.Deleted(key) && (p.SessionID == "" || p.SessionID == key.ID) {
			open[key.ID] = true
			all = append(all, Describe(h))
		}
	}
	kept, err := v.Sessions.kept.list(p.Scope, maxListedSessions+1, func(id string) bool {
		return !open[id] && (p.SessionID == "" || p.SessionID == id) &&
			!v.overview.Deleted(hub.Key{Scope: p.Scope, ID: id}) &&
			!v.Directory.Retired(hub.Key{Scope: p.Scope, ID: id}) // it was shut down, and is not found until a client creates it again
	})
	if err != nil {
		v.Sessions.log.Error("list sessions", "err", err)
	}
	all = append(all, kept...)
	slices.SortFunc(all, func(a, b contracts.SessionEntry) int {
		return cmp.Or(strings.Compare(b.UpdatedAt, a.UpdatedAt), strings.Compare(a.SessionID, b.SessionID))
	})
	return &contracts.SessionList{Sessions: all[:min(len(all), maxListedSessions)], Truncated: len(all) > maxListedSessions}
}

// listedTime is the form of a time in a listing. Its order is that of the times.
const listedTime = "2006-01-02T15:04:05.000Z"

// Describe returns the entry of an open session in a listing.
func Describe(h *hub.Hub) contracts.SessionEntry {
	sum := h.Summary()
	return contracts.SessionEntry{
		SessionID: h.SessionID(), UpdatedAt: sum.Updated.UTC().Format(listedTime), Open: true, Cursor: &sum.Cursor,
		IsResponding: sum.Responding, Connections: int64(sum.Connections), Pending: int64(sum.Pending),
	}
}
