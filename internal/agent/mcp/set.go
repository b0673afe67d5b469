package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Time limits. Progress and open questions of a server extend callTimeout, and
// open questions callLimit. A call beyond either is cancelled, and its result
// says so.
const (
	connectTimeout = 30 * time.Second // one attempt to connect, from the start of a program to the list of its tools
	callTimeout    = 2 * time.Minute  // how long a tool may be silent
	callLimit      = time.Hour        // a whole call
)

// maxQuestions bounds the open questions in a set.
const maxQuestions = 16

// noticeDelay is the time after which clients are told that servers are being
// waited for.
const noticeDelay = time.Second

// ErrUnavailable says that a server could not be reached, or was lost during a
// call. The same call may succeed later; it is unknown whether the lost call
// had effects.
var ErrUnavailable = errors.New("the MCP server is not available")

// The causes with which parts of the set end.
var (
	errClosed   error = &fault{words: "the MCP servers were closed"}
	errUnwanted error = &fault{words: "the connection was ended"}
)

// Options configures a set of servers. The zero value is an empty set.
type Options struct {
	Servers []Server

	// Dir is the workspace: the working directory of programs, and the root sent
	// to servers. Empty means the current directory.
	Dir string

	// EnvPass and Hosted limit the environment of programs, as for agents.
	EnvPass []string
	Hosted  bool

	// Host publishes the state of servers and asks their questions.
	Host contracts.Host

	// SessionID is sent to the platform's server. Empty means that it is not
	// sent.
	SessionID string

	// Version is this program's version, sent to servers. Empty means dev.
	Version string

	// Log receives errors and the standard error of programs. Nil discards it.
	Log *slog.Logger

	// Tests set other limits.
	connectTimeout, callTimeout, callLimit time.Duration
}

// A Set is the servers of one session. Its methods may be called from any
// goroutine.
//
// A server has at most one connection, which a separate goroutine serves.
// Clients are told of a server that cannot be reached or is lost. It is tried
// again when tools are listed or called: at once after the first failure, then
// at growing intervals up to 1 minute.
type Set struct {
	opts  Options
	links []*link // in the order of the options

	life context.Context // ends with Close
	stop context.CancelCauseFunc

	questions chan struct{} // holds a token for each open question

	mu sync.Mutex     // held while life ends
	wg sync.WaitGroup // counts all goroutines; not added to once life has ended
}

// Open starts to connect to all servers at once, and does not wait. Clients get
// one status with the connected servers, if any, and one for each server that
// failed.
func Open(o Options) *Set {
	if dir, err := filepath.Abs(o.Dir); err == nil { // otherwise programs cannot start, which is reported
		o.Dir = dir
	}
	o.connectTimeout = cmp.Or(o.connectTimeout, connectTimeout)
	o.callTimeout = cmp.Or(o.callTimeout, callTimeout)
	o.callLimit = cmp.Or(o.callLimit, callLimit)
	o.Version = cmp.Or(o.Version, "dev")
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s := &Set{opts: o, questions: make(chan struct{}, maxQuestions)}
	s.life, s.stop = context.WithCancelCause(context.Background())
	s.add(o.Servers)
	var first []<-chan struct{}
	for _, l := range s.links {
		if _, attempt, _ := l.sessionOrWait(); attempt != nil {
			first = append(first, attempt)
		}
	}
	if len(first) > 0 {
		s.start(func() { s.introduce(first) }) // ends with the first attempts, or after firstDelay
	}
	return s
}

// introduce tells clients which servers are being waited for, if it takes long,
// and then which are connected. Later ones tell clients themselves.
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
		tools, ok := l.newlyConnected()
		return l.server.Name + " (" + toolCount(tools) + ")", ok
	})
}

// sayOf publishes a status with a text of each server for which of has one, if
// any.
func (s *Set) sayOf(text string, of func(*link) (string, bool)) {
	var all []string
	for _, l := range s.links {
		if one, ok := of(l); ok {
			all = append(all, one)
		}
	}
	if len(all) > 0 {
		text += label(strings.Join(all, ", "))
		s.opts.Log.Info(text)
		s.publish(text)
	}
}

func (s *Set) publish(text string) {
	ctx, cancel := context.WithTimeout(s.life, statusTime)
	defer cancel()
	if err := s.opts.Host.Publish(ctx, &contracts.Status{Message: text}); err != nil {
		s.opts.Log.Debug("cannot publish a status", "error", err)
	}
}

// add adds links for servers. It tells clients of invalid ones and leaves them
// out.
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

// Await tries again to connect to servers that were never reached, if it is
// time to. It waits for attempts: 6 s from the start of the first, 1 s from
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
		patient, stop := context.WithDeadline(ctx, until)
		select {
		case <-attempt:
		case <-patient.Done():
		}
		stop()
	}
}

// Tools returns the tools of all servers as last listed, grouped by server. It
// does not block: it starts new attempts for servers that were never reached,
// if it is time to.
func (s *Set) Tools() []Tool {
	var tools []Tool
	seen := map[string]bool{}
	for _, l := range s.links {
		for _, t := range l.listed() {
			if !seen[t.FullName] { // two names may share a hash; then only one can be called
				seen[t.FullName] = true
				tools = append(tools, t)
			}
		}
	}
	return tools
}

// find returns a tool and its server, nil if there is none.
func (s *Set) find(fullName string) (*link, Tool) {
	for _, l := range s.links {
		l.mu.Lock()
		tools := l.tools
		l.mu.Unlock()
		if at := slices.IndexFunc(tools, func(t Tool) bool { return t.FullName == fullName }); at >= 0 {
			return l, tools[at]
		}
	}
	return nil, Tool{}
}

// Close ends all connections with their calls, questions and processes. It
// returns when nothing is left, within a few seconds.
func (s *Set) Close() {
	s.mu.Lock()
	s.stop(errClosed)
	s.mu.Unlock()
	s.wg.Wait()
}

// start runs f in a goroutine that Close waits for. It returns false if the set
// was closed.
func (s *Set) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return false
	}
	s.wg.Go(f)
	return true
}

// A Tool is a tool of a server.
type Tool struct {
	Server string
	Name   string // the server's own name

	// FullName is the name for models, unique in a set: mcp__server__tool, at
	// most 64 letters, digits, underscores and hyphens.
	FullName string

	Title       string // for people, on one line; the name if the server has none
	Description string
	Schema      json.RawMessage // JSON Schema of an object

	// The server's claims about the tool. One that is not ReadOnly changes
	// something. Calling an Idempotent one twice changes no more than calling it
	// once. None of them can be trusted.
	ReadOnly   bool
	Idempotent bool
}
