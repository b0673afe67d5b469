package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	// streamTime is how long a server has to start the stream for its own
	// messages. After it, the server counts as one without a stream.
	streamTime = 10 * time.Second

	// streamPause is the minimum time between two requests for a stream. A
	// server that ends each stream at once decides itself how soon the library
	// asks for the next.
	streamPause = 250 * time.Millisecond

	// maxExchanges bounds the open requests. The library answers any number of a
	// server's requests, and each answer is a request.
	maxExchanges = 128

	maxRedirects   = 3
	maxHeaderBytes = 256 << 10
)

var (
	errNoStream = errors.New("the server did not begin a stream in time")
	errLongBody = &fault{words: fmt.Sprintf("it gave an answer longer than %d bytes", contracts.MaxLineBytes)}

	errElsewhere = &fault{words: "the server redirects elsewhere"}
	errFlood     = &fault{words: "it asked for more at once than can be answered"}
)

// A web sends the requests of one session over HTTP. It adds the server's
// headers, ends the requests with the session, and bounds the answers.
type web struct {
	session *session
	next    *http.Transport
	headers map[string]string

	openRequests atomic.Int64          // open requests
	trouble      atomic.Pointer[fault] // the fault of the newest message, if it failed

	streams *rate.Limiter // requests for a stream
}

// reports is the method of the request whose answer is the stream of changes,
// as in the Mcp-Method header.
const reports = "subscriptions/listen"

func newWeb(s *session) *web {
	next := http.DefaultTransport.(*http.Transport).Clone() // DefaultTransport has this type unless someone replaced it
	next.MaxResponseHeaderBytes = maxHeaderBytes
	return &web{
		session: s, next: next, headers: s.link.server.HeadersFor(s.link.set.opts.SessionID),
		streams: rate.NewLimiter(rate.Every(streamPause), 1),
	}
}

// client returns a client that follows redirects to the same host only, because
// headers may contain credentials.
func (w *web) client() *http.Client {
	return &http.Client{Transport: w, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if from := via[0].URL; req.URL.Scheme != from.Scheme || req.URL.Host != from.Host || len(via) > maxRedirects {
			w.trouble.Store(errElsewhere)
			return errElsewhere
		}
		return nil
	}}
}

// RoundTrip implements [http.RoundTripper].
func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	if w.openRequests.Add(1) > maxExchanges {
		w.openRequests.Add(-1)
		w.trouble.Store(errFlood)
		w.session.stop(errFlood)
		w.session.cut()
		return nil, errFlood
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(w.session.life, func() { cancel(errUnwanted) })
	release := sync.OnceFunc(func() { stop(); cancel(nil); w.openRequests.Add(-1) })
	c, isCall := ctx.Value(callKey{}).(*call)
	if isCall {
		c.sent.Store(true)
	}
	out := req.Clone(ctx)
	w.addHeaders(out.Header)
	if req.Method == http.MethodGet {
		_ = w.streams.Wait(ctx) // an error says that ctx ends
		late := time.AfterFunc(streamTime, func() { cancel(errNoStream) })
		defer late.Stop() // when the answer has begun
	}
	resp, err := w.next.RoundTrip(out)
	if err != nil {
		cause := context.Cause(ctx)
		release()
		switch {
		case errors.Is(cause, errNoStream):
			return &http.Response{ // as of a server without a stream
				Status: "405 Method Not Allowed", StatusCode: http.StatusMethodNotAllowed,
				Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: req,
			}, nil
		case cause == nil: // otherwise we cancelled it
			w.note(req, &fault{cmp.Or(systemWords(err), "it cannot be reached"), err})
		}
		return nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		w.note(req, &fault{words: strings.TrimSpace(fmt.Sprintf("it answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))})
	} else {
		w.note(req, nil)
	}
	if isCall && resp.StatusCode == http.StatusNotFound && req.Header.Get("Mcp-Session-Id") != "" {
		c.unknownSession.Store(true)
	}
	body := &boundedBody{ReadCloser: resp.Body, release: release, long: func() { w.note(req, errLongBody) }}
	if resp.StatusCode == http.StatusOK && req.Header.Get("Mcp-Method") == reports {
		body.release = func() { release(); w.lapse() }
	}
	stream := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") // each event is bounded separately
	if !stream || resp.StatusCode >= http.StatusMultipleChoices {                     // the whole body of an error is read
		body.ReadCloser = http.MaxBytesReader(nil, resp.Body, contracts.MaxLineBytes)
	}
	resp.Body = body
	return resp, nil
}

// lapse notes that the server has ended its stream of changes.
func (w *web) lapse() {
	if w.session.stopping.Err() == nil {
		w.session.lapsed.Store(true)
		w.session.link.log.Debug("MCP server no longer reports changes")
	}
}

// note records the outcome of a message; nil means success.
func (w *web) note(req *http.Request, trouble *fault) {
	if req.Method == http.MethodPost {
		w.trouble.Store(trouble)
	}
}

// addHeaders adds the server's headers, except those that the protocol has set.
func (w *web) addHeaders(h http.Header) {
	for name, value := range w.headers {
		if h.Get(name) == "" {
			h.Set(name, value)
		}
	}
	if w.session.link.server.Platform {
		h.Set(requestHeader, strings.ToLower(rand.Text()))
	}
}

// A boundedBody is the body of an answer, which may be a
// [http.MaxBytesReader].
type boundedBody struct {
	io.ReadCloser
	release func() // called at the end, possibly twice
	long    func() // called beyond the bound
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		b.long()
		err = errLongBody
	}
	return n, err
}

func (b *boundedBody) Close() error {
	err := b.ReadCloser.Close()
	b.release()
	return err
}
