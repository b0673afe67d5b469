package conformance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/conformance/shape"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A wire is the way to a server over HTTP. It is safe for concurrent use.
type wire struct {
	base   string // scheme://host:port
	token  string // bearer credential; empty for none
	client *http.Client
}

// newWire returns the way to a server that keeps TCP connections open until it
// is closed, follows no redirect, and shows bodies as they were sent. Streams
// get one each: a server may close the connection of a stream that has ended,
// and a message that is sent on it meanwhile would be lost.
func newWire(base, token string) *wire {
	t := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16, DialContext: dialSmall}
	return &wire{base: strings.TrimRight(base, "/"), token: token, client: &http.Client{Transport: t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// receiveBuffer is how much a client lets the system read ahead, in bytes: a
// client that stops reading is to be noticed.
const receiveBuffer = 64 << 10

func dialSmall(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(receiveBuffer) // a system that will not is read from more slowly
	}
	return conn, err
}

func (w *wire) close() { w.client.CloseIdleConnections() }

// A request is one HTTP request to be sent.
type request struct {
	who    string // in the exchange
	method string
	path   string // as it stands on the wire, query included
	header http.Header
	body   []byte // nil for none
	rule   string // what a server breaks that does not answer; empty means 1.1
	final  bool   // a 429 is an answer like any other; else it is waited out
	parts  bool   // the body is sent in chunks, so that its length is not known before

	patience time.Duration // with the answer; zero means twice that of the configuration
}

// maxAnswer bounds the body of an answer.
const maxAnswer = 16 << 20

// open sends a request and leaves the body to be read and closed.
func (w *wire) open(ctx context.Context, r request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, w.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	switch {
	case r.body == nil:
		req.Body = http.NoBody
	case r.parts:
		req.ContentLength = -1
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	maps.Copy(req.Header, r.header)
	if host := r.header.Get("Host"); host != "" {
		req.Host = host
	}
	return w.client.Do(req)
}

func (w *wire) do(ctx context.Context, r request) (*Answer, error) {
	resp, err := w.open(ctx, r)
	if err != nil {
		return nil, err
	}
	return readAnswer(r, resp)
}

func readAnswer(r request, resp *http.Response) (*Answer, error) {
	defer func() { _ = resp.Body.Close() }() // it has been read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the body of %s %s: %w", r.method, r.path, err)
	}
	return &Answer{Frame: Frame{Kind: "answer", Type: "answer", Raw: body}, to: r, Status: resp.StatusCode, Header: resp.Header}, nil
}

// An Answer is an HTTP response. As a frame it has the body, if that is JSON.
type Answer struct {
	Frame
	Status int
	Header http.Header

	s  *Session
	to request
}

func (a *Answer) what() string { return a.to.method + " " + a.to.path }

// said shows status and body in messages.
func (a *Answer) said() string { return fmt.Sprintf("%d %s", a.Status, abridge(a.Raw, maxTraceText)) }

// shownHeaders are the headers that a report shows. Credentials are not there.
var shownHeaders = []string{"Retry-After", "Allow", "Cache-Control", "Last-Event-Id", "Idempotency-Key", "Content-Encoding", "Host", "Origin"}

func summary(h http.Header) string {
	var parts []string
	for name, values := range h {
		if name == tokenHeader {
			values = []string{"(a token)"}
		}
		if slices.Contains(shownHeaders, name) || strings.Contains(name, "-Headless-") || strings.Contains(name, "-Drain-") || strings.Contains(name, "-Owner-") {
			parts = append(parts, strings.ToLower(name)+": "+strings.Join(values, ", "))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return " [" + strings.Join(parts, "; ") + "]"
}

// maxTries bounds how often a request is sent that is refused with 429, or whose answer
// is lost: all scenarios together may be more than a server takes from one principal.
const maxTries = 10

// send sends a request and returns the answer. Any goroutine may call it, with
// a ctx of its own.
func (s *Session) send(ctx context.Context, r request) (*Answer, error) {
	for try := 1; ; try++ {
		a, err := s.sendOnce(ctx, r)
		// A server that refuses a body before it has read all of it may reset the
		// connection, and then the client may not get to see the answer.
		if err != nil && len(r.body) > contracts.MaxSocketBytes && ctx.Err() == nil && try < maxTries {
			continue
		}
		if err != nil || a.Status != http.StatusTooManyRequests || r.final || try == maxTries {
			return a, err
		}
		if sleep.For(ctx, a.comeBack()) != nil {
			return a, nil
		}
	}
}

// comeBack is how long to wait after an answer that says so.
func (a *Answer) comeBack() time.Duration {
	seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if err != nil || seconds < 0 || seconds > 5 {
		seconds = 1
	}
	return time.Duration(seconds) * time.Second
}

func (s *Session) sendOnce(ctx context.Context, r request) (*Answer, error) {
	s.trace.add(s.now(), r.who, ">", []byte(r.method+" "+r.path+summary(r.header)+" "+string(r.body)))
	a, err := s.wire.do(ctx, r)
	if err != nil {
		s.trace.add(s.now(), r.who, "<", []byte("("+err.Error()+")"))
		return nil, err
	}
	a.s, a.At = s, s.now()
	s.trace.add(a.At, r.who, "<", fmt.Appendf(nil, "%d%s %s", a.Status, summary(a.Header), a.Raw))
	return a, nil
}

// call sends a request and holds the answer against what is true of any.
func (s *Session) call(r request) *Answer {
	ctx, cancel := s.within(cmp.Or(r.patience, 2*s.config.Patience))
	defer cancel()
	beats := s.beat(ctx)
	a, err := s.send(ctx, r)
	beats.Wait()
	s.failIf(err != nil, cmp.Or(r.rule, "1.1"), "%s %s: expected an answer, got: %v", r.method, r.path, err)
	a.check()
	return a
}

// together sends requests at once and returns their answers in the same order.
func (s *Session) together(requests ...request) []*Answer {
	ctx, cancel := s.within(cmp.Or(requests[0].patience, 2*s.config.Patience))
	defer cancel()
	answers, errs := make([]*Answer, len(requests)), make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() { answers[i], errs[i] = s.send(ctx, r) }) // ends with its answer or ctx
	}
	wg.Wait()
	err := errors.Join(errs...)
	s.failIf(err != nil, "1.1", "expected an answer to each of %d requests at once, got: %v", len(requests), err)
	for _, a := range answers {
		a.check()
	}
	return answers
}

// oneOf fails unless exactly one of several requests at once was granted. The others must
// be refused with a code and a text, unless that is empty.
func (s *Session) oneOf(answers []*Answer, rule string, code contracts.Code, text string) {
	granted := 0
	for _, a := range answers {
		if a.Status == http.StatusOK {
			granted++
		} else {
			a.refused(rule, code, text)
		}
	}
	s.failIf(granted != 1, rule, "expected exactly one of %d requests at once to be granted, got %d", len(answers), granted)
}

// check parses a JSON body, and holds refusals against the shape that all of
// them share (A73, A74).
func (a *Answer) check() {
	isJSON := strings.HasPrefix(a.Header.Get("Content-Type"), "application/json")
	if isJSON && len(a.Raw) > 0 {
		v, err := shape.Parse(a.Raw)
		body, isObject := v.(map[string]any)
		a.s.failIf(err != nil || !isObject, "1.4", "%s: expected one JSON object, got %s (%v)", a.what(), a.said(), err)
		a.Fields, a.Body = body, body
	}
	if a.Status == http.StatusOK && a.to.method == http.MethodPost && (a.to.path == connectionsPath || a.to.path == sessionsPath) {
		a.s.made(a.str("session_id"))
	}
	if a.Status < 400 {
		return
	}
	a.s.failIf(!isJSON, "1.4",
		"%s: expected an error body of type application/json, got %q: %s", a.what(), a.Header.Get("Content-Type"), a.said())
	switch {
	case a.at("status") == "interrupted": // a drain that was cut short answers in full
		return
	case a.s.published() && a.to.path == readyPath: // a published server answers with a report
		return
	}
	problems := shape.Body
	if a.at("ready") != nil { // readiness says why it is not
		problems = shape.OpenBody
	}
	a.s.checkShape("1.4", a.what()+": the answer", problems(shape.RefusalBody, a.Body, a.s.config.Profile), a.said())
	a.s.adviseIf(a.at("code") != a.at("error_type"), "A73",
		"%s: expected code and error_type to be the same, got %s", a.what(), a.said())
	a.s.adviseIf((a.Status == http.StatusServiceUnavailable || a.Status == http.StatusTooManyRequests) && a.Header.Get("Retry-After") == "", "A74",
		"%s: expected Retry-After, got none with %s", a.what(), a.said())
}

func (a *Answer) ok(rule string) *Answer {
	a.s.failIf(a.Status != http.StatusOK, rule, "%s: expected status 200, got %s", a.what(), a.said())
	return a
}

// shaped fails unless the body has the closed shape of a definition.
func (a *Answer) shaped(rule, definition string) *Answer {
	a.s.checkShape(rule, a.what()+": the answer", shape.Body(definition, a.Body, a.s.config.Profile), a.said())
	return a
}

// refused fails unless the request was refused with a code, its status, and a
// text unless that is empty.
func (a *Answer) refused(rule string, code contracts.Code, text string) *Answer {
	switch {
	case a.s.published():
		a.refusedAsPublished(rule, code)
	case a.Status != code.HTTPStatus() || a.str("code") != string(code):
		a.s.fail(rule, "%s: expected %d %s, got %s", a.what(), code.HTTPStatus(), code, a.said())
	}
	if got := a.str("error"); text != "" && !a.s.sameText(got, text) {
		a.s.fail(rule, "%s: expected the text %q, got %q", a.what(), text, got)
	}
	return a
}

// refusedAsPublished is refused for servers whose codes are their own affair.
func (a *Answer) refusedAsPublished(rule string, code contracts.Code) {
	switch {
	case a.Status == code.HTTPStatus():
	case slices.Contains(otherStatuses[code], a.Status):
		a.s.advise("5.10:status", "%s: expected %d for %s, got %s", a.what(), code.HTTPStatus(), code, a.said())
	default:
		a.s.fail(rule, "%s: expected %d %s, got %s", a.what(), code.HTTPStatus(), code, a.said())
	}
	a.s.adviseIf(a.str("code") != string(code) && a.str("error_type") != string(code), "5.10:code",
		"%s: expected the code %s, got %s", a.what(), code, a.said())
}

// otherStatuses are those that a published server refuses with, beside the one of
// the code.
var otherStatuses = map[contracts.Code][]int{
	contracts.CodeStaleConnection: {http.StatusBadRequest, http.StatusForbidden}, contracts.CodeRoleConflict: {http.StatusBadRequest},
	contracts.CodeRuntimeBusy: {http.StatusForbidden}, contracts.CodeRequestNotFound: {http.StatusForbidden},
	contracts.CodeRequestTypeMismatch: {http.StatusForbidden}, contracts.CodeUnsupportedCapability: {http.StatusForbidden},
	contracts.CodeNotFound: {http.StatusForbidden}, contracts.CodeWorkspaceViolation: {http.StatusBadRequest},
	contracts.CodeRuntimeOwnedElsewhere: {http.StatusNotFound}, contracts.CodeMethodNotAllowed: {http.StatusNotFound},
}

// otherTexts are the words of a published server for the same.
var otherTexts = map[string]string{
	textBusy:         "A prompt is already in progress. Wait for it to complete before starting another.",
	textNoSubscriber: "Headless subscription not found",
	textNotAttaching: "Hosted runner is draining and not accepting headless session traffic",
	textDraining:     "Hosted runner is draining and not accepting headless session traffic",
	textNoSession:    "Session not found",
}

// sameText reports whether a refusal has a text, or the one that a published
// server has for the same.
func (s *Session) sameText(got, text string) bool {
	return got == text || s.published() && got != "" && got == otherTexts[text]
}

// snapshot returns the snapshot in an answer, or the one that an answer is,
// after checking what holds of any.
func (a *Answer) snapshot() *Frame {
	body, nested := a.Body["snapshot"].(map[string]any)
	if !nested {
		body = a.Body
	}
	f := &Frame{Kind: "snapshot", Type: "snapshot", Fields: body, Body: body, Raw: a.Raw, At: a.At, Cursor: number(body["cursor"])}
	checkState(a.s, a.to.who, f)
	return f
}

// tokenHeader carries the secret of a connection, either way.
const tokenHeader = "X-Maestro-Headless-Connection-Token"

// epochHeader says which journal the cursors of an answer count in.
const epochHeader = "X-Maestro-Headless-Epoch"

func (a *Answer) epoch() string {
	e := a.Header.Get(epochHeader)
	a.s.adviseIf(e == "", "1.11:epoch", "%s: expected the header %s, got none", a.what(), epochHeader)
	return e
}
