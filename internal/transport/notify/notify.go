// Package notify tells people outside of open pages that a question waits. Each receiver
// has a goroutine and a bounded queue, so that a receiver that hangs or fails delays no
// other. A notification has a link and nothing of the question.
//
// A Notifier is told of all open questions at each start, and keeps in a file what it has
// done about them. So a receiver is told of each question at least once, also if the
// process is killed. All attempts for one question have the same id.
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
	"sync"
	"syscall"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/abridge"
)

// Bounds. A notification above maxQueue becomes a dead letter.
const (
	maxQueue    = 64  // notifications that wait for one receiver
	maxDead     = 16  // dead letters kept of one receiver
	maxSettled  = 256 // questions of one receiver that are known to be done; see memory
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

	PushFile  string // keeps the key and the subscriptions of Web Push; empty: in memory
	StateFile string // keeps what was sent and what waits; empty: in memory

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
	dirty  chan struct{} // 1-buffered; a token means that there is something to save

	failing bool // the last save failed; owned by save

	mu     sync.Mutex
	lanes  []*lane
	closed bool
}

// A notice says that a question waits. It does not change.
type notice struct {
	ID      string                `json:"id"` // the same in every attempt
	Scope   string                `json:"scope,omitempty"`
	Session string                `json:"session"`
	Request string                `json:"request"`
	Kind    contracts.RequestType `json:"kind"`
	AskedAt string                `json:"asked_at"` // as in InboxQuestion

	event string // type of the event; empty: question.asked
	link  string
	ended chan struct{} // closed when the question ends
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

	memory // guarded by Notifier.mu
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
	n := &Notifier{opts: opts, client: newClient(opts.Transport), dirty: make(chan struct{}, 1)}
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
		sees := func(m *notice) bool { return m.Scope == r.Scope }
		n.lanes = append(n.lanes, newLane(lane{Receiver: r, target: to, client: n.client, sees: sees, quiet: quiet}))
	}
	if opts.Config.WebPush != nil {
		if err := n.openPush(); err != nil {
			n.stop()
			return nil, err
		}
	}
	n.load()
	return n, nil
}

// Start begins to send. Options.Looking is not called before.
func (n *Notifier) Start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lanes {
		n.start(l)
	}
	n.wg.Go(n.saves) // ends with n.ctx
}

// newLane completes the lane of a receiver.
func newLane(l lane) *lane {
	l.wake = make(chan struct{}, 1)
	l.State = contracts.ReceiverState{Name: l.Name, Kind: l.Kind, Dead: []contracts.DeadLetter{}}
	return &l
}

// newTransport returns a transport for requests to receivers. control may refuse an
// address.
func newTransport(control func(address string) error) http.RoundTripper {
	dialer := &net.Dialer{Timeout: attemptTimeout}
	if control != nil {
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return control(address) }
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
	l.ctx, l.stop = context.WithCancel(n.ctx)
	n.wg.Go(func() { n.run(l) }) // ends with l.ctx
}

// Close ends the Notifier and saves what was not sent.
func (n *Notifier) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.stop()
	n.wg.Wait()
	n.save()
	n.client.CloseIdleConnections()
	if n.push.client != nil {
		n.push.client.CloseIdleConnections()
	}
}

// Notify queues a notification about an open question, or drops those about a question
// that ended. A receiver that was told of the question, or will be, is not told again.
// Notify returns at once.
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
		ID: "msg_" + hex.EncodeToString(sum[:16]), Scope: scope,
		Session: q.SessionID, Request: q.RequestID, Kind: q.RequestType, AskedAt: q.AskedAt,
	}
	m.complete(&n.opts.Config)
	for _, l := range n.lanes {
		switch {
		case !l.sees(m) || l.knows(m):
			continue
		case len(l.Queue) >= maxQueue:
			l.bury(&waiting{notice: *m}, "too many notifications wait")
			l.settle(m)
		default:
			l.Queue = append(l.Queue, &waiting{notice: *m})
			signal(l.wake)
		}
		signal(n.dirty)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drop removes the notifications about a question that has ended. The first notification
// of a queue is in the hands of the lane, which then skips it.
func (n *Notifier) drop(scope string, end *contracts.InboxEnding) {
	for _, l := range n.lanes {
		i := slices.IndexFunc(l.Queue, func(m *waiting) bool {
			return m.Scope == scope && m.Session == end.SessionID && m.Request == end.RequestID
		})
		switch {
		case i == 0:
			m := l.Queue[0]
			select {
			case <-m.ended: // another lane closed it
			default:
				close(m.ended)
			}
		case i > 0:
			l.settle(&l.Queue[i].notice)
			l.Queue = slices.Delete(l.Queue, i, i+1)
			l.State.Skipped++
			signal(n.dirty)
		}
	}
}

// bury adds a dead letter. The caller holds mu.
func (l *lane) bury(m *waiting, reason string) {
	reason = contracts.CleanLabel(abridge.Head(reason, maxReason), maxReason)
	l.State.Failed++
	l.State.Dead = append(l.State.Dead, contracts.DeadLetter{
		SessionID: m.Session, RequestID: m.Request, Attempts: int64(m.Attempts), Reason: reason,
		At: timestamp(time.Now()),
	})
	l.State.Dead = l.State.Dead[max(len(l.State.Dead)-maxDead, 0):]
}

// timestamp formats a time like [contracts.InboxQuestion.AskedAt].
func timestamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

// States returns what was sent to the receivers.
func (n *Notifier) States() *contracts.DeliveryList {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := &contracts.DeliveryList{Receivers: []contracts.ReceiverState{}}
	for _, l := range n.lanes {
		s := l.State
		s.Waiting = int64(len(l.Queue))
		s.Dead = append([]contracts.DeadLetter{}, s.Dead...)
		list.Receivers = append(list.Receivers, s)
	}
	return list
}

// run sends to one receiver, one notification at a time.
func (n *Notifier) run(l *lane) {
	for {
		n.mu.Lock()
		var m *waiting
		if len(l.Queue) > 0 {
			m = l.Queue[0]
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
		result := n.deliver(l, m)
		if l.ctx.Err() != nil {
			return
		}
		n.finish(l, m, result)
		if gone := (errGone{}); l.browser != nil && errors.As(result, &gone) {
			_ = n.Unsubscribe(l.browser.Principal, l.browser.Endpoint) // it is logged; the next notification tries again
		}
	}
}

// errSkipped says that a notification is not needed.
var errSkipped = errors.New("skipped")

// finish counts a notification and removes it from the queue.
func (n *Notifier) finish(l *lane, m *waiting, result error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(l.Queue) == 0 { // the receiver was removed
		return
	}
	l.Queue = l.Queue[1:]
	l.settle(&m.notice)
	signal(n.dirty)
	switch {
	case result == nil:
		l.State.Delivered++
	case errors.Is(result, errSkipped):
		l.State.Skipped++
	default:
		l.bury(m, result.Error())
		n.opts.Log.Warn("a notification was given up", "receiver", l.Name, "session", m.Session,
			"attempts", m.Attempts, "err", result)
	}
}

// deliver sends a notification until the receiver accepts it, refuses it for good, or
// has failed maxAttempts times.
func (n *Notifier) deliver(l *lane, m *waiting) error {
	for {
		n.mu.Lock()
		next := m.Next
		n.mu.Unlock()
		if err := await(l.ctx, &m.notice, min(time.Until(next), maxPause)); err != nil {
			return err
		}
		if err := await(l.ctx, &m.notice, l.quiet.left(time.Now())); err != nil {
			return err
		}
		if b := l.browser; b != nil && !n.alive(b) {
			return errGone{}
		}
		if l.UnlessLooking != "" && n.opts.Looking(l.UnlessLooking) {
			return errSkipped
		}
		after, err := l.send(&m.notice)
		n.mu.Lock()
		if l.ctx.Err() != nil { // a browser that registered again has the queue in another lane
			n.mu.Unlock()
			return err
		}
		m.Attempts++
		pause := min(firstPause<<(m.Attempts-1), maxPause)
		m.Next = time.Now().Add(max(pause, min(after, maxPause)))
		over := err == nil || after < 0 || m.Attempts >= maxAttempts
		n.mu.Unlock()
		if over {
			return err
		}
		signal(n.dirty)
	}
}

// await waits for d. It returns an error as soon as the question has ended or ctx ends.
func await(ctx context.Context, m *notice, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
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
