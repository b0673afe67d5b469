package observe

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	envPrefix    = "OTEL_EXPORTER_OTLP_"
	envTraces    = envPrefix + "TRACES_"
	envExporter  = "OTEL_TRACES_EXPORTER"
	envDisabled  = "OTEL_SDK_DISABLED"
	sendTimeout  = 10 * time.Second
	maxIdleConns = 2
)

// setting returns the value of a variable of OTLP: the one for traces if there is
// one, otherwise the one for all signals.
func setting(name string) string {
	return cmp.Or(strings.TrimSpace(os.Getenv(envTraces+name)), strings.TrimSpace(os.Getenv(envPrefix+name)))
}

// exporterFromEnv returns the exporter that the environment asks for, nil if it
// asks for none. Without an endpoint there is none: unlike the usual default,
// nothing is sent anywhere that was not named.
func exporterFromEnv(ctx context.Context) (sdktrace.SpanExporter, error) {
	kind := os.Getenv(envExporter)
	switch {
	case strings.EqualFold(os.Getenv(envDisabled), "true"), kind == "none", setting("ENDPOINT") == "":
		return nil, nil
	case kind != "" && kind != "otlp":
		return nil, fmt.Errorf("%s %q is not supported: want otlp or none", envExporter, kind)
	}
	c, err := collectorFromEnv()
	if err != nil {
		return nil, err
	}
	return otlptrace.New(ctx, c)
}

// collectorFromEnv reads the variables that OpenTelemetry has for its exporters.
func collectorFromEnv() (*collector, error) {
	c := &collector{protocol: cmp.Or(setting("PROTOCOL"), otlpProtobuf), timeout: sendTimeout}
	switch c.protocol {
	case otlpGRPC, otlpProtobuf, otlpJSON:
	default:
		return nil, fmt.Errorf("%sPROTOCOL %q is not supported: want http/protobuf, http/json or grpc", envPrefix, c.protocol)
	}
	var err error
	if c.url, err = endpoint(c.protocol); err != nil {
		return nil, err
	}
	if c.header, err = headers(setting("HEADERS")); err != nil {
		return nil, err
	}
	switch compression := setting("COMPRESSION"); compression {
	case "", "none", "gzip":
		c.gzip = compression == "gzip"
	default:
		return nil, fmt.Errorf("%sCOMPRESSION %q is not supported: want gzip or none", envPrefix, compression)
	}
	if text := setting("TIMEOUT"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%sTIMEOUT %q is not a number of milliseconds", envPrefix, text)
		}
		c.timeout = time.Duration(n) * time.Millisecond
	}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: maxIdleConns, IdleConnTimeout: 90 * time.Second}
	if c.protocol == otlpGRPC { // which HTTP/1 cannot carry
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP2(true)
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	if t.TLSClientConfig, err = certificates(); err != nil {
		return nil, err
	}
	c.client = &http.Client{Transport: t}
	return c, nil
}

// endpoint returns the URL that spans are sent to. For gRPC it may be given as
// host:port, which is reached over TLS unless the environment says INSECURE.
func endpoint(protocol string) (*url.URL, error) {
	name := envTraces + "ENDPOINT"
	own := strings.TrimSpace(os.Getenv(name))
	if own == "" {
		name = envPrefix + "ENDPOINT"
	}
	text := setting("ENDPOINT")
	if protocol == otlpGRPC && !strings.Contains(text, "://") {
		scheme := "https://"
		if strings.EqualFold(setting("INSECURE"), "true") {
			scheme = "http://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s must be an http or https URL", name) // which may hold a password
	}
	switch {
	case protocol == otlpGRPC:
		u.Path = grpcMethod
	case own == "":
		u.Path = path.Join("/", u.Path, "v1/traces")
	case u.Path == "":
		u.Path = "/"
	}
	return u, nil
}

// headers reads a list of name=value, the values escaped as in URLs.
func headers(list string) (http.Header, error) {
	h := http.Header{}
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return nil, fmt.Errorf("%sHEADERS is not a list of name=value", envPrefix) // which may hold a credential
		}
		h.Set(name, value)
	}
	return h, nil
}

// certificates reads the certificates of the collector and of the client, nil if
// none are named.
func certificates() (*tls.Config, error) {
	roots, cert, key := setting("CERTIFICATE"), setting("CLIENT_CERTIFICATE"), setting("CLIENT_KEY")
	if roots == "" && (cert == "" || key == "") {
		return nil, nil
	}
	t := &tls.Config{}
	if roots != "" {
		pem, err := os.ReadFile(roots)
		if err != nil {
			return nil, fmt.Errorf("read %sCERTIFICATE: %w", envPrefix, err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%sCERTIFICATE %s has no certificate in it", envPrefix, roots)
		}
	}
	if cert != "" && key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read %sCLIENT_CERTIFICATE: %w", envPrefix, err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}
