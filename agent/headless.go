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

	"github.com/seed-028515a8/maestro/agent/mask"
	"github.com/seed-028515a8/maestro/contracts"
)

// maxDeaths is how often in a row a child may die without completing a run.
// Then it is restarted only with the next prompt.
const maxDeaths = 5

// A headless is an agent in a child process that speaks the headless protocol
// on its standard streams. This program is the child's controller.
//
// One goroutine, supervise, owns the child. It alone starts children, so there
// is at most one, and passes it to Run. It replaces a child that dies.
type headless struct {
	argv []string
	opts Options
	wait waits

	// Set by Start.
	host  contracts.Host
	ids   *wireIDs
	life  context.Context // from Start to Close
	stop  context.CancelFunc
	grace context.Context // ends when Close must not wait any longer
	hurry context.CancelFunc
	gone  chan struct{}       // closed when supervise has ended
	want  chan chan<- attempt // Run requests the child; the inner channel is 1-buffered

	deaths atomic.Int64 // in a row, without a completed run

	mu     sync.Mutex
	config *contracts.Init // the accepted inits combined; nil before the first
	link   *link           // of the running child; nil between children
}

// waits are time limits. Tests set other ones.
type waits struct {
	ready      time.Duration // until a child accepts prompts
	notice     time.Duration // until the log says that a child is not ready yet
	quiet      time.Duration // silence that ends a run if the child does not report run ends
	interrupt  time.Duration // until an interrupted run has ended
	shutdown   time.Duration // until a child has shut down
	backoff    time.Duration // before the first restart; doubled at each death
	maxBackoff time.Duration
}

// An attempt is the outcome of a request for the child.
type attempt struct {
	link *link
	err  error
}

// newHeadless returns an agent that runs argv, which is not empty, in o.Dir.
func newHeadless(argv []string, o Options) Agent {
	return &headless{
		argv: argv, opts: o, ids: newWireIDs(),
		wait: waits{
			ready: 30 * time.Second, notice: 5 * time.Second, quiet: time.Second, interrupt: 4 * time.Second,
			shutdown: 2 * time.Second, backoff: time.Second, maxBackoff: 30 * time.Second,
		},
		gone: make(chan struct{}), want: make(chan chan<- attempt),
	}
}

// Start implements Agent. It fails if the first child is not ready within 30 s.
func (h *headless) Start(ctx context.Context, host contracts.Host) (contracts.AgentInfo, error) {
	h.host = host
	if host.Restored() {
		h.ids.process = strconv.FormatInt(time.Now().UnixMilli(), 36)
	}
	h.life, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.grace, h.hurry = context.WithCancel(context.WithoutCancel(ctx))
	r, ready, err := h.launch(ctx)
	if err != nil {
		h.stop()
		h.hurry()
		close(h.gone) // Close has nothing to wait for
		return contracts.AgentInfo{}, err
	}
	go h.supervise(r) // ends with h.life
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
	program := filepath.Base(h.argv[0])
	slow := time.AfterFunc(h.wait.notice, func() {
		h.opts.Log.Warn("agent process is not ready yet: waiting", "program", program, "at most", h.wait.ready)
	})
	defer slow.Stop()
	select {
	case ready := <-r.ready:
		h.greet(r)
		return r, ready, nil
	case <-r.over:
	case <-ctx.Done():
		r.child.Kill(context.Cause(ctx))
		<-r.over
	}
	return nil, nil, fmt.Errorf("start agent %s: %w", program, cmp.Or(r.fatal, r.child.Account()))
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
}

// supervise keeps a child running until Close.
func (h *headless) supervise(r *link) {
	defer close(h.gone)
	for r != nil {
		select {
		case reply := <-h.want:
			reply <- attempt{link: r}
			continue
		case <-r.over:
		case <-h.life.Done():
			_ = r.send(&contracts.Shutdown{}) // a child that does not read is killed
			r.child.Shutdown(h.grace, h.wait.shutdown, errors.New("agent process killed: it did not shut down"))
			<-r.over
			return
		}
		h.mu.Lock()
		h.link = nil
		h.mu.Unlock()
		h.deaths.Add(1)
		h.reportExit(r)
		r = h.restart()
	}
}

// reportExit publishes the exit of a child, unless its run reports it.
func (h *headless) reportExit(r *link) {
	h.opts.Log.Warn("agent process ended", "error", r.child.Failure(), "stderr", mask.Text(r.child.LastWords()))
	if !r.broken {
		h.publish(h.life, &contracts.ErrorEvent{Message: r.child.Account().Error(), ErrorType: contracts.ErrorTransient})
	}
}

// restart returns a new child, or nil after Close. It waits between attempts,
// and after maxDeaths failures until there is a prompt. A prompt ends any wait.
func (h *headless) restart() *link {
	for {
		reply, ok := h.pause()
		if !ok {
			return nil
		}
		r, _, err := h.launch(h.life)
		if reply != nil {
			reply <- attempt{link: r, err: err}
		} else if err != nil && h.life.Err() == nil {
			h.publish(h.life, &contracts.ErrorEvent{Message: err.Error(), ErrorType: contracts.ErrorTransient})
		}
		if err == nil {
			h.publish(h.life, &contracts.Status{Message: "Agent process restarted"})
			return r
		}
		if h.life.Err() != nil {
			return nil
		}
		h.deaths.Add(1)
		h.opts.Log.Warn("cannot restart the agent process", "error", err)
	}
}

// pause waits until the next restart is due. If a prompt ends the wait, it
// returns the channel for the outcome. It returns false after Close.
func (h *headless) pause() (reply chan<- attempt, ok bool) {
	var due <-chan time.Time
	if deaths := h.deaths.Load(); deaths < maxDeaths {
		due = time.After(min(h.wait.backoff<<max(deaths-1, 0), h.wait.maxBackoff)) // cannot overflow: maxDeaths is small
	} else if deaths == maxDeaths {
		h.publish(h.life, &contracts.ErrorEvent{
			Message:   fmt.Sprintf("agent process died %d times in a row: it is started again with the next prompt", deaths),
			ErrorType: contracts.ErrorTransient,
		})
	}
	select {
	case <-due:
		return nil, true
	case reply := <-h.want:
		return reply, true
	case <-h.life.Done():
		return nil, false
	}
}

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
	if err != nil {
		return err
	}
	run := r.begin()
	defer r.finish(run)
	prompt := &contracts.Prompt{Content: work.Content}
	for _, a := range work.Attachments {
		prompt.Attachments = append(prompt.Attachments, a.Path)
	}
	if err := r.send(prompt); err != nil {
		return transient(err)
	}
	select {
	case <-run.ended:
		h.deaths.Store(0)
		return nil
	case <-r.over:
		if !r.broken { // the run ended just before the child did
			return nil
		}
		return transient(r.child.Account())
	case <-ctx.Done():
		return h.interrupt(ctx, r, run)
	}
}

// current returns the link to the running child. If there is none, one is
// started.
func (h *headless) current(ctx context.Context) (*link, error) {
	reply := make(chan attempt, 1)
	select {
	case h.want <- reply:
	case <-h.gone:
		return nil, transient(errors.New("agent is closed"))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-reply:
		if a.err != nil {
			return nil, transient(a.err)
		}
		return a.link, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// interrupt ends a run whose ctx has ended.
func (h *headless) interrupt(ctx context.Context, r *link, run *run) error {
	run.interrupted.Store(true) // without r.mu, which a client that does not read may block for long
	run.quiet.Reset(h.wait.quiet)
	timer := time.NewTimer(h.wait.interrupt)
	defer timer.Stop()
	if r.send(&contracts.Interrupt{}) == nil {
		select {
		case <-run.ended:
			h.deaths.Store(0)
			return context.Cause(ctx)
		case <-r.over:
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	r.child.Kill(errors.New("agent process killed: it did not stop when interrupted"))
	<-r.over
	return context.Cause(ctx)
}

// transient returns an error that the client may retry.
func transient(err error) error {
	return &contracts.Error{Code: contracts.CodeRuntimeFailed, Type: contracts.ErrorTransient, Message: err.Error()}
}

// Close implements Agent. The child has 2 s to shut down and 1 s after a
// signal, less if ctx ends before.
func (h *headless) Close(ctx context.Context) error {
	if h.stop == nil {
		return nil // never started
	}
	defer h.hurry()
	h.stop()
	defer context.AfterFunc(ctx, h.hurry)()
	<-h.gone
	return nil
}
