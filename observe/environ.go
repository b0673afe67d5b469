package observe

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envDisabled       = "OTEL_SDK_DISABLED"
)

// exporterFromEnv returns the exporter that the environment configures, or nil.
// Without an endpoint there is none: unlike the OpenTelemetry default, nothing
// is sent to an endpoint that was not named. The exporters themselves read
// headers, certificates, compression and timeouts.
func exporterFromEnv(ctx context.Context) (sdktrace.SpanExporter, error) {
	name := envEndpoint
	if os.Getenv(envTracesEndpoint) != "" {
		name = envTracesEndpoint
	}
	endpoint := os.Getenv(name)
	kind := os.Getenv(envExporter)
	switch {
	case strings.EqualFold(os.Getenv(envDisabled), "true"), kind == "none", endpoint == "":
		return nil, nil
	case kind != "" && kind != "otlp":
		return nil, fmt.Errorf("%s %q is not supported: want otlp or none", envExporter, kind)
	}
	switch protocol := cmp.Or(os.Getenv(envTracesProtocol), os.Getenv(envProtocol), "http/protobuf"); protocol {
	case "grpc":
		return otlptracegrpc.New(ctx)
	case "http/protobuf", "http/json":
		if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("%s must be an http or https URL", name) // without the URL, which may contain a password
		}
		return otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("%s %q is not supported: want http/protobuf, http/json or grpc", envProtocol, protocol)
	}
}
