package wiring

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/journal"
	"github.com/seed-028515a8/maestro/internal/overview"
	"github.com/seed-028515a8/maestro/internal/transport/httpapi"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
	"github.com/seed-028515a8/maestro/internal/transport/ws"
)

// RemovedPrefix begins the name of a session's folder while the session is being removed.
const RemovedPrefix = "removed-"

// openOverview makes the overview of the stored sessions.
func (v *Server) openOverview(tell func(scope string, ev contracts.InboxEvent)) (*overview.Overview, error) {
	m := v.Sessions
	return overview.New(overview.Options{
		Store: summaries{m}, Frame: sse.AppendData, SocketForm: ws.Form{}, Undo: v.opts.Undo,
		Heartbeat: m.opts.Session.HeartbeatInterval, Strict: m.opts.Session.Strict, Alive: m.alive, Notify: tell, Log: m.log,
		Find: func(ctx context.Context, id string, p contracts.Principal) (*hub.Hub, error) {
			h, _, err := v.Find(ctx, httpapi.Wanted{ID: id, Principal: p})
			return h, err
		},
	})
}

// A listVisit is one WebSocket of lists.
type listVisit struct {
	overview *overview.Overview
	by       contracts.Caller
}

func (v *listVisit) Serve(ctx context.Context, conn *ws.Conn) error {
	return v.overview.Serve(ctx, conn, v.by)
}

// summaries keeps the summaries of sessions in the folders of the sessions.
type summaries struct{ *Sessions }

// Keys implements [overview.Store]. It also removes what an earlier process did not
// completely remove.
func (s summaries) Keys() iter.Seq[hub.Key] {
	return func(yield func(hub.Key) bool) {
		for _, scope := range append([]string{""}, s.scopes()...) {
			dir := s.scopeDir(scope)
			for name := range folders(dir) {
				if strings.HasPrefix(name, RemovedPrefix) {
					if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
						s.log.Error("remove a deleted session", "err", err)
					}
				}
				if id, ok := Unescaped(name, SessionPrefix); ok && !yield(hub.Key{Scope: scope, ID: id}) {
					return
				}
			}
		}
	}
}

// scopes returns the scopes with a folder.
func (s summaries) scopes() (list []string) {
	for name := range folders(s.Dir) {
		if scope, ok := Unescaped(name, ScopePrefix); ok {
			list = append(list, scope)
		}
	}
	return list
}

// Unescaped returns the session id or the scope in the name of a folder. ok is false if the
// name does not begin with prefix or is malformed.
func Unescaped(name, prefix string) (id string, ok bool) {
	escaped, ok := strings.CutPrefix(name, prefix)
	id, err := url.PathUnescape(escaped)
	return id, ok && err == nil
}

// folders yields the names of the folders in dir, without reading all of them at once.
func folders(dir string) iter.Seq[string] {
	return func(yield func(string) bool) {
		f, err := os.Open(dir)
		if err != nil {
			return // there is none yet
		}
		defer f.Close()
		for {
			entries, err := f.ReadDir(256)
			for _, e := range entries {
				if e.IsDir() && !yield(e.Name()) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// Load implements [overview.Store].
func (s summaries) Load(key hub.Key) (text []byte, written time.Time, err error) {
	return journal.ReadSummary(s.SessionDir(key))
}

// Save implements [overview.Store].
func (s summaries) Save(key hub.Key, text []byte, durable bool) error {
	return journal.WriteSummary(s.SessionDir(key), text, durable)
}

// Remove implements [overview.Store]. It revokes the shares of the session first. The
// session is gone at once, also if its files can only be removed later.
func (s summaries) Remove(key hub.Key) error {
	if g := s.authenticator.Load(); g != nil {
		if err := g.RevokeShares(key.Scope, key.ID); err != nil {
			return err
		}
	}
	dir := s.SessionDir(key)
	removed := filepath.Join(filepath.Dir(dir), RemovedPrefix+filepath.Base(dir))
	err := os.RemoveAll(removed) // of an earlier session with this id
	if err == nil {
		err = os.Rename(dir, removed)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an operator has removed it
	}
	if err != nil {
		return err
	}
	if err := os.RemoveAll(removed); err != nil {
		s.log.Error("remove a deleted session", "session", key.ID, "err", err) // the next start tries again
	}
	return nil
}

// overviewOverHTTP is an overview as HTTP clients use it.
type overviewOverHTTP struct{ *overview.Overview }

func keyOf(id string, p contracts.Principal) hub.Key {
	return hub.Key{Scope: p.Scope, ID: strings.Clone(id)} // a copy, because the overview outlives the request
}

func (o overviewOverHTTP) Follow(ctx context.Context, conn *sse.Conn, p contracts.Principal, limit int) error {
	return o.Overview.Follow(ctx, conn, p, limit)
}

func (o overviewOverHTTP) FollowInbox(ctx context.Context, conn *sse.Conn, by contracts.Caller) error {
	return o.Overview.FollowInbox(ctx, conn, by)
}

func (o overviewOverHTTP) Update(id string, by contracts.Caller, u *contracts.SessionUpdate) (*contracts.SessionSummary, error) {
	return o.Overview.Update(keyOf(id, by.Principal), by, u)
}

func (o overviewOverHTTP) Delete(ctx context.Context, id string, by contracts.Caller) (*contracts.SessionSummary, error) {
	return o.Overview.Delete(ctx, keyOf(id, by.Principal), by)
}

func (o overviewOverHTTP) Restore(id string, by contracts.Caller) (*contracts.SessionSummary, error) {
	return o.Overview.Restore(keyOf(id, by.Principal), by)
}
