package observe_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/observe"
)

// A delivery is one request that a collector got.
type delivery struct {
	path, header, contentType string
	body                      []byte
}

// collector starts a server that takes spans, over HTTP and gRPC alike.
func collector(t *testing.T) (url string, deliveries chan delivery) {
	t.Helper()
	deliveries = make(chan delivery, 16)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		deliveries <- delivery{r.URL.Path, r.Header.Get("x-team"), r.Header.Get("Content-Type"), body}
		if r.Header.Get("Content-Type") != "application/grpc" {
			return
		}
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = w.Write(make([]byte, 5)) // an empty message; who has gone needs none
		w.Header().Set(http.TrailerPrefix+"grpc-status", "0")
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, deliveries
}

func TestTheEnvironmentChoosesTheCollector(t *testing.T) {
	for _, tt := range []struct {
		name, path, contentType string
		env                     map[string]string // after the endpoint, which is %
	}{
		{"base", "/v1/traces", "application/x-protobuf", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "%"}},
		{"traces", "/mine", "application/x-protobuf", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "%/mine", "OTEL_TRACES_EXPORTER": "otlp"}},
		{"json", "/v1/traces", "application/json", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "%", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}},
		{
			"grpc", "/opentelemetry.proto.collector.trace.v1.TraceService/Export", "application/grpc",
			map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "%", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, deliveries := collector(t)
			for name, value := range tt.env {
				t.Setenv(name, strings.ReplaceAll(value, "%", url))
			}
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=red")
			t.Setenv("OTEL_SERVICE_NAME", "maestro-of-red")
			t.Setenv("MAESTRO_EVALOPS_ORG_ID", "org_red")
			t.Setenv("EVALOPS_ORGANIZATION_ID", "org_blue")
			t.Setenv("MAESTRO_USER_ID", "user_red")
			o := newObserver(t, observe.Options{})
			s := o.Session("sess_1", observe.Identity{})
			start(s, "", began)
			s.RunEnded(began)
			if err := o.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := <-deliveries
			if got.path != tt.path || got.contentType != tt.contentType || got.header != "red" {
				t.Errorf("got %s of %s with header %q, want %s of %s with red", got.path, got.contentType, got.header, tt.path, tt.contentType)
			}
			for _, want := range []string{"prompt", "maestro-of-red", "org_red", "user_red", "sess_1"} {
				if !bytes.Contains(got.body, []byte(want)) {
					t.Errorf("got %q, want %s in it", got.body, want)
				}
			}
			scrape(t, o).want(t, metrics{
				`maestro_trace_spans_total{stage="ended"}`: 1, `maestro_trace_spans_total{stage="exported"}`: 1,
				`maestro_trace_spans_total{stage="failed"}`: 0,
			})
		})
	}
}

func TestTracingCanBeTurnedOff(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"disabled": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "True"},
		"none":     {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"},
		"unnamed":  {"OTEL_TRACES_EXPORTER": "otlp"},
	} {
		t.Run(name, func(t *testing.T) {
			for name, value := range env {
				t.Setenv(name, value)
			}
			o := newObserver(t, observe.Options{})
			s := o.Session("sess_1", observe.Identity{})
			start(s, "", began)
			s.RunEnded(began)
			scrape(t, o).want(t, metrics{`maestro_trace_spans_total{stage="ended"}`: 0})
		})
	}
}

func TestSettingsThatCannotBeMetAreErrors(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"OTEL_TRACES_EXPORTER":        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "zipkin"},
		"OTEL_EXPORTER_OTLP_PROTOCOL": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"},
		"OTEL_EXPORTER_OTLP_ENDPOINT": {"OTEL_EXPORTER_OTLP_ENDPOINT": "user:hunter2@collector:4318"},

		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http:///v1/traces"},
	} {
		t.Run(name, func(t *testing.T) {
			for name, value := range env {
				t.Setenv(name, value)
			}
			_, err := observe.New(observe.Options{})
			if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want an error that names %s and holds no password", err, name)
			}
		})
	}
}

// A stuck exporter takes nothing until its context ends.
type stuck struct {
	once    sync.Once
	exports chan struct{} // closed when it was asked
}

func (s *stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	s.once.Do(func() { close(s.exports) })
	<-ctx.Done()
	return ctx.Err()
}

func (*stuck) Shutdown(context.Context) error { return nil }

func TestShutdownDoesNotWaitForAStuckCollector(t *testing.T) {
	for name, bound := range map[string]func(*observe.Options) context.Context{
		"flush timeout": func(opts *observe.Options) context.Context {
			opts.FlushTimeout = time.Millisecond
			return t.Context()
		},
		"context": func(opts *observe.Options) context.Context {
			opts.FlushTimeout = time.Hour
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			exporter := &stuck{exports: make(chan struct{})}
			opts := observe.Options{Exporter: exporter}
			ctx := bound(&opts)
			o, err := observe.New(opts)
			if err != nil {
				t.Fatal(err)
			}
			s := o.Session("sess_1", observe.Identity{})
			start(s, "", began)
			s.RunEnded(began)
			first := o.Shutdown(ctx)
			if first == nil {
				t.Fatal("got no error, want one that says that spans were lost")
			}
			<-exporter.exports // it was asked, and has returned: goleak looks for it
			scrape(t, o).want(t, metrics{`maestro_trace_spans_total{stage="failed"}`: 1})
			if err := o.Shutdown(t.Context()); err == nil || err.Error() != first.Error() {
				t.Errorf("second shutdown: got %v, want what the first said: %v", err, first)
			}
		})
	}
}

// A failing exporter refuses everything.
type failing struct{}

func (failing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("collector is full")
}

func (failing) Shutdown(context.Context) error { return nil }

// locked is a buffer that a logger may write to from any goroutine.
type locked struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Batches that fail are counted one by one and logged once in a while.
func TestAFailingCollectorIsLoggedOnce(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	before := otel.GetErrorHandler()
	defer otel.SetErrorHandler(before)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		t.Errorf("library's log: got %v, want it in ours alone", err)
	}))
	var text locked
	o := newObserver(t, observe.Options{Exporter: failing{}, Log: slog.New(slog.NewTextHandler(&text, nil))})
	s := o.Session("sess_1", observe.Identity{})
	for range 10 {
		start(s, "", began)
		s.RunEnded(began)
	}
	if err := o.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	scrape(t, o).want(t, metrics{`maestro_trace_spans_total{stage="failed"}`: 10})
	text.mu.Lock()
	defer text.mu.Unlock()
	if n := strings.Count(text.buf.String(), "collector is full"); n != 1 {
		t.Errorf("got %d lines, want 1: %s", n, text.buf.String())
	}
}

// The hub's lock is held while spans end, so a collector that is stuck must not
// be waited for.
func TestAStuckCollectorHoldsUpNobody(t *testing.T) {
	exporter := &stuck{exports: make(chan struct{})}
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
	o, err := observe.New(observe.Options{Exporter: exporter, FlushTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := o.Session("sess_1", observe.Identity{})
	start(s, "", began)
	s.RunEnded(began)
	<-exporter.exports // it is stuck from here on
	for range 100 {
		start(s, "", began)
		s.Published(&contracts.ToolCall{CallID: "c", Tool: "bash"}, began)
		s.Published(&contracts.ToolEnd{CallID: "c", Success: true}, began)
		s.RunEnded(began)
	}
	scrape(t, o).want(t, metrics{
		`maestro_trace_spans_total{stage="ended"}`: 201, `maestro_trace_spans_total{stage="exported"}`: 0,
	})
	exporter.end(t, o)
}

// end lets the exporter fail for good, so that the observer can be shut down.
func (s *stuck) end(t *testing.T, o *observe.Observer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Shutdown(ctx); err == nil {
		t.Error("got no error, want one that says that spans were lost")
	}
}
