package conformance

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A Session is one scenario being played: its clients, its deadline, what was
// said, and the verdict. It belongs to the scenario's goroutine.
type Session struct {
	config   *Config
	scenario Scenario
	ctx      context.Context // the scenario's life; links end with it
	started  time.Time
	trace    *trace
	peers    []*Peer
	ids      int // correlation ids made up; a connection may outlive its socket
	failure  *Failure
	skipped  string

	// ID is the session the clients attach to on sockets: fresh and random, so
	// that scenarios do not meet.
	ID string
}

func newSession(ctx context.Context, c *Config, sc Scenario) *Session {
	return &Session{config: c, scenario: sc, ctx: ctx, started: time.Now(), trace: &trace{}, ID: "conf-" + uuid.NewString()}
}

// play runs the scenario and then holds what nobody waited for against the
// invariants too.
func (s *Session) play(run func(*Session)) {
	run(s)
	for _, p := range s.peers {
		p.drain()
	}
}

// close ends every link. It runs when the scenario's goroutine ends.
func (s *Session) close() {
	if s.failure != nil {
		for _, p := range s.peers {
			if text := strings.TrimSpace(p.link.Diagnostics()); text != "" {
				s.trace.add(s.now(), p.name, "stderr", []byte(text))
			}
		}
	}
	for _, p := range s.peers {
		p.close()
	}
}

// fail ends the scenario: the server broke rule.
func (s *Session) fail(rule, format string, args ...any) {
	s.failure = &Failure{Rule: rule, Message: fmt.Sprintf(format, args...)}
	runtime.Goexit()
}

// skip ends the scenario: the server does not do what it is about.
func (s *Session) skip(format string, args ...any) {
	s.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// socket reports whether the target is spoken to over WebSocket.
func (s *Session) socket() bool { return isSocketTarget(s.config.Target) }

// pause waits for d. It is for rules about time, never to wait for the server.
func (s *Session) pause(rule string, d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
		s.fail(rule, "the scenario ran out of time")
	}
}

// exitTime is how long a server may take to end (R19).
const exitTime = 5 * time.Second

// now is the time since the scenario began.
func (s *Session) now() time.Duration { return time.Since(s.started) }
