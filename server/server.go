package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/agent"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/transport/auth"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// Options configures [New]. An agent and a credential are required: NewAgent or Agent,
// and Token or Authenticate. The zero values of the other fields are usable.
type Options struct {
	// NewAgent makes the agent of a session when the session is opened: when a client
	// creates it, and when a client attaches to it after a pause or a restart. The server
	// closes the agent when the session leaves memory, and without starting it if the
	// server was closed meanwhile. [AgentFunc] makes agents of a function.
	//
	// A panic in NewAgent or in a method of the agent is logged with its stack. NewAgent
	// and Start then do not open the session, and a run fails. The server cannot recover
	// panics in goroutines that the agent starts: they end the program.
	NewAgent func(Session) (contracts.Agent, error)

	// Agent names an agent of maestro serve instead of NewAgent, in the form of its flag
	// --agent, such as "llm:anthropic/claude-sonnet-4-5" or "acp:opencode acp". It works
	// in Workspace. An llm: agent reads its key from the environment.
	Agent string

	// Allow, Ask and Deny are rules of an llm: Agent, in the form of the flags of
	// maestro serve. ModelURL is the address of its provider. Empty means the address in
	// the environment, else that of the provider.
	Allow, Ask, Deny []string
	ModelURL         string

	// Token authenticates its holder as the owner, who may do everything. It has at least
	// 16 bytes of printable ASCII without spaces.
	Token string

	// Authenticate returns who sent a request, by whatever your program uses: a cookie, a
	// header, a client certificate. It is called for requests without a valid Token, share,
	// ticket or cookie of this server. Their Host and Origin have been checked. An error
	// refuses the request with 401, and the log gets its text. A [contracts.Error] refuses it
	// with its own code and message; without a code it is an internal error.
	//
	// Connections, tickets, cookies and shares of a principal end at Expires. They do not
	// end when Authenticate begins to refuse the principal: call [Server.Disconnect] then.
	//
	// Principals with the same Scope share sessions, and cannot see those of other scopes.
	// A scope has at most 64 of a-z 0-9 . _ - and a principal without one belongs to the
	// owner's. A principal without Scope, Role and SessionID has the rights of the owner.
	Authenticate func(*http.Request) (contracts.Principal, error)

	// StateDir is the directory for the sessions and shares, created if missing. A later
	// server continues the sessions in it. Only one server may use it at a time, also within
	// one process: New does not fail for a second one, but it refuses each session that the
	// first has open with runtime_owned_elsewhere. Empty means a temporary directory that
	// Close removes.
	StateDir string

	// Workspace is the directory of Agent, and of the files that prompts may name. Empty
	// means that there is none.
	Workspace string

	// Utilities lets controllers run commands in Workspace as the user of this process, and
	// search, read and watch its files.
	Utilities bool

	// Page serves the page for browsers at /. See [Server.LoginPath].
	Page bool

	// Hosts are the host names by which clients reach the server, besides loopback names
	// and addresses, such as app.example.com. A name with a port is valid with that port
	// only. A request with another Host is refused.
	Hosts []string

	// Origins are web origins, such as https://app.example.com, whose pages may use the
	// server besides pages of its own origin.
	Origins []string

	// BehindTLS says that a proxy ends TLS, so that cookies are marked as secure.
	BehindTLS bool

	MaxSessions int           // open sessions; zero means 1,024, and more are refused
	RetainBytes int64         // size of a session's journal; zero means 256 MiB, and older entries are removed
	IdleTTL     time.Duration // time after which an unused session leaves memory; zero means 30 minutes

	// Log gets what operators need to know. It must not block. Nil discards it.
	Log *slog.Logger
}

// A Session is what an agent is made for.
type Session struct {
	ID    string // unique in its scope
	Scope string // of the principals who share the session; empty for the owner's

	// StateDir is a directory for files of the agent. It lasts as long as the session. The
	// agent creates it when it needs it.
	StateDir string
}

// A Server serves sessions over HTTP. Its methods may be called from any goroutine.
type Server struct {
	// Static after New.
	inner     *wiring.Server
	handler   http.Handler
	temporary string // directory that Close removes; empty for none

	close    sync.Once
	closeErr error
}

// New returns a server, which serves until Close.
func New(opts Options) (*Server, error) {
	if err := opts.check(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	s := &Server{}
	dir, err := s.stateDir(opts.StateDir)
	if err == nil {
		s.inner, err = wiring.NewServer(opts.wiring(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("server: %w", errors.Join(err, s.removeTemporary()))
	}
	s.handler = s.inner.Handler()
	return s, nil
}

// check returns an error for options that contradict each other.
func (o *Options) check() error {
	rules := len(o.Allow)+len(o.Ask)+len(o.Deny) > 0 || o.ModelURL != ""
	switch {
	case o.NewAgent == nil && o.Agent == "":
		return errors.New("no agent: set Options.NewAgent or Options.Agent")
	case o.NewAgent != nil && o.Agent != "":
		return errors.New("two agents: set Options.NewAgent or Options.Agent, not both")
	case rules && !strings.HasPrefix(o.Agent, "llm:"):
		return errors.New("Options.Allow, Ask, Deny and ModelURL are for an llm: agent in Options.Agent")
	case o.Token == "" && o.Authenticate == nil:
		return errors.New("no credential: set Options.Token or Options.Authenticate")
	case o.Agent != "" && o.Workspace == "":
		return errors.New("Options.Agent needs Options.Workspace, the directory that the agent works in")
	case o.Utilities && o.Workspace == "":
		return errors.New("Options.Utilities needs Options.Workspace")
	case o.MaxSessions < 0 || o.RetainBytes < 0 || o.IdleTTL < 0:
		return errors.New("Options.MaxSessions, RetainBytes and IdleTTL must not be negative")
	}
	if err := o.checkAccess(); err != nil || o.Agent == "" {
		return err
	}
	if err := agent.Check(o.Agent, o.runtime()); err != nil {
		return fmt.Errorf("Options.Agent %q: %w", o.Agent, err)
	}
	return nil
}

// checkAccess checks the options of package auth, whose errors do not name them.
func (o *Options) checkAccess() error {
	if o.Token != "" {
		if err := auth.CheckToken(o.Token); err != nil {
			return fmt.Errorf("Options.Token: %w", err)
		}
	}
	for _, host := range o.Hosts {
		if err := auth.CheckHost(host); err != nil {
			return fmt.Errorf("Options.Hosts: %w", err)
		}
	}
	for _, origin := range o.Origins {
		if err := auth.CheckOrigin(origin); err != nil {
			return fmt.Errorf("Options.Origins: %w", err)
		}
	}
	return nil
}

func (o *Options) runtime() agent.Options {
	return agent.Options{Allow: o.Allow, Ask: o.Ask, Deny: o.Deny, ModelURL: o.ModelURL}
}

// wiring returns the options of the server behind this one.
func (o *Options) wiring(dir string) wiring.ServerOptions {
	sessions := wiring.Options{
		Workspace: o.Workspace, NoUtilities: !o.Utilities, Agent: o.Agent, Runtime: o.runtime(),
		Session:     hub.Options{RequireTokens: true, IdleTTL: cmp.Or(o.IdleTTL, 30*time.Minute)},
		RetainBytes: o.RetainBytes, Log: o.Log,
	}
	if o.NewAgent != nil {
		sessions.NewAgent = func(key hub.Key, a agent.Options) (contracts.Agent, error) {
			return o.NewAgent(Session{ID: key.ID, Scope: key.Scope, StateDir: a.StateDir})
		}
	}
	return wiring.ServerOptions{
		Options: sessions, Dir: dir, MaxSessions: o.MaxSessions, Page: o.Page,
		Network: wiring.NetworkOptions{
			Auth: auth.Options{Token: o.Token, Authenticate: o.Authenticate, Hosts: o.Hosts, Origins: o.Origins, BehindTLS: o.BehindTLS},
			Log:  o.Log,
		},
	}
}

// stateDir returns the absolute path of the directory for all state, and creates it.
func (s *Server) stateDir(dir string) (string, error) {
	if dir == "" {
		temporary, err := os.MkdirTemp("", "maestro-")
		s.temporary = temporary
		return temporary, err
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("Options.StateDir: %w", err)
	}
	return dir, nil
}

func (s *Server) removeTemporary() error {
	if s.temporary == "" {
		return nil
	}
	return os.RemoveAll(s.temporary)
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// LoginPath returns the path and query of a link that logs a browser in as the owner, once
// and within 10 minutes. Without Options.Token it is "/".
func (s *Server) LoginPath() string { return s.inner.Auth.LoginPath() }

// Disconnect ends the connections of a principal, and the tickets and cookies that were made
// for it. Its clients do not reconnect by themselves. A new connection is accepted if
// Options.Authenticate still accepts the principal. Shares that it made stay valid until
// they expire or somebody with control of the session revokes them.
func (s *Server) Disconnect(principalID string) { s.inner.Disconnect(principalID) }

// Close suspends the sessions and ends all connections; clients are told that the server
// goes away. Runs are stopped, and a later server on the same StateDir continues the
// sessions. It keeps the open questions of agents that can use a later answer, and withdraws
// those of an [AgentFunc]. Requests that come later are refused, so close the [http.Server] afterwards.
// If ctx ends first, Close cuts the connections and returns an error. The error names each
// session whose agent did not end in time or is still being made. A nil ctx means
// [context.Background]. Later calls wait for the first one and return its error.
func (s *Server) Close(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	s.close.Do(func() { s.closeErr = errors.Join(s.inner.Close(ctx), s.removeTemporary()) })
	return s.closeErr
}
