package hecate

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
)

// A Scenario is one promise of the protocol and the way to judge it.
type Scenario struct {
	Name  string   // group/promise, unique
	Title string   // the promise as a sentence
	Rules []string // E1 to E45, or a section such as 9

	// Run judges the server. It returns if everything was as it should be; failing and
	// skipping end its goroutine from inside.
	Run func(*Session)

	offline bool          // it judges histories, also that of a file; played after all others
	slow    bool          // it mostly waits; it takes no slot
	limit   time.Duration // a limit of its own; zero means Config.Timeout
}

// Scenarios returns all scenarios, in the order of reports.
func Scenarios() []Scenario {
	return slices.Concat(lists(), streams(), feeds(), output(), approvals(), logRules())
}

// online returns a scenario that needs a server. Its rules are separated by spaces.
func online(name, rules, title string, run func(*Session)) Scenario {
	return Scenario{Name: name, Rules: strings.Fields(rules), Title: title, Run: run}
}

// onSample returns a scenario about a run that has ended.
func onSample(name, rules, title string, run func(*Session, *run)) Scenario {
	return online(name, rules, title, func(s *Session) { run(s, s.sample()) })
}

// A Session is one scenario being played. Its methods that fail or skip belong to the
// scenario's goroutine.
type Session struct {
	suite   *suite
	ctx     context.Context // the scenario's life
	started time.Time
	failure *conformance.Failure
	advice  []conformance.Advice
	skipped string

	mu       sync.Mutex
	exchange []string // at most maxExchange
	dropped  int
}

// maxExchange bounds the texts of an exchange in a report. Later texts replace the middle.
const maxExchange = 60

// note adds a text to the exchange.
func (s *Session) note(direction string, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.exchange) == maxExchange {
		s.exchange = slices.Delete(s.exchange, maxExchange/2, maxExchange/2+1)
		s.dropped++
	}
	s.exchange = append(s.exchange, fmt.Sprintf("%8.3fs %s %s", time.Since(s.started).Seconds(), direction, short([]byte(text))))
}

// shown returns the exchange.
func (s *Session) shown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.exchange
	if s.dropped > 0 {
		lines = slices.Insert(slices.Clone(lines), maxExchange/2, fmt.Sprintf("... %d texts left out ...", s.dropped))
	}
	return lines
}

// fail ends the scenario because the server broke a rule. After the run of all scenarios was
// cancelled, nothing is the server's fault.
func (s *Session) fail(rule, format string, args ...any) {
	if s.suite.ctx.Err() != nil {
		s.skip(cancelled)
	}
	s.failure = &conformance.Failure{Rule: rule, Message: fmt.Sprintf(format, args...), Exchange: s.shown()}
	runtime.Goexit()
}

func (s *Session) failIf(broken bool, rule, format string, args ...any) {
	if broken {
		s.fail(rule, format, args...)
	}
}

// skip ends the scenario: there is nothing to judge.
func (s *Session) skip(format string, args ...any) {
	s.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// advise says what would be better; the scenario goes on.
func (s *Session) advise(rule, text, seen string) {
	s.advice = append(s.advice, conformance.Advice{Rule: rule, Text: text, Seen: seen})
}
