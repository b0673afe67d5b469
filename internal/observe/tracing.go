package observe

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of this instrumentation.
const scope = "github.com/seed-028515a8/maestro/internal/observe"

// Stages of a span, for maestro_trace_spans_total.
const (
	stageEnded    = "ended"
	stageExported = "exported"
	stageFailed   = "failed"
)

// logInterval is the minimum time between two logs about a failing collector.
const logInterval = time.Minute

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
	t := &tracing{outlet: &outlet{exporter: exporter, log: opts.Log, spans: spans, ended: make(chan struct{})}, patience: opts.FlushTimeout}
	t.outlet.life, t.outlet.cancel = context.WithCancel(context.Background())
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
	defer context.AfterFunc(ctx, t.outlet.cancel)()
	_ = t.processor.Shutdown(ctx) // it returns no error of the outlet after a timeout, nor in a second call
	<-t.outlet.ended              // at once, or soon after ctx
	if t.outlet.err != nil {
		return fmt.Errorf("flush spans: %w", t.outlet.err)
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

// An outlet is an exporter that can be interrupted. It counts and logs
// failures. The processor calls its methods one at a time.
type outlet struct {
	exporter sdktrace.SpanExporter
	log      *slog.Logger
	spans    *prometheus.CounterVec
	life     context.Context // ends when no one waits for exports any more
	cancel   context.CancelFunc
	ended    chan struct{} // closed by Shutdown
	logged   time.Time     // when a failure was last logged
	err      error         // why spans were lost at the end; valid after ended is closed
}

// ExportSpans implements [sdktrace.SpanExporter]. Spans that fail are lost: the
// exporter has retried already.
func (o *outlet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.life, cancel)()
	err := o.exporter.ExportSpans(ctx, spans)
	if err == nil {
		o.spans.WithLabelValues(stageExported).Add(float64(len(spans)))
		return nil
	}
	o.spans.WithLabelValues(stageFailed).Add(float64(len(spans)))
	if o.life.Err() != nil {
		o.err = err
	}
	if time.Since(o.logged) >= logInterval {
		o.logged = time.Now()
		o.log.Warn("spans were not exported", "spans", len(spans), "err", err)
	}
	return nil // the failure has been handled
}

// Shutdown implements [sdktrace.SpanExporter].
func (o *outlet) Shutdown(ctx context.Context) error {
	defer close(o.ended)
	o.err = cmp.Or(o.err, o.exporter.Shutdown(ctx))
	o.cancel()
	return nil
}
