package observe

import (
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

// Accepted records an admitted command. A prompt may still be refused because
// another is running; its run begins when agent_start is published.
func (s *Session) Accepted(cmd contracts.Command, trace string, at time.Time) {
	switch cmd.(type) {
	case *contracts.Prompt:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked, s.trace = true, trace
	case *contracts.Interrupt, *contracts.Cancel, *contracts.Shutdown:
		s.record(func(t *tracker) { t.stopping(cmd.CommandType(), at) })
	}
}

// Published follows runs, tools and questions by their events.
func (s *Session) Published(ev contracts.Event, at time.Time) {
	switch e := ev.(type) {
	case *contracts.ResponseStart, *contracts.ResponseChunk, *contracts.ToolOutput:
		s.clearError()
	case *contracts.ToolCall:
		s.clearError()
		s.record(func(t *tracker) { s.count(t.tool(e.CallID, e.Tool, at)) })
	case *contracts.ClientToolRequest:
		s.clearError()
		s.record(func(t *tracker) { s.count(t.tool(e.CallID, e.Tool, at)) })
	case *contracts.ToolStart:
		s.clearError()
		s.record(func(t *tracker) { s.count(t.started(e.CallID, at)) })
	case *contracts.ToolEnd:
		s.record(func(t *tracker) { t.toolEnded(e, at) })
	case *contracts.ServerRequest:
		s.clearError()
		s.question(e, at)
	case *contracts.ServerRequestResolved:
		s.resolved(e, at)
	case *contracts.ErrorEvent:
		s.recordError(e, at)
	case *contracts.RawAgentEvent:
		if e.EventKind == "agent_start" {
			s.begin(at)
		}
	}
}

// record calls f with the tracker, if tracing is on, under the lock.
func (s *Session) record(f func(*tracker)) {
	if s.tracker == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		f(s.tracker)
	}
}

// count counts a tool beyond the bound of maxTools.
func (s *Session) count(followed bool) {
	if !followed {
		s.meters.untracked.WithLabelValues(trackedTool).Inc()
	}
}

// begin handles the start of a run. An agent may also publish agent_start; only
// the one after a prompt counts.
func (s *Session) begin(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked || s.closed {
		return
	}
	s.running.Store(true)
	s.setError("")
	if s.tracker != nil {
		s.tracker.begin(s.trace, at)
	}
	s.asked, s.trace = false, ""
}

// clearError clears the run's error: the run has published something after it.
func (s *Session) clearError() {
	if s.erred.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.setError("")
	}
}

// setError sets the last error. The caller holds the lock.
func (s *Session) setError(kind contracts.ErrorType) {
	s.lastError = kind
	s.erred.Store(kind != "")
}

// recordError records an error of the run. An error that answers a client's
// request is not the run's.
func (s *Session) recordError(e *contracts.ErrorEvent, at time.Time) {
	if e.RequestID != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := contracts.ErrorType(label(e.ErrorType, errorTypes))
	s.setError(kind)
	if s.tracker != nil {
		s.tracker.recordError(kind, at)
	}
}

// RunEnded counts a run, and ends the span of its prompt. A run that resumed
// from an answer after a restart has no span.
func (s *Session) RunEnded(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // Close has counted it
	}
	outcome := runCompleted
	switch s.lastError {
	case "":
	case contracts.ErrorCancelled:
		outcome = runCancelled
	default:
		outcome = runFailed
	}
	if s.tracker != nil {
		s.tracker.runEnded(outcome, s.lastError, at)
	}
	s.setError("")
	s.running.Store(false)
	s.meters.runs.WithLabelValues(outcome).Inc()
}

// question handles the start of a wait.
func (s *Session) question(e *contracts.ServerRequest, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.open(e.RequestID, e.RequestType, at) {
		return
	}
	if s.tracker != nil {
		s.tracker.asked(e, at)
	}
}

// open counts a question, unless it is known already or beyond the bound. The
// caller holds the lock.
func (s *Session) open(id string, kind contracts.RequestType, at time.Time) bool {
	if _, known := s.questions[id]; known {
		return false
	}
	if len(s.questions) >= maxQuestions {
		s.meters.untracked.WithLabelValues(trackedQuestion).Inc()
		return false
	}
	q := question{kind: label(kind, requestTypes), at: at}
	s.questions[id] = q
	s.waiting.Add(1)
	s.meters.pending.WithLabelValues(q.kind).Inc()
	return true
}

// resolved handles the end of a wait.
func (s *Session) resolved(e *contracts.ServerRequestResolved, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, known := s.questions[e.RequestID]
	if !known {
		return
	}
	delete(s.questions, e.RequestID)
	s.waiting.Add(-1)
	s.meters.pending.WithLabelValues(q.kind).Dec()
	if !q.at.IsZero() {
		s.meters.waits.WithLabelValues(q.kind, label(e.Resolution, verdicts)).Observe(max(0, at.Sub(q.at).Seconds()))
	}
	if s.tracker != nil {
		s.tracker.resolved(e, at)
	}
}
