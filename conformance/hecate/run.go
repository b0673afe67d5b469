package hecate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
)

// Defaults of Config.
const (
	DefaultTimeout  = 30 * time.Second
	DefaultPatience = 5 * time.Second
	DefaultParallel = 4
)

// Config says what to judge and how patiently. Target is required.
type Config struct {
	Target string // http://HOST:PORT, https://HOST:PORT, or file:LOG.json, a JSON array of envelopes
	Token  string // bearer credential for the target; empty for none

	// Driver is a command that starts a run, split into words without a shell. The prompt is
	// its last argument. HECATE_URL is the target and HECATE_PROMPT the kind of the prompt:
	// say, long, ask, burst or secret. The command may end at once or wait for the run.
	// Without it the suite sends prompts over the Maestro protocol if the target speaks that.
	// If the target does not, only runs that exist are judged.
	Driver  string
	Prompts Prompts

	Secret          string        // a value that the server was told to hide; empty skips what needs it
	ApprovalTimeout time.Duration // after which the server gives up an approval; zero skips what needs it
	Thinking        bool          // the server was told to show thinking

	Filter   *regexp.Regexp // scenarios to run, by name; nil runs all
	Timeout  time.Duration  // for one scenario; zero means DefaultTimeout
	Patience time.Duration  // for one expected answer or event; zero means DefaultPatience
	Parallel int            // scenarios at once; zero means DefaultParallel

	// Each, if set, gets each result as soon as it and those before it are known, in the
	// order of the report. Calls do not overlap.
	Each func(*conformance.Result)

	heartbeat time.Duration // how long a stream may be silent; zero means the time of the protocol
}

// Prompts are what the suite says to the agent behind the server. An empty one skips the
// scenarios that need it.
type Prompts struct {
	Say    string // leads to an answer
	Long   string // leads to a run that takes at least ten seconds and can be cancelled
	Ask    string // leads to one call of a tool that needs approval
	Burst  string // leads to a tool call that writes 10 MB, byte by byte
	Secret string // leads to output with the secret, which replaces {secret} in the prompt
}

// DefaultPrompts returns prompts that the local model understands, for an agent with a shell.
func DefaultPrompts() Prompts {
	p := conformance.DefaultPrompts()
	return Prompts{Say: p.Say, Long: p.Long, Ask: p.Ask,
		Burst:  `call bash|Bash|shell {"command":"yes | dd bs=1 count=10000000 2>/dev/null"}`,
		Secret: "call bash|Bash|shell {\"command\":\"echo {secret}\"}\nsay {secret}"}
}

// Run judges the target. The error is about the run itself, such as a target that does not
// answer; what the target does wrong is in the report. When ctx ends, the scenarios that are
// not over are skipped, and the report is marked as incomplete.
func Run(ctx context.Context, c Config) (conformance.Report, error) {
	c.Timeout, c.Patience = cmp.Or(c.Timeout, DefaultTimeout), cmp.Or(c.Patience, DefaultPatience)
	c.Parallel, c.heartbeat = cmp.Or(c.Parallel, DefaultParallel), cmp.Or(c.heartbeat, heartbeat)
	scenarios := slices.DeleteFunc(Scenarios(), func(sc Scenario) bool { return c.Filter != nil && !c.Filter.MatchString(sc.Name) })
	if len(scenarios) == 0 {
		return conformance.Report{}, fmt.Errorf("no scenario is called like %s", c.Filter)
	}
	started := time.Now()
	suite, err := newSuite(ctx, c)
	if err != nil {
		return conformance.Report{}, fmt.Errorf("target %q: %w", c.Target, err)
	}
	results := suite.playAll(scenarios)
	suite.close()
	return conformance.Report{Target: c.Target, Duration: time.Since(started), Results: results, Incomplete: ctx.Err() != nil}, nil
}

// A suite is all scenarios being played, and what they share.
type suite struct {
	config Config
	ctx    context.Context // of all scenarios
	stop   context.CancelFunc
	wire   *wire   // nil for a file
	feed   *index  // nil for a file
	driver *driver // nil if no run can be started

	file      *history // of a file
	histories memo[*history]
	samples   memo[*run]
	bursts    memo[*burst]
}

// newSuite opens the target.
func newSuite(ctx context.Context, c Config) (*suite, error) {
	s := &suite{config: c}
	if path, ok := strings.CutPrefix(c.Target, "file:"); ok {
		s.ctx, s.stop = context.WithCancel(ctx)
		var err error
		s.file, err = readHistory(path)
		return s, err
	}
	if !strings.HasPrefix(c.Target, "http://") && !strings.HasPrefix(c.Target, "https://") {
		return nil, errors.New("want http://HOST:PORT, https://HOST:PORT or file:LOG.json")
	}
	s.ctx, s.stop = context.WithCancel(ctx)
	s.wire = newWire(c.Target, c.Token)
	if err := s.wire.knock(s.ctx, c.Timeout); err != nil {
		s.close()
		return nil, err
	}
	s.feed = newIndex(s.ctx, s.wire)
	s.driver = newDriver(s)
	return s, nil
}

func (s *suite) close() {
	if s.driver != nil {
		s.driver.close()
	}
	s.stop()
	if s.feed != nil {
		<-s.feed.done
	}
	if s.wire != nil {
		s.wire.close()
	}
}

// playAll plays scenarios side by side, those about histories last, since they judge the runs
// that the others made. It returns the results in the order given.
func (s *suite) playAll(scenarios []Scenario) []conformance.Result {
	results, known := make([]conformance.Result, len(scenarios)), make([]bool, len(scenarios))
	var mu sync.Mutex // guards known and next
	next := 0
	play := func(i int) {
		results[i] = s.play(scenarios[i])
		mu.Lock()
		defer mu.Unlock()
		for known[i] = true; next < len(known) && known[next]; next++ {
			if s.config.Each != nil {
				s.config.Each(&results[next])
			}
		}
	}
	for _, offline := range []bool{false, true} {
		var wg sync.WaitGroup
		slots := make(chan struct{}, s.config.Parallel)
		for i, sc := range scenarios {
			if sc.offline == offline && sc.slow {
				wg.Go(func() { play(i) })
			}
		}
		for i, sc := range scenarios {
			if sc.offline == offline && !sc.slow {
				slots <- struct{}{}
				wg.Go(func() {
					play(i)
					<-slots
				})
			}
		}
		wg.Wait()
	}
	return results
}

// cancelled is why scenarios are skipped that were not over when the run was ended.
const cancelled = "the run was cancelled"

// play plays a scenario in a goroutine of its own, which failing and skipping end.
func (s *suite) play(sc Scenario) conformance.Result {
	result := conformance.Result{Name: sc.Name, Title: sc.Title, Rules: sc.Rules, Outcome: conformance.Passed}
	t := &Session{suite: s, started: time.Now()}
	switch {
	case s.ctx.Err() != nil:
		t.skipped = cancelled
	case s.file != nil && !sc.offline:
		t.skipped = "needs a server"
	default:
		var cancel context.CancelFunc
		t.ctx, cancel = context.WithTimeout(s.ctx, cmp.Or(sc.limit, s.config.Timeout))
		done := make(chan struct{})
		go func() { // every wait in it ends with t.ctx
			defer close(done)
			sc.Run(t)
		}()
		<-done
		cancel()
	}
	result.Duration, result.Advice = time.Since(t.started), t.advice
	switch {
	case t.failure != nil:
		result.Outcome, result.Failure = conformance.Failed, t.failure
	case t.skipped != "":
		result.Outcome, result.Reason = conformance.Skipped, t.skipped
	case len(t.advice) > 0:
		result.Outcome = conformance.Advised
	}
	return result
}

// A memo makes a value once for all scenarios. If making it ends the scenario that wanted it
// first, the next one tries again. The scenarios that wait are bounded by that one's deadline.
type memo[T any] struct {
	mu    sync.Mutex
	made  bool
	value T
}

func (m *memo[T]) get(f func() T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.made {
		m.value, m.made = f(), true
	}
	return m.value
}
