package hecate

import (
	"context"
	"slices"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// A scope holds the open sessions of one scope, and its log while the log is open.
type scope struct {
	name    string
	opening sync.Mutex // held while the log is opened or closed; taken before Server.mu
	log     *scopeLog  // nil if it is not open; written with opening and Server.mu, read with either

	// Guarded by Server.mu.
	sources []Source // open sessions
	users   int      // requests, streams and followers of sessions
}

// maxIdle is how many logs stay open without a user, for the next one.
const maxIdle = 8

// scope returns a scope. The caller holds Server.mu.
func (v *Server) scope(name string) *scope {
	sc := v.scopes[name]
	if sc == nil {
		sc = &scope{name: name}
		v.scopes[name] = sc
	}
	return sc
}

// drop removes a scope that has nothing. The caller holds Server.mu.
func (v *Server) drop(sc *scope) {
	if len(sc.sources) == 0 && sc.users == 0 && sc.log == nil {
		delete(v.scopes, sc.name)
	}
}

// use returns a scope and its log for one more user, who calls release at the end. If the
// log does not exist, use creates it, or returns nil unless create is set. Only users of
// the same scope wait while a log is opened.
func (v *Server) use(name string, create bool) (*scope, *scopeLog, error) {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return nil, nil, errClosed
	}
	sc := v.scope(name)
	v.hold(sc)
	v.mu.Unlock()

	sc.opening.Lock()
	defer sc.opening.Unlock()
	if sc.log == nil {
		if err := v.openLog(sc, create); err != nil {
			v.release(sc)
			return nil, nil, err
		}
	}
	return sc, sc.log, nil
}

// hold adds a user. The caller holds Server.mu.
func (v *Server) hold(sc *scope) {
	sc.users++
	v.idle = slices.DeleteFunc(v.idle, func(other *scope) bool { return other == sc })
}

// release removes a user. A log without users stays open until maxIdle other logs were used
// after it. A log in memory is never closed, because that would lose it.
func (v *Server) release(sc *scope) {
	v.mu.Lock()
	defer v.mu.Unlock()
	sc.users--
	v.drop(sc)
	if sc.users > 0 || sc.log == nil || v.opts.Dir == nil || v.closed {
		return
	}
	v.idle = append(v.idle, sc)
	if len(v.idle) > maxIdle {
		go v.closeIdle(v.idle[0]) // ends when the log is closed; Close waits for it
		v.idle = slices.Delete(v.idle, 0, 1)
	}
}

// closeIdle closes the log of a scope unless it has got a user again.
func (v *Server) closeIdle(sc *scope) {
	sc.opening.Lock()
	defer sc.opening.Unlock()
	v.mu.Lock()
	l := sc.log
	if sc.users > 0 || v.closed {
		l = nil
	}
	v.mu.Unlock()
	if l == nil {
		return
	}
	if err := l.close(context.Background()); err != nil {
		v.opts.Log.Error("close a log", "scope", sc.name, "err", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	sc.log = nil
	v.idle = slices.DeleteFunc(v.idle, func(other *scope) bool { return other == sc })
	v.drop(sc)
}

// openLog opens the log of a scope, which then knows all stored sessions and follows the
// open ones. The caller holds scope.opening.
func (v *Server) openLog(sc *scope, create bool) error {
	l, err := openLog(&v.opts, sc.name, create)
	if err != nil || l == nil {
		return err
	}
	v.mu.Lock()
	sc.log = l
	open := slices.Clone(sc.sources)
	v.mu.Unlock()
	var ids []string
	if v.opts.Stored != nil {
		if ids, err = v.opts.Stored(sc.name); err != nil {
			v.opts.Log.Error("list stored sessions", "scope", sc.name, "err", err)
		}
	}
	for _, src := range open {
		ids = append(ids, src.SessionID())
	}
	if err := l.introduce(ids); err != nil {
		v.opts.Log.Error("list sessions in the log", "scope", sc.name, "err", err)
	}
	for _, src := range open {
		v.follow(sc, l, src)
	}
	if left := l.openRuns(); len(left) > 0 {
		v.mu.Lock()
		v.hold(sc)
		v.mu.Unlock()
		l.wg.Go(func() { // ends with the last session, or with the log
			defer v.release(sc)
			v.reconcile(l, sc.name, left)
		})
	}
	return nil
}

// follow makes the log follow an open session. The follower is a user of the log.
func (v *Server) follow(sc *scope, l *scopeLog, src Source) {
	v.mu.Lock()
	v.hold(sc)
	v.mu.Unlock()
	l.follow(src, func() { v.release(sc) })
}

// reconcile opens the sessions in which an earlier process left a run open, so that
// consumers learn how it ended.
func (v *Server) reconcile(l *scopeLog, scope string, sessions []string) {
	for _, id := range sessions {
		if _, err := v.opts.Find(l.ctx, contracts.Principal{Scope: scope}, id); err != nil && l.ctx.Err() == nil {
			v.opts.Log.Error("end the run of an earlier process", "session", id, "err", err)
		}
	}
}
