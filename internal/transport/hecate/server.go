package hecate

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	wire "github.com/seed-028515a8/maestro/internal/dialect/hecate"
	"github.com/seed-028515a8/maestro/internal/transport/sse"
)

// Options configures [New]. Authorize, Find and Streams are required.
type Options struct {
	// Translate are the settings of new translations. SessionID is set for each.
	Translate wire.Options

	// Dir returns the folder of a scope. Nil keeps the logs in memory.
	Dir         func(scope string) string
	MaxSessions int           // that one log knows; zero means 20,000. Beyond it, the oldest leave the log
	RetainBytes int64         // size of the log of one scope; zero means 256 MiB
	RetainAge   time.Duration // age of its events; zero means no limit

	// Authorize returns the principal of a request, and checks Host and Origin. Alive
	// reports whether its credential is still valid; nil means always.
	Authorize func(*http.Request) (contracts.Principal, error)
	Alive     func(contracts.Principal) bool

	// Find opens a session, for a decision or to stop its run.
	Find func(ctx context.Context, p contracts.Principal, session string) (Source, error)

	// Stored returns the ids of the sessions of a scope that are stored, the one used last
	// first. A new log lists them before they are opened. Nil means none.
	Stored func(scope string) ([]string, error)

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
	scopes map[string]*scope // those with an open session, a user or an open log
	idle   []*scope          // those whose log is open and has no user; the one used last is at the end
	closed bool
}

// New returns a server.
func New(opts Options) (*Server, error) {
	if opts.Authorize == nil || opts.Find == nil || opts.Streams == nil {
		return nil, errors.New("hecate: Authorize, Find and Streams are required")
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	opts.RetainBytes = cmp.Or(opts.RetainBytes, 256<<20)
	opts.MaxSessions = cmp.Or(opts.MaxSessions, 20_000)
	opts.Heartbeat = cmp.Or(opts.Heartbeat, contracts.DefaultHeartbeatInterval)
	if opts.Alive == nil {
		opts.Alive = func(contracts.Principal) bool { return true }
	}
	return &Server{opts: opts, scopes: map[string]*scope{}}, nil
}

// Opened says that a session of a scope was opened. If the scope has a log, the log
// follows the session until it ends.
func (v *Server) Opened(name string, src Source) {
	v.mu.Lock()
	sc := v.scope(name)
	sc.sources = append(sc.sources, src)
	v.mu.Unlock()
	go func() { // ends with the session
		<-src.Done()
		v.ended(sc, src)
	}()
	sc, l, err := v.use(name, false)
	if err != nil {
		v.opts.Log.Error("follow a session", "session", src.SessionID(), "err", err)
		return
	}
	if l != nil {
		v.follow(sc, l, src)
	}
	v.release(sc)
}

func (v *Server) ended(sc *scope, src Source) {
	v.mu.Lock()
	defer v.mu.Unlock()
	sc.sources = slices.DeleteFunc(sc.sources, func(other Source) bool { return other == src })
	v.drop(sc)
}

// Close closes the logs. Call it after the sessions and the streams have ended.
func (v *Server) Close(ctx context.Context) (err error) {
	v.mu.Lock()
	v.closed = true
	scopes := slices.Collect(maps.Values(v.scopes))
	v.mu.Unlock()
	for _, sc := range scopes {
		sc.opening.Lock()
		if sc.log != nil {
			err = errors.Join(err, sc.log.close(ctx))
		}
		sc.opening.Unlock()
	}
	return err
}
