package observe

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Options configures an observer. The zero value of each field is the default
// named beside it.
type Options struct {
	Version string // of the program; "unknown"

	// Identity is what spans say of where the program runs. What it leaves out
	// comes from the environment; see [Identity].
	Identity Identity

	// Exporter takes the spans. Nil means the one that the environment asks for
	// with the OTEL_ variables, and no tracing if that names no endpoint. Its
	// methods must return soon after their context has ended. The observer shuts
	// it down.
	Exporter sdktrace.SpanExporter

	// FlushTimeout is how long Shutdown waits for the exporter; 5 s. What it has
	// not taken by then is lost.
	FlushTimeout time.Duration

	Log *slog.Logger // discards
}

const defaultFlushTimeout = 5 * time.Second

// maxScrapes bounds how many requests for metrics are answered at a time;
// others get 503.
const maxScrapes = 8

// An Observer collects what all sessions of one process do. It is safe for
// concurrent use.
type Observer struct {
	// Static after New.
	identity Identity
	meters   *meters
	tracing  *tracing // nil: off
	registry *prometheus.Registry
	log      *slog.Logger

	process sync.Once // registers the metrics of Go and of the process

	mu       sync.Mutex
	sessions map[*Session]struct{} // open; as many as the caller opens
	past     Totals                // of those that were closed
}

// New returns an observer. It fails if the environment asks for an exporter
// that there is not. With tracing on, one goroutine runs until Shutdown.
func New(opts Options) (*Observer, error) {
	opts.Version = cmp.Or(opts.Version, "unknown")
	opts.FlushTimeout = cmp.Or(max(opts.FlushTimeout, 0), defaultFlushTimeout)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	o := &Observer{
		identity: opts.Identity.or(environment(os.Getenv)), registry: prometheus.NewRegistry(), log: opts.Log,
		sessions: map[*Session]struct{}{},
	}
	o.meters = newMeters(o.registry, opts.Version)
	o.registry.MustRegister(newCensus(o)) // panics only if a metric is registered twice
	var err error
	o.tracing, err = openTracing(opts, o.meters.spans)
	return o, err
}

// Tracing reports whether spans are exported.
func (o *Observer) Tracing() bool { return o.tracing != nil }

// Handler returns the handler of /metrics. It shows numbers only, but those of
// every session: who may ask is the caller's to decide.
func (o *Observer) Handler() http.Handler {
	// A program without a handler starts without them.
	o.process.Do(func() {
		o.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	})
	return promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{
		Registry: o.registry, MaxRequestsInFlight: maxScrapes,
		ErrorLog: slog.NewLogLogger(o.log.Handler(), slog.LevelError),
	})
}

// Session returns the observer of one session, for the options of its hub. What
// who leaves out is as in [Options]. The caller closes it when the session has
// ended, or when it could not be opened.
func (o *Observer) Session(id string, who Identity) *Session {
	s := &Session{
		observer: o, meters: o.meters,
		attached: map[place]int{}, questions: map[string]question{},
	}
	if o.tracing != nil {
		who = who.or(o.identity)
		common := append(who.attributes(), attribute.String("maestro.session_id", id))
		s.tracker = newTracker(o.tracing.tracer, common, who.AgentRunStep)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions[s] = struct{}{}
	return s
}

// forget takes a session off the list and keeps what it counted.
func (o *Observer) forget(s *Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, open := o.sessions[s]; open {
		delete(o.sessions, s)
		o.past.add(s.totals())
	}
}

// open returns the sessions that are open and what those before them counted.
func (o *Observer) open() (open []*Session, past Totals) {
	o.mu.Lock()
	defer o.mu.Unlock()
	open = make([]*Session, 0, len(o.sessions))
	for s := range o.sessions {
		open = append(open, s)
	}
	return open, o.past
}

// Shutdown closes the sessions that are still open and waits until the exporter
// has taken the spans, but no longer than ctx and Options.FlushTimeout say. Its
// error, and that of every later call, says that there was no time for some of
// them. Metrics can be read on.
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
