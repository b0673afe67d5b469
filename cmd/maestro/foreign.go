package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/agent/llm/model"
	"github.com/seed-028515a8/maestro/internal/dialect"
	"github.com/seed-028515a8/maestro/internal/dialect/heddle"
	"github.com/seed-028515a8/maestro/internal/sleep"
	"github.com/seed-028515a8/maestro/internal/transport/foreign"
	"github.com/seed-028515a8/maestro/internal/transport/stdio"
	"github.com/seed-028515a8/maestro/internal/wiring"
)

// A protocol is one that clients of other programs speak, as lines of JSON.
type protocol struct {
	name      string
	maxLine   int    // longest line of a client in bytes, without its end
	endsWell  bool   // a signal ends the process with exit status 0
	ownModel  bool   // without --agent, the client on standard input names the model
	full      string // what a client is told for whom the socket has no room
	translate func(s *settings, getenv func(string) string) dialect.Translator
}

var protocols = []protocol{{
	name: "heddle", maxLine: heddle.MaxLine, ownModel: true, translate: translateHeddle,
	full: `{"type":"result","id":"unknown","status":"error","tool_calls_made":[],"iterations":0,` +
		`"error":{"code":"protocol_error","message":"The server has too many clients","retryable":true}}`,
}, chordProtocol}

// translateHeddle returns a translator for a Heddle client. The variables are those of
// Heddle servers.
func translateHeddle(s *settings, getenv func(string) string) dialect.Translator {
	alone := s.protocol == "heddle" && !s.shares()
	approvalWait := milliseconds(getenv("HEDDLE_APPROVAL_WAIT"))
	if alone && approvalWait == 0 {
		approvalWait = -1 // no other client can come
	}
	return heddle.New(heddle.Options{
		Version:      getenv("HEDDLE_PROTOCOL_VERSION"),
		Own:          alone && (s.agent == "" || strings.HasPrefix(s.agent, "llm:")),
		Heartbeat:    milliseconds(getenv("HEDDLE_HEARTBEAT_INTERVAL")),
		ApprovalWait: approvalWait,
		ControlWait:  milliseconds(getenv("HEDDLE_CONTROL_WAIT")),
		ShutdownWait: milliseconds(getenv("HEDDLE_SHUTDOWN_WAIT")),
	})
}

// milliseconds reads a time. It is negative for 0, and 0 for a text that is no positive
// number of milliseconds, which stands for the default.
func milliseconds(text string) time.Duration {
	switch n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32); {
	case err != nil || n < 0:
		return 0
	case n == 0:
		return -1
	default:
		return time.Duration(n) * time.Millisecond
	}
}

// protocolNamed returns the protocol with a name, or nil for the program's own.
func protocolNamed(name string) *protocol {
	i := slices.IndexFunc(protocols, func(p protocol) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return &protocols[i]
}

// protocolNames are the values of --protocol.
func protocolNames() []string {
	names := []string{"maestro"}
	for _, p := range protocols {
		names = append(names, p.name)
	}
	return names
}

// networkProtocols returns the protocols for clients on the network, who have no environment.
func (s settings) networkProtocols() []wiring.Protocol {
	var list []wiring.Protocol
	for _, p := range protocols {
		list = append(list, wiring.Protocol{Name: p.name, Translate: func() dialect.Translator {
			return p.translate(&s, func(string) string { return "" })
		}})
	}
	return list
}

// A localSession is the session of the one client on standard input, which may replace
// it.
type localSession struct {
	options  wiring.Options
	sessions *wiring.Sessions
	mu       sync.Mutex
	hub      *hub.Hub // nil before the first
}

// open opens a session with what the client asked for, and ends the one before.
func (l *localSession) open(ctx context.Context, _ contracts.Principal, start dialect.Start) (foreign.Attach, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hub != nil {
		if err := l.hub.Close(ctx); err != nil {
			return nil, err
		}
		l.hub = nil
	}
	spec, run := l.options.Agent, l.options.Runtime
	run.Tools, run.Limited = start.Tools, start.Limited
	if start.MaxIterations > 0 {
		run.MaxIterations, run.NoRetries = start.MaxIterations, true // a retry would be one call more
	}
	if spec == "" {
		spec = defaultModel + start.Model
		if url := os.Getenv("HEDDLE_BASE_URL"); run.ModelURL == "" && url != "" {
			run.ModelURL, run.CompleteURL = url, true
		}
	}
	options := hub.OpenOptions{Create: start.SessionID == ""}
	if start.SystemPrompt != nil {
		options.Init = &contracts.Init{SystemPrompt: start.SystemPrompt}
	}
	h, err := l.sessions.OpenAs(ctx, hub.Key{ID: cmp.Or(start.SessionID, "sess_"+uuid.NewString())}, options, spec, run)
	if e, ok := errors.AsType[*model.Error](err); ok && e.Kind == model.KindAuth && l.options.Agent == "" {
		err = fmt.Errorf("%w: %w", errNoProvider, err)
	}
	if err != nil {
		return nil, lockedElsewhere(err)
	}
	l.hub = h
	return wiring.ServeForeign(h, contracts.Principal{}), nil
}

var errNoProvider = &contracts.Error{
	Code:    contracts.CodeRuntimeNotReady,
	Message: "set HEDDLE_BASE_URL to the address of the model's provider, or OPENAI_API_KEY to a key of OpenAI",
}

// defaultModel begins the agent of a client that names its model.
const defaultModel = "llm:openai-chat/"

// close ends the session.
func (l *localSession) close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hub == nil {
		return nil
	}
	return l.hub.Close(ctx)
}

// headlessForeign serves a client of another protocol on standard input and output.
func headlessForeign(s settings, p *protocol) error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // as in headless
	log := s.log()
	ctx, started := untilSignal()
	if err := s.enterWorktree(); err != nil {
		return failure{err}
	}
	s.session.Shared = s.shares()
	opts, err := s.sessions(log)
	if err != nil {
		return err
	}
	m, err := wiring.NewSessions(opts)
	if err != nil {
		return err
	}
	if s.stateDir != "" {
		m.Dir = m.WorkspaceDir(s.stateDir)
	}
	if err := s.openChord(m); err != nil {
		return failure{err}
	}
	own := &localSession{options: opts, sessions: m}
	open, steps := wiring.Opener(own.open), []func(context.Context) error{own.close}
	if s.shares() {
		h, end, err := shareHeadless(ctx, s, m, log)
		if err != nil {
			return err
		}
		open, steps = wiring.OnlySession(h), end
	}
	started()
	serving, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { watchOutput(serving, stop) }) // ends with serving
	code, err := foreign.Serve(serving, stdio.NewText(os.Stdin, os.Stdout, p.maxLine), foreign.Options{
		Translator: p.translate(&s, os.Getenv), Open: open.As(contracts.Principal{}, log), Log: log,
	})
	stop(nil)
	watch.Wait()
	if err != nil {
		log.Debug("local client", "err", err)
	}
	leave(log, append(steps, m.Observer.Shutdown)...)
	switch {
	case ctx.Err() != nil && p.endsWell:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case code != 0:
		return exit(code)
	}
	return nil
}

// watchOutput calls stop once nothing can read standard output. A client without heartbeats
// may have nothing to be written for long.
func watchOutput(ctx context.Context, stop context.CancelCauseFunc) {
	for sleep.For(ctx, time.Second) == nil {
		if stdio.HungUp() {
			stop(errors.New("standard output is closed"))
		}
	}
}
