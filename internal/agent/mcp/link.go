package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/agent/mask"
)

const (
	minBackoff = time.Second
	maxBackoff = time.Minute

	// How long to wait for the tools of a server that was never reached, from
	// the start of an attempt. Many programs start slowly the first time, some
	// as slowly as discoverTime. Later attempts must not delay a prompt.
	firstDelay = 6 * time.Second
	againDelay = time.Second

	// Bounds on the statuses and log lines about one server and on its
	// questions, in quotaWindow.
	maxStatuses = 20
	maxLogged   = 200
	maxAsks     = 60
	quotaWindow = time.Minute
	statusTime  = 10 * time.Second // to publish a status

	// minLapse is the minimum age of a connection before it is replaced because
	// the server has ended its stream of changes.
	minLapse = 30 * time.Second
)

// A link is the state of one server in a set: its connection, if any, and its
// tools and failures.
type link struct {
	set    *Set
	server Server
	log    *slog.Logger // hides secrets

	title   string   // the server's name for clients
	secrets []string // values to hide from clients and the log

	mu       sync.Mutex
	session  *session      // nil while there is none
	dialing  chan struct{} // closed when the current attempt has ended; nil without one
	patience time.Time     // until when to wait for tools of the current attempt
	failures int           // in a row
	retryAt  time.Time     // no attempt before
	err      error         // there is no session, and clients were told
	troubled bool          // it was said that there is none
	tools    []Tool        // as last listed; nil before
	known    bool          // the tools were listed, and later changes are reported

	introduced bool // clients were told that the server is available
	alone      bool // the link itself must tell clients

	calls map[string]*call         // running calls, by progress token
	waits map[chan struct{}]string // the elicitation ids of what people do elsewhere, by the channels that wait

	asking  int       // open questions
	askedAt time.Time // when the last one ended

	said, wanted quota // statuses, questions
}

// A quota counts events in a window.
type quota struct {
	since time.Time
	used  int
}

// take counts one more and returns the count in the window.
func (q *quota) take() int {
	if now := time.Now(); now.Sub(q.since) > quotaWindow {
		q.since, q.used = now, 0
	}
	q.used++
	return q.used
}

func newLink(s *Set, server Server) *link {
	l := &link{
		set: s, server: server, title: title(&server), secrets: secretsOf(&server),
		calls: map[string]*call{}, waits: map[chan struct{}]string{},
	}
	l.log = mask.Log(s.opts.Log, l.hide).With("mcp_server", server.Name)
	return l
}

// connected returns the connection. If there is none, it tries to connect,
// unless it is too early. The error is ErrUnavailable or the cause of ctx.
func (l *link) connected(ctx context.Context) (*session, error) {
	for {
		s, wait, err := l.sessionOrWait()
		if s != nil || err != nil {
			return s, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// sessionOrWait returns the connection, or a channel to wait for before calling
// it again.
func (l *link) sessionOrWait() (*session, <-chan struct{}, error) {
	if l.set.life.Err() != nil {
		return nil, nil, l.unavailable(errClosed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.session; s != nil {
		if s.lapsed.Load() && len(l.calls) == 0 && time.Since(s.since) > minLapse {
			s.stop(errLapsed)
		}
		if s.stopping.Err() == nil {
			return s, nil, nil
		}
		return nil, s.over, nil
	}
	switch {
	case l.dialing != nil:
		return nil, l.dialing, nil
	case time.Now().Before(l.retryAt):
		return nil, nil, l.unavailable(l.err)
	}
	done := make(chan struct{})
	if !l.set.start(func() { l.attempt(done) }) {
		return nil, nil, l.unavailable(errClosed)
	}
	l.dialing, l.patience = done, time.Now().Add(againDelay)
	if l.failures == 0 {
		l.patience = time.Now().Add(firstDelay)
	}
	return nil, done, nil
}

// awaited returns the current attempt, and until when to wait for it, if the
// server was never reached.
func (l *link) awaited() (dialing <-chan struct{}, until time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialing, l.patience, l.dialing != nil && l.tools == nil
}

// attempt tries once to connect to the server.
func (l *link) attempt(done chan struct{}) {
	ctx, cancel := context.WithTimeoutCause(l.set.life, l.set.opts.connectTimeout, &fault{words: "it did not answer in time"})
	defer cancel()
	s, err := l.dial(ctx)
	l.mu.Lock()
	l.dialing = nil
	again, introduces := l.troubled, false
	if err == nil {
		introduces = !l.introduced && (l.alone || again)
		l.session, l.err, l.troubled, l.introduced = s, nil, false, l.introduced || introduces
	} else {
		l.pause()
		l.err, l.troubled = err, true
	}
	tools := len(l.tools)
	l.mu.Unlock()
	if err == nil && !l.set.start(s.run) { // ends with the connection
		s.stop(errClosed)
		s.close()
		close(s.over)
	}
	switch {
	case introduces:
		l.say("is available: "+toolCount(tools), nil)
	case err == nil && again:
		l.say("is available again", nil)
	case err != nil && !again && l.set.life.Err() == nil:
		l.say("is not available: "+why(err)+". It is tried again at the next prompt.", err)
	}
	close(done) // after clients were told, so that a prompt that waits follows
}

// pause counts a failure and sets the time of the next attempt, at once after
// the first failure. The caller holds l.mu.
func (l *link) pause() {
	l.retryAt = time.Now().Add(backoff(l.failures))
	l.failures++
}

// newlyConnected reports whether the server is connected and clients were not
// told, and its number of tools. From now on the link tells clients itself.
func (l *link) newlyConnected() (tools int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok = l.session != nil && !l.introduced
	l.introduced, l.alone = l.introduced || ok, true
	return len(l.tools), ok
}

// toolCount returns a number of tools as text.
func toolCount(n int) string {
	if n == 1 {
		return "1 tool"
	}
	return fmt.Sprintf("%d tools", n)
}

// lost handles the end of a connection that we did not end.
func (l *link) lost(s *session, err error) {
	l.mu.Lock()
	if l.session != s {
		l.mu.Unlock()
		return
	}
	l.session, l.err = nil, err
	lapsed := errors.Is(err, errLapsed)
	switch {
	case lapsed:
		l.known = false
	case s.useful.Load():
		l.failures, l.retryAt = 0, time.Time{}
	default:
		l.pause()
	}
	l.troubled = !lapsed
	l.mu.Unlock()
	if !lapsed {
		l.say("is gone: "+why(err)+". It is tried again when it is used.", err)
	}
}

// backoff returns the pause after a number of failures in a row.
func backoff(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	return min(minBackoff<<min(failures-1, 10), maxBackoff)
}

// unavailable returns ErrUnavailable with the reason, for clients.
func (l *link) unavailable(err error) error {
	return fmt.Errorf("%s: %w: %s", l.title, ErrUnavailable, why(err))
}

// say tells clients something about the server, at most maxStatuses times in
// quotaWindow; then it tells them once that there is more. The log gets more,
// and err, which may be nil.
func (l *link) say(text string, err error) {
	l.mu.Lock()
	n := l.said.take()
	l.mu.Unlock()
	if n <= maxLogged {
		l.note(text, err)
	}
	switch {
	case n <= maxStatuses:
		l.set.publish(l.title + " " + text)
	case n == maxStatuses+1:
		l.set.publish(l.title + " says more than is shown; the server's log has more")
	}
}

// note logs a text for clients.
func (l *link) note(text string, err error) {
	text = l.title + " " + text
	if err == nil {
		l.log.Info(text)
	} else {
		l.log.Warn(text, "error", l.redact(err))
	}
}

// listed returns the tools as last listed. If they may be out of date, it
// starts an attempt to list them.
func (l *link) listed() []Tool {
	l.mu.Lock()
	tools, stale := l.tools, !l.known || l.session != nil && l.session.lapsed.Load()
	l.mu.Unlock()
	if stale {
		_, _, _ = l.sessionOrWait() // runs in the background
	}
	return tools
}

// setTools sets the listed tools, which are not nil, and returns how they differ
// from those listed before, if any.
func (l *link) setTools(tools []Tool) (changes string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tools != nil {
		changes = differences(l.tools, tools)
	}
	l.tools, l.known = tools, true
	return changes
}

// differences describes how the tools differ from before: a server may replace
// tools that people have come to trust.
func differences(before, after []Tool) string {
	old := map[string]Tool{}
	for _, t := range before {
		old[t.Name] = t
	}
	names := map[string][]string{} // by kind of difference
	for _, t := range after {
		if was, known := old[t.Name]; !known {
			names["more"] = append(names["more"], t.Name)
		} else if !reflect.DeepEqual(was, t) {
			names["changed"] = append(names["changed"], t.Name)
		}
		delete(old, t.Name)
	}
	for _, t := range before {
		if _, gone := old[t.Name]; gone {
			names["fewer"] = append(names["fewer"], t.Name)
		}
	}
	var parts []string
	for _, kind := range []string{"more", "changed", "fewer"} {
		if n := len(names[kind]); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", n, kind, label(strings.Join(names[kind], ", "))))
		}
	}
	return strings.Join(parts, ", ")
}

// beginQuestion counts an open question of the server, unless it asks too often.
func (l *link) beginQuestion() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wanted.take() > maxAsks {
		return false
	}
	l.asking++
	return true
}

func (l *link) endQuestion() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asking--
	l.askedAt = time.Now()
}

// lastQuestion returns when the last question ended, or now if one is open.
func (l *link) lastQuestion() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking > 0 {
		return time.Now()
	}
	return l.askedAt
}

// await returns a channel that is closed when the server says that people have
// finished the elicitation. forget removes it.
func (l *link) await(elicitationID string) (done <-chan struct{}, forget func()) {
	c := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits[c] = elicitationID
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waits, c)
	}
}

// completed ends the waits for an elicitation.
func (l *link) completed(elicitationID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, id := range l.waits {
		if id == elicitationID {
			close(c)
			delete(l.waits, c)
		}
	}
}

// dial makes a connection. If a program ends at the first request of the newer
// generation, it is started again with the handshake of the older one.
func (l *link) dial(ctx context.Context) (*session, error) {
	s, answered, err := l.open(ctx, "")
	if err != nil && !answered && l.server.Command != "" && ctx.Err() == nil && errors.Is(err, errEnded) {
		var older error
		if s, _, older = l.open(ctx, olderRevision); older == nil {
			return s, nil
		}
	}
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	return s, nil
}
