package observe

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options configures an observer. A zero field means the default named beside
// it.
type Options struct {
	Version  string // of the program; "unknown"
	Revision string // the commit that the program was built from; "unknown"

	// Exporter exports the spans until the observer shuts it down. Nil means the one
	// that the OTEL_ variables configure, and no tracing if they name no endpoint.
	// Its methods must return soon after their context has ended.
	Exporter sdktrace.SpanExporter

	// FlushTimeout is how long Shutdown waits for the exporter; 5 s. Spans not
	// exported by then are lost.
	FlushTimeout time.Duration

	Log *slog.Logger // discards
}

const defaultFlushTimeout = 5 * time.Second

// maxScrapes bounds concurrent requests for metrics; further ones get 503.
const maxScrapes = 8

// An Observer collects metrics and spans of all sessions of a process. It is
// safe for concurrent use.
type Observer struct {
	// Static after New.
	meters   *meters
	tracing  *tracing // nil if tracing is off
	registry *prometheus.Registry
	log      *slog.Logger

	first      sync.Once // registers the metrics at the first request, because that takes a third of a millisecond
	collectors []prometheus.Collector

	mu       sync.Mutex
	sessions map[*Session]struct{} // open sessions; the caller bounds them
	past     Totals                // of closed sessions
}

// New returns an observer. It fails if the environment configures an unknown
// exporter. With tracing on, one goroutine runs until Shutdown.
func New(opts Options) (*Observer, error) {
	opts.Version, opts.Revision = cmp.Or(opts.Version, "unknown"), cmp.Or(opts.Revision, "unknown")
	opts.FlushTimeout = cmp.Or(max(opts.FlushTimeout, 0), defaultFlushTimeout)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	o := &Observer{
		meters: newMeters(opts.Version, opts.Revision), registry: prometheus.NewRegistry(), log: opts.Log,
		sessions: map[*Session]struct{}{},
	}
	o.collectors = append(o.meters.collectors, computed(o.sessionMetrics))
	var err error
	o.tracing, err = openTracing(opts, o.meters.spans)
	return o, err
}

// Handler returns the handler of /metrics. It exposes numbers of every session;
// the caller must authorize requests.
func (o *Observer) Handler() http.Handler {
	handler := promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{
		Registry: o.registry, MaxRequestsInFlight: maxScrapes,
		ErrorLog: slog.NewLogLogger(o.log.Handler(), slog.LevelError),
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.first.Do(func() {
			o.registry.MustRegister(o.collectors...) // panics only if a metric is registered twice
			o.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
			o.meters.addZeros()
		})
		handler.ServeHTTP(w, r)
	})
}

// Session returns the observer of one session, for the options of its hub.
// The caller closes it when the session has ended or could not be opened.
func (o *Observer) Session(id string, who Identity) *Session {
	s := &Session{
		observer: o, meters: o.meters, prompt: noSpan,
		questions: map[string]question{}, tools: map[string]trace.Span{},
	}
	if o.tracing != nil {
		s.tracer = o.tracing.tracer
		s.common = who.attributes(id)
		s.detail = s.common
		if step := os.Getenv("MAESTRO_AGENT_RUN_STEP_ID"); step != "" {
			s.detail = append(slices.Clip(s.common), attribute.String("maestro.agent_run_step_id", step))
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions[s] = struct{}{}
	return s
}

// forget removes a session and keeps its totals.
func (o *Observer) forget(s *Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, open := o.sessions[s]; open {
		delete(o.sessions, s)
		_, totals := s.read()
		o.past.add(totals)
	}
}

// open returns the open sessions and the totals of the closed ones.
func (o *Observer) open() (open []*Session, past Totals) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.sessions)), o.past
}

// Shutdown closes the open sessions and waits until the spans are exported, at most
// until ctx ends or for Options.FlushTimeout. Its error, also in later calls, says that
// spans were lost. Metrics can still be read.
func (o *Observer) Shutdown(ctx context.Context) error {
	open, _ := o.open()
	for _, s := range open {
		s.Close()
	}
	if o.tracing == nil {
		return nil
	}
	return o.tracing.shutdown(ctx)
}
