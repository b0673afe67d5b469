package observe

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of this instrumentation.
const scope = "github.com/seed-028515a8/maestro/observe"

// Stages of a span, for maestro_trace_spans_total.
const (
	stageEnded    = "ended"
	stageExported = "exported"
	stageFailed   = "failed"
)

// tracing exports spans to their collector. Its processor has one goroutine and
// a queue of 2,048 spans, or of OTEL_BSP_MAX_QUEUE_SIZE. While the queue is
// full, new spans are dropped.
type tracing struct {
	tracer    trace.Tracer
	processor sdktrace.SpanProcessor
	outlet    *outlet
	patience  time.Duration
}

// openTracing returns nil if no exporter is configured.
func openTracing(opts Options, spans *prometheus.CounterVec) (*tracing, error) {
	exporter := opts.Exporter
	if exporter == nil {
		var err error
		if exporter, err = exporterFromEnv(context.Background()); exporter == nil || err != nil {
			return nil, err
		}
	}
	res, err := resource.New(context.Background(),
		resource.WithAttributes(attribute.String("service.name", "maestro"), attribute.String("service.version", opts.Version)),
		resource.WithTelemetrySDK(),
		resource.WithFromEnv()) // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the others
	if err != nil {
		opts.Log.Warn("trace resource is incomplete", "err", err)
	}
	t := &tracing{outlet: newOutlet(exporter, opts.Log, spans), patience: opts.FlushTimeout}
	t.processor = counting{sdktrace.NewBatchSpanProcessor(t.outlet), spans.WithLabelValues(stageEnded)}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSpanProcessor(t.processor))
	t.tracer = provider.Tracer(scope, trace.WithInstrumentationVersion(opts.Version))
	return t, nil
}

// shutdown waits until the queued spans are exported. After the timeout the
// rest is dropped, so that nothing runs when shutdown has returned.
func (t *tracing) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	unhook := context.AfterFunc(ctx, t.outlet.cancel)
	defer unhook()
	_ = t.processor.Shutdown(ctx)             // the provider's Shutdown does nothing if ctx has ended already
	if err := t.outlet.result(); err != nil { // returns at once, or soon after ctx
		return fmt.Errorf("flush spans: %w", err)
	}
	return nil
}

// counting is a span processor that counts ended spans.
type counting struct {
	sdktrace.SpanProcessor
	ended prometheus.Counter
}

func (c counting) OnEnd(s sdktrace.ReadOnlySpan) {
	c.ended.Inc()
	c.SpanProcessor.OnEnd(s)
}
