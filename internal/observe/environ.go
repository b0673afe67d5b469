package observe

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exporterFromEnv returns the exporter that the environment configures, or nil.
// Without an endpoint there is none: unlike the OpenTelemetry default, nothing
// is sent to an endpoint that was not named. The exporters themselves read
// headers, certificates, compression and timeouts.
func exporterFromEnv(ctx context.Context) (sdktrace.SpanExporter, error) {
	name := "OTEL_EXPORTER_OTLP_ENDPOINT"
	if os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" {
		name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	}
	endpoint := os.Getenv(name)
	kind := os.Getenv("OTEL_TRACES_EXPORTER")
	switch {
	case strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"), kind == "none", endpoint == "":
		return nil, nil
	case kind != "" && kind != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER %q is not supported: want otlp or none", kind)
	}
	switch protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"); protocol {
	case "grpc":
		return otlptracegrpc.New(ctx)
	case "http/protobuf", "http/json":
		if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("%s must be an http or https URL", name) // without the URL, which may contain a password
		}
		return otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL %q is not supported: want http/protobuf, http/json or grpc", protocol)
	}
}

// An Identity says where a session runs, in the attributes of spans. Empty fields
// come from the environment, and so does for whom the session runs.
type Identity struct {
	Workspace string // MAESTRO_EVALOPS_WORKSPACE_ID or EVALOPS_WORKSPACE_ID
	AgentRun  string // MAESTRO_AGENT_RUN_ID
}

// attributes returns the attributes of every span of a session, without empty ones.
func (i Identity) attributes(session string) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	for _, a := range []struct{ key, value string }{
		{"evalops.organization_id", cmp.Or(os.Getenv("MAESTRO_EVALOPS_ORG_ID"), os.Getenv("EVALOPS_ORGANIZATION_ID"))},
		{"enduser.id", cmp.Or(os.Getenv("MAESTRO_EVALOPS_USER_ID"), os.Getenv("EVALOPS_USER_ID"), os.Getenv("MAESTRO_USER_ID"))},
		{"evalops.workspace_id", cmp.Or(i.Workspace, os.Getenv("MAESTRO_EVALOPS_WORKSPACE_ID"), os.Getenv("EVALOPS_WORKSPACE_ID"))},
		{"maestro.agent_run_id", cmp.Or(i.AgentRun, os.Getenv("MAESTRO_AGENT_RUN_ID"))},
		{"maestro.session_id", session},
	} {
		if a.value != "" {
			attrs = append(attrs, attribute.String(a.key, a.value))
		}
	}
	return attrs
}
