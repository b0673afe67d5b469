package observe

import (
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-028515a8/maestro/contracts"
)

// meters are the metrics that are counted as events happen. No label contains
// an id: the values of each label come from the closed sets below.
type meters struct {
	connections *prometheus.GaugeVec     // role, transport
	refusals    *prometheus.CounterVec   // code
	resets      *prometheus.CounterVec   // reason
	leases      *prometheus.CounterVec   // reason
	waits       *prometheus.HistogramVec // type, outcome
	pending     *prometheus.GaugeVec     // type
	runs        *prometheus.CounterVec   // outcome
	appends     prometheus.Observer
	entries     prometheus.Counter
	bytes       prometheus.Counter
	untracked   *prometheus.CounterVec   // what
	spans       *prometheus.CounterVec   // stage
	requests    *prometheus.CounterVec   // route, code
	durations   *prometheus.HistogramVec // route

	collectors []prometheus.Collector // all of them, to be registered
}

// other is the label for a value that is in no closed set.
const other = "other"

var (
	roles        = []contracts.Role{contracts.RoleController, contracts.RoleViewer, contracts.RoleApprover}
	transports   = []string{"stdio", "ws", "sse"}
	refusalCodes = contracts.Codes()
	resetReasons = []contracts.ResetReason{contracts.ResetLagged, contracts.ResetGap, contracts.ResetRestored}
	leaseReasons = []contracts.LeaseReason{
		contracts.LeaseGranted, contracts.LeaseTakenOver, contracts.LeaseExpired,
		contracts.LeaseReleased, contracts.LeaseDraining, contracts.LeaseDenied,
	}
	requestTypes = contracts.RequestTypes()
	verdicts     = []contracts.Verdict{
		contracts.VerdictApproved, contracts.VerdictDenied, contracts.VerdictCompleted,
		contracts.VerdictFailed, contracts.VerdictAnswered, contracts.VerdictRetried,
		contracts.VerdictSkipped, contracts.VerdictAborted, contracts.VerdictCancelled,
	}
	resolvers = []contracts.Resolver{
		contracts.ResolvedByUser, contracts.ResolvedByPolicy, contracts.ResolvedByClient, contracts.ResolvedByRuntime,
	}
	errorTypes = []contracts.ErrorType{
		contracts.ErrorTransient, contracts.ErrorFatal, contracts.ErrorTool, contracts.ErrorCancelled, contracts.ErrorProtocol,
	}
	outcomes = []string{runCompleted, runFailed, runCancelled, runUnfinished}
	tracked  = []string{trackedQuestion, trackedTool}
	stages   = []string{stageEnded, stageExported, stageFailed}
)

// label returns v if it is in set, and other if not.
func label[T ~string](v T, set []T) string {
	if slices.Contains(set, v) {
		return string(v)
	}
	return other
}

func newMeters(version, revision string) *meters {
	m := &meters{}
	keep(m, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "maestro_build_info", Help: "Always 1; the labels say what was built.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": runtime.Version()},
	})).Set(1)
	m.connections = gauge(m, "maestro_connections", "Attached sockets and streams.", "role", "transport")
	m.refusals = counter(m, "maestro_refusals_total", "What clients were refused, handshakes included.", "code")
	m.resets = counter(m, "maestro_resets_total", "Clients that had to start over.", "reason")
	m.leases = counter(m, "maestro_lease_changes_total", "Changes of the holder of a controller lease.", "reason")
	m.waits = histogram(m, "maestro_request_wait_seconds", "Time from a question to its resolution.",
		[]float64{0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600}, "type", "outcome")
	m.pending = gauge(m, "maestro_requests_pending", "Questions that wait for an answer.", "type")
	m.runs = counter(m, "maestro_runs_total", "Prompts that were served; failed are those whose last word was an error.", "outcome")
	m.appends = histogram(m, "maestro_journal_append_seconds", "Time the store took for a batch of entries.",
		prometheus.ExponentialBuckets(2e-6, 4, 10)).WithLabelValues()
	m.entries = counter(m, "maestro_journal_entries_total", "Entries that went to the store.").WithLabelValues()
	m.bytes = counter(m, "maestro_journal_bytes_total", "Bytes of the bodies of entries that went to the store.").WithLabelValues()
	m.untracked = counter(m, "maestro_untracked_total", "Questions and tools beyond the bound of what is followed at once.", "what")
	m.spans = counter(m, "maestro_trace_spans_total",
		"Spans that ended, that the collector took and that it did not take; the others wait or were dropped.", "stage")
	m.requests = counter(m, "maestro_http_requests_total", "Requests that were answered.", "route", "code")
	m.durations = histogram(m, "maestro_http_request_duration_seconds", "Time to answer a request, streams excepted.",
		[]float64{0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30}, "route")
	return m
}

// keep adds a collector to those that are to be registered.
func keep[T prometheus.Collector](m *meters, c T) T {
	m.collectors = append(m.collectors, c)
	return c
}

func gauge(m *meters, name, help string, labels ...string) *prometheus.GaugeVec {
	return keep(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

func counter(m *meters, name, help string, labels ...string) *prometheus.CounterVec {
	return keep(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func histogram(m *meters, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return keep(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

// addZeros adds the series that have not been counted.
func (m *meters) addZeros() {
	for _, role := range roles {
		for _, transport := range transports {
			m.connections.WithLabelValues(string(role), transport)
		}
	}
	for _, kind := range requestTypes {
		m.pending.WithLabelValues(string(kind))
	}
	zeros(m.refusals, refusalCodes)
	zeros(m.resets, resetReasons)
	zeros(m.leases, leaseReasons)
	zeros(m.runs, outcomes)
	zeros(m.untracked, tracked)
	zeros(m.spans, stages)
}

func zeros[T ~string](vec *prometheus.CounterVec, values []T) {
	for _, v := range values {
		vec.WithLabelValues(string(v))
	}
}
