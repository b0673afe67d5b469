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

// A run is one prompt being served, from its acceptance until the agent has
// nothing more to say and the hub has closed what was left open. Its fields are
// guarded by Hub.mu, but for the channel and the context.
type run struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the run is over
	stop   *stopping     // set once it is being stopped

	response string                 // open response
	started  time.Time              // when it opened
	first    time.Time              // when its first chunk came; zero before that
	ended    int                    // responses that ended
	calls    map[string]string      // announced and not ended: tools by call id
	tools    contracts.ToolsSummary // what ended since the last response did (R39)
}

// answered is a question of an earlier process whose answer the agent has yet to
// act on.
type answered struct {
	request *contracts.ServerRequest
	outcome contracts.Outcome
}

// stopping is a way to stop a run, with the texts that belong to it.
type stopping struct {
	requests  string // reason of the cancelled requests
	said      string // the error that tells clients that the run is over
	utilities string // why commands and watches end, before "while ... was still running"
	keeps     bool   // questions stay open
}

var (
	stopInterrupted = &stopping{"Interrupted before request completed", "Run interrupted by user", "Interrupted", false}
	stopCancelled   = &stopping{"Cancelled before request completed", "Run cancelled by user", "Cancelled", false}
	stopShutdown    = &stopping{"Shutdown before request completed", "Run cancelled by shutdown", "Headless runtime shutdown", false}
	stopSuspended   = &stopping{"", "Run stopped because the server is going away", "Headless runtime shutdown", true}

	stopDrained        = &stopping{"Drained before request completed", "Run stopped because the runner is draining", "Drained", false}
	stopDrainedKeeping = &stopping{"", stopDrained.said, stopDrained.utilities, true}
)

var errStopped = errors.New("the run was stopped")

// track follows what is open, so that the hub can close it if the agent does
// not.
func (r *run) track(ev contracts.Event, now time.Time) {
	switch e := ev.(type) {
	case *contracts.ResponseStart:
		r.response, r.started, r.first = e.ResponseID, now, time.Time{}
	case *contracts.ResponseChunk:
		if r.first.IsZero() {
			r.first = now
		}
	case *contracts.ResponseEnd:
		r.response = ""
		r.ended++
		r.tools = contracts.ToolsSummary{}
	case *contracts.ToolCall:
		r.calls[e.CallID] = e.Tool
	case *contracts.ClientToolRequest:
		r.calls[e.CallID] = e.Tool
	case *contracts.ServerRequest:
		r.calls[e.CallID] = e.Tool // an elicitation has no other announcement
	case *contracts.ToolEnd:
		if tool, open := r.calls[e.CallID]; open {
			r.count(tool, e.Success)
			delete(r.calls, e.CallID)
		}
	}
}

// count counts a call that ended toward the end of the response.
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

// prompt starts a run, unless one is active (R42).
func (h *Hub) prompt(s *state, c *connection, cmd *contracts.Prompt, n note) error {
	if s.run != nil {
		return &contracts.Error{Code: contracts.CodeRuntimeBusy, Message: "Headless runtime is already processing a prompt", Type: contracts.ErrorProtocol}
	}
	h.claim(s, c)
	h.noteCommand(s, &contracts.Prompt{}, n) // what it says is in message_start
	r := h.beginRun(s)
	h.publish(s, rawEvent("agent_start", nil), rawEvent("message_start", map[string]any{
		"message": map[string]any{"role": "user", "content": cmd.Content},
	}))
	h.drive(s, r, func() error {
		work := contracts.Work{Content: cmd.Content, Attachments: h.loadAttachments(cmd.Attachments)}
		return h.opts.Agent.Run(r.ctx, work)
	})
	return nil
}

// resume lets the agent act on the answer to a question that it asked before
// the server restarted, once the active run is over. Where it cannot, the call
// that waited is ended.
func (h *Hub) resume(s *state, req *contracts.ServerRequest, out contracts.Outcome) {
	_, ok := h.opts.Agent.(Resumer)
	if !ok || s.phase != phaseOpen || out.Verdict == contracts.VerdictCancelled {
		h.publish(s, &contracts.ToolEnd{CallID: req.CallID})
		if !ok && out.Verdict != contracts.VerdictCancelled { // said in the open (D8)
			h.publish(s, &contracts.Status{Message: "The question was asked before the server restarted, and the agent cannot act on its answer"})
		}
		return
	}
	h.note(s, note{Resumed: req.CallID})
	s.answered = append(s.answered, answered{req, out})
	h.resumeNext(s)
}

// resumeNext starts a run with the oldest answer that waits for one.
func (h *Hub) resumeNext(s *state) {
	if s.run != nil || len(s.answered) == 0 {
		return
	}
	next := s.answered[0]
	s.answered = slices.Delete(s.answered, 0, 1)
	r := h.beginRun(s)
	r.calls[next.request.CallID] = next.request.Tool
	h.drive(s, r, func() error {
		return h.opts.Agent.(Resumer).Resume(r.ctx, next.request, next.outcome)
	})
}

func (h *Hub) beginRun(s *state) *run {
	r := &run{done: make(chan struct{}), calls: map[string]string{}}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	s.run, s.lastShown = r, s.now
	return r
}

// drive serves a run in a goroutine of its own, which ends with it.
func (h *Hub) drive(s *state, r *run, serve func() error) {
	hold := s.hold
	s.then(func() {
		h.wg.Go(func() {
			defer r.cancel(nil)
			r.await(hold)
			h.finish(r, h.guard(serve))
		})
	})
}

// replyPatience is how long a run waits for a client to take the answer to the
// request that began it.
const replyPatience = time.Second

// await waits for hold, unless it is nil, for replyPatience at the most.
func (r *run) await(hold <-chan struct{}) {
	if hold == nil {
		return
	}
	patience := time.NewTimer(replyPatience)
	defer patience.Stop()
	select {
	case <-hold:
	case <-patience.C:
	case <-r.ctx.Done():
	}
}

// guard turns a panic of the agent into an error of its run.
func (h *Hub) guard(serve func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("agent panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the agent failed: %v", p)
		}
	}()
	return serve()
}

// loadAttachments reads the files of a prompt and tells clients which could not
// be read (R43, R44).
func (h *Hub) loadAttachments(paths []string) []contracts.Attachment {
	if len(paths) == 0 {
		return nil
	}
	var loaded []contracts.Attachment
	failures := make([]string, 0, len(paths))
	if h.opts.LoadAttachments == nil {
		for _, p := range paths {
			failures = append(failures, "Attachment not readable: "+p)
		}
	} else {
		loaded, failures = h.opts.LoadAttachments(paths)
	}
	h.update(func(s *state) {
		for _, text := range failures {
			h.publish(s, &contracts.ErrorEvent{Message: text, ErrorType: contracts.ErrorTool})
		}
		if len(loaded) > 0 {
			h.publish(s, &contracts.Status{Message: fmt.Sprintf("Loaded %d attachment(s)", len(loaded))})
		}
	})
	return loaded
}

// finish ends a run: whatever the agent left open is closed, so that every
// response and every tool has its end (R37, R46).
func (h *Hub) finish(r *run, err error) {
	h.update(func(s *state) {
		if !(r.stop != nil && r.stop.keeps) && !h.info.KeepsRequests {
			h.cancelAsked(s, "Run ended before request completed")
		}
		h.endCalls(s, r)
		if r.stop != nil || s.phase != phaseOpen { // what stops the run stops those that wait for its end
			for _, a := range s.answered {
				h.publish(s, &contracts.ToolEnd{CallID: a.request.CallID})
			}
			s.answered = nil
		}
		h.endResponses(s, r, err)
		h.publish(s, rawEvent("agent_end", nil))
		h.note(s, note{RunEnded: true})
		h.opts.Observer.RunEnded(s.now)
		s.run = nil
		for _, a := range s.answered {
			h.note(s, note{Resumed: a.request.CallID}) // they are not the ended run's
		}
		h.resumeNext(s)
	})
	close(r.done)
}

// cancelAsked cancels the questions that somebody in this process waits for.
// Those of an earlier process are not the run's, and wait on (D8).
func (h *Hub) cancelAsked(s *state, reason string) {
	for _, kind := range contracts.RequestTypes() {
		for _, row := range s.table.Pending() {
			if row.Request.RequestType != kind || s.waiters[row.Request.RequestID] == nil {
				continue
			}
			if res, ok := s.table.Cancel(row.Request.RequestID, reason, s.now); ok {
				h.resolve(s, res)
			}
		}
	}
}

// endCalls ends the tools that the agent did not, but for those whose question
// still waits.
func (h *Hub) endCalls(s *state, r *run) {
	waiting := s.waitingCalls()
	for _, id := range slices.Sorted(maps.Keys(r.calls)) {
		if !waiting[id] {
			h.publish(s, &contracts.ToolEnd{CallID: id})
		}
	}
}

// waitingCalls returns the calls that a question waits for an answer about.
func (s *state) waitingCalls() map[string]bool {
	waiting := map[string]bool{}
	for _, row := range s.table.Pending() {
		waiting[row.Request.CallID] = true
	}
	return waiting
}

func (h *Hub) endResponses(s *state, r *run, err error) {
	var said *contracts.ErrorEvent
	switch {
	case r.stop != nil:
		said = &contracts.ErrorEvent{Message: r.stop.said, ErrorType: contracts.ErrorCancelled}
	case err != nil:
		said = failureEvent(err)
	}
	quiet := h.opts.Profile == contracts.ProfilePublic && said == nil // the public suite counts envelopes
	if r.response == "" && r.ended == 0 && !quiet {
		h.publish(s, &contracts.ResponseStart{ResponseID: newID("resp_")})
	}
	if said != nil && r.stop == nil {
		h.publish(s, said)
	}
	if r.response != "" {
		tools := r.tools
		tools.ToolsUsed = append([]string{}, tools.ToolsUsed...) // an empty list, never null
		end := &contracts.ResponseEnd{
			ResponseID:   r.response,
			Usage:        contracts.Usage{ModelID: h.info.Model, Provider: h.info.Provider},
			ToolsSummary: tools,
			DurationMS:   max(0, s.now.Sub(r.started).Milliseconds()),
		}
		if !r.first.IsZero() { // R40
			end.TTFTMS = new(min(max(0, r.first.Sub(r.started).Milliseconds()), end.DurationMS))
		}
		h.publish(s, end)
	}
	if said != nil && r.stop != nil {
		h.publish(s, said) // last, so that clients can tell the end of the run
	}
}

// failureEvent shows why a run failed. Our own errors carry their type; the
// text of others is classified.
func failureEvent(err error) *contracts.ErrorEvent {
	if e, ok := errors.AsType[*contracts.Error](err); ok {
		return e.Event()
	}
	return &contracts.ErrorEvent{Message: err.Error(), ErrorType: contracts.Classify(err.Error(), false)}
}

// stopRun begins to stop the active run.
func (h *Hub) stopRun(s *state, why *stopping) {
	r := s.run
	if r == nil || r.stop != nil {
		return
	}
	r.stop = why
	s.then(func() { r.cancel(errStopped) })
}

// awaitStopped waits until a run that is being stopped has ended, if it does so
// in time.
func (h *Hub) awaitStopped() {
	h.mu.Lock()
	r := h.run
	stopping := r != nil && r.stop != nil
	h.mu.Unlock()
	if !stopping {
		return
	}
	patience := time.NewTimer(stopPatience)
	defer patience.Stop()
	select {
	case <-r.done:
	case <-patience.C:
	}
}
