package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A Session is one scenario being played: its clients, its deadline, what was
// said, and the verdict. It belongs to the scenario's goroutine.
type Session struct {
	config   *Config
	scenario Scenario
	run      context.Context // of all scenarios
	ctx      context.Context // the scenario's life; links end with it
	cancel   context.CancelFunc
	started  time.Time
	trace    *trace
	peers    []*Peer
	callers  []*Caller
	sessions []string // that it made over the network
	ids      int      // correlation ids made up; a connection may outlive its socket
	failure  *Failure
	advice   []Advice // at most one for each rule
	ended    string   // rule of the advice that ended the scenario; empty if none did
	skipped  string

	// ID is the session the clients attach to on networked transports: fresh
	// and random, so that scenarios do not meet. Over HTTP the server chooses
	// it when the first client connects, and then opened is true.
	ID     string
	opened bool

	// What its controllers negotiate.
	answers    []contracts.RequestType
	operations []contracts.UtilityOperation

	wire    *wire     // the server over HTTP; nil on other transports, and until a runner is ready
	runners []*runner // hosted runners, in the order they were started
	dirs    []string  // scratch directories, removed at the end
	environ []string  // added to the environment of servers on stdio
	atEnd   []func()  // what other suites end with the scenario
}

// newSession returns a session that ends with ctx, with its timeout, or by cancel.
func newSession(ctx context.Context, c *Config, sc Scenario) *Session {
	s := &Session{config: c, scenario: sc, run: ctx, started: time.Now(), trace: &trace{}, ID: "conf-" + uuid.NewString()}
	s.ctx, s.cancel = context.WithTimeout(ctx, max(sc.Limit, c.Timeout))
	if t := sc.Needs.Transport; t == HTTP || (t == Anywhere || t == Networked) && transportOf(c.Target) == HTTP {
		s.wire = newWire(c.Target, c.Token)
	}
	return s
}

// play runs the scenario and then holds what nobody waited for against the
// invariants too.
func (s *Session) play(run func(*Session)) {
	if op := s.scenario.Needs.Operation; op != "" {
		s.negotiateOperations(op)
	}
	offered := s.negotiateRequests(s.scenario.Needs.Asks...)
	for _, kind := range s.scenario.Needs.Asks {
		if !slices.Contains(offered, kind) {
			s.skip("the server does not ask for %s", kind)
		}
	}
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
	for _, r := range s.runners {
		r.close()
	}
	if s.wire != nil {
		s.wire.close()
	}
	for _, end := range slices.Backward(s.atEnd) {
		end()
	}
	for _, dir := range s.dirs {
		_ = os.RemoveAll(dir) // what is left is in the system's scratch space
	}
}

// judged reports whether the scenario has failed, was skipped, or ended with advice.
func (s *Session) judged() bool { return s.failure != nil || s.skipped != "" || s.ended != "" }

// keepVerdict ends the goroutine if the scenario is judged: what goes wrong while it
// removes its directory does not replace the verdict.
func (s *Session) keepVerdict() {
	if s.judged() {
		runtime.Goexit()
	}
}

// fail ends the scenario with a failure, because the server broke rule. If the server
// is judged by the published protocol, which does not have rule, it ends with advice.
// After the run was cancelled, nothing is the server's fault.
func (s *Session) fail(rule, format string, args ...any) {
	s.keepVerdict()
	if s.run.Err() != nil {
		s.skip(cancelled)
	}
	if errors.Is(s.ctx.Err(), context.DeadlineExceeded) {
		format += "; the scenario's time is over (--timeout)"
	}
	if s.isOptional(rule) {
		s.advise(rule, format, args...)
		s.ended = rule
	} else {
		s.failure = &Failure{Rule: numberOfRule(rule), Message: fmt.Sprintf(format, args...)}
	}
	runtime.Goexit()
}

// advise is fail, except that a scenario that gets advice goes on.
func (s *Session) advise(rule, format string, args ...any) {
	if !s.isOptional(rule) {
		s.fail(rule, format, args...)
	}
	if !slices.ContainsFunc(s.advice, func(a Advice) bool { return a.rule == rule }) {
		s.advice = append(s.advice, Advice{Rule: numberOfRule(rule), Text: adviceFor(rule), Seen: fmt.Sprintf(format, args...), rule: rule})
	}
}

// skip ends the scenario: the server does not do what it is about.
func (s *Session) skip(format string, args ...any) {
	s.keepVerdict()
	s.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// socket reports whether the scenario's clients receive envelopes: on every
// transport but stdio.
func (s *Session) socket() bool {
	return s.scenario.Needs.Transport == Hosted || transportOf(s.config.Target) != Stdio
}

// pause waits for d. It is for rules about time, never to wait for the server.
func (s *Session) pause(rule string, d time.Duration) {
	s.failIf(sleep.For(s.ctx, d) != nil, rule, "the scenario ran out of time")
}

// exitTime is how long a server may take to end: 5 s (R19), or longer if the user is more patient.
func (s *Session) exitTime() time.Duration { return max(5*time.Second, s.config.Patience) }

// now is the time since the scenario began.
func (s *Session) now() time.Duration { return time.Since(s.started) }

// Bounds of an exchange in a report.
const (
	maxTraceText = 400 // bytes shown of one text
	traceHead    = 40  // first texts kept
	traceTail    = 120 // last texts kept
)

// trace records the texts of a scenario. Readers and the scenario write to it.
type trace struct {
	mu      sync.Mutex
	kept    []moment // at most traceHead+2*traceTail, cut back to traceHead+traceTail
	dropped int
}

// A moment is one text on one link.
type moment struct {
	at   time.Duration // since the scenario began
	text string
}

func (t *trace) add(at time.Duration, peer, direction string, text []byte) {
	m := moment{at, fmt.Sprintf("%s %s %s", peer, direction, abridge(text, maxTraceText))}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept = append(t.kept, m); len(t.kept) >= traceHead+2*traceTail {
		t.cut()
	}
}

// cut drops what is neither among the first nor among the last texts. It needs mu.
func (t *trace) cut() {
	if over := len(t.kept) - traceHead - traceTail; over > 0 {
		t.dropped += over
		t.kept = slices.Delete(t.kept, traceHead, traceHead+over)
	}
}

// lines renders the exchange in order of time.
func (t *trace) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut()
	head := min(len(t.kept), traceHead)
	var lines []string
	for _, part := range [][]moment{t.kept[:head], t.kept[head:]} {
		slices.SortStableFunc(part, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
		for _, m := range part {
			lines = append(lines, fmt.Sprintf("%8.3fs %s", m.at.Seconds(), m.text))
		}
	}
	if t.dropped > 0 {
		lines = slices.Insert(lines, head, fmt.Sprintf("... %d texts left out ...", t.dropped))
	}
	return lines
}

// abridge shows at most limit bytes of a text, on one line.
func abridge(text []byte, limit int) string {
	if len(text) <= limit {
		return strings.ToValidUTF8(strings.ReplaceAll(string(text), "\n", `\n`), "\uFFFD")
	}
	return fmt.Sprintf("%s... (%d bytes)", abridge(text[:limit], limit), len(text))
}
