package observe

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/seed-028515a8/maestro/internal/lazyregexp"
)

// The protocols of OTLP.
const (
	otlpGRPC     = "grpc"
	otlpProtobuf = "http/protobuf"
	otlpJSON     = "http/json"
)

// grpcMethod is the path of the method that takes spans.
const grpcMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// Bounds of an upload.
const (
	maxAnswerBytes = 4 << 20
	retryFor       = time.Minute
	firstRetry     = 5 * time.Second
	maxRetryDelay  = 30 * time.Second
)

// A collector is where spans are sent, over OTLP. It is an [otlptrace.Client] of
// our own, because both clients of OpenTelemetry link grpc-go, which is 5 MB.
type collector struct {
	url      *url.URL
	protocol string
	header   http.Header
	gzip     bool
	timeout  time.Duration // of one attempt
	client   *http.Client
}

func (*collector) Start(context.Context) error { return nil }

func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// A busyError is a failure that may pass.
type busyError struct {
	error
	wait time.Duration // that the collector asks for
}

// UploadTraces sends spans. It tries again for a minute if the failure may pass.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := c.encode(&tracepb.TracesData{ResourceSpans: spans}) // on the wire as the request is
	if err != nil {
		return err
	}
	deadline, delay := time.Now().Add(retryFor), firstRetry
	for {
		err := c.upload(ctx, body)
		busy, ok := errors.AsType[*busyError](err)
		if !ok {
			return err
		}
		wait := max(busy.wait, delay/2+rand.N(delay))
		if time.Now().Add(wait).After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(wait):
		}
		delay = min(delay*3/2, maxRetryDelay)
	}
}

// ids are the ids in JSON of protobuf: base64, where OTLP wants hexadecimal.
// Quotes within texts are escaped, so that no text matches.
var ids = lazyregexp.New(`"(traceId|spanId|parentSpanId)":\s*"([A-Za-z0-9+/=]*)"`)

// encode returns the body of a request.
func (c *collector) encode(data *tracepb.TracesData) ([]byte, error) {
	var body []byte
	var err error
	if c.protocol == otlpJSON {
		body, err = protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(data)
		body = ids().ReplaceAllFunc(body, func(id []byte) []byte {
			m := ids().FindSubmatch(id)
			raw, _ := base64.StdEncoding.AppendDecode(nil, m[2]) // protojson has encoded it
			return fmt.Appendf(nil, `"%s":"%s"`, m[1], hex.EncodeToString(raw))
		})
	} else {
		body, err = proto.Marshal(data)
	}
	if err != nil {
		return nil, err
	}
	if c.gzip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(body) // a buffer takes everything
		_ = w.Close()
		body = b.Bytes()
	}
	if c.protocol == otlpGRPC {
		head := make([]byte, 5, 5+len(body)) // whether it is compressed, and its length
		if c.gzip {
			head[0] = 1
		}
		binary.BigEndian.PutUint32(head[1:], uint32(len(body)))
		body = append(head, body...)
	}
	return body, nil
}

// upload makes one attempt.
func (c *collector) upload(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = c.header.Clone()
	r.Header.Set("User-Agent", "maestro")
	encoding := "Content-Encoding"
	switch c.protocol {
	case otlpGRPC:
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("TE", "trailers")
		encoding = "Grpc-Encoding"
	case otlpJSON:
		r.Header.Set("Content-Type", "application/json")
	default:
		r.Header.Set("Content-Type", "application/x-protobuf")
	}
	if c.gzip {
		r.Header.Set(encoding, "gzip")
	}
	res, err := c.client.Do(r)
	if err != nil {
		return &busyError{error: err}
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return &busyError{error: err}
	}
	if err := c.refused(res, answer); err != nil {
		return err
	}
	return c.partial(answer)
}

// refused returns the error that an answer is, nil if it is none.
func (c *collector) refused(res *http.Response, answer []byte) error {
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")) // a date is not waited for
	wait := time.Duration(seconds) * time.Second
	if res.StatusCode < 200 || res.StatusCode > 299 {
		err := fmt.Errorf("collector answered %s: %.200q", res.Status, answer)
		switch res.StatusCode {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return &busyError{err, wait}
		}
		return err
	}
	if c.protocol != otlpGRPC {
		return nil
	}
	// A refusal without a message has its status in the header.
	status := cmp.Or(res.Trailer.Get("Grpc-Status"), res.Header.Get("Grpc-Status"))
	if status == "0" {
		return nil
	}
	text, _ := url.PathUnescape(cmp.Or(res.Trailer.Get("Grpc-Message"), res.Header.Get("Grpc-Message")))
	err := fmt.Errorf("collector answered with gRPC status %q: %.200q", status, text)
	switch status {
	case "1", "4", "10", "11", "14", "15": // those that OTLP says may be tried again
		return &busyError{err, wait}
	}
	return err
}

// partial returns an error if the collector has refused some of the spans.
func (c *collector) partial(answer []byte) error {
	var rejected, text string
	switch {
	case c.protocol == otlpJSON:
		var said struct {
			PartialSuccess struct {
				RejectedSpans json.Number `json:"rejectedSpans"` // also as a string
				ErrorMessage  string      `json:"errorMessage"`
			} `json:"partialSuccess"`
		}
		_ = json.Unmarshal(answer, &said) // what is not understood is no refusal
		rejected, text = said.PartialSuccess.RejectedSpans.String(), said.PartialSuccess.ErrorMessage
	case c.protocol == otlpGRPC && len(answer) > 5:
		rejected, text = partialSuccess(answer[5:])
	case c.protocol == otlpProtobuf:
		rejected, text = partialSuccess(answer)
	}
	if rejected = cmp.Or(rejected, "0"); rejected == "0" && text == "" {
		return nil
	}
	return fmt.Errorf("collector rejected %s spans: %.200q", rejected, text)
}

// partialSuccess reads field 1 of an answer: how many spans were rejected, and why.
func partialSuccess(answer []byte) (rejected, text string) {
	eachField(answer, func(number protowire.Number, _ uint64, value []byte) {
		if number != 1 {
			return
		}
		eachField(value, func(number protowire.Number, n uint64, value []byte) {
			switch number {
			case 1:
				rejected = strconv.FormatUint(n, 10)
			case 2:
				text = string(value)
			}
		})
	})
	return rejected, text
}

// eachField calls take with the fields of a message that are a number or bytes. It
// ends at what is not understood.
func eachField(message []byte, take func(number protowire.Number, n uint64, value []byte)) {
	for len(message) > 0 {
		number, kind, used := protowire.ConsumeTag(message)
		if used < 0 {
			return
		}
		message = message[used:]
		var n uint64
		var value []byte
		switch kind {
		case protowire.VarintType:
			n, used = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			value, used = protowire.ConsumeBytes(message)
		default:
			used = protowire.ConsumeFieldValue(number, kind, message)
		}
		if used < 0 {
			return
		}
		take(number, n, value)
		message = message[used:]
	}
}
