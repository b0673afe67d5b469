package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// Defaults of Options.
const (
	defaultConnectTimeout = 30 * time.Second
	defaultCallTimeout    = 2 * time.Minute
	defaultCallLimit      = time.Hour
)

// maxQuestions is how many questions of servers may be open in a set.
const maxQuestions = 16

// noticeDelay is after which time it is said that servers are waited for.
const noticeDelay = time.Second

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
// tools are wanted or called: at once the first time, then at growing intervals up
// to a minute.
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

// Open begins to connect to the servers, all at once, and does not wait for them.
// What comes of it is said: in one status which servers are there, if any, and in
// one each which are not.
func Open(o Options) *Set {
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
	var first []<-chan struct{}
	for _, l := range s.links {
		if _, attempt, _ := l.place(); attempt != nil {
			first = append(first, attempt)
		}
	}
	if len(first) > 0 {
		s.start(func() { s.introduce(first) }) // ends with the first attempts, or after firstDelay
	}
	return s
}

// introduce says which servers are waited for, if it takes a while, and then which
// are there. Those that come later say so themselves.
func (s *Set) introduce(first []<-chan struct{}) {
	early, late := time.NewTimer(noticeDelay), time.NewTimer(firstDelay)
	defer early.Stop()
	defer late.Stop()
	for len(first) > 0 {
		select {
		case <-first[0]:
			first = first[1:]
		case <-early.C:
			s.sayOf("Waiting for MCP servers: ", func(l *link) (string, bool) {
				_, _, waits := l.awaited()
				return l.server.Name, waits
			})
		case <-late.C:
			first = nil
		case <-s.life.Done():
			return
		}
	}
	s.sayOf("MCP servers are connected: ", func(l *link) (string, bool) {
		tools, ok := l.arrived()
		return l.server.Name + " (" + toolCount(tools) + ")", ok
	})
}

// sayOf says something of those servers for which of has a text, if any.
func (s *Set) sayOf(text string, of func(*link) (string, bool)) {
	var all []string
	for _, l := range s.links {
		if one, ok := of(l); ok {
			all = append(all, one)
		}
	}
	if len(all) > 0 {
		text += label(strings.Join(all, ", "))
		s.log.Info(text)
		s.publish(text)
	}
}

// publish shows clients a status.
func (s *Set) publish(text string) {
	if s.opts.Host == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.life, statusTime)
	defer cancel()
	if err := s.opts.Host.Publish(ctx, &contracts.Status{Message: text}); err != nil {
		s.log.Debug("publish status", "error", err)
	}
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

// Await tries servers again that were never reached, if it is time to, and waits a
// moment for attempts: six seconds from the start of the first, one second from
// that of any other.
func (s *Set) Await(ctx context.Context) {
	for _, l := range s.links {
		_ = l.listed()
	}
	for _, l := range s.links {
		attempt, until, ok := l.awaited()
		if !ok {
			continue
		}
		late := time.NewTimer(time.Until(until))
		select {
		case <-attempt:
		case <-late.C:
		case <-ctx.Done():
		}
		late.Stop()
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

	Title       string // for people, on one line; the name if there is none
	Description string
	Schema      json.RawMessage // JSON Schema of an object

	// What the server says of it. A tool that is not ReadOnly changes something;
	// one that is not Destructive only adds; to call an Idempotent one twice changes
	// no more than to call it once. None is to be relied upon.
	ReadOnly    bool
	Destructive bool
	Idempotent  bool
}
