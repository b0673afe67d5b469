package hecate

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
)

//go:embed rules.txt
var rulesText string

// Suite returns the suite about the protocol, for one run at a time. Its target is
// http://HOST:PORT, https://HOST:PORT or file:LOG.json, a JSON array of envelopes.
func Suite() *conformance.Suite { return newSuite(heartbeat) }

// newSuite returns a suite for servers whose streams are silent for at most this long.
func newSuite(silence time.Duration) *conformance.Suite {
	s := &suite{silence: silence}
	all := slices.Concat(s.lists(), s.streams(), s.feeds(), s.output(), s.approvals(), s.logRules())
	for i, sc := range all {
		if !sc.Last { // the others judge a file, too
			all[i] = needs(sc, func(*conformance.Config) bool { return s.file == nil }, "needs a server")
		}
	}
	return &conformance.Suite{
		Protocol: "hecate", Title: "Rules of the Hecate event protocol",
		About: "`maestro conformance --protocol hecate` judges servers and logs of the Hecate agent event protocol by these rules.\n" +
			"[conformance.md](conformance.md#hecate) says how to run it.",
		Scenarios: all,
		Rules:     conformance.ParseRules(rulesText),
		Check:     s.open,
		End:       s.close,
	}
}

// scenario returns a scenario. Its rules are separated by spaces. The story returns if
// everything was as it should be.
func (u *suite) scenario(name, rules, title string, story func(*play)) conformance.Scenario {
	return conformance.Scenario{Name: name, Title: title, Rules: strings.Fields(rules), Needs: conformance.Needs{Transport: conformance.Anywhere},
		Run: func(s *conformance.Session) { story(&play{t: s, suite: u, config: s.Config(), ctx: s.Context()}) }}
}

// onSample returns a scenario about a run that has ended.
func (u *suite) onSample(name, rules, title string, story func(*play, *run)) conformance.Scenario {
	return u.scenario(name, rules, title, func(p *play) { story(p, p.sample()) })
}

// needs returns a scenario that is skipped unless a condition holds.
func needs(sc conformance.Scenario, holds func(*conformance.Config) bool, missing string) conformance.Scenario {
	run := sc.Run
	sc.Run = func(s *conformance.Session) {
		if !holds(s.Config()) {
			s.Skip("%s", missing)
		}
		run(s)
	}
	return sc
}

func hasSecret(c *conformance.Config) bool { return c.Secret != "" }

const noSecret = "needs a secret that the server knows"

// slow returns a scenario with a limit of its own.
func slow(sc conformance.Scenario, limit time.Duration) conformance.Scenario {
	sc.Slow, sc.Limit = true, limit
	return sc
}

// A suite is what the scenarios of a run share.
type suite struct {
	silence time.Duration // of streams, see [heartbeat]

	// Set by open, which precedes all scenarios.
	stop   context.CancelFunc
	wire   *wire   // nil for a file
	feed   *index  // nil for a file
	driver *driver // nil if no run can be started
	file   *history
	before *history // of Config.Earlier; nil if there is none

	histories memo[*history]
	samples   memo[*run]
	bursts    memo[*burst]
}

// open opens the target.
func (s *suite) open(ctx context.Context, c *conformance.Config, _ []conformance.Scenario) error {
	var err error
	if c.Earlier != "" {
		if s.before, err = readHistory(c.Earlier); err != nil {
			return err
		}
	}
	ctx, s.stop = context.WithCancel(ctx)
	if path, ok := strings.CutPrefix(c.Target, "file:"); ok {
		s.file, err = readHistory(path)
		return err
	}
	if !strings.HasPrefix(c.Target, "http://") && !strings.HasPrefix(c.Target, "https://") {
		return errors.New("--target: want http://HOST:PORT, https://HOST:PORT or file:LOG.json")
	}
	s.wire = &wire{conformance.NewWire(c.Target, c.Token)}
	if err := s.wire.reach(ctx, c.Timeout); err != nil {
		s.close()
		return err
	}
	s.feed = newIndex(ctx, s.wire)
	s.driver = newDriver(ctx, c, s.wire)
	return nil
}

// close ends what open began and the scenarios started.
func (s *suite) close() {
	if s.driver != nil {
		s.driver.close()
	}
	s.stop()
	if s.feed != nil {
		<-s.feed.done
	}
	if s.wire != nil {
		s.wire.Close()
	}
}

// A play is one scenario being played. Its methods that fail or skip belong to the
// scenario's goroutine.
type play struct {
	t      *conformance.Session
	suite  *suite
	config *conformance.Config
	ctx    context.Context // the scenario's life
	failed bool
	silent bool // the exchange is not recorded
}

// note adds a text to the exchange in the report.
func (p *play) note(direction, text string) {
	if !p.silent {
		p.t.Record("client", direction, []byte(text))
	}
}

// fail ends the scenario because the server broke a rule.
func (p *play) fail(rule, format string, args ...any) {
	p.failed = true
	p.t.Fail(rule, format, args...)
}

func (p *play) failIf(broken bool, rule, format string, args ...any) {
	if broken {
		p.fail(rule, format, args...)
	}
}

// skip ends the scenario: there is nothing to judge.
func (p *play) skip(format string, args ...any) { p.t.Skip(format, args...) }

// A memo makes a value once for all scenarios. If the scenario that wants it first fails while
// it makes the value, the others are skipped. Its deadline bounds how long they wait.
type memo[T any] struct {
	mu     sync.Mutex
	made   bool
	failed bool
	value  T
}

func (m *memo[T]) get(p *play, f func() T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed {
		p.skip("what it needs could not be made; see the first failure")
	}
	defer func() { m.failed = p.failed }() // p.fail ends the goroutine
	if !m.made {
		m.value, m.made = f(), true
	}
	return m.value
}
