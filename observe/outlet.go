package observe

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// logInterval is the minimum time between two logs about a failing collector.
const logInterval = time.Minute

// An outlet is an exporter that can be interrupted. It counts and logs
// failures. The processor calls ExportSpans from one goroutine at a time.
type outlet struct {
	// Static after newOutlet.
	exporter         sdktrace.SpanExporter
	log              *slog.Logger
	exported, failed prometheus.Counter
	life             context.Context // ends when no one waits for exports any more
	cancel           context.CancelFunc
	ended            chan struct{} // closed when the processor has shut the outlet down
	end              sync.Once

	// Owned by the processor.
	logged time.Time // when a failure was last logged
	lost   int       // spans not exported because life had ended
	err    error     // of the exporter's shutdown
}

func newOutlet(exporter sdktrace.SpanExporter, log *slog.Logger, spans *prometheus.CounterVec) *outlet {
	o := &outlet{
		exporter: exporter, log: log, ended: make(chan struct{}),
		exported: spans.WithLabelValues(stageExported), failed: spans.WithLabelValues(stageFailed),
	}
	o.life, o.cancel = context.WithCancel(context.Background())
	return o
}

// ExportSpans implements [sdktrace.SpanExporter]. Spans that fail are lost: the
// exporter has retried already.
func (o *outlet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	unhook := context.AfterFunc(o.life, cancel)
	defer unhook()
	err := o.exporter.ExportSpans(ctx, spans)
	if err == nil {
		o.exported.Add(float64(len(spans)))
		return nil
	}
	o.failed.Add(float64(len(spans)))
	if o.life.Err() != nil {
		o.lost += len(spans)
	}
	if now := time.Now(); o.logged.IsZero() || now.Sub(o.logged) >= logInterval {
		o.logged = now
		o.log.Warn("spans were not exported", "spans", len(spans), "err", err)
	}
	return nil // the failure has been handled
}

// Shutdown implements [sdktrace.SpanExporter].
func (o *outlet) Shutdown(ctx context.Context) error {
	defer o.end.Do(func() { close(o.ended) })
	defer o.cancel()
	o.err = o.exporter.Shutdown(ctx)
	return o.err
}

// result waits until the processor has shut the outlet down and returns the
// outcome. The processor itself may return nil after a timeout.
func (o *outlet) result() error {
	<-o.ended
	if o.lost > 0 {
		return fmt.Errorf("time was over before %d of them were exported", o.lost)
	}
	return o.err
}
