package observe

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// aTrace is one span whose name looks like an id in JSON.
func aTrace() []*tracepb.ResourceSpans {
	return []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{
		TraceId: bytes.Repeat([]byte{0xfb}, 16), SpanId: bytes.Repeat([]byte{1}, 8), ParentSpanId: bytes.Repeat([]byte{2}, 8),
		Name: `"traceId":"AAAA"`, Kind: tracepb.Span_SPAN_KIND_SERVER,
	}}}}}}
}

// fromEnv returns the collector that some variables name.
func fromEnv(t *testing.T, env ...string) *collector {
	t.Helper()
	for i := 0; i < len(env); i += 2 {
		t.Setenv("OTEL_EXPORTER_OTLP_"+env[i], env[i+1])
	}
	c, err := collectorFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// serveTLS starts a server over TLS that wants a certificate of its clients, and
// returns files with its own certificate and with that of a client and its key.
func serveTLS(t *testing.T, handler http.Handler) (url, certificate, key string) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own := s.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return s.URL, write("cert.pem", "CERTIFICATE", own.Certificate[0]), write("key.pem", "PRIVATE KEY", der)
}

func TestSpansArriveInEveryForm(t *testing.T) {
	for _, protocol := range []string{otlpGRPC, otlpProtobuf, otlpJSON} {
		for _, compression := range []string{"none", "gzip"} {
			t.Run(protocol+" "+compression, func(t *testing.T) {
				var body []byte
				var header http.Header
				url, certificate, key := serveTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					header = r.Header.Clone()
					body, _ = io.ReadAll(r.Body)
					if protocol == otlpGRPC {
						w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
						_, _ = w.Write(make([]byte, 5))
					}
				}))
				if protocol == otlpGRPC {
					url = strings.TrimPrefix(url, "https://")
				}
				c := fromEnv(t, "ENDPOINT", url, "PROTOCOL", protocol, "COMPRESSION", compression, "CERTIFICATE", certificate,
					"CLIENT_CERTIFICATE", certificate, "CLIENT_KEY", key, "HEADERS", "x-other=no", "TRACES_HEADERS", "x-team=red%20one, x-token=a=b")
				if err := c.UploadTraces(t.Context(), aTrace()); err != nil {
					t.Fatal(err)
				}
				if header.Get("X-Team") != "red one" || header.Get("X-Token") != "a=b" || header.Get("X-Other") != "" {
					t.Errorf("got headers %v, want those for traces", header)
				}
				encoding := header.Get("Content-Encoding")
				if protocol == otlpGRPC {
					encoding = header.Get("Grpc-Encoding")
					if want := map[string]byte{"gzip": 1}[compression]; body[0] != want {
						t.Errorf("got flag %d, want %d", body[0], want)
					}
					body = body[5:]
				}
				if want := strings.TrimPrefix(compression, "none"); encoding != want {
					t.Errorf("got encoding %q, want %q", encoding, want)
				}
				if compression == "gzip" {
					zipped, err := gzip.NewReader(bytes.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					if body, err = io.ReadAll(zipped); err != nil {
						t.Fatal(err)
					}
				}
				if protocol == otlpJSON {
					text := strings.ReplaceAll(string(body), " ", "")
					for _, want := range []string{`"traceId":"` + strings.Repeat("fb", 16), `"spanId":"0101010101010101"`,
						`"parentSpanId":"0202020202020202"`, `"name":"\"traceId\":\"AAAA\""`, `"kind":2`} {
						if !strings.Contains(text, want) {
							t.Errorf("got %s, want %s in it", text, want)
						}
					}
					return
				}
				var got tracepb.TracesData
				if err := proto.Unmarshal(body, &got); err != nil || !proto.Equal(&got, &tracepb.TracesData{ResourceSpans: aTrace()}) {
					t.Errorf("got %v and %v, want the span", &got, err)
				}
			})
		}
	}
}

func TestEndpointsAreThoseOfTheStandard(t *testing.T) {
	for _, tt := range []struct{ protocol, name, value, insecure, want string }{
		{otlpProtobuf, "ENDPOINT", "http://c:4318", "", "http://c:4318/v1/traces"},
		{otlpProtobuf, "ENDPOINT", "http://c:4318/base/", "", "http://c:4318/base/v1/traces"},
		{otlpProtobuf, "TRACES_ENDPOINT", "http://c:4318", "", "http://c:4318/"},
		{otlpJSON, "TRACES_ENDPOINT", "https://c/mine", "true", "https://c/mine"},
		{otlpGRPC, "ENDPOINT", "http://c:4317/", "", "http://c:4317" + grpcMethod},
		{otlpGRPC, "ENDPOINT", "c:4317", "", "https://c:4317" + grpcMethod},
		{otlpGRPC, "TRACES_ENDPOINT", "127.0.0.1:4317", "TRUE", "http://127.0.0.1:4317" + grpcMethod},
	} {
		t.Run(tt.protocol+" "+tt.value, func(t *testing.T) {
			c := fromEnv(t, "PROTOCOL", tt.protocol, tt.name, tt.value, "INSECURE", tt.insecure)
			if got := c.url.String(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestBrokenSettingsOfACollectorAreNamed(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"COMPRESSION", "zstd", "OTEL_EXPORTER_OTLP_COMPRESSION"},
		{"TIMEOUT", "10s", "OTEL_EXPORTER_OTLP_TIMEOUT"},
		{"TIMEOUT", "0", "OTEL_EXPORTER_OTLP_TIMEOUT"},
		{"HEADERS", "secret", "OTEL_EXPORTER_OTLP_HEADERS"},
		{"TRACES_HEADERS", "a=%zzsecret", "OTEL_EXPORTER_OTLP_HEADERS"},
		{"CERTIFICATE", "/does/not/exist", "OTEL_EXPORTER_OTLP_CERTIFICATE"},
		{"CERTIFICATE", os.Args[0], "OTEL_EXPORTER_OTLP_CERTIFICATE"},
		{"CLIENT_CERTIFICATE", "/does/not/exist", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"},
	} {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c")
			t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/does/not/exist")
			t.Setenv("OTEL_EXPORTER_OTLP_"+tt.name, tt.value)
			_, err := collectorFromEnv()
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want an error that names %s and shows no header", err, tt.want)
			}
		})
	}
}

type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A reaction is what a collector says; text is the body.
type reaction struct {
	status          int
	header, trailer string // "name: value"
	text            string
}

func (a reaction) response() *http.Response {
	fields := func(line string) http.Header {
		h := http.Header{}
		if name, value, ok := strings.Cut(line, ": "); ok {
			h.Set(name, value)
		}
		return h
	}
	return &http.Response{StatusCode: a.status, Status: fmt.Sprint(a.status), Header: fields(a.header), Trailer: fields(a.trailer),
		Body: io.NopCloser(strings.NewReader(a.text))}
}

func TestAnswersOfACollectorAreRead(t *testing.T) {
	partial, _ := hex.DecodeString("0a0708051203626967") // {1: {1: 5, 2: "big"}}
	frame := string([]byte{0, 0, 0, 0, byte(len(partial))}) + string(partial)
	done := reaction{status: 200, trailer: "Grpc-Status: 0"}
	for _, tt := range []struct {
		protocol string
		answers  []reaction
		failure  string
		after    time.Duration // at least
	}{
		{otlpProtobuf, []reaction{done}, "", 0},
		{otlpProtobuf, []reaction{{status: 503}, {status: 429, header: "Retry-After: 20"}, done}, "", 22 * time.Second},
		{otlpProtobuf, []reaction{{status: 400, text: "no such field"}}, `collector answered 400: "no such field"`, 0},
		{otlpProtobuf, []reaction{{status: 200, text: string(partial)}}, `collector rejected 5 spans: "big"`, 0},
		{otlpProtobuf, []reaction{{status: 200, text: "<html>"}}, "", 0},
		{otlpJSON, []reaction{{status: 200, text: `{"partialSuccess":{"rejectedSpans":"5","errorMessage":"big"}}`}}, `collector rejected 5 spans: "big"`, 0},
		{otlpJSON, []reaction{{status: 200, text: `{"partialSuccess":{}}`}}, "", 0},
		{otlpGRPC, []reaction{done}, "", 0},
		{otlpGRPC, []reaction{{status: 200, header: "Grpc-Status: 14"}, {status: 200, trailer: "Grpc-Status: 4"}, done}, "", 6 * time.Second},
		{otlpGRPC, []reaction{{status: 200, header: "Grpc-Status: 16"}}, `collector answered with gRPC status "16": ""`, 0},
		{otlpGRPC, []reaction{{status: 200}}, `collector answered with gRPC status "": ""`, 0},
		{otlpGRPC, []reaction{{status: 200, trailer: "Grpc-Status: 0", text: frame}}, `collector rejected 5 spans: "big"`, 0},
		{otlpProtobuf, []reaction{{status: 502}}, "collector answered 502", retryFor - maxRetryDelay*3/2},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			c := fromEnv(t, "ENDPOINT", "http://c", "PROTOCOL", tt.protocol)
			c.client.Transport = answering(func(r *http.Request) (*http.Response, error) {
				a := tt.answers[min(asked, len(tt.answers)-1)]
				asked++
				return a.response(), nil
			})
			began := time.Now()
			err := c.UploadTraces(t.Context(), aTrace())
			if tt.failure == "" && err != nil || tt.failure != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.failure)) {
				t.Errorf("%s %+v: got %v, want %q", tt.protocol, tt.answers, err, tt.failure)
			}
			if took := time.Since(began); took < tt.after || took > retryFor || asked < len(tt.answers) {
				t.Errorf("%s %+v: got an end after %v and %d requests, want at least %v and at most %v", tt.protocol, tt.answers, took, asked, tt.after, retryFor)
			}
		})
	}
}

func TestUploadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fromEnv(t, "ENDPOINT", "http://c", "TIMEOUT", "250")
		c.client.Transport = answering(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done() // the time for one attempt
			return nil, r.Context().Err()
		})
		why := errors.New("the program ends")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		began := time.Now()
		if err := c.UploadTraces(ctx, aTrace()); !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("got an end after %v, want a second", took)
		}
	})
}
