// Package program runs agents that are programs and exchange lines of JSON with the
// server. It starts, watches, interrupts, restarts and closes their processes. A
// [Speaker] knows the protocol of one kind of program; internal/agent/heddle and internal/agent/chord have
// the speakers.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/agent/memory"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
)

// Options are the operator's settings for an agent.
type Options struct {
	Argv    []string // the program and its arguments; not empty
	Dir     string   // the workspace, where the program starts; absolute
	EnvPass []string // variables that the program gets although they look like credentials
	Hosted  bool     // withholds all variables except those known to be needed

	// StateDir is where the id of the program's conversation is stored, so that a
	// restarted server can continue it. Empty keeps it for the life of the agent only.
	StateDir string

	// Log receives errors and the standard error of the program. Nil discards it.
	Log *slog.Logger
}

// A Dialect is what distinguishes one kind of program from another.
type Dialect struct {
	Name     string // in texts for people
	Requests []contracts.RequestType
	MaxInput int // longest line that the program reads, in bytes without its end
	MaxLine  int // longest line that the program may write, likewise; it is killed at a longer one

	// Interrupt is how long an interrupted run may take to end. Then the program is
	// killed.
	Interrupt time.Duration

	// Speak returns the speaker for a new process. system is the system prompt that
	// clients have set; "" if there is none.
	Speak func(p *Process, system string) Speaker

	// Resume returns the arguments with which a process continues a conversation. Nil
	// says that conversations end with their process.
	Resume func(session string) []string

	// Prompted says that the program takes a system prompt when it starts.
	Prompted bool
}

// A Speaker speaks with one process in the protocol of its kind. Its methods are called
// one at a time and must not block, except by publishing. Values that it sends are
// encoded as JSON, one line each.
type Speaker interface {
	// Greeting returns what the process is sent first.
	Greeting() []any

	// Hear takes a line of the process, which is valid until Hear returns. An error says
	// that the line is no message. Hear calls [Process.Ready] once the process accepts
	// prompts.
	Hear(text []byte) error

	// Prompt returns what begins a run, and what cancels it.
	Prompt(text string) (send, cancel any)

	// Watch is called each second of a run; silence is the time since the last line.
	Watch(silence time.Duration)

	// Farewell returns what the process is sent before its input ends; nil is nothing.
	Farewell() any
}

// An Agent runs a program. Call Start once, then Run once at a time, Configure at any
// time, and Close last. Start starts the program, and Run starts it again if it has
// ended. It is not restarted between runs.
type Agent struct {
	opts    Options
	dialect Dialect

	// Set by Start.
	host contracts.Host
	life context.Context // from Start to Close
	stop context.CancelCauseFunc

	// launching is held while the program is started, so that Close waits for it. It is
	// locked before mu.
	launching sync.Mutex
	process   *Process // the newest; nil before the first. launching guards it

	notes turn.Notes

	mu       sync.Mutex
	system   string // the system prompt that clients have set
	session  string // the conversation to continue; "" if there is none
	prompted bool   // the program of this conversation was sent a prompt
}

const (
	readyTime    = time.Minute     // until the program accepts prompts
	shutdownTime = 2 * time.Second // until the program has ended after its input
	watchPause   = time.Second     // between two calls of Speaker.Watch
)

var errClosed = errors.New("agent is closed")

// New returns an agent that runs the program of o, which speaks d.
func New(o Options, d Dialect) *Agent {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Agent{opts: o, dialect: d}
}

// Start makes the agent ready for prompts. It fails if the program is not ready within
// one minute. host must be valid until Close returns; ctx bounds the start only.
func (a *Agent) Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	a.host = host
	a.life, a.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	a.recall()
	a.launching.Lock()
	p, err := a.launch(ctx)
	a.launching.Unlock()
	if err != nil {
		return contracts.AgentInfo{}, errors.Join(err, a.Close(ctx))
	}
	return contracts.AgentInfo{
		Model: p.model, Provider: p.provider, Executor: contracts.ExecutorLive, Requests: a.dialect.Requests, Forgets: true,
	}, nil
}

// launch starts the program and waits until it accepts prompts. If the program ends
// because it cannot continue a conversation, it is started again without one. The caller
// holds a.launching.
func (a *Agent) launch(ctx context.Context) (*Process, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(a.life, func() { stop(context.Cause(a.life)) })()
	a.mu.Lock()
	session := a.session
	a.mu.Unlock()
	p, err := a.attempt(ctx, session)
	if err != nil && session != "" && p.refusesSession() && ctx.Err() == nil {
		a.opts.Log.Warn("the program cannot continue its conversation", "error", err, "stderr", mask.Text(p.proc.LastWords()))
		a.mu.Lock()
		a.session = ""
		a.mu.Unlock()
		a.notes.Add("The agent starts a new conversation, because it could not continue the earlier one")
		p, err = a.attempt(ctx, "")
	}
	if err != nil {
		return nil, fmt.Errorf("start agent %s: %w", filepath.Base(a.opts.Argv[0]), err)
	}
	a.process = p
	return p, nil
}

// attempt starts the program once. The process is not nil; if there is an error, it has
// ended.
func (a *Agent) attempt(ctx context.Context, session string) (*Process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTime, fmt.Errorf("agent process did not become ready in %v", readyTime))
	defer cancel()
	p := newProcess(a, session)
	if err := p.start(); err != nil {
		return p, err
	}
	select {
	case <-p.ready:
		return p, nil
	case <-p.over:
		p.quit = ctx.Err() == nil
	case <-ctx.Done():
		p.proc.Kill(context.Cause(ctx))
		<-p.over
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p, cmp.Or(p.refusal, p.proc.Account())
}

// current returns the running program. If there is none, or clients have changed the
// system prompt, it starts one.
func (a *Agent) current(ctx context.Context) (*Process, error) {
	a.launching.Lock()
	defer a.launching.Unlock()
	if err := context.Cause(a.life); err != nil {
		return nil, err
	}
	a.mu.Lock()
	stale := a.dialect.Prompted && a.process.system != a.system
	a.mu.Unlock()
	switch {
	case a.process.proc.Life().Err() == nil && !stale:
		return a.process, nil
	case stale:
		a.dismiss(ctx, a.process)
	}
	select {
	case <-a.process.over:
	case <-ctx.Done(): // a client that does not read may hold up the report of the exit
		return nil, context.Cause(ctx)
	}
	if a.dialect.Resume == nil {
		a.noteNewConversation()
	}
	p, err := a.launch(ctx)
	if err != nil {
		return nil, err
	}
	a.publish(&contracts.Status{Message: "Agent process restarted"})
	return p, nil
}

// noteNewConversation tells clients that the program does not know what was said, if
// anything was.
func (a *Agent) noteNewConversation() {
	a.mu.Lock()
	prompted := a.prompted
	a.prompted = false
	a.mu.Unlock()
	if prompted {
		a.notes.Add(memory.TextForgotten)
	}
}

// Configure applies an accepted init with the next run, as far as the protocol supports
// it. Clients are told once of the unsupported parts. The host handles approvals.
func (a *Agent) Configure(init *contracts.Init) {
	if (init.SystemPrompt != nil || init.AppendSystemPrompt != nil) && !a.dialect.Prompted {
		a.notes.AddOnce("The agent keeps its own system prompt: " + a.dialect.Name + " has no way to set it")
	}
	if init.ThinkingLevel != "" {
		a.notes.AddOnce("The agent keeps its own thinking level: " + a.dialect.Name + " has no way to set it")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if init.SystemPrompt != nil {
		a.system = *init.SystemPrompt
	}
	if init.AppendSystemPrompt != nil {
		a.system = contracts.TailText(strings.TrimPrefix(a.system+"\n\n"+*init.AppendSystemPrompt, "\n\n"), maxSystem)
	}
}

// maxSystem bounds a system prompt with appended parts, in bytes; beyond it the oldest
// text is dropped.
const maxSystem = 1 << 20

// publish publishes events that belong to no run.
func (a *Agent) publish(events ...contracts.Event) { a.check(a.host.Publish(a.life, events...)) }

// check logs that an event could not be published. That happens when the hub has ended.
func (a *Agent) check(err error) {
	if err != nil {
		a.opts.Log.Debug("cannot publish an agent event", "error", err)
	}
}

// Run serves one prompt until the program says that it is done. After ctx has ended,
// the program has Dialect.Interrupt to stop before it is killed.
func (a *Agent) Run(ctx context.Context, work contracts.Work) error {
	p, err := a.current(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return turn.Failed(err)
	}
	for _, text := range a.notes.Take() {
		a.publish(&contracts.Status{Message: text})
	}
	r, cancel, err := p.begin(text(work))
	if err != nil {
		return err
	}
	defer p.finish(r)
	a.remember(p)
	return a.follow(ctx, p, r, cancel)
}

// follow waits for the end of a run. cancel is the line that cancels it.
func (a *Agent) follow(ctx context.Context, p *Process, r *Run, cancel []byte) error {
	tick := time.NewTicker(watchPause)
	defer tick.Stop()
	for {
		select {
		case err := <-r.ended:
			return err
		case <-p.over:
			return p.outcome(r)
		case <-ctx.Done():
			return a.interrupt(ctx, p, r, cancel)
		case <-tick.C:
			p.watch()
		}
	}
}

// interrupt ends a run whose ctx has ended.
func (a *Agent) interrupt(ctx context.Context, p *Process, r *Run, cancel []byte) error {
	r.stopping.Store(true) // without p.mu, which a client that does not read may block for long
	late := time.After(a.dialect.Interrupt)
	if p.proc.Send(cancel) == nil {
		select {
		case err := <-r.ended:
			a.opts.Log.Debug("an interrupted run has ended", "error", err)
			return context.Cause(ctx)
		case <-p.over:
			return context.Cause(ctx)
		case <-late:
		}
	}
	p.proc.Kill(errors.New("agent process killed: it did not stop when interrupted"))
	<-p.over
	return context.Cause(ctx)
}

// text returns a prompt with the paths of its attachments, because the protocols have no
// attachments.
func text(work contracts.Work) string {
	if len(work.Attachments) == 0 {
		return work.Content
	}
	var b strings.Builder
	b.WriteString(work.Content + "\n\nAttached files:")
	for _, file := range work.Attachments {
		b.WriteString("\n- " + file.Path)
	}
	return b.String()
}

// Close ends the program and everything it started. The program has 2 s to end by
// itself and 1 s after a signal, less if ctx ends before.
func (a *Agent) Close(ctx context.Context) error {
	if a.stop == nil {
		return nil // never started
	}
	a.stop(errClosed)
	a.launching.Lock()
	defer a.launching.Unlock()
	if a.process != nil {
		a.dismiss(ctx, a.process)
	}
	return nil
}

// dismiss ends a process.
func (a *Agent) dismiss(ctx context.Context, p *Process) {
	p.farewell()
	p.proc.Shutdown(ctx, shutdownTime, errors.New("agent process killed: it did not end with its input"))
	<-p.over
}
