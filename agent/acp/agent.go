package acp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/rpc"
	"github.com/seed-028515a8/maestro/workspace"
)

// Options are what an agent gets from its operator. The zero value works in the
// current directory.
type Options struct {
	// Dir is the workspace root, where the program starts and below which its
	// files and terminals are. Empty means the current directory.
	Dir string

	// Shell runs the command lines of terminals. Empty means $SHELL if it
	// exists, else /bin/bash, else sh. Windows always uses cmd.
	Shell string

	// EnvPass names environment variables that processes get although their
	// names look like credentials or Hosted would withhold them.
	EnvPass []string

	// Hosted withholds every environment variable that is not known to be
	// needed.
	Hosted bool

	// StateDir is where the id of the program's session is kept, so that a
	// restarted server goes on with it. Empty keeps it for the life of the agent
	// only.
	StateDir string

	// Version is that of this program, as the other one is told it.
	Version string

	// Servers are the MCP servers that the program is to use. Those of a kind
	// that it does not support are left out, which is said.
	Servers []Server

	// Log receives faults and the output of the program meant for operators. Nil
	// discards it.
	Log *slog.Logger
}

// An Agent runs a program that speaks the Agent Client Protocol and is its
// client. Start is called once, then Run once at a time, Configure at any time,
// and Close last.
//
// The program is started by Start, and again by Run once it has ended. Between
// runs nobody restarts it.
type Agent struct {
	argv []string
	opts Options
	wait waits

	// Set by Start.
	host  contracts.Host
	files *workspace.Workspace
	life  context.Context // from Start to Close
	stop  context.CancelCauseFunc

	// launching is held while the program is started, so that Close does not
	// overlook it. It is locked before mu.
	launching sync.Mutex

	mu       sync.Mutex
	peer     *peer // the newest; nil before the first
	deaths   int   // of the program in a row, without a completed run
	memory   memory
	commands string                  // a digest of those of the program, as last said
	notes    []string                // to be said in the next run; at most maxNotes
	said     map[string]bool         // by noteOnce
	broken   string                  // the end of an answer that the program died in, and has not been told of
	thinking contracts.ThinkingLevel // the level that was asked for; "" if none was
}

// waits are how long things may take. They are fields for the sake of tests.
type waits struct {
	ready      time.Duration // until the program has a session
	foreign    time.Duration // until one that does not seem to speak the protocol has answered
	notice     time.Duration // until the log says that this is waited for
	input      time.Duration // a call whose input is not there yet is held back so long
	settle     time.Duration // likewise one that has its input, or is said to be in progress
	glance     time.Duration // likewise one that is seldom asked about: it only looks at something, or has a terminal already
	interrupt  time.Duration // until an interrupted run has ended
	shutdown   time.Duration // until the program has ended with its input
	backoff    time.Duration // before the second restart in a row; then doubled
	maxBackoff time.Duration
}

const (
	maxNotes = 16  // that wait to be said in the next run; more are dropped
	maxSaid  = 128 // that are known to have been said; then they may be said again
)

var errClosed = errors.New("agent is closed")

// New returns an agent that runs argv, which is not empty.
func New(argv []string, o Options) *Agent {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Agent{
		argv: argv, opts: o, said: map[string]bool{},
		wait: waits{
			ready: time.Minute, foreign: 10 * time.Second, notice: 5 * time.Second, input: 30 * time.Second, settle: 4 * time.Second, glance: time.Second,
			interrupt: 4 * time.Second, shutdown: 2 * time.Second,
			backoff: time.Second, maxBackoff: 10 * time.Second,
		},
	}
}

// Start makes the agent ready for prompts: it fails unless the program has a
// session within a minute. host must stay valid until Close returns; ctx bounds
// the start only.
func (a *Agent) Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	dir, err := filepath.Abs(a.opts.Dir)
	if err != nil {
		return contracts.AgentInfo{}, fmt.Errorf("find workspace %q: %w", a.opts.Dir, err)
	}
	a.opts.Dir = dir
	if a.files, err = workspace.Open(dir, workspace.Options{}); err != nil {
		return contracts.AgentInfo{}, err
	}
	a.host = host
	a.life, a.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	a.recall()
	p, err := a.launch(ctx)
	if err != nil {
		return contracts.AgentInfo{}, errors.Join(err, a.Close(ctx))
	}
	return contracts.AgentInfo{
		Model: p.modelName(), Provider: p.name, Executor: contracts.ExecutorLive,
		Requests: []contracts.RequestType{contracts.RequestApproval, contracts.RequestMCPElicitation},
		Forgets:  true,
	}, nil
}

// launch starts the program and brings it to where it takes prompts. A program
// that is lost over an earlier session gets a new one.
func (a *Agent) launch(ctx context.Context) (*peer, error) {
	a.launching.Lock()
	defer a.launching.Unlock()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(a.life, func() { stop(context.Cause(a.life)) })()

	p, err := a.attempt(ctx)
	if lost, ok := errors.AsType[*lostError](err); ok && ctx.Err() == nil {
		a.forget(lost.cause)
		p, err = a.attempt(ctx)
	}
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.peer = p
	return p, nil
}

// attempt starts the program once.
func (a *Agent) attempt(ctx context.Context) (*peer, error) {
	if err := context.Cause(a.life); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.wait.ready, fmt.Errorf("agent process did not become ready in %v", a.wait.ready))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p, program := newPeer(a), filepath.Base(a.argv[0])
	slow := time.AfterFunc(a.wait.notice, func() {
		a.opts.Log.Warn("agent process is not ready yet: it is waited for", "program", program, "at most", a.wait.ready, "hint", p.hint())
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
	if !errors.Is(err, rpc.ErrEnded) { // else it is about to end by itself
		p.proc.Kill(err)
	}
	<-p.over
	return nil, fmt.Errorf("start agent %s: %w", program, p.explain(err))
}

// current returns the program that lives, which it has started if need be.
func (a *Agent) current(ctx context.Context) (*peer, error) {
	a.mu.Lock()
	p, deaths := a.peer, a.deaths
	a.mu.Unlock()
	if p != nil {
		if p.proc.Life().Err() == nil {
			return p, nil
		}
		<-p.over
	}
	if err := a.pause(ctx, deaths); err != nil {
		return nil, err
	}
	p, err := a.launch(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.died()
		}
		return nil, err
	}
	a.publish(&contracts.Status{Message: "Agent process restarted"})
	return p, nil
}

// pause waits before a restart, the longer the more often the program has died
// in a row.
func (a *Agent) pause(ctx context.Context, deaths int) error {
	if deaths < 2 {
		return nil
	}
	delay := a.wait.maxBackoff
	if shift := deaths - 2; shift < 10 {
		delay = min(a.wait.backoff<<shift, delay)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.life.Done():
		return context.Cause(a.life)
	}
}

func (a *Agent) died() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deaths++
}

// proved notes that the program has completed a run.
func (a *Agent) proved() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deaths = 0
}

// Configure applies an accepted init, as far as the protocol has words for it,
// with the next run. What it has none for is said then, once. Approvals are the
// host's business.
func (a *Agent) Configure(init *contracts.Init) {
	if init.SystemPrompt != nil || init.AppendSystemPrompt != nil {
		a.noteOnce("The agent keeps its own system prompt: the Agent Client Protocol has no way to set it")
	}
	if init.ThinkingLevel == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.thinking = init.ThinkingLevel
}

// note has something said with the next run.
func (a *Agent) note(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.notes) < maxNotes {
		a.notes = append(a.notes, text)
	}
}

// noteOnce is note for what is not worth saying twice.
func (a *Agent) noteOnce(text string) {
	a.mu.Lock()
	said := a.said[text]
	if len(a.said) == maxSaid {
		clear(a.said)
	}
	a.said[text] = true
	a.mu.Unlock()
	if !said {
		a.note(text)
	}
}

// speak says what was noted.
func (a *Agent) speak() {
	a.mu.Lock()
	notes := a.notes
	a.notes = nil
	a.mu.Unlock()
	for _, text := range notes {
		a.publish(&contracts.Status{Message: visible(text)})
	}
}

// publish shows an event that belongs to no run.
func (a *Agent) publish(ev contracts.Event) {
	if err := a.host.Publish(a.life, ev); err != nil {
		a.opts.Log.Debug("publish agent event", "error", err)
	}
}

// Run serves one prompt to its end, which comes with the program's answer to it.
// Once ctx has ended the program has 4 s to stop before it is killed.
func (a *Agent) Run(ctx context.Context, work contracts.Work) error {
	p, err := a.current(ctx)
	if err != nil {
		return failure(ctx, err)
	}
	a.speak()
	p.setThinking(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.prompt(ctx, work)
}

// failure is an error as clients are shown it: what ended ctx, an error of ours
// as it is, and anything else as one that they may hope to be gone next time.
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

// Close ends the program and everything it started. It has 2 s to end by itself
// and one after a signal, less if ctx ends before.
func (a *Agent) Close(ctx context.Context) error {
	if a.stop == nil {
		return nil // never started
	}
	a.stop(errClosed)
	a.launching.Lock()
	defer a.launching.Unlock()
	a.mu.Lock()
	p := a.peer
	a.mu.Unlock()
	if p != nil {
		p.proc.Shutdown(ctx, a.wait.shutdown, errors.New("agent process killed: it did not end with its input"))
		<-p.over
	}
	return a.files.Close()
}
