package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/agent/mask"
)

const (
	minBackoff = time.Second
	maxBackoff = time.Minute

	// How long the tools of a server that was never reached are waited for, from the
	// start of an attempt: many programs need a while the first time, some as long as
	// discoverTime, and afterwards nobody is to be kept from their prompt.
	firstDelay = 6 * time.Second
	againDelay = time.Second

	// What one server may have said in the open and in the log, and ask of people, in
	// quotaWindow.
	maxStatuses = 20
	maxLogged   = 200
	maxAsks     = 60
	quotaWindow = time.Minute
	statusTime  = 10 * time.Second // for a status to be taken

	// minLapse is the least age of a connection that is made anew because the
	// server has ended the stream on which it reports changes.
	minLapse = 30 * time.Second
)

// A link is the place of one server in a set: its connection, if there is one,
// and what is known about it otherwise.
type link struct {
	set    *Set
	server Server
	log    *slog.Logger // hides secrets

	title   string   // what clients know it by
	secrets []string // values that neither they nor the log are to see

	mu       sync.Mutex
	session  *session      // nil while there is none
	dialing  chan struct{} // closed when the attempt under way is over; nil without one
	patience time.Time     // until when tools are waited for that the attempt may bring
	failures int           // in a row
	retryAt  time.Time     // no attempt before
	err      error         // why there is no session
	troubled bool          // it was said that there is none
	tools    []Tool        // as last listed
	known    bool          // they were listed, and changes were reported since

	listedOnce bool // there was a list before
	introduced bool // it was said that it is there
	alone      bool // nobody but the link says so

	calls map[string]*call           // under way, by progress token
	waits map[string][]chan struct{} // for the end of what people do elsewhere, by elicitation id

	asking  int       // questions that are open
	askedAt time.Time // when the last one ended

	said, wanted quota // statuses, questions
}

// A quota counts what happens in a window.
type quota struct {
	since time.Time
	used  int
}

// take counts one more and returns how many there are in the window.
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
		calls: map[string]*call{}, waits: map[string][]chan struct{}{},
	}
	l.log = mask.Log(s.log, l.hide).With("mcp_server", server.Name)
	return l
}

// connected returns the connection. If there is none it tries to make one, unless
// it is too early for that. The error is ErrUnavailable or the cause of ctx.
func (l *link) connected(ctx context.Context) (*session, error) {
	for {
		s, wait, err := l.place()
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

// place returns the connection, or what to wait for before asking again.
func (l *link) place() (*session, <-chan struct{}, error) {
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

// awaited returns what tools are waited for, and until when, if the server was
// never reached.
func (l *link) awaited() (dialing <-chan struct{}, until time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialing, l.patience, l.dialing != nil && !l.listedOnce
}

// attempt tries once to reach the server.
func (l *link) attempt(done chan struct{}) {
	ctx, cancel := context.WithTimeoutCause(l.set.life, l.set.opts.ConnectTimeout, &fault{words: "it did not answer in time"})
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
	close(done)
	switch {
	case introduces:
		l.say("is available: "+toolCount(tools), nil)
	case err == nil && again:
		l.say("is available again", nil)
	case err != nil && !again && l.set.life.Err() == nil:
		l.say("is not available: "+why(err)+". It is tried again at the next prompt.", err)
	}
}

// pause counts a failure and puts off the next attempt: not at all the first time.
// l.mu is held.
func (l *link) pause() {
	l.retryAt = time.Now().Add(backoff(l.failures))
	l.failures++
}

// arrived reports whether the server is there and nobody has said so, and how many
// tools it has. From then on the link says it itself.
func (l *link) arrived() (tools int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok = l.session != nil && !l.introduced
	l.introduced, l.alone = l.introduced || ok, true
	return len(l.tools), ok
}

// toolCount says how many tools there are.
func toolCount(n int) string {
	if n == 1 {
		return "1 tool"
	}
	return fmt.Sprintf("%d tools", n)
}

// lost takes in that a connection has ended without us.
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
	again := l.troubled
	l.troubled = l.troubled || !lapsed
	l.mu.Unlock()
	if !lapsed && !again {
		l.say("is gone: "+why(err)+". It is tried again when it is used.", err)
	}
}

// backoff is the pause after a number of failures in a row.
func backoff(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	return min(minBackoff<<min(failures-1, 10), maxBackoff)
}

// unavailable is ErrUnavailable with why there is no connection, for clients.
func (l *link) unavailable(err error) error {
	return fmt.Errorf("%s: %w: %s", l.title, ErrUnavailable, why(err))
}

// say tells clients something about the server, as far as it has not had its share
// of their attention, which they are told once. The log learns more, and why; err
// may be nil.
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

// insist tells clients what they have to know whatever else the server says. Its
// callers bound how often.
func (l *link) insist(text string) {
	l.note(text, nil)
	l.set.publish(l.title + " " + text)
}

// note writes to the log what clients are told of the server.
func (l *link) note(text string, err error) {
	text = l.title + " " + text
	if err == nil {
		l.log.Info(text)
	} else {
		l.log.Warn(text, "error", l.redact(err))
	}
}

// listed returns the tools, and sees to it that they will be known.
func (l *link) listed() []Tool {
	l.mu.Lock()
	tools, stale := l.tools, !l.known || l.session != nil && l.session.lapsed.Load()
	l.mu.Unlock()
	if stale {
		_, _, _ = l.place() // it goes on by itself
	}
	return tools
}

// tool returns a tool by its full name.
func (l *link) tool(fullName string) (Tool, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.tools, func(t Tool) bool { return t.FullName == fullName })
	if at < 0 {
		return Tool{}, false
	}
	return l.tools[at], true
}

// setTools takes in the tools as they were listed, and returns how they differ from
// those that were known before, if any were.
func (l *link) setTools(tools []Tool) (changes string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listedOnce {
		changes = differences(l.tools, tools)
	}
	l.tools, l.known, l.listedOnce = tools, true, true
	return changes
}

// differences says in what way tools are others than before: a server may replace
// what people have come to trust.
func differences(before, after []Tool) string {
	old := map[string]Tool{}
	for _, t := range before {
		old[t.Name] = t
	}
	var more, other, fewer []string
	for _, t := range after {
		was, known := old[t.Name]
		switch {
		case !known:
			more = append(more, t.Name)
		case !reflect.DeepEqual(was, t):
			other = append(other, t.Name)
		}
		delete(old, t.Name)
	}
	for _, t := range before {
		if _, gone := old[t.Name]; gone {
			fewer = append(fewer, t.Name)
		}
	}
	var parts []string
	for _, p := range []struct {
		kind  string
		names []string
	}{{"more", more}, {"changed", other}, {"fewer", fewer}} {
		if len(p.names) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", len(p.names), p.kind, label(strings.Join(p.names, ", "))))
		}
	}
	return strings.Join(parts, ", ")
}

// mayAsk reports whether a question of the server may be put, as far as it does not
// ask too often.
func (l *link) mayAsk() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted.take() <= maxAsks
}

// asks counts a question that opens, and its end.
func (l *link) asks(change int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asking += change
	l.askedAt = time.Now()
}

// asked returns when the last question ended, which is now if one is open.
func (l *link) asked() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking > 0 {
		return time.Now()
	}
	return l.askedAt
}

// await returns a channel that is closed once the server has said that people
// finished what they were sent away for. forget gives it back.
func (l *link) await(elicitationID string) (done <-chan struct{}, forget func()) {
	c := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits[elicitationID] = append(l.waits[elicitationID], c)
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		rest := slices.DeleteFunc(l.waits[elicitationID], func(o chan struct{}) bool { return o == c })
		if l.waits[elicitationID] = rest; len(rest) == 0 {
			delete(l.waits, elicitationID)
		}
	}
}

// completed ends the waits for an elicitation.
func (l *link) completed(elicitationID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.waits[elicitationID] {
		close(c)
	}
	delete(l.waits, elicitationID)
}

// dial makes a connection. A program that ends at the first request of the newer
// generation is started again and greeted in the older way.
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
