package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	attach "github.com/seed-028515a8/maestro/transport/http"
)

// A shelf is where serve keeps its sessions: the open ones in a directory, the
// others on the disk.
type shelf struct {
	sessions *sessions
	open     *hub.Directory
}

// find opens the session that a client wants.
func (s *shelf) find(ctx context.Context, want attach.Wanted) (*hub.Hub, bool, error) {
	key := hub.Key{Scope: want.Principal.Scope, ID: want.ID}
	wish := hub.Wish{Create: want.Create}
	if req := want.Runtime; req != nil {
		wish.ApprovalMode = req.ApprovalMode
		if err := s.sessions.isHere(req.WorkspaceRoot); err != nil {
			return nil, false, err
		}
	}
	switch {
	case key.ID != "":
	case want.Create:
		key.ID = "sess_" + uuid.NewString()
	case want.Socket:
		key.ID, wish.Create = firstSession, true
	default:
		return nil, false, hub.ErrUnknownSession
	}
	return s.open.Get(ctx, key, wish)
}

// isHere refuses workspaces that are not the server's.
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

// evict ends the connections of a principal, wherever they are.
func (s *shelf) evict(principalID string) {
	for _, h := range s.open.List() {
		h.Evict(principalID)
	}
}

// maxListedSessions bounds one listing.
const maxListedSessions = 1000

// list lists the sessions that a principal may reach, the latest first.
func (s *shelf) list(p contracts.Principal) *contracts.SessionList {
	found := map[string]entry{}
	for id, at := range s.kept(p.Scope) {
		found[id] = entry{SessionEntry: contracts.SessionEntry{SessionID: id}, at: at}
	}
	for key, h := range s.open.List() {
		if key.Scope == p.Scope {
			found[key.ID] = describe(h)
		}
	}
	var all []entry
	for id, e := range found {
		if p.SessionID == "" || p.SessionID == id {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(b.at.Compare(a.at), strings.Compare(a.SessionID, b.SessionID))
	})
	list := &contracts.SessionList{Sessions: []contracts.SessionEntry{}, Truncated: len(all) > maxListedSessions}
	for _, e := range all[:min(len(all), maxListedSessions)] {
		list.Sessions = append(list.Sessions, e.listed())
	}
	return list
}

// An entry is one line of a listing.
type entry struct {
	contracts.SessionEntry
	at time.Time
}

// listed returns the entry as it is sent.
func (e entry) listed() contracts.SessionEntry {
	e.UpdatedAt = e.at.UTC().Format("2006-01-02T15:04:05.000Z")
	return e.SessionEntry
}

func describe(h *hub.Hub) entry {
	sum := h.Summary()
	return entry{at: sum.Updated, SessionEntry: contracts.SessionEntry{
		SessionID: h.SessionID(), Open: true, Cursor: &sum.Cursor, IsResponding: sum.Responding,
		Connections: int64(sum.Connections), Pending: int64(sum.Pending),
	}}
}

// kept returns the ids of a scope's sessions on the disk, and when each was last
// written to.
func (s *shelf) kept(scope string) map[string]time.Time {
	folders, err := os.ReadDir(s.sessions.scopeDir(scope))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.sessions.log.Error("list sessions", "err", err)
	}
	found := map[string]time.Time{}
	for _, f := range folders {
		name, ok := strings.CutPrefix(f.Name(), sessionPrefix)
		id, err := url.PathUnescape(name)
		if !ok || err != nil || !f.IsDir() {
			continue
		}
		found[id] = lastWritten(filepath.Join(s.sessions.scopeDir(scope), f.Name()))
	}
	return found
}

// lastWritten returns when a file in dir was last written to.
func lastWritten(dir string) (last time.Time) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return last // it is listed all the same
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
