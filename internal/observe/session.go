package observe

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// States of a session, for maestro_sessions.
const (
	stateIdle    = "idle"
	stateRunning = "running"
	stateWaiting = "waiting" // a question is open
)

// Outcomes of a run, for maestro_runs_total.
const (
	runCompleted  = "completed"
	runFailed     = "failed"     // its last event was an error
	runCancelled  = "cancelled"  // it was stopped
	runUnfinished = "unfinished" // its session was closed first
)

// What is counted in maestro_untracked_total beyond these bounds of one session.
const (
	trackedQuestion = "question"
	trackedTool     = "tool"
	maxQuestions    = 1024
	maxTools        = 1024
)

const (
	maxName        = 128 // bytes of a name or code from an agent in spans
	maxTraceparent = 256 // bytes of an accepted traceparent; the current version has 55
)

// A Session gets the events of one session from the hub. Its methods may be
// called from any goroutine, but events in their order. After Close they only
// count.
//
// With tracing on, a prompt has a span, below it its tools, and below them the
// questions about them. A span that belongs to no prompt of this process is a
// trace of its own.
type Session struct {
	// Static after Observer.Session.
	observer *Observer
	meters   *meters
	tracer   trace.Tracer         // nil if tracing is off
	common   []attribute.KeyValue // of every span
	detail   []attribute.KeyValue // of every span below a prompt's

	gauges atomic.Pointer[Gauges] // nil until Watch
	erred  atomic.Bool            // lastError is not empty

	mu        sync.Mutex
	questions map[string]question   // open; by request id; at most maxQuestions
	tools     map[string]trace.Span // of the running tools, by call id; at most maxTools; empty if tracing is off
	prompt    trace.Span            // of the running prompt, or noSpan
	running   bool
	asked     bool                // a prompt was admitted whose run has not begun
	trace     string              // the traceparent of that prompt
	lastError contracts.ErrorType // of the running prompt, unless it has gone on since
	closed    bool
}

// A question is a server request without a resolution.
type question struct {
	kind string
	at   time.Time  // zero if it was asked before this process had the session
	seen time.Time  // at, or when this process opened the session
	span trace.Span // nil without one
}

// noSpan is a span that records nothing and has no children.
var noSpan = trace.SpanFromContext(context.Background())

// Watch sets the function for values that the session keeps itself, and the
// questions that were open before; snap may be nil. Call it once, after the hub
// was made and before it starts.
func (s *Session) Watch(g Gauges, snap *contracts.Snapshot) {
	s.gauges.Store(&g)
	if snap == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i := range snap.State.PendingRequests {
		p := &snap.State.PendingRequests[i]
		s.open(p.ID, question{kind: label(p.Kind, requestTypes), seen: now})
	}
}

// Close ends the open spans, and removes the session from the metrics. The
// second call does nothing.
func (s *Session) Close() {
	s.observer.forget(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	now := time.Now()
	for _, q := range s.questions {
		s.meters.pending.WithLabelValues(q.kind).Dec()
		if q.span != nil {
			finish(q.span, codes.Error, runUnfinished, now)
		}
	}
	for _, span := range s.tools {
		finish(span, codes.Error, runUnfinished, now)
	}
	clear(s.questions)
	clear(s.tools)
	if s.running {
		s.running = false
		s.meters.runs.WithLabelValues(runUnfinished).Inc()
		s.endPrompt(runUnfinished, now)
	}
}

func (s *Session) state() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.questions) > 0:
		return stateWaiting
	case s.running:
		return stateRunning
	}
	return stateIdle
}

// oldest returns the age of the oldest open question, or 0.
func (s *Session) oldest(now time.Time) (age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.questions {
		age = max(age, now.Sub(q.seen))
	}
	return age
}

// read returns the values that the session keeps itself.
func (s *Session) read() (Lag, Totals) {
	if read := s.gauges.Load(); read != nil {
		return (*read)()
	}
	return Lag{}, Totals{}
}

// Attached counts a new socket or stream.
func (s *Session) Attached(role contracts.Role, transport string) {
	s.meters.connections.WithLabelValues(label(role, roles), label(transport, transports)).Inc()
}

// Detached counts its end. role is that of Attached.
func (s *Session) Detached(role contracts.Role, transport string) {
	s.meters.connections.WithLabelValues(label(role, roles), label(transport, transports)).Dec()
}

// Refused counts a refusal.
func (s *Session) Refused(code contracts.Code) {
	s.meters.refusals.WithLabelValues(label(code, refusalCodes)).Inc()
	if code == contracts.CodeRuntimeBusy {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked, s.trace = false, "" // the admitted prompt does not begin
	}
}

// Reset counts a client that had to start over.
func (s *Session) Reset(why contracts.ResetReason) {
	s.meters.resets.WithLabelValues(label(why, resetReasons)).Inc()
}

// LeaseMoved counts a change of the controller.
func (s *Session) LeaseMoved(why contracts.LeaseReason) {
	s.meters.leases.WithLabelValues(label(why, leaseReasons)).Inc()
}

// Appended counts a batch of entries.
func (s *Session) Appended(entries, bytes int, took time.Duration) {
	s.meters.appends.Observe(took.Seconds())
	s.meters.entries.Add(float64(entries))
	s.meters.bytes.Add(float64(bytes))
}

// Accepted records an admitted command. The run of a prompt begins when agent_start is
// published.
func (s *Session) Accepted(cmd contracts.Command, trace string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch cmd.(type) {
	case *contracts.Prompt:
		s.asked, s.trace = true, trace
	case *contracts.Interrupt, *contracts.Cancel, *contracts.Shutdown:
		s.prompt.AddEvent(cmd.CommandType(), timestamp(at))
	}
}

// Published follows runs, tools and questions by their events.
func (s *Session) Published(ev contracts.Event, at time.Time) {
	switch ev.(type) {
	case *contracts.ResponseStart, *contracts.ResponseChunk, *contracts.ToolOutput,
		*contracts.ToolCall, *contracts.ClientToolRequest, *contracts.ToolStart, *contracts.ServerRequest:
		if s.erred.Load() { // the run goes on after its error
			s.mu.Lock()
			s.setError("")
			s.mu.Unlock()
		}
	}
	switch e := ev.(type) {
	case *contracts.ToolCall:
		s.tool(e.CallID, e.Tool, "", at)
	case *contracts.ClientToolRequest:
		s.tool(e.CallID, e.Tool, "", at)
	case *contracts.ToolStart: // may be long after the announcement
		s.tool(e.CallID, "", "start", at)
	case *contracts.ToolEnd:
		s.toolEnded(e, at)
	case *contracts.ServerRequest:
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

// begin handles the start of a run: an agent_start after a prompt. The span is below
// the caller's if it sent a traceparent.
func (s *Session) begin(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked || s.closed {
		return
	}
	s.running = true
	s.setError("")
	if s.tracer != nil {
		ctx := context.Background()
		if s.trace != "" && len(s.trace) <= maxTraceparent {
			ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": s.trace})
		}
		_, s.prompt = s.tracer.Start(ctx, "prompt", timestamp(at), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(s.common...))
	}
	s.asked, s.trace = false, ""
}

// setError sets the last error. The caller holds the lock.
func (s *Session) setError(kind contracts.ErrorType) {
	s.lastError = kind
	s.erred.Store(kind != "")
}

// recordError records an error, unless it answers a client's request.
func (s *Session) recordError(e *contracts.ErrorEvent, at time.Time) {
	if e.RequestID != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := label(e.ErrorType, errorTypes)
	s.setError(contracts.ErrorType(kind))
	s.prompt.AddEvent("error", timestamp(at), trace.WithAttributes(name("error.type", kind)))
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
	s.endPrompt(outcome, at)
	s.setError("")
	s.running = false
	s.meters.runs.WithLabelValues(outcome).Inc()
}

// endPrompt ends the span of the prompt. The caller holds the lock.
func (s *Session) endPrompt(outcome string, at time.Time) {
	s.prompt.SetAttributes(attribute.String("maestro.outcome", outcome))
	if outcome == runCompleted {
		finish(s.prompt, codes.Ok, "", at)
	} else {
		if outcome != runUnfinished {
			s.prompt.SetAttributes(name("error.type", string(s.lastError)))
		}
		finish(s.prompt, codes.Error, outcome, at)
	}
	s.prompt = noSpan
}

// tool starts the span of a tool, if it has none, and adds an event, unless that
// is empty.
func (s *Session) tool(call, tool, event string, at time.Time) {
	if s.tracer == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	span := s.tools[call]
	switch {
	case s.closed:
		return
	case span == nil && len(s.tools) >= maxTools:
		s.meters.untracked.WithLabelValues(trackedTool).Inc()
		return
	case span == nil:
		var attrs []attribute.KeyValue
		if tool != "" {
			attrs = append(attrs, name("maestro.tool.name", tool))
		}
		span = s.start(s.prompt, "tool", at, attrs...)
		s.tools[call] = span
	}
	if event != "" {
		span.AddEvent(event, timestamp(at))
	}
}

func (s *Session) toolEnded(e *contracts.ToolEnd, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	span := s.tools[e.CallID]
	if span == nil {
		return
	}
	delete(s.tools, e.CallID)
	if e.GovernedOutcome != "" {
		span.SetAttributes(name("maestro.tool.governed_outcome", e.GovernedOutcome))
	}
	if e.Success {
		finish(span, codes.Ok, "", at)
		return
	}
	if e.ErrorCode != "" {
		span.SetAttributes(name("error.type", e.ErrorCode))
	}
	finish(span, codes.Error, "", at)
}

// question handles the start of a wait. Its span is below that of the tool that
// it is about.
func (s *Session) question(e *contracts.ServerRequest, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := question{kind: label(e.RequestType, requestTypes), at: at, seen: at}
	if s.closed || !s.open(e.RequestID, q) || s.tracer == nil {
		return
	}
	parent := s.tools[e.CallID]
	if parent == nil {
		parent = s.prompt
	}
	q.span = s.start(parent, "server_request", at, attribute.String("maestro.request.type", q.kind), name("maestro.tool.name", e.Tool))
	s.questions[e.RequestID] = q
}

// open counts a question, unless it is known already or beyond the bound. The
// caller holds the lock.
func (s *Session) open(id string, q question) bool {
	if _, known := s.questions[id]; known {
		return false
	}
	if len(s.questions) >= maxQuestions {
		s.meters.untracked.WithLabelValues(trackedQuestion).Inc()
		return false
	}
	s.questions[id] = q
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
	s.meters.pending.WithLabelValues(q.kind).Dec()
	verdict := label(e.Resolution, verdicts)
	if !q.at.IsZero() {
		s.meters.waits.WithLabelValues(q.kind, verdict).Observe(max(0, at.Sub(q.at).Seconds()))
	}
	if q.span == nil {
		return
	}
	q.span.SetAttributes(
		attribute.String("maestro.request.verdict", verdict),
		attribute.String("maestro.request.resolved_by", label(e.ResolvedBy, resolvers)))
	switch e.Resolution {
	case contracts.VerdictFailed, contracts.VerdictAborted, contracts.VerdictCancelled:
		finish(q.span, codes.Error, verdict, at)
	default:
		finish(q.span, codes.Ok, "", at)
	}
}

// start starts a span below parent.
func (s *Session) start(parent trace.Span, name string, at time.Time, attrs ...attribute.KeyValue) trace.Span {
	_, span := s.tracer.Start(trace.ContextWithSpan(context.Background(), parent), name,
		timestamp(at), trace.WithAttributes(s.detail...), trace.WithAttributes(attrs...))
	return span
}

func finish(span trace.Span, code codes.Code, why string, at time.Time) {
	span.SetStatus(code, why)
	span.End(timestamp(at))
}

func timestamp(at time.Time) trace.SpanEventOption { return trace.WithTimestamp(at) }

// name returns an attribute with a name that an agent chose.
func name(key, value string) attribute.KeyValue {
	return attribute.String(key, abridge.Head(value, maxName))
}
