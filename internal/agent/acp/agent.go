package acp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/mcp"
	"github.com/seed-028515a8/maestro/internal/agent/memory"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	"github.com/seed-028515a8/maestro/internal/rpc"
	"github.com/seed-028515a8/maestro/internal/workspace"
)

// Options are the operator's settings for an agent. The zero value works in the
// current directory.
type Options struct {
	// These are as for other agents. Programs start in Dir, and their files and
	// terminals must be below it.
	Dir, Shell string
	EnvPass    []string
	Hosted     bool
	Version    string
	Log        *slog.Logger

	// StateDir is where the id of the program's session is stored, so that a
	// restarted server can continue it. Empty keeps it for the life of the agent
	// only.
	StateDir string

	// Servers are the MCP servers that the program should use; their directories
	// are absolute. Kinds that it does not support are left out, and clients are
	// told.
	Servers []mcp.Server
}

// An Agent runs a program that speaks the Agent Client Protocol and is its
// client. Call Start once, then Run once at a time, Configure at any time, and
// Close last.
//
// Start starts the program, and Run starts it again after it has ended. It is
// not restarted between runs.
type Agent struct {
	argv []string
	opts Options
	wait waits

	// Set by Start.
	host  contracts.Host
	files *workspace.Workspace
	life  context.Context // from Start to Close
	stop  context.CancelCauseFunc

	// launching is held while the program is started, so that Close waits for
	// it. It is locked before mu.
	launching sync.Mutex

	peer atomic.Pointer[peer] // the newest process; nil before the first

	notes turn.Notes

	mu       sync.Mutex
	memory   memory.Memory
	commands string                  // a digest of the program's commands as last published
	offer    contracts.AgentOffer    // its slices are not changed
	broken   string                  // the end of an answer during which the program died, to be sent to it
	thinking contracts.ThinkingLevel // the requested level; "" if none was requested
}

// waits are time limits. Tests set other ones.
type waits struct {
	ready     time.Duration // until the program has a session
	foreign   time.Duration // until a program that may not speak the protocol has answered
	notice    time.Duration // until the log says that the program is not ready yet
	input     time.Duration // how long to hold back a call whose input is missing
	settle    time.Duration // likewise for a call that has its input, or is in progress
	glance    time.Duration // likewise for a call that is seldom asked about: it only reads, or has a terminal already
	interrupt time.Duration // until an interrupted run has ended
	shutdown  time.Duration // until the program has ended after its input
}

var errClosed = errors.New("agent is closed")

// New returns an agent that runs argv, which is not empty.
func New(argv []string, o Options) *Agent {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Agent{
		argv: argv, opts: o,
		wait: waits{
			ready: time.Minute, foreign: 10 * time.Second, notice: 5 * time.Second, input: 30 * time.Second, settle: 4 * time.Second, glance: time.Second,
			interrupt: 4 * time.Second, shutdown: 2 * time.Second,
		},
	}
}

// Start makes the agent ready for prompts. It fails if the program has no
// session within 1 minute. host must be valid until Close returns; ctx bounds
// the start only.
func (a *Agent) Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	dir, err := filepath.Abs(a.opts.Dir)
	if err != nil {
		return contracts.AgentInfo{}, fmt.Errorf("find workspace %q: %w", a.opts.Dir, err)
	}
	a.opts.Dir = dir
	if a.files, err = workspace.Open(dir); err != nil {
		return contracts.AgentInfo{}, err
	}
	a.host = host
	a.life, a.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	a.recall()
	p, err := a.launch(ctx)
	if err != nil {
		return contracts.AgentInfo{}, errors.Join(err, a.Close(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return contracts.AgentInfo{
		Model: p.model(), Provider: p.name, Executor: contracts.ExecutorLive,
		Requests: []contracts.RequestType{contracts.RequestApproval, contracts.RequestMCPElicitation},
		Forgets:  true,
	}, nil
}

// launch starts the program and waits until it accepts prompts. If the program
// is lost while it restores an earlier session, it is started again with a new
// one.
func (a *Agent) launch(ctx context.Context) (*peer, error) {
	a.launching.Lock()
	defer a.launching.Unlock()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(a.life, func() { stop(context.Cause(a.life)) })()

	p, err := a.attempt(ctx, stop)
	if lost, ok := errors.AsType[*lostError](err); ok && ctx.Err() == nil {
		a.forget(lost.cause)
		p, err = a.attempt(ctx, stop)
	}
	if err != nil {
		return nil, err
	}
	a.peer.Store(p)
	return p, nil
}

// attempt starts the program once. stop ends ctx.
func (a *Agent) attempt(ctx context.Context, stop context.CancelCauseFunc) (*peer, error) {
	if err := context.Cause(a.life); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.wait.ready, fmt.Errorf("agent process did not become ready in %v", a.wait.ready))
	defer cancel()
	p, program := newPeer(a), filepath.Base(a.argv[0])
	slow := time.AfterFunc(a.wait.notice, func() {
		a.opts.Log.Warn("agent process is not ready yet: waiting", "program", program, "at most", a.wait.ready, "hint", p.hint())
	})
	defer slow.Stop()
	foreign := time.AfterFunc(a.wait.foreign, func() {
		if p.foreign() {
			stop(fmt.Errorf("it has not spoken the Agent Client Protocol in %v", a.wait.foreign))
		}
	})
	defer foreign.Stop()
	if err := p.start(); err != nil {
		return nil, err
	}
	err := p.handshake(ctx)
	if err == nil {
		return p, nil
	}
	if !errors.Is(err, rpc.ErrEnded) { // otherwise it is about to end by itself
		p.proc.Kill(err)
	}
	<-p.over
	return nil, fmt.Errorf("start agent %s: %w", program, p.explain(err))
}

// current returns the running program. If there is none, it starts one.
func (a *Agent) current(ctx context.Context) (*peer, error) {
	if p := a.peer.Load(); p != nil {
		if p.proc.Life().Err() == nil {
			return p, nil
		}
		<-p.over
	}
	p, err := a.launch(ctx)
	if err != nil {
		return nil, err
	}
	a.publish(&contracts.Status{Message: "Agent process restarted"})
	return p, nil
}

// Configure applies an accepted init with the next run, as far as the protocol
// supports it. Clients are told once of the unsupported parts. The host handles
// approvals.
func (a *Agent) Configure(init *contracts.Init) {
	if init.SystemPrompt != nil || init.AppendSystemPrompt != nil {
		a.notes.AddOnce("The agent keeps its own system prompt: the Agent Client Protocol has no way to set it")
	}
	if init.ThinkingLevel == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.thinking = init.ThinkingLevel
}

func (a *Agent) publishNotes() {
	for _, text := range a.notes.Take() {
		a.publish(&contracts.Status{Message: visible(text)})
	}
}

// publish publishes an event that belongs to no run.
func (a *Agent) publish(ev contracts.Event) {
	if err := a.host.Publish(a.life, ev); err != nil {
		a.opts.Log.Debug("cannot publish an agent event", "error", err)
	}
}

// Run serves one prompt until the program has answered it. After ctx has ended,
// the program has 4 s to stop before it is killed.
func (a *Agent) Run(ctx context.Context, work contracts.Work) error {
	p, err := a.current(ctx)
	if err != nil {
		return failure(ctx, err)
	}
	a.publishNotes()
	p.setThinking(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.prompt(ctx, work)
}

// failure returns an error for clients: the cause of ctx if it has ended, an
// error of ours as it is, and any other as a failure of the runtime, which is
// transient unless the program's own error says otherwise.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ok := errors.AsType[*contracts.Error](err); ok {
		return err
	}
	kind := contracts.ErrorTransient
	if _, ok := errors.AsType[*rpc.Error](err); ok {
		kind = contracts.Classify(err.Error(), false)
	}
	return &contracts.Error{Code: contracts.CodeRuntimeFailed, Type: kind, Message: visible(err.Error())}
}

// Close ends the program and everything it started. The program has 2 s to end
// by itself and 1 s after a signal, less if ctx ends before.
func (a *Agent) Close(ctx context.Context) error {
	if a.stop == nil {
		return nil // never started
	}
	a.stop(errClosed)
	a.launching.Lock()
	defer a.launching.Unlock()
	if p := a.peer.Load(); p != nil {
		p.proc.Shutdown(ctx, a.wait.shutdown, errors.New("agent process killed: it did not end with its input"))
		<-p.over
	}
	return a.files.Close()
}
