package observe_test

import (
	"context"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed-028515a8/maestro/internal/observe"
)

// newObserver returns an observer that ends with the test.
func newObserver(t testing.TB, opts observe.Options) *observe.Observer {
	t.Helper()
	o, err := observe.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return o
}

// metrics are the samples of one scrape, by name and labels as they were
// written.
type metrics map[string]float64

func scrape(t testing.TB, o *observe.Observer) metrics {
	t.Helper()
	m := metrics{}
	for line := range strings.Lines(page(t, o)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			t.Fatalf("got line %q, want a name and a value", line)
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("got line %q: %v", line, err)
		}
		if _, twice := m[line[:at]]; twice {
			t.Errorf("got %s twice", line[:at])
		}
		m[line[:at]] = value
	}
	return m
}

func page(t testing.TB, o *observe.Observer) string {
	t.Helper()
	w := httptest.NewRecorder()
	o.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Fatalf("scrape: got %d and %s, want 200 and text", w.Code, w.Header().Get("Content-Type"))
	}
	return w.Body.String()
}

// want holds samples against what they should be; missing ones are a failure.
func (m metrics) want(t testing.TB, samples metrics) {
	t.Helper()
	for name, want := range samples {
		if got, ok := m[name]; !ok || got != want {
			t.Errorf("%s: got %v, present %t, want %v", name, got, ok, want)
		}
	}
}

// A recorder is an exporter that keeps what it is given.
type recorder struct {
	mu    sync.Mutex
	spans tracetest.SpanStubs
	ends  int
}

func (r *recorder) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	return nil
}

func (r *recorder) Shutdown(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends++
	return nil
}

// A trace is what a test looks at: the observer, one session, and the spans once
// the observer was shut down.
type trace struct {
	*observe.Session
	t        *testing.T
	observer *observe.Observer
	recorder *recorder
}

func newTrace(t *testing.T, opts observe.Options, who observe.Identity) *trace {
	t.Helper()
	r := &recorder{}
	opts.Exporter = r
	o := newObserver(t, opts)
	return &trace{o.Session("sess_1", who), t, o, r}
}

// end returns the spans by name and, where it has one, tool.
func (tr *trace) end() map[string]tracetest.SpanStub {
	tr.t.Helper()
	tr.Close()
	if err := tr.observer.Shutdown(context.Background()); err != nil {
		tr.t.Fatal(err)
	}
	tr.recorder.mu.Lock()
	defer tr.recorder.mu.Unlock()
	if tr.recorder.ends != 1 {
		tr.t.Errorf("exporter: got %d shutdowns, want 1", tr.recorder.ends)
	}
	spans := map[string]tracetest.SpanStub{}
	for _, s := range tr.recorder.spans {
		name := s.Name
		if tool := attributes(s)["maestro.tool.name"]; tool != "" {
			name += " " + tool
		}
		if _, twice := spans[name]; twice {
			tr.t.Errorf("got span %q twice", name)
		}
		spans[name] = s
	}
	return spans
}

func attributes(s tracetest.SpanStub) map[string]string {
	m := map[string]string{}
	for _, kv := range s.Attributes {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

func events(s tracetest.SpanStub) (names []string) {
	for _, e := range s.Events {
		names = append(names, e.Name)
	}
	return names
}
