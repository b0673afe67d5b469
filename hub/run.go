package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// A Resumer is an agent that can act on the answer to a question that was asked
// before the server restarted. Resume follows the rules of Run: one run at a time,
// ended by ctx, and the hub closes what it leaves open.
type Resumer interface {
	Resume(ctx context.Context, req *contracts.ServerRequest, out contracts.Outcome) error
}

// A Checker is an agent that can tell before the run that it cannot serve a prompt.
// If Check returns a *contracts.Error, the prompt is refused and nothing changes.
// Check must not block.
type Checker interface {
	Check(content string) error
}

// A run is one prompt in progress. It lasts from the prompt's acceptance until the
// agent has returned and the hub has closed the open response and tools. Hub.mu
// guards its fields, except the channel and the context.
type run struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the run is over
	stop   *stopReason   // set when the run is being stopped
	after  uint64        // the head when the run began

	progress
	tools contracts.ToolsSummary // calls that ended since the last response ended (R39)
}

// progress is the part of a run that checkpoints contain.
type progress struct {
	Response string            `json:"response,omitempty"` // id of the open response
	Started  time.Time         `json:"started,omitzero"`   // when the open response started
	First    time.Time         `json:"first,omitzero"`     // when its first chunk came; zero before
	Ended    int               `json:"ended,omitempty"`    // number of responses that ended
	Calls    map[string]string `json:"calls,omitempty"`    // announced tool calls that have not ended: tools by call id
}

func newRun() *run {
	return &run{done: make(chan struct{}), progress: progress{Calls: map[string]string{}}}
}

// An answeredQuestion is a question of an earlier process whose answer waits for a
// run of the agent.
type answeredQuestion struct {
	request *contracts.ServerRequest
	outcome contracts.Outcome
}

// A stopReason holds the texts that clients get when a run is stopped.
type stopReason struct {
	requests      string // reason of the cancelled requests
	message       string // error event that shows the end of the run
	utilities     string // why commands and watches end; followed by "while ... was still running"
	keepsRequests bool   // questions stay open
}

var (
	stopInterrupted = &stopReason{"Interrupted before request completed", "Run interrupted by user", "Interrupted", false}
	stopCancelled   = &stopReason{"Cancelled before request completed", "Run cancelled by user", "Cancelled", false}
	stopShutdown    = &stopReason{"Shutdown before request completed", "Run cancelled by shutdown", "Headless runtime shutdown", false}
	stopSuspended   = &stopReason{"", "Run stopped because the server is going away", "Headless runtime shutdown", true}

	stopDrained        = &stopReason{"Drained before request completed", "Run stopped because the runner is draining", "Drained", false}
	stopDrainedKeeping = &stopReason{"", stopDrained.message, stopDrained.utilities, true}
)

var errStopped = errors.New("the run was stopped")

// track records what is open, so that the hub can close what the agent leaves open.
func (r *run) track(ev contracts.Event, now time.Time) {
	switch e := ev.(type) {
	case *contracts.ResponseStart:
		r.Response, r.Started, r.First = e.ResponseID, now, time.Time{}
	case *contracts.ResponseChunk:
		if r.First.IsZero() {
			r.First = now
		}
	case *contracts.ResponseEnd:
		r.Response = ""
		r.Ended++
		r.tools = contracts.ToolsSummary{}
	case *contracts.ToolCall:
		r.Calls[e.CallID] = e.Tool
	case *contracts.ClientToolRequest:
		r.Calls[e.CallID] = e.Tool
	case *contracts.ServerRequest:
		r.Calls[e.CallID] = e.Tool // an elicitation has no other announcement
	case *contracts.ToolEnd:
		if tool, open := r.Calls[e.CallID]; open {
			r.count(tool, e.Success)
			delete(r.Calls, e.CallID)
		}
	}
}

func (r *run) count(tool string, ok bool) {
	if at, found := slices.BinarySearch(r.tools.ToolsUsed, tool); !found && tool != "" {
		r.tools.ToolsUsed = slices.Insert(r.tools.ToolsUsed, at, tool)
	}
	if ok {
		r.tools.CallsSucceeded++
	} else {
		r.tools.CallsFailed++
	}
}

// prompt begins a run, or refuses the prompt if there is one (R42). start is the
// encoded message_start.
func (tx *tx) prompt(c *connection, cmd *contracts.Prompt, start encoded, n note) error {
	if tx.work.run != nil {
		return &contracts.Error{Code: contracts.CodeRuntimeBusy, Message: "Headless runtime is already processing a prompt", Type: contracts.ErrorProtocol}
	}
	tx.claim(c)
	tx.startPrompt(tx.newPrompt(c, cmd), start, n)
	return nil
}

// startPrompt begins a run with a prompt. n says which command brought it.
func (tx *tx) startPrompt(p *contracts.KeptPrompt, start encoded, n note) {
	r := tx.beginRun()
	tx.noteCommand(&contracts.Prompt{}, n, tx.acceptedPrompt(p)) // without the content, which message_start has
	tx.leaveQueue(p)
	tx.publish(rawEvent("agent_start", nil))
	tx.publishEncoded(start)
	tx.serveRun(r, func(h *Hub) error { return h.opts.Agent.Run(r.ctx, h.workOf(p)) })
}

// encodePrompt encodes the message_start of a prompt.
func encodePrompt(content string) encoded {
	return encode(nil, rawEvent("message_start", map[string]any{
		"message": map[string]any{"role": "user", "content": content},
	}))
}

// workOf returns a prompt with its attachments read.
func (h *Hub) workOf(p *contracts.KeptPrompt) contracts.Work {
	return contracts.Work{Content: p.Content, Attachments: h.loadAttachments(p.Attachments)}
}

// resume queues the answer to a question of an earlier process, so that the agent
// can act on it when no run is active. If the agent cannot, resume ends the tool
// call.
func (tx *tx) resume(req *contracts.ServerRequest, out contracts.Outcome) {
	_, ok := tx.opts.Agent.(Resumer)
	if !ok || tx.life.phase != phaseOpen || out.Verdict == contracts.VerdictCancelled {
		tx.publish(&contracts.ToolEnd{CallID: req.CallID})
		if !ok && out.Verdict != contracts.VerdictCancelled { // not silently (D8)
			tx.publish(&contracts.Status{Message: "The question was asked before the server restarted, and the agent cannot act on its answer"})
		}
		return
	}
	tx.note(note{Resumed: req.CallID})
	tx.work.toResume = append(tx.work.toResume, answeredQuestion{req, out})
	tx.resumeNext()
}

// resumeNext begins a run with the oldest queued answer if no run is active.
func (tx *tx) resumeNext() {
	if tx.work.run != nil || len(tx.work.toResume) == 0 {
		return
	}
	next := tx.work.toResume[0]
	tx.work.toResume = slices.Delete(tx.work.toResume, 0, 1)
	r := tx.beginRun()
	r.Calls[next.request.CallID] = next.request.Tool
	tx.serveRun(r, func(h *Hub) error {
		return h.opts.Agent.(Resumer).Resume(r.ctx, next.request, next.outcome)
	})
}

func (tx *tx) beginRun() *run {
	r := newRun()
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.after = tx.head()
	tx.work.run, tx.log.lastPublished = r, tx.now
	return r
}

// serveRun calls serve in the run's goroutine after the transaction, and then
// finishes the run.
func (tx *tx) serveRun(r *run, serve func(*Hub) error) {
	replied := tx.startRunAfter
	tx.startedRun = r
	tx.then(func(h *Hub) {
		h.wg.Go(func() {
			defer r.cancel(nil)
			if replied != nil {
				wait(replyTimeout, replied, r.ctx.Done())
			}
			h.finishRun(r, h.callAgent(serve))
		})
	})
}

// replyTimeout is how long a run waits until the answer to its HTTP request has
// been written.
const replyTimeout = time.Second

// callAgent calls serve and converts a panic of the agent into an error.
func (h *Hub) callAgent(serve func(*Hub) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.logger.Error("agent panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the agent failed: %v", p)
		}
	}()
	return serve(h)
}

// configureAgent applies an init. If the agent panics, callAgent has logged it.
func (h *Hub) configureAgent(init *contracts.Init) {
	_ = h.callAgent(func(h *Hub) error {
		h.opts.Agent.Configure(init)
		return nil
	})
}

// loadAttachments reads the files of a prompt and publishes which could not be read
// (R43, R44).
func (h *Hub) loadAttachments(paths []string) []contracts.Attachment {
	if len(paths) == 0 {
		return nil
	}
	loaded, failures := h.opts.LoadAttachments(paths)
	h.update(func(tx *tx) {
		for _, text := range failures {
			tx.publish(&contracts.ErrorEvent{Message: text, ErrorType: contracts.ErrorTool})
		}
		if len(loaded) > 0 {
			tx.publish(&contracts.Status{Message: fmt.Sprintf("Loaded %d attachment(s)", len(loaded))})
		}
	})
	return loaded
}

// finishRun ends a run. It closes the response and tools that the agent left open,
// so that each has its end (R37, R46), and begins the next run, if one waits.
func (h *Hub) finishRun(r *run, err error) {
	h.update(func(tx *tx) {
		if !(r.stop != nil && r.stop.keepsRequests) && !h.info.KeepsRequests {
			asked := func(id string) bool { return tx.work.waiters[id] != nil } // others are of an earlier process and stay open (D8)
			tx.resolve(tx.work.table.CancelIf(asked, "Run ended before request completed", tx.now)...)
		}
		tx.endCalls(r)
		if r.stop != nil || tx.life.phase != phaseOpen { // a stop also drops the queued answers
			for _, a := range tx.work.toResume {
				tx.publish(&contracts.ToolEnd{CallID: a.request.CallID})
			}
			tx.work.toResume = nil
		}
		tx.endResponses(r, err)
		tx.publish(rawEvent("agent_end", nil))
		h.opts.Observer.RunEnded(tx.now)
		tx.noteRunEnd(err != nil && r.stop == nil)
		for _, a := range tx.work.toResume {
			tx.note(note{Resumed: a.request.CallID}) // note again: restore drops open calls at RunEnded
		}
		tx.resumeNext()
		tx.startQueued()
	})
	close(r.done)
}

// noteRunEnd ends the run in the state and in the journal. Prompts that were to steer it
// wait as ordinary ones.
func (tx *tx) noteRunEnd(failed bool) {
	ended := note{RunEnded: true, Failed: failed}
	steered := slices.ContainsFunc(tx.work.queue.Prompts, steers)
	tx.note(ended)
	tx.log.digest.endRun(failed)
	tx.work.run = nil
	if tx.work.applyQueue(ended); steered {
		tx.publish(tx.work.shownQueue())
	}
}

// endCalls ends the tools that the agent left open, except those whose question is
// still open.
func (tx *tx) endCalls(r *run) {
	waiting := tx.work.waitingCalls()
	for _, id := range slices.Sorted(maps.Keys(r.Calls)) {
		if !waiting[id] {
			tx.publish(&contracts.ToolEnd{CallID: id})
		}
	}
}

// waitingCalls returns the ids of the calls with an open question.
func (w *work) waitingCalls() map[string]bool {
	waiting := map[string]bool{}
	for _, row := range w.table.Pending() {
		waiting[row.Request.CallID] = true
	}
	return waiting
}

func (tx *tx) endResponses(r *run, err error) {
	var endError *contracts.ErrorEvent
	switch {
	case r.stop != nil:
		endError = &contracts.ErrorEvent{Message: r.stop.message, ErrorType: contracts.ErrorCancelled}
	case err != nil:
		endError = failureEvent(err)
	}
	silent := tx.opts.Profile == contracts.ProfilePublic && endError == nil // the public suite counts envelopes
	if r.Response == "" && r.Ended == 0 && !silent {
		tx.publish(&contracts.ResponseStart{ResponseID: newID("resp_")})
	}
	if endError != nil && r.stop == nil {
		tx.publish(endError)
	}
	if r.Response != "" {
		tools := r.tools
		tools.ToolsUsed = append([]string{}, tools.ToolsUsed...) // an empty list, never null
		end := &contracts.ResponseEnd{
			ResponseID:   r.Response,
			Usage:        contracts.Usage{ModelID: tx.info.Model, Provider: tx.info.Provider},
			ToolsSummary: tools,
			DurationMS:   max(0, tx.now.Sub(r.Started).Milliseconds()),
		}
		if !r.First.IsZero() { // R40
			end.TTFTMS = new(min(max(0, r.First.Sub(r.Started).Milliseconds()), end.DurationMS))
		}
		tx.publish(end)
	}
	if endError != nil && r.stop != nil {
		tx.publish(endError) // last, so that clients can tell the end of the run
	}
}

// failureEvent returns the event that shows why a run failed. A contracts.Error has
// its type; other errors are classified by their text.
func failureEvent(err error) *contracts.ErrorEvent {
	if e, ok := errors.AsType[*contracts.Error](err); ok {
		return e.Event()
	}
	return &contracts.ErrorEvent{Message: err.Error(), ErrorType: contracts.Classify(err.Error(), false)}
}

func (tx *tx) stopRun(why *stopReason) {
	r := tx.work.run
	if r == nil || r.stop != nil {
		return
	}
	r.stop = why
	tx.then(func(h *Hub) {
		r.cancel(errStopped)
		time.AfterFunc(runTimeout, func() {
			select {
			case <-r.done:
			default:
				h.logger.Warn("the agent does not end a run that was stopped", "stopped", runTimeout)
			}
		})
	})
}
