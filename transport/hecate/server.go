package hecate

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	wire "github.com/seed-028515a8/maestro/dialect/hecate"
	"github.com/seed-028515a8/maestro/transport/sse"
)

// Options configures [New]. Authorize, Find and Streams are required.
type Options struct {
	// Translate are the settings of new translations. SessionID is set for each.
	Translate wire.Options

	// Dir returns the folder of a scope. Nil keeps the logs in memory.
	Dir         func(scope string) string
	RetainBytes int64         // size of the log of one scope; zero means 256 MiB
	RetainAge   time.Duration // age of its events; zero means no limit

	// Authorize returns the principal of a request, and checks Host and Origin. Alive
	// reports whether its credential is still valid; nil means always.
	Authorize func(*http.Request) (contracts.Principal, error)
	Alive     func(contracts.Principal) bool

	// Find opens a session, for a decision or to stop its run.
	Find func(ctx context.Context, p contracts.Principal, session string) (Source, error)

	// Attach and Request count the streams and the other requests of a principal, and
	// return how long to wait if there are too many. Nil means no limit.
	Attach, Request func(principalID string) (wait time.Duration)

	Streams   *sse.Streams
	Heartbeat time.Duration // of streams on which nothing happens; zero means 15 s
	Log       *slog.Logger  // discards if nil
}

// A Server serves the logs of all scopes. It is safe for concurrent use.
type Server struct {
	opts   Options
	mu     sync.Mutex
	logs   map[string]*scopeLog // by scope
	open   map[string][]Source  // open sessions, by scope
	closed bool
}

// New returns a server.
func New(opts Options) (*Server, error) {
	if opts.Authorize == nil || opts.Find == nil || opts.Streams == nil {
		return nil, errors.New("hecate: Authorize, Find and Streams are required")
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	opts.RetainBytes = cmp.Or(opts.RetainBytes, 256<<20)
	opts.Heartbeat = cmp.Or(opts.Heartbeat, contracts.DefaultHeartbeatInterval)
	if opts.Alive == nil {
		opts.Alive = func(contracts.Principal) bool { return true }
	}
	return &Server{opts: opts, logs: map[string]*scopeLog{}, open: map[string][]Source{}}, nil
}

// log returns the log of a scope. Unless make is set, it returns nil for a scope of which
// no client has ever asked. A new log follows all sessions that are open.
func (v *Server) log(scope string, make bool) (*scopeLog, error) {
	if v.closed {
		return nil, errClosed
	}
	if l := v.logs[scope]; l != nil {
		return l, nil
	}
	l, err := openLog(&v.opts, scope, make)
	if err != nil || l == nil {
		return nil, err
	}
	v.logs[scope] = l
	for _, src := range v.open[scope] {
		l.follow(src)
	}
	if left := l.openRuns(); len(left) > 0 {
		l.wg.Go(func() { v.reconcile(l, scope, left) }) // ends with the last session, or with the log
	}
	return l, nil
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

// logOf returns the log of a scope for a client. The log knows all open sessions.
func (v *Server) logOf(ctx context.Context, scope string) (*scopeLog, error) {
	v.mu.Lock()
	_, known := v.logs[scope]
	l, err := v.log(scope, true)
	v.mu.Unlock()
	if err == nil && !known {
		err = l.await(ctx, func() bool {
			for _, s := range l.index.Sessions {
				if s.Task == "" {
					return false
				}
			}
			return true
		})
	}
	return l, err
}

// Opened says that a session of a scope was opened. If the scope has a log, the log
// follows the session until it ends.
func (v *Server) Opened(scope string, src Source) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open[scope] = append(v.open[scope], src)
	go func() { // ends with the session
		<-src.Done()
		v.ended(scope, src)
	}()
	l, err := v.log(scope, false)
	if err != nil {
		v.opts.Log.Error("follow a session", "session", src.SessionID(), "err", err)
	}
	if l != nil {
		l.follow(src)
	}
}

func (v *Server) ended(scope string, src Source) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open[scope] = slices.DeleteFunc(v.open[scope], func(other Source) bool { return other == src })
	if len(v.open[scope]) == 0 {
		delete(v.open, scope)
	}
}

// Close closes the logs. Call it after the sessions and the streams have ended.
func (v *Server) Close(ctx context.Context) (err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for _, l := range v.logs {
		err = errors.Join(err, l.close(ctx))
	}
	return err
}
