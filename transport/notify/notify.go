// Package notify tells people outside of open pages that a question waits. Each receiver
// has a goroutine and a bounded queue, so that a receiver that hangs or fails delays no
// other. A notification has a link and nothing of the question.
//
// A Notifier keeps its queues in memory: notifications that a process has not sent when it
// ends are lost. The questions are not; they stay in the inbox.
package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// Bounds. A notification above maxQueue becomes a dead letter.
const (
	maxQueue    = 64 // notifications that wait for one receiver
	maxDead     = 16 // dead letters kept of one receiver
	maxAttempts = 8
	maxReason   = 200     // bytes of the reason of a dead letter
	maxAnswer   = 4 << 10 // bytes read of an answer; the connection is then closed

	attemptTimeout = 10 * time.Second
	firstPause     = time.Second // doubles with each attempt
	maxPause       = 5 * time.Minute
)

// Options configures a Notifier.
type Options struct {
	Config Config

	// Looking reports whether a principal has a stream of the inbox open. Nil means no.
	Looking func(principalID string) bool

	// Alive reports whether a principal's credential is still valid. Nil means always
	// valid.
	Alive func(contracts.Principal) bool

	PushFile string // keeps the key and the subscriptions of Web Push; empty: in memory

	Transport http.RoundTripper // of configured receivers; default: one without a proxy cache
	Log       *slog.Logger      // default discards
}

// A Notifier sends notifications. It is safe for concurrent use.
type Notifier struct {
	opts   Options
	client *http.Client
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	wg     sync.WaitGroup
	push   subscriptions

	mu     sync.Mutex
	lanes  []*lane
	closed bool
}

// A notice says that a question waits. It does not change.
type notice struct {
	id               string // the same in every attempt
	scope            string
	session, request string
	kind             contracts.RequestType
	link             string
	ended            chan struct{} // closed when the question ends
}

// A target makes the request that tells a receiver.
type target interface {
	request(ctx context.Context, m *notice, now time.Time) (*http.Request, error)
}

// A lane is one receiver with its queue.
type lane struct {
	Receiver
	target  target
	client  *http.Client
	sees    func(m *notice) bool
	quiet   quietHours
	browser *subscription // nil unless the receiver is a browser
	wake    chan struct{} // 1-buffered; a token means that there is something to send
	ctx     context.Context
	stop    context.CancelFunc // removes the receiver

	// Guarded by Notifier.mu.
	queue []*notice // the first is being sent; at most maxQueue
	state contracts.ReceiverState
}

// New returns a Notifier for the receivers of a configuration.
func New(opts Options) (*Notifier, error) {
	if opts.Looking == nil {
		opts.Looking = func(string) bool { return false }
	}
	if opts.Alive == nil {
		opts.Alive = func(contracts.Principal) bool { return true }
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if opts.Transport == nil {
		opts.Transport = newTransport(nil)
	}
	n := &Notifier{opts: opts, client: newClient(opts.Transport)}
	n.ctx, n.stop = context.WithCancel(context.Background())
	for _, r := range opts.Config.Receivers {
		to, err := newTarget(r)
		if err != nil {
			n.stop()
			return nil, fmt.Errorf("receiver %q: %w", r.Name, err)
		}
		quiet, err := parseQuiet(r.QuietHours, r.TimeZone)
		if err != nil {
			n.stop()
			return nil, fmt.Errorf("receiver %q: %w", r.Name, err)
		}
		sees := func(m *notice) bool { return m.scope == r.Scope }
		n.lanes = append(n.lanes, &lane{Receiver: r, target: to, client: n.client, sees: sees, quiet: quiet})
	}
	if opts.Config.WebPush != nil {
		if err := n.openPush(); err != nil {
			n.stop()
			return nil, err
		}
	}
	for _, l := range n.lanes {
		n.start(l)
	}
	return n, nil
}

// newTransport returns a transport for requests to receivers. control may refuse an
// address.
func newTransport(control func(address string) error) http.RoundTripper {
	dialer := &net.Dialer{Timeout: attemptTimeout}
	if control != nil {
		dialer.ControlContext = refusing(control)
	}
	return &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: attemptTimeout, MaxResponseHeaderBytes: 16 << 10,
		MaxIdleConns: 16, IdleConnTimeout: time.Minute, DisableCompression: true, ForceAttemptHTTP2: true,
	}
}

// newClient returns a client that follows no redirects: a receiver could redirect to an
// address that only the server reaches.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport, Timeout: attemptTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// start begins to send to a receiver.
func (n *Notifier) start(l *lane) {
	l.wake = make(chan struct{}, 1)
	l.ctx, l.stop = context.WithCancel(n.ctx)
	l.state = contracts.ReceiverState{Name: l.Name, Kind: l.Kind, Dead: []contracts.DeadLetter{}}
	n.wg.Go(func() { n.run(l) }) // ends with l.ctx
}

// Close ends the Notifier. What was not sent is dropped.
func (n *Notifier) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.stop()
	n.wg.Wait()
	n.client.CloseIdleConnections()
	if n.push.client != nil {
		n.push.client.CloseIdleConnections()
	}
}

// Notify queues a notification about a new question, or drops those about a question
// that ended. It returns at once.
func (n *Notifier) Notify(scope string, ev contracts.InboxEvent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
	case ev.Ended != nil:
		n.drop(scope, ev.Ended)
	case ev.Question != nil:
		n.queue(scope, ev.Question)
	}
}

func (n *Notifier) queue(scope string, q *contracts.InboxQuestion) {
	sum := sha256.Sum256([]byte(scope + "\x00" + q.SessionID + "\x00" + q.RequestID + "\x00" + q.AskedAt))
	m := &notice{
		id: "msg_" + hex.EncodeToString(sum[:16]), scope: scope,
		session: q.SessionID, request: q.RequestID, kind: q.RequestType,
		link: n.opts.Config.link(q), ended: make(chan struct{}),
	}
	for _, l := range n.lanes {
		switch {
		case !l.sees(m):
		case len(l.queue) >= maxQueue:
			l.bury(m, 0, "too many notifications wait")
		default:
			l.queue = append(l.queue, m)
			select {
			case l.wake <- struct{}{}:
			default:
			}
		}
	}
}

// drop removes the notification about a question that has ended. A lane that is sending
// it skips further attempts.
func (n *Notifier) drop(scope string, end *contracts.InboxEnding) {
	for _, l := range n.lanes {
		for i, m := range l.queue {
			if m.scope != scope || m.session != end.SessionID || m.request != end.RequestID {
				continue
			}
			select {
			case <-m.ended: // another lane closed it
			default:
				close(m.ended)
			}
			if i > 0 { // else it is being sent, and finish removes it
				l.queue = slices.Delete(l.queue, i, i+1)
				l.state.Skipped++
			}
			break
		}
	}
}

// bury adds a dead letter. The caller holds mu.
func (l *lane) bury(m *notice, attempts int, reason string) {
	reason = contracts.CleanLabel(abridge.Head(reason, maxReason), maxReason)
	l.state.Failed++
	l.state.Dead = append(l.state.Dead, contracts.DeadLetter{
		SessionID: m.session, RequestID: m.request, Attempts: int64(attempts), Reason: reason,
		At: time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
	})
	l.state.Dead = l.state.Dead[max(len(l.state.Dead)-maxDead, 0):]
}

// States returns what was sent to the receivers.
func (n *Notifier) States() *contracts.DeliveryList {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := &contracts.DeliveryList{Receivers: []contracts.ReceiverState{}}
	for _, l := range n.lanes {
		s := l.state
		s.Waiting = int64(len(l.queue))
		s.Dead = append([]contracts.DeadLetter{}, s.Dead...)
		list.Receivers = append(list.Receivers, s)
	}
	return list
}

// run sends to one receiver, one notification at a time.
func (n *Notifier) run(l *lane) {
	for {
		n.mu.Lock()
		var m *notice
		if len(l.queue) > 0 {
			m = l.queue[0]
		}
		n.mu.Unlock()
		if m == nil {
			select {
			case <-l.wake:
				continue
			case <-l.ctx.Done():
				return
			}
		}
		attempts, result := n.deliver(l, m)
		if l.ctx.Err() != nil {
			return
		}
		n.finish(l, m, attempts, result)
		if gone := (errGone{}); l.browser != nil && errors.As(result, &gone) {
			_ = n.Unsubscribe(l.browser.Principal, l.browser.Endpoint) // it is logged; the next notification tries again
		}
	}
}

// errSkipped says that a notification is not needed.
var errSkipped = errors.New("skipped")

// finish counts a notification and removes it from the queue.
func (n *Notifier) finish(l *lane, m *notice, attempts int, result error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(l.queue) == 0 { // the receiver was removed
		return
	}
	l.queue = l.queue[1:]
	switch {
	case result == nil:
		l.state.Delivered++
	case errors.Is(result, errSkipped):
		l.state.Skipped++
	default:
		l.bury(m, attempts, result.Error())
		n.opts.Log.Warn("a notification was given up", "receiver", l.Name, "session", m.session,
			"attempts", attempts, "err", result)
	}
}

// deliver sends a notification until the receiver accepts it, refuses it for good, or
// has failed maxAttempts times.
func (n *Notifier) deliver(l *lane, m *notice) (attempts int, err error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if err := await(l.ctx, m, l.quiet.left(time.Now())); err != nil {
			return attempts, err
		}
		if b := l.browser; b != nil && !n.alive(b) {
			return attempts, errGone{}
		}
		if l.UnlessLooking != "" && n.opts.Looking(l.UnlessLooking) {
			return attempts, errSkipped
		}
		attempts++
		after, err := l.send(m)
		if err == nil || after < 0 || attempts == maxAttempts {
			return attempts, err
		}
		if err := await(l.ctx, m, max(pause, min(after, maxPause))); err != nil {
			return attempts, err
		}
	}
}

// await waits for d. It returns an error as soon as the question has ended or ctx ends.
func await(ctx context.Context, m *notice, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	if d > 0 {
		select {
		case <-timer.C:
		case <-m.ended:
		case <-ctx.Done():
		}
	}
	select {
	case <-m.ended:
		return errSkipped
	default:
		return context.Cause(ctx)
	}
}

// send makes one attempt. If it fails, after is the shortest time until the next one;
// negative: another attempt cannot succeed.
func (l *lane) send(m *notice) (after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(l.ctx, attemptTimeout)
	defer cancel()
	req, err := l.target.request(ctx, m, time.Now())
	if err != nil {
		return -1, err
	}
	res, err := l.client.Do(req)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // without the URL, which may have a secret
		}
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()          // the body is only read
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswer) // so that the connection can be used again
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		return 0, nil
	case code == http.StatusGone, code == http.StatusNotFound:
		return -1, errGone{code}
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests,
		code >= 500:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return time.Duration(min(max(seconds, 0), 3600)) * time.Second, fmt.Errorf("status %d", code)
	default:
		return -1, fmt.Errorf("status %d", code)
	}
}

// errGone says that the receiver does not exist any more.
type errGone struct{ status int }

func (e errGone) Error() string {
	if e.status == 0 {
		return "the credential is not valid any more"
	}
	return fmt.Sprintf("status %d", e.status)
}

// post returns a POST of a body.
func post(ctx context.Context, to string, body []byte) (*http.Request, error) {
	return http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
}

// link returns the link to a question.
func (c *Config) link(q *contracts.InboxQuestion) string {
	ids := strings.NewReplacer("{session}", url.QueryEscape(q.SessionID), "{request}", url.QueryEscape(q.RequestID))
	return ids.Replace(c.Link)
}
