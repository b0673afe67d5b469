package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/agent/mask"
	"github.com/seed-028515a8/maestro/internal/line"
	"github.com/seed-028515a8/maestro/internal/proc"
)

// Bounds on a child's open questions and calls, and on its lines in a row that
// are no events. A session has no more than 256 open questions either.
const (
	maxAsks     = 256
	maxTools    = 1024
	maxBadLines = 4
)

// errTooManyAsks refuses a question beyond maxAsks.
var errTooManyAsks = &contracts.Error{
	Code: contracts.CodeOverloaded, Message: fmt.Sprintf("%d questions are open already", maxAsks),
}

// A link starts one child, passes its events to the host, and the host's answers
// back.
//
// Events of a run are published during a run only. Later ones are dropped,
// because the run has ended for clients.
type link struct {
	h     *headless
	child *proc.Process
	ready chan *contracts.Ready // 1-buffered; holds the child's first ready event
	over  chan struct{}         // closed when the child is done and none of its questions is open

	reported chan struct{} // closed when clients were told of the end of a child that was ready

	greeted bool   // the child was ready; owned by its reader
	suffix  string // of its ids for clients; "" for the first child

	life   context.Context // bounds publishing and asking; ends soon after the child
	asking sync.WaitGroup

	// Valid once over is closed.
	fatal  error // the child's own error before it was ready, if any
	broken bool  // a run was active when the child ended

	// mu is held while an event of a run is published, so that the run does not
	// end meanwhile.
	mu      sync.Mutex
	run     *run            // nil between runs
	asks    map[string]*ask // by our request id
	endings bool            // the child reports the end of a run
}

// A run is one prompt that the child works on. link.mu guards it.
type run struct {
	ended chan struct{} // closed when the child has reported all of the run
	over  bool          // ended is closed

	started     bool // the child reported that its agent works
	answered    bool // a response has ended
	failed      bool // an error was reported
	interrupted atomic.Bool
	overasked   bool // the refusal of questions was published

	response string
	tools    map[string]bool            // open calls
	held     map[string]contracts.Event // events that may belong to a question, by call

	quiet *time.Timer // ends the run when it fires
	since time.Time   // when quiet was started
}

// An ask is a question of the child that the host has.
type ask struct {
	cancel    context.CancelFunc
	withdrawn atomic.Bool   // the child needs no answer any more
	done      chan struct{} // closed when the question is finished
}

// newLink starts a child of h.
func newLink(h *headless) (*link, error) {
	r := &link{
		h: h, ready: make(chan *contracts.Ready, 1), over: make(chan struct{}), reported: make(chan struct{}),
		asks: map[string]*ask{},
	}
	if h.children++; h.children > 1 || h.process != "" {
		r.suffix = fmt.Sprintf("~%s%d", h.process, h.children)
	}
	cmd := exec.Command(h.argv[0], h.argv[1:]...)
	cmd.Dir, cmd.Env = h.opts.Dir, proc.Environ(os.Environ(), h.opts.Hosted, h.opts.EnvPass)
	r.child = proc.NewProcess(cmd, proc.ProcessOptions{Name: "agent process", Log: mask.Log(h.opts.Log, mask.Text)})
	life, stop := context.WithCancel(context.WithoutCancel(h.life))
	r.life = life
	if err := r.child.Start(r.listen); err != nil {
		stop()
		return nil, err
	}
	go func() { // ends with the child
		<-r.child.Life().Done()
		late := time.AfterFunc(proc.DrainTime, stop) // bounds publishing the child's last events
		<-r.child.Done()
		late.Stop()
		stop()
		r.asking.Wait()
		r.mu.Lock()
		r.broken = r.run != nil && !r.run.over
		r.mu.Unlock()
		close(r.over)
	}()
	return r, nil
}

// send queues a command for the child. It does not block.
func (r *link) send(command contracts.Command) error {
	line, err := contracts.EncodeCommand(command)
	if err != nil {
		return err
	}
	if len(line) > contracts.MaxLineBytes {
		return fmt.Errorf("%s is longer than a line may be", command.CommandType())
	}
	return r.child.Send(append(line, '\n'))
}

// listen decodes the child's output line by line until it ends.
func (r *link) listen(stdout io.Reader) {
	lines := line.NewReader(stdout, contracts.MaxLineBytes)
	var decoder contracts.Decoder
	for first, bad := true, 0; ; first = false {
		text, err := lines.Next()
		if err != nil && !errors.Is(err, line.ErrLong) {
			return
		}
		if err == nil {
			if first {
				text = bytes.TrimPrefix(text, []byte("\uFEFF"))
			}
			if text = bytes.TrimSpace(text); len(text) == 0 {
				continue
			}
			var ev contracts.Event
			if ev, err = decoder.Event(text); err == nil {
				r.event(ev)
			}
			if err == nil || errors.Is(err, contracts.ErrUnknownType) { // from a newer child
				bad = 0
				continue
			}
		}
		if bad++; bad > maxBadLines {
			r.child.Kill(fmt.Errorf("agent process killed: %d unparseable lines in a row", bad))
			return
		}
		r.show(&contracts.ErrorEvent{Message: fmt.Sprintf("agent process wrote an unparseable line: %v", err), ErrorType: contracts.ErrorProtocol})
	}
}

// event handles an event of the child. Only the child's reader calls it.
func (r *link) event(ev contracts.Event) {
	wireID := ""
	if req, ok := ev.(*contracts.ServerRequest); ok {
		wireID = req.RequestID // the child's own id of the question
	}
	r.rename(ev)
	switch e := ev.(type) {
	case *contracts.Ready:
		if !r.greeted {
			r.greeted = true
			r.ready <- e
		}
	case *contracts.HelloOK:
		r.mu.Lock()
		r.endings = e.ServerCapabilities != nil && e.ServerCapabilities.RawAgentEvents
		r.mu.Unlock()
	case *contracts.ServerRequest:
		r.question(e, wireID)
	case *contracts.ServerRequestResolved:
		r.withdraw(e.RequestID, e.Resolution, e.Reason, e.ResolvedBy)
	case *contracts.ErrorEvent:
		r.fault(e)
	case *contracts.Status:
		if !echoes(e.Message) {
			r.show(e)
		}
	case *contracts.Compaction:
		r.show(e)
	case *contracts.RawAgentEvent, *contracts.ResponseStart, *contracts.ResponseChunk, *contracts.ResponseEnd,
		*contracts.ToolCall, *contracts.ToolStart, *contracts.ToolOutput, *contracts.ToolEnd, *contracts.ClientToolRequest:
		r.progress(e)
	}
}

// rename adds the suffix to the ids in an event. Otherwise a child that counts
// its responses from one would reuse ids of its predecessor (R36).
func (r *link) rename(ev contracts.Event) {
	if r.suffix == "" {
		return
	}
	fields := reflect.ValueOf(ev).Elem()
	for _, name := range []string{"ResponseID", "CallID", "RequestID"} {
		if id := fields.FieldByName(name); id.IsValid() && id.String() != "" {
			id.SetString(id.String() + r.suffix)
		}
	}
}

// echoes reports whether a status is the child's reaction to a command to which
// the hub reacts too.
func echoes(status string) bool {
	return strings.HasPrefix(status, "Initialized: ") || status == "Init received with no changes" ||
		strings.HasPrefix(status, "Loaded ") && strings.HasSuffix(status, " attachment(s)")
}

// show publishes an event that needs no run.
func (r *link) show(ev contracts.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.publish(ev)
	r.armQuietTimer()
}

// publish publishes events. The caller holds r.mu if they belong to a run.
func (r *link) publish(events ...contracts.Event) { r.h.publish(r.life, events...) }

// fault handles an error. It is not fatal here, because the child is replaced,
// and it answers no request of our clients.
func (r *link) fault(e *contracts.ErrorEvent) {
	if e.ErrorType == "" {
		e.ErrorType = contracts.Classify(e.Message, e.Fatal)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Fatal && !r.greeted {
		r.fatal = errors.New(e.Message)
		r.child.Kill(r.fatal)
		return
	}
	if r.run != nil && !strings.Contains(e.Message, "ttachment") { // a run goes on without its attachments
		r.run.failed = r.run.failed || !r.endings || e.ErrorType == contracts.ErrorProtocol
	}
	interrupted := r.run == nil || r.run.interrupted.Load()
	if !interrupted || e.ErrorType != contracts.ErrorCancelled { // the hub reports the cancellation itself
		r.publish(&contracts.ErrorEvent{Message: e.Message, ErrorType: e.ErrorType})
	}
	r.armQuietTimer()
}

// progress handles an event that belongs to a run.
func (r *link) progress(ev contracts.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.run == nil || r.run.over {
		r.h.opts.Log.Debug("agent process sent an event outside a run", "event", ev.EventType())
		return
	}
	if show := r.run.apply(ev, r.endings); len(show) > 0 {
		r.publish(show...)
	}
	if len(r.run.tools) > maxTools || len(r.run.held) > maxTools {
		r.child.Kill(fmt.Errorf("agent process killed: it has more than %d calls open", maxTools))
	}
	r.armQuietTimer()
}

// begin opens a run. No other run may be open.
func (r *link) begin() *run {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := &run{ended: make(chan struct{}), tools: map[string]bool{}, held: map[string]contracts.Event{}}
	run.quiet = time.AfterFunc(time.Hour, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		stale := time.Since(run.since) < r.h.wait.quiet // restarted while this waited for the lock
		if !stale && len(r.asks) == 0 && run.idle(r.endings) {
			run.end()
		}
	})
	run.quiet.Stop()
	r.run = run
	return run
}

// finish closes a run. After it returns, no event of the run is published.
func (r *link) finish(run *run) {
	r.mu.Lock()
	run.quiet.Stop()
	r.run = nil
	open := slices.Collect(maps.Keys(r.asks))
	r.mu.Unlock()
	for _, id := range open {
		r.withdraw(id, contracts.VerdictCancelled, "Run ended before request completed", contracts.ResolvedByRuntime)
	}
}

// armQuietTimer starts or stops the timer that ends the run. The caller holds
// r.mu.
func (r *link) armQuietTimer() {
	run := r.run
	if run == nil || run.over {
		return
	}
	run.quiet.Stop()
	if len(r.asks) == 0 && run.idle(r.endings) {
		run.since = time.Now()
		run.quiet.Reset(r.h.wait.quiet)
	}
}

// idle reports whether the run ends if no more events come. If the child
// reports the end of runs, that is so only before the run has started.
func (run *run) idle(endings bool) bool {
	if run.response != "" || len(run.tools) > 0 {
		return false
	}
	if endings {
		return !run.started && (run.failed || run.interrupted.Load())
	}
	return run.answered || run.failed || run.interrupted.Load()
}

// end closes ended.
func (run *run) end() {
	if !run.over {
		run.over = true
		close(run.ended)
	}
}

// apply updates the run with an event and returns the events to publish.
func (run *run) apply(ev contracts.Event, endings bool) []contracts.Event {
	switch e := ev.(type) {
	case *contracts.RawAgentEvent: // the hub makes these three itself
		switch {
		case e.EventKind == "agent_start":
			run.started = true
		case e.EventKind == "agent_end" && endings:
			run.end()
		case e.EventKind != "agent_end" && e.EventKind != "message_start":
			return []contracts.Event{e}
		}
		return nil
	case *contracts.ResponseStart:
		run.response = e.ResponseID
	case *contracts.ResponseEnd:
		run.response, run.answered = "", true
	case *contracts.ToolCall:
		if e.RequiresApproval {
			run.held[e.CallID] = e
			return nil
		}
		run.tools[e.CallID] = true
	case *contracts.ClientToolRequest:
		run.held[e.CallID] = e
		return nil
	case *contracts.ToolStart:
		run.tools[e.CallID] = true
		return run.release(e.CallID, ev)
	case *contracts.ToolEnd:
		delete(run.tools, e.CallID)
		return run.release(e.CallID, ev)
	}
	return []contracts.Event{ev}
}

// release returns ev, preceded by its call if that is still held: the child
// went on without asking.
func (run *run) release(callID string, ev contracts.Event) []contracts.Event {
	call, ok := run.held[callID].(*contracts.ToolCall)
	if !ok {
		return []contracts.Event{ev}
	}
	delete(run.held, callID)
	return []contracts.Event{&contracts.ToolCall{CallID: callID, Tool: call.Tool, Args: call.Args}, ev}
}

// question passes a question of the child to the host, which announces the
// call. The child's own announcement is dropped.
func (r *link) question(req *contracts.ServerRequest, wireID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asks[req.RequestID] != nil {
		return // questions may be repeated (R47)
	}
	if len(r.asks) == maxAsks {
		r.answer(req, wireID, unasked(errTooManyAsks))
		if r.run != nil && !r.run.over && !r.run.overasked {
			r.run.overasked = true
			r.publish(&contracts.Status{Message: "The agent asks too much: it was refused what it asked while " + errTooManyAsks.Message})
		}
		return
	}
	if r.run != nil && req.RequestType != contracts.RequestToolRetry {
		delete(r.run.held, req.CallID)
	}
	ctx, cancel := context.WithCancel(r.life)
	a := &ask{cancel: cancel, done: make(chan struct{})}
	r.asks[req.RequestID] = a
	r.armQuietTimer()
	r.asking.Go(func() { // ends with the question, the run or the child
		defer close(a.done)
		defer cancel()
		out, err := r.h.host.Ask(ctx, req, contracts.AskOptions{})
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.asks, req.RequestID)
		if !a.withdrawn.Load() && ctx.Err() == nil {
			r.settle(req, wireID, out, err)
		}
		r.armQuietTimer()
	})
}

// unasked returns the outcome of a question that was not asked. Its reason
// begins with the error code, because answers have no other field for it.
func unasked(err error) contracts.Outcome {
	reason := err.Error()
	if e, ok := errors.AsType[*contracts.Error](err); ok {
		reason = string(e.Code) + ": " + reason
	}
	return contracts.Outcome{Verdict: contracts.VerdictFailed, Reason: reason, Announced: true}
}

// settle sends the child the outcome of a question. The caller holds r.mu.
func (r *link) settle(req *contracts.ServerRequest, wireID string, out contracts.Outcome, err error) {
	switch {
	case err != nil:
		r.h.opts.Log.Warn("cannot ask a question of the agent process", "error", err)
		out = unasked(err)
	case out.Verdict == contracts.VerdictCancelled && out.By == contracts.ResolvedByRuntime:
		return // an interrupt or shutdown follows, and an answer could let the child go on until then
	case r.run != nil && req.RequestType == contracts.RequestApproval:
		if !out.Announced && !r.run.tools[req.CallID] {
			r.publish(&contracts.ToolCall{CallID: req.CallID, Tool: req.Tool, Args: req.Args})
		}
		r.run.tools[req.CallID] = true // its tool_end is due
	}
	r.answer(req, wireID, out)
}

// answer sends the child an outcome in the form of its request type.
func (r *link) answer(req *contracts.ServerRequest, wireID string, out contracts.Outcome) {
	res := &contracts.ServerRequestResponse{RequestID: wireID, RequestType: req.RequestType}
	switch req.RequestType {
	case contracts.RequestApproval:
		res.Approved, res.Reason = new(out.Verdict == contracts.VerdictApproved), out.Reason
	case contracts.RequestToolRetry:
		res.DecisionAction, res.Reason = cmp.Or(retryActions[out.Verdict], contracts.RetryActionAbort), out.Reason
	default:
		res.Content = out.Content
		res.IsError = out.Verdict != contracts.VerdictCompleted && out.Verdict != contracts.VerdictAnswered
		if len(res.Content) == 0 && out.Reason != "" {
			res.Content = []contracts.ContentBlock{{Type: "text", Text: out.Reason}}
		}
	}
	if err := r.send(res); err != nil {
		r.h.opts.Log.Warn("cannot answer the agent process", "error", err)
	}
}

// retryActions are the decisions for verdicts; without one the child gives up
// (R56).
var retryActions = map[contracts.Verdict]contracts.RetryAction{
	contracts.VerdictRetried: contracts.RetryActionRetry, contracts.VerdictSkipped: contracts.RetryActionSkip,
}

// withdraw ends an open question before it was answered, and waits until it is
// finished. The caller must not hold r.mu.
func (r *link) withdraw(requestID string, verdict contracts.Verdict, reason string, by contracts.Resolver) {
	r.mu.Lock()
	a := r.asks[requestID]
	r.mu.Unlock()
	if a == nil {
		return
	}
	a.withdrawn.Store(true)
	if !r.h.host.Withdraw(requestID, verdict, reason, by) {
		a.cancel() // it is being answered, or the host does not have it yet
	}
	<-a.done
}
