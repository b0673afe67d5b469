package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/agent/llm/model"
	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/dialect"
	"github.com/seed-028515a8/maestro/dialect/heddle"
	"github.com/seed-028515a8/maestro/hub"
	"github.com/seed-028515a8/maestro/internal/sleep"
	"github.com/seed-028515a8/maestro/transport/foreign"
	"github.com/seed-028515a8/maestro/transport/stdio"
	"github.com/seed-028515a8/maestro/transport/ws"
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

// serveForeign returns the function that attaches a client to h. It is the client of
// principal p.
func serveForeign(h *hub.Hub, p contracts.Principal) foreign.Attach {
	return func(ctx context.Context, port *foreign.Port) error {
		return h.Serve(ctx, port, hub.WireEnvelope, &contracts.Attach{Role: contracts.RoleController, Takeover: contracts.TakeoverLater, Principal: p})
	}
}

// A localSession is the session of the one client on standard input, which may replace
// it.
type localSession struct {
	sessions *sessions
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
	spec, run := l.sessions.agent, l.sessions.runtime
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
	h, err := l.sessions.openAs(ctx, hub.Key{ID: cmp.Or(start.SessionID, "sess_"+uuid.NewString())}, options, spec, run)
	if e, ok := errors.AsType[*model.Error](err); ok && e.Kind == model.KindAuth && l.sessions.agent == "" {
		err = fmt.Errorf("%w: %w", errNoProvider, err)
	}
	if err != nil {
		return nil, lockedElsewhere(err)
	}
	l.hub = h
	return serveForeign(h, contracts.Principal{}), nil
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

// A foreignVisit is one client of another protocol on a WebSocket.
type foreignVisit struct {
	protocol protocol
	settings *settings
	open     func(context.Context, dialect.Start) (foreign.Attach, error)
}

func (v *foreignVisit) Serve(ctx context.Context, conn *ws.Conn) error {
	_, err := foreign.Serve(ctx, conn, foreign.Options{
		Translator: v.protocol.translate(v.settings, func(string) string { return "" }), Open: v.open, Pings: true, Handshake: v.settings.session.HandshakeTimeout,
	})
	return err
}

// An opener opens sessions for the clients of other protocols.
type opener func(context.Context, contracts.Principal, dialect.Start) (foreign.Attach, error)

// as returns the function that opens sessions for one principal, and logs its failures.
func (o opener) as(p contracts.Principal, log *slog.Logger) func(context.Context, dialect.Start) (foreign.Attach, error) {
	return func(ctx context.Context, start dialect.Start) (foreign.Attach, error) {
		attach, err := o(ctx, p, start)
		if err != nil {
			log.Error("session not opened", "session", start.SessionID, "err", err)
		}
		return attach, err
	}
}

// headlessForeign serves a client of another protocol on standard input and output.
func headlessForeign(s settings, p *protocol) error {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // as in headless
	log := s.log()
	ctx, started := untilSignal()
	if err := s.enterWorktree(); err != nil {
		return failure{err}
	}
	m, err := newSessions(s, log)
	if err != nil {
		return err
	}
	if s.stateDir != "" {
		m.dir = m.workspaceDir(s.stateDir)
	}
	if err := s.openChord(m); err != nil {
		return failure{err}
	}
	own := &localSession{sessions: m}
	open, steps := opener(own.open), []func(context.Context) error{own.close}
	if s.shares() {
		h, end, err := shareHeadless(ctx, s, m, log)
		if err != nil {
			return err
		}
		open, steps = onlySession(h), end
	}
	started()
	serving, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { watchOutput(serving, stop) }) // ends with serving
	code, err := foreign.Serve(serving, stdio.NewText(os.Stdin, os.Stdout, p.maxLine), foreign.Options{
		Translator: p.translate(&s, os.Getenv), Open: open.as(contracts.Principal{}, log), Log: log,
	})
	stop(nil)
	watch.Wait()
	if err != nil {
		log.Debug("local client", "err", err)
	}
	leave(log, append(steps, m.observer.Shutdown)...)
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

// onlySession opens the session of a process that has one.
func onlySession(h *hub.Hub) opener {
	return func(_ context.Context, p contracts.Principal, start dialect.Start) (foreign.Attach, error) {
		if start.SessionID != "" && start.SessionID != h.SessionID() {
			return nil, hub.ErrUnknownSession
		}
		return serveForeign(h, p), nil
	}
}
