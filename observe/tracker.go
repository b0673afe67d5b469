package observe

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// A tracker holds the open spans of one session: a prompt, below it its tools,
// and below them the questions about them. A span that belongs to no prompt of
// this process is a trace of its own. The session's lock guards the tracker.
//
// Spans contain names, types and verdicts. They contain no prompts, arguments,
// outputs, reasons or texts of errors.
type tracker struct {
	tracer trace.Tracer
	common []attribute.KeyValue // of every span
	detail []attribute.KeyValue // of every span below a prompt's

	prompt    trace.Span            // nil if none is running
	tools     map[string]trace.Span // by call id, at most maxTools
	questions map[string]trace.Span // by request id; the session bounds them
}

// maxName bounds names and codes from an agent, in bytes.
const maxName = 128

// maxTraceparent bounds an accepted traceparent, in bytes. The current version
// has 55.
const maxTraceparent = 256

func newTracker(tracer trace.Tracer, common []attribute.KeyValue, step string) *tracker {
	t := &tracker{tracer: tracer, common: common, detail: common, tools: map[string]trace.Span{}, questions: map[string]trace.Span{}}
	if step != "" {
		t.detail = append(common[:len(common):len(common)], attribute.String("maestro.agent_run_step_id", step))
	}
	return t
}

// start starts a span below parent, which may be nil.
func (t *tracker) start(parent trace.Span, name string, at time.Time, attrs ...attribute.KeyValue) trace.Span {
	_, span := t.tracer.Start(trace.ContextWithSpan(context.Background(), parent), name,
		trace.WithTimestamp(at), trace.WithAttributes(t.detail...), trace.WithAttributes(attrs...))
	return span
}

// begin starts the span of a prompt, below the caller's if it sent a
// traceparent.
func (t *tracker) begin(traceparent string, at time.Time) {
	ctx := context.Background()
	if traceparent != "" && len(traceparent) <= maxTraceparent {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
	}
	_, t.prompt = t.tracer.Start(ctx, "prompt",
		trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(t.common...))
}

// stopping records a request to end the prompt.
func (t *tracker) stopping(command string, at time.Time) {
	if t.prompt != nil {
		t.prompt.AddEvent(command, trace.WithTimestamp(at))
	}
}

// recordError records an error.
func (t *tracker) recordError(kind contracts.ErrorType, at time.Time) {
	if t.prompt != nil {
		t.prompt.AddEvent("error", trace.WithTimestamp(at), trace.WithAttributes(errorType(string(kind))))
	}
}

// runEnded ends the span of the prompt.
func (t *tracker) runEnded(outcome string, kind contracts.ErrorType, at time.Time) {
	if t.prompt == nil {
		return
	}
	t.prompt.SetAttributes(attribute.String("maestro.outcome", outcome))
	if outcome == runCompleted {
		t.prompt.SetStatus(codes.Ok, "")
	} else {
		t.prompt.SetAttributes(errorType(string(kind)))
		t.prompt.SetStatus(codes.Error, outcome)
	}
	t.prompt.End(trace.WithTimestamp(at))
	t.prompt = nil
}

// tool starts the span of an announced tool, if it has none, and reports
// whether it has one now.
func (t *tracker) tool(call, name string, at time.Time) bool {
	if _, known := t.tools[call]; known {
		return true
	}
	if len(t.tools) >= maxTools {
		return false
	}
	var attrs []attribute.KeyValue
	if name != "" {
		attrs = []attribute.KeyValue{toolName(name)}
	}
	t.tools[call] = t.start(t.prompt, "tool", at, attrs...)
	return true
}

// started records that a tool has begun to run, which may be long after its
// announcement. It reports whether the tool has a span.
func (t *tracker) started(call string, at time.Time) bool {
	if !t.tool(call, "", at) {
		return false
	}
	t.tools[call].AddEvent("start", trace.WithTimestamp(at))
	return true
}

func (t *tracker) toolEnded(e *contracts.ToolEnd, at time.Time) {
	span := t.tools[e.CallID]
	if span == nil {
		return
	}
	delete(t.tools, e.CallID)
	if e.GovernedOutcome != "" {
		span.SetAttributes(attribute.String("maestro.tool.governed_outcome", short(e.GovernedOutcome)))
	}
	if e.Success {
		span.SetStatus(codes.Ok, "")
	} else {
		if e.ErrorCode != "" {
			span.SetAttributes(errorType(e.ErrorCode))
		}
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(at))
}

// asked starts the span of a question, below the tool that it is about.
func (t *tracker) asked(e *contracts.ServerRequest, at time.Time) {
	parent := t.tools[e.CallID]
	if parent == nil {
		parent = t.prompt
	}
	t.questions[e.RequestID] = t.start(parent, "server_request", at,
		attribute.String("maestro.request.type", label(e.RequestType, requestTypes)), toolName(e.Tool))
}

func (t *tracker) resolved(e *contracts.ServerRequestResolved, at time.Time) {
	span := t.questions[e.RequestID]
	if span == nil {
		return
	}
	delete(t.questions, e.RequestID)
	verdict := label(e.Resolution, verdicts)
	span.SetAttributes(
		attribute.String("maestro.request.verdict", verdict),
		attribute.String("maestro.request.resolved_by", label(e.ResolvedBy, resolvers)))
	switch e.Resolution {
	case contracts.VerdictFailed, contracts.VerdictAborted, contracts.VerdictCancelled:
		span.SetStatus(codes.Error, verdict)
	default:
		span.SetStatus(codes.Ok, "")
	}
	span.End(trace.WithTimestamp(at))
}

// abandon ends every span because the session was closed.
func (t *tracker) abandon(at time.Time) {
	end := func(span trace.Span) {
		span.SetStatus(codes.Error, runUnfinished)
		span.End(trace.WithTimestamp(at))
	}
	for _, span := range t.questions {
		end(span)
	}
	for _, span := range t.tools {
		end(span)
	}
	if t.prompt != nil {
		t.prompt.SetAttributes(attribute.String("maestro.outcome", runUnfinished))
		end(t.prompt)
	}
	t.prompt = nil
	clear(t.questions)
	clear(t.tools)
}

func toolName(name string) attribute.KeyValue {
	return attribute.String("maestro.tool.name", short(name))
}

func errorType(kind string) attribute.KeyValue { return attribute.String("error.type", short(kind)) }

// short cuts a name that an agent chose.
func short(name string) string { return abridge.Head(name, maxName) }
