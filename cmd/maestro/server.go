package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/dialect"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/hub/overview"
	"github.com/seed-028515a8/maestro/transport/foreign"
	"github.com/seed-028515a8/maestro/transport/hecate"
	"github.com/seed-028515a8/maestro/transport/httpapi"
	"github.com/seed-028515a8/maestro/transport/notify"
	"github.com/seed-028515a8/maestro/web"
)

// A server serves the sessions of one workspace on the network. The open sessions
// are in a directory, the others on the disk.
type server struct {
	sessions *sessions
	open     *hub.Directory
	overview *overview.Overview
	notifier *notify.Notifier // nil without --notify
	net      *network
	sockets  sockets
	hecate   *hecate.Server
}

// newServer opens the workspace and listens. Clients that connect wait until the
// network accepts.
func newServer(s settings, log *slog.Logger) (*server, error) {
	m, err := newSessions(s, log)
	if err != nil {
		return nil, err
	}
	root := cmp.Or(s.stateDir, defaultStateRoot())
	if err := m.keepBelow(root); err != nil {
		return nil, errors.Join(err, m.close(context.Background()))
	}
	v := &server{sessions: m}
	if err := v.openLists(); err != nil {
		return nil, errors.Join(err, m.close(context.Background()))
	}
	m.changed = v.overview.Changed
	pages, err := s.openPages(root, m.work.Root(), log)
	if err != nil {
		v.closeLists()
		return nil, errors.Join(err, m.close(context.Background()))
	}
	v.open = &hub.Directory{Open: v.start, Max: s.maxSessions, Log: log}
	v.net, err = listen(s, root, backend{
		workspace: m.work.Root(), dir: m.dir, admit: m.admit, find: v.find, list: v.list, evict: v.evict,
		ready: func() (ready, draining bool) { return m.writable(), false }, observer: m.observer, more: v.serveHecate, overview: v.overview,
		notifier: v.notifier, page: web.Handler(), pages: pages,
	}, log)
	if err == nil {
		v.sockets, err = listenSockets(&s, v.openFirst, log)
		if err != nil {
			err = errors.Join(err, v.net.Listener.Close())
		}
	}
	if err != nil {
		v.closeLists()
		return nil, errors.Join(err, m.close(context.Background()))
	}
	return v, nil
}

// openLists makes the overview, and what tells receivers of the questions in it.
func (v *server) openLists() (err error) {
	var tell func(string, contracts.InboxEvent)
	if v.sessions.notify != "" {
		config, err := notify.LoadConfig(v.sessions.notify)
		if err != nil {
			return fmt.Errorf("--notify: %w", err)
		}
		v.notifier, err = notify.New(notify.Options{
			Config: config, Alive: v.sessions.countsStill, Log: v.sessions.log,
			PushFile: filepath.Join(v.sessions.dir, "push.json"), StateFile: filepath.Join(v.sessions.dir, "notify.json"),
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

func (v *server) closeLists() {
	v.overview.Close()
	if v.notifier != nil {
		v.notifier.Close()
	}
}

// start opens a session, which the log of Hecate events follows from then on.
func (v *server) start(ctx context.Context, key hub.Key, options hub.OpenOptions) (*hub.Hub, error) {
	h, err := v.overview.Open(key, func() (*hub.Hub, error) { return v.sessions.open(ctx, key, options) })
	if err == nil {
		v.hecate.Opened(key.Scope, source{h})
	}
	return h, err
}

// openFirst opens the session that a client on a Unix socket names, else the first one.
func (v *server) openFirst(ctx context.Context, p contracts.Principal, start dialect.Start) (foreign.Attach, error) {
	h, _, err := v.find(ctx, httpapi.Wanted{ID: start.SessionID, Socket: true, Principal: p})
	if err != nil {
		return nil, err
	}
	return serveForeign(h, p), nil
}

// close suspends the sessions and ends the server, which has been accepting.
func (v *server) close(ctx context.Context) error {
	err := errors.Join(v.open.Suspend(ctx), v.sockets.close(ctx), v.net.close(ctx), v.hecate.Close(ctx))
	v.closeLists()
	return errors.Join(err, v.sessions.close(ctx))
}

// find opens the session that a client wants.
func (v *server) find(ctx context.Context, want httpapi.Wanted) (*hub.Hub, bool, error) {
	key := hub.Key{Scope: want.Principal.Scope, ID: want.ID}
	confined := want.Principal.Role != ""
	options := hub.OpenOptions{Create: want.Create && !confined}
	if req := want.Runtime; req != nil {
		if req.ApprovalMode != "" || req.ThinkingLevel != "" {
			options.Init = &contracts.Init{ApprovalMode: req.ApprovalMode, ThinkingLevel: req.ThinkingLevel}
		}
		if err := errors.Join(v.sessions.isHere(req.WorkspaceRoot), hub.Vet(req, want.Principal, want.Role)); err != nil {
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
		key.ID, options.Create = firstSession, !confined
	default:
		return nil, false, hub.ErrUnknownSession
	}
	h, opened, err := v.open.Get(ctx, key, options)
	if _, plain := err.(*contracts.Error); err != nil && opened && !plain { // a plain refusal has no cause for the log
		v.sessions.log.Error("session not opened", "session", key.ID, "err", err)
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
func (m *sessions) isHere(path string) error {
	if path == "" {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil || real != m.work.Root() {
		return &contracts.Error{Code: contracts.CodeBadRequest, Message: "Unknown workspace root"}
	}
	return nil
}

// evict ends the connections of a principal in all sessions.
func (v *server) evict(principalID string) {
	for _, h := range v.open.List() {
		h.Evict(principalID)
	}
	v.overview.Evict(principalID)
}

// maxListedSessions bounds one listing.
const maxListedSessions = 1000

// list lists the sessions of a principal, the latest first.
func (v *server) list(p contracts.Principal) *contracts.SessionList {
	open := map[string]bool{}
	all := []contracts.SessionEntry{}
	for key, h := range v.open.List() {
		if key.Scope == p.Scope && !v.overview.Deleted(key) && (p.SessionID == "" || p.SessionID == key.ID) {
			open[key.ID] = true
			all = append(all, describe(h))
		}
	}
	kept, err := v.sessions.kept.list(p.Scope, maxListedSessions+1, func(id string) bool {
		return !open[id] && (p.SessionID == "" || p.SessionID == id) &&
			!v.overview.Deleted(hub.Key{Scope: p.Scope, ID: id}) &&
			!v.open.Retired(hub.Key{Scope: p.Scope, ID: id}) // it was shut down, and is not found until a client creates it again
	})
	if err != nil {
		v.sessions.log.Error("list sessions", "err", err)
	}
	all = append(all, kept...)
	slices.SortFunc(all, func(a, b contracts.SessionEntry) int {
		return cmp.Or(strings.Compare(b.UpdatedAt, a.UpdatedAt), strings.Compare(a.SessionID, b.SessionID))
	})
	return &contracts.SessionList{Sessions: all[:min(len(all), maxListedSessions)], Truncated: len(all) > maxListedSessions}
}

// listedTime is the form of a time in a listing. Its order is that of the times.
const listedTime = "2006-01-02T15:04:05.000Z"

// describe returns the entry of an open session in a listing.
func describe(h *hub.Hub) contracts.SessionEntry {
	sum := h.Summary()
	return contracts.SessionEntry{
		SessionID: h.SessionID(), UpdatedAt: sum.Updated.UTC().Format(listedTime), Open: true, Cursor: &sum.Cursor,
		IsResponding: sum.Responding, Connections: int64(sum.Connections), Pending: int64(sum.Pending),
	}
}
