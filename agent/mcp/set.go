package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	proc "github.com/seed-028515a8/maestro/internal/child"
)

// Defaults of Options.
const (
	defaultConnectTimeout = 30 * time.Second
	defaultCallTimeout    = 2 * time.Minute
	defaultCallLimit      = time.Hour
)

// maxQuestions is how many questions of servers may be open in a set.
const maxQuestions = 16

// ErrUnavailable says that a server could not be reached, or was lost in the
// middle of a call. The same call may succeed later; whether the lost one had
// effects is not known.
var ErrUnavailable = errors.New("the MCP server is not available")

// Why something of the set ends.
var (
	errClosed   error = &fault{words: "the MCP servers were closed"}
	errUnwanted error = &fault{words: "the connection was ended"}
)

// A Host is what a set needs of the hub: that of [contracts.Host] of the same
// name.
type Host interface {
	Publish(ctx context.Context, events ...contracts.Event) error
	Ask(ctx context.Context, req *contracts.ServerRequest, opts contracts.AskOptions) (contracts.Outcome, error)
	Withdraw(requestID string, verdict contracts.Verdict, reason string, by contracts.Resolver) bool
}

// Options are what a set of servers needs. The zero value is an empty set.
type Options struct {
	Servers []Server

	// Dir is the workspace: where programs start, and the root that servers are
	// told. Empty means the current directory.
	Dir string

	// EnvPass and Hosted bound the environment of programs, as those of an agent
	// do.
	EnvPass []string
	Hosted  bool

	// Host shows what becomes of servers and puts their questions. Nil means that
	// nobody is there: then every question is cancelled, and only the log says so.
	Host Host

	// SessionID is told to the platform's server. Empty means that it is not.
	SessionID string

	// Version is that of this program, told to servers. Empty means dev.
	Version string

	// Log receives faults and what programs write to standard error. Nil discards
	// it.
	Log *slog.Logger

	// ConnectTimeout bounds one attempt to reach a server, from the start of its
	// program to the list of its tools. Zero means 30 s.
	ConnectTimeout time.Duration

	// CallTimeout is how long a tool may be silent; progress and open questions of
	// its server extend it. Zero means two minutes. CallLimit bounds a call
	// whatever its progress, but for open questions; zero means an hour. A call
	// beyond them is cancelled and its result says so.
	CallTimeout time.Duration
	CallLimit   time.Duration
}

// A Set is the servers of one session. Its methods may be called from any
// goroutine.
//
// A server has at most one connection, which a goroutine of its own looks after.
// One that cannot be reached, or is lost, is said in the open and tried again when
// it is used, at growing intervals up to a minute.
type Set struct {
	opts  Options
	log   *slog.Logger
	links []*link // in the order of the options

	life context.Context // ends with Close
	stop context.CancelCauseFunc

	questions chan struct{} // a token for each that is open

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup // everything that runs; not added to once closed
}

// Open connects to the servers, all at once, and returns when each has been
// reached or not, or ctx has ended. Those that were not are no error.
func Open(ctx context.Context, o Options) *Set {
	if dir, err := filepath.Abs(o.Dir); err == nil { // else programs cannot start, which is said
		o.Dir = dir
	}
	o.ConnectTimeout = or(o.ConnectTimeout, defaultConnectTimeout)
	o.CallTimeout = or(o.CallTimeout, defaultCallTimeout)
	o.CallLimit = or(o.CallLimit, defaultCallLimit)
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Set{opts: o, log: o.Log, questions: make(chan struct{}, maxQuestions)}
	s.life, s.stop = context.WithCancelCause(context.Background())
	s.add(o.Servers)
	var wg sync.WaitGroup
	for _, l := range s.links {
		wg.Go(func() { _, _ = l.connected(ctx) }) // ends with the first attempt; the link says how
	}
	wg.Wait()
	return s
}

func or(d, fallback time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return fallback
}

// add makes places for servers. One that is not in order is said and left out.
func (s *Set) add(servers []Server) {
	names := map[string]bool{}
	for _, server := range servers {
		err := server.check()
		if err != nil {
			err = &fault{"its configuration is not in order", err}
		}
		switch {
		case names[server.Name]:
			err = &fault{words: "another server has the same name"}
		case len(s.links) >= maxServers:
			err = &fault{words: "there are too many servers"}
		}
		l := newLink(s, server)
		if err != nil {
			l.say("is left out: "+why(err), err)
			continue
		}
		names[server.Name] = true
		s.links = append(s.links, l)
	}
}

// Tools returns the tools of all servers as they were last listed, those of one
// server together. It does not block: servers that were not reached before are
// tried again meanwhile, if it is time to.
func (s *Set) Tools() []Tool {
	var tools []Tool
	seen := map[string]bool{}
	for _, l := range s.links {
		for _, t := range l.listed() {
			if !seen[t.FullName] { // by chance of its hash, and then nobody could call it
				seen[t.FullName] = true
				tools = append(tools, t)
			}
		}
	}
	return tools
}

// find returns a tool and its server.
func (s *Set) find(fullName string) (*link, Tool, bool) {
	for _, l := range s.links {
		if t, ok := l.tool(fullName); ok {
			return l, t, true
		}
	}
	return nil, Tool{}, false
}

// Close ends all connections, and with them calls, questions and every process
// that a server started. It returns when nothing is left, within a few seconds.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop(errClosed)
	s.wg.Wait()
}

// start runs f in a goroutine that Close waits for. It reports false if the set
// was closed.
func (s *Set) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Go(f)
	return true
}

// environ is what every program gets of ours.
func (s *Set) environ() []string { return proc.Environ(os.Environ(), s.opts.Hosted, s.opts.EnvPass) }

// A Tool is what a server can do.
type Tool struct {
	Server string
	Name   string // as the server has it

	// FullName is the name for models, unique in a set: mcp__server__tool, at most
	// 64 letters, digits, underscores and hyphens.
	FullName string

	Title       string // for people; may be empty
	Description string
	Schema      json.RawMessage // JSON Schema of an object

	// What the server says of it. A tool that is not ReadOnly changes something;
	// one that is not Destructive only adds. Neither is to be relied upon.
	ReadOnly    bool
	Destructive bool
}
