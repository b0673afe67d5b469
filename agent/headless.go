package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/agent/turn"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// maxDeaths is how often in a row a child may die without completing a run.
// Then it is restarted only with the next prompt.
const maxDeaths = 5

// A headless is an agent in a child process that speaks the headless protocol
// on its standard streams. This program is the child's controller.
//
// A child that dies is replaced by its keeper after some time, or before by the
// next prompt. They take turns, so there is at most one child.
type headless struct {
	argv []string
	opts Options
	wait waits

	// Set by Start.
	host     contracts.Host
	process  string          // distinguishes the ids of this server process; "" if there was no earlier one
	children int             // started so far; owned by launch
	life     context.Context // from Start to Close
	stop     context.CancelFunc

	launching chan struct{}  // 1-buffered; holds a token while a child is started or closed
	keeping   sync.WaitGroup // the keepers

	deaths atomic.Int64 // in a row, without a completed run

	mu     sync.Mutex
	config *contracts.Init // the accepted inits combined; nil before the first
	link   *link           // of the newest child; nil before the first
}

// waits are time limits. Tests set other ones.
type waits struct {
	ready      time.Duration // until a child accepts prompts
	quiet      time.Duration // silence that ends a run if the child does not report run ends
	interrupt  time.Duration // until an interrupted run has ended
	shutdown   time.Duration // until a child has shut down
	backoff    time.Duration // before the first restart; doubled at each death
	maxBackoff time.Duration
}

// newHeadless returns an agent that runs argv, which is not empty, in o.Dir.
func newHeadless(argv []string, o Options) contracts.Agent {
	return &headless{
		argv: argv, opts: o,
		wait: waits{
			ready: 30 * time.Second, quiet: time.Second, interrupt: 4 * time.Second,
			shutdown: 2 * time.Second, backoff: time.Second, maxBackoff: 30 * time.Second,
		},
		launching: make(chan struct{}, 1),
	}
}

// Start implements Agent. It fails if the first child is not ready within 30 s.
func (h *headless) Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	h.host = host
	if host.Restored() {
		h.process = strconv.FormatInt(time.Now().UnixMilli(), 36) + "."
	}
	h.life, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	_, ready, err := h.launch(ctx)
	if err != nil {
		h.stop()
		return contracts.AgentInfo{}, err
	}
	return contracts.AgentInfo{
		Model: ready.Model, Provider: ready.Provider, Executor: ready.ExecutorType,
		Requests: contracts.RequestTypes(), Forgets: true,
	}, nil
}

// launch starts a child and waits until it accepts prompts.
func (h *headless) launch(ctx context.Context) (*link, *contracts.Ready, error) {
	r, err := newLink(h)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.wait.ready, fmt.Errorf("agent process did not become ready in %v", h.wait.ready))
	defer cancel()
	select {
	case ready := <-r.ready:
		h.greet(r)
		return r, ready, nil
	case <-r.over:
	case <-ctx.Done():
		r.child.Kill(context.Cause(ctx))
		<-r.over
	}
	return nil, nil, fmt.Errorf("start agent %s: %w", filepath.Base(h.argv[0]), cmp.Or(r.fatal, r.child.Account()))
}

// greet makes this program the child's controller, and configures the child as
// its predecessors were.
func (h *headless) greet(r *link) {
	err := r.send(&contracts.Hello{
		ProtocolVersion: contracts.ProtocolVersion,
		ClientInfo:      &contracts.ClientInfo{Name: "maestro"},
		Capabilities:    &contracts.Capabilities{ServerRequests: contracts.RequestTypes(), RawAgentEvents: true},
		Role:            contracts.RoleController,
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && h.config != nil {
		err = r.send(h.config)
	}
	if err != nil {
		h.opts.Log.Warn("cannot initialize the agent process", "error", err)
	}
	h.link = r
	h.keeping.Go(func() { h.keep(r) }) // ends when the child has been replaced, given up or closed
}

// keep waits for the end of a child and reports it, unless its run does. Then it
// starts another one, unless a prompt has. It waits between attempts, and gives
// up after maxDeaths failures.
func (h *headless) keep(r *link) {
	<-r.over
	if h.life.Err() != nil {
		return
	}
	h.deaths.Add(1)
	h.opts.Log.Warn("agent process ended", "error", r.child.Failure(), "stderr", mask.Text(r.child.LastWords()))
	if !r.broken {
		h.publish(h.life, &contracts.ErrorEvent{Message: r.child.Account().Error(), ErrorType: contracts.ErrorTransient})
	}
	close(r.reported)
	for deaths := h.deaths.Load(); deaths < maxDeaths; deaths = h.deaths.Load() {
		if sleep.For(h.life, min(h.wait.backoff<<max(deaths-1, 0), h.wait.maxBackoff)) != nil {
			return
		}
		_, err := h.current(h.life)
		if err == nil || h.life.Err() != nil {
			return
		}
		h.publish(h.life, &contracts.ErrorEvent{Message: err.Error(), ErrorType: contracts.ErrorTransient})
	}
	if h.deaths.Load() == maxDeaths {
		h.publish(h.life, &contracts.ErrorEvent{
			Message:   fmt.Sprintf("agent process died %d times in a row: it is started again with the next prompt", maxDeaths),
			ErrorType: contracts.ErrorTransient,
		})
	}
}

// current returns the link to the running child. If there is none, it starts
// one.
func (h *headless) current(ctx context.Context) (*link, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(h.life, func() { stop(errAgentClosed) })()
	select {
	case h.launching <- struct{}{}:
		defer func() { <-h.launching }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h.mu.Lock()
	r := h.link
	h.mu.Unlock()
	if r.child.Life().Err() == nil {
		return r, nil
	}
	select {
	case <-r.reported:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	r, _, err := h.launch(ctx)
	switch {
	case err != nil && ctx.Err() != nil: // interrupted or closed
		return nil, context.Cause(ctx)
	case err != nil:
		h.deaths.Add(1)
		h.opts.Log.Warn("cannot restart the agent process", "error", err)
		return nil, err
	}
	h.publish(ctx, &contracts.Status{Message: "Agent process restarted"})
	return r, nil
}

var errAgentClosed = errors.New("agent is closed")

func (h *headless) publish(ctx context.Context, events ...contracts.Event) {
	if err := h.host.Publish(ctx, events...); err != nil {
		h.opts.Log.Debug("cannot publish an agent event", "error", err)
	}
}

// Configure implements Agent. A child that is started later gets the same
// configuration.
func (h *headless) Configure(init *contracts.Init) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.config = addInit(h.config, init)
	if h.link == nil {
		return
	}
	if err := h.link.send(init); err != nil {
		h.opts.Log.Warn("cannot configure the agent process", "error", err)
	}
}

// maxAppended bounds the appended prompts that are kept for the next child, in
// bytes; beyond it the oldest text is dropped.
const maxAppended = 1 << 20

// addInit returns one init with the effect of sum followed by init (R33). sum
// may be nil.
func addInit(sum, init *contracts.Init) *contracts.Init {
	if sum == nil {
		sum = &contracts.Init{}
	}
	next := *sum
	if init.SystemPrompt != nil {
		next.SystemPrompt, next.AppendSystemPrompt = init.SystemPrompt, nil
	}
	if appended := init.AppendSystemPrompt; appended != nil {
		if next.AppendSystemPrompt != nil {
			appended = new(*next.AppendSystemPrompt + "\n\n" + *appended)
		}
		next.AppendSystemPrompt = new(contracts.TailText(*appended, maxAppended))
	}
	if init.ThinkingLevel != "" {
		next.ThinkingLevel = init.ThinkingLevel
	}
	if init.ApprovalMode != "" {
		next.ApprovalMode = init.ApprovalMode
	}
	return &next
}

// Run implements Agent. If a child does not end the run within 4 s after ctx
// has ended, it is killed.
func (h *headless) Run(ctx context.Context, work contracts.Work) error {
	r, err := h.current(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return turn.Failed(err)
	}
	run := r.begin()
	defer r.finish(run)
	prompt := &contracts.Prompt{Content: work.Content}
	for _, a := range work.Attachments {
		prompt.Attachments = append(prompt.Attachments, a.Path)
	}
	if err := r.send(prompt); err != nil {
		return turn.Failed(err)
	}
	select {
	case <-run.ended:
		h.deaths.Store(0)
		return nil
	case <-r.over:
		if !r.broken { // the run ended just before the child did
			return nil
		}
		return turn.Failed(r.child.Account())
	case <-ctx.Done():
		return h.interrupt(ctx, r, run)
	}
}

// interrupt ends a run whose ctx has ended.
func (h *headless) interrupt(ctx context.Context, r *link, run *run) error {
	run.interrupted.Store(true) // without r.mu, which a client that does not read may block for long
	run.quiet.Reset(h.wait.quiet)
	late := time.After(h.wait.interrupt)
	if r.send(&contracts.Interrupt{}) == nil {
		select {
		case <-run.ended:
			h.deaths.Store(0)
			return context.Cause(ctx)
		case <-r.over:
			return context.Cause(ctx)
		case <-late:
		}
	}
	r.child.Kill(errors.New("agent process killed: it did not stop when interrupted"))
	<-r.over
	return context.Cause(ctx)
}

// Close implements Agent. The child has 2 s to shut down and 1 s after a
// signal, less if ctx ends before.
func (h *headless) Close(ctx context.Context) error {
	if h.stop == nil {
		return nil // never started
	}
	h.stop()
	h.launching <- struct{}{}
	defer func() { <-h.launching }()
	h.mu.Lock()
	r := h.link
	h.mu.Unlock()
	if r != nil {
		_ = r.send(&contracts.Shutdown{}) // a child that does not read is killed
		r.child.Shutdown(ctx, h.wait.shutdown, errors.New("agent process killed: it did not shut down"))
	}
	h.keeping.Wait()
	return nil
}
