package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/internal/sleep"
)

// A Suite judges servers of one protocol by its rules. It does not change.
type Suite struct {
	Protocol string // the value of --protocol
	Title    string // heading of the page about its rules
	About    string // the lines below the heading

	Scenarios []Scenario // in the order of their rules
	Rules     []Rule     // in the order of their codes; see [ParseRules]

	// Check reports what makes a run of these scenarios as a whole impossible, such as a
	// target that is none.
	Check func(ctx context.Context, c *Config, scenarios []Scenario) error

	// End is called after a run whose Check returned nil, when all scenarios are over. May
	// be nil.
	End func()
}

// ErrTarget is what [Suite.Run] returns if the target is none for the protocol.
var ErrTarget = errors.New("wrong target")

const maestro = "maestro" // the protocol of the main suite

// Maestro returns the suite about the Maestro headless protocol.
func Maestro() *Suite {
	return &Suite{
		Protocol: maestro, Title: "Rules", Scenarios: Scenarios(), Rules: rules(),
		About: "Comments, scenarios and reports cite rules by these codes. Each sentence says what a server must do.\n" +
			"`maestro conformance --explain R36` prints a rule and the scenarios that check it.\n" +
			"Text after a colon, as in R46:gated, names a part of a rule; the scenarios of the whole rule check it.\n" +
			"A star marks a rule that the published protocol does not have: `--protocol-profile public` turns a failure into advice.",
		Check: func(ctx context.Context, c *Config, scenarios []Scenario) error {
			if err := c.check(ctx); err != nil {
				return err
			}
			return c.checkAgent(ctx, scenarios)
		},
	}
}

// command is the command line that judges a server with the suite.
func (u *Suite) command() string {
	if u.Protocol == maestro {
		return "maestro conformance"
	}
	return "maestro conformance --protocol " + u.Protocol
}

// Run judges the target. The error is about the run itself, such as a target
// that is not one; what the server does wrong is in the report. When ctx ends, the
// scenarios that are not over are skipped, and the report is marked as incomplete.
func (u *Suite) Run(ctx context.Context, c Config) (Report, error) {
	c.setDefaults()
	scenarios := c.Select(u.Scenarios)
	if len(scenarios) == 0 {
		return Report{}, fmt.Errorf("no scenario is called like %s", c.Filter)
	}
	started := time.Now()
	if err := u.Check(ctx, &c, scenarios); err != nil {
		return Report{}, err
	}
	results := runAll(ctx, &c, scenarios)
	if u.End != nil {
		u.End()
	}
	return Report{Target: c.name(), Duration: time.Since(started), Results: results, Incomplete: ctx.Err() != nil, Left: c.found.left}, nil
}

// Select returns the scenarios that the filter lets through, in their order.
func (c *Config) Select(scenarios []Scenario) (some []Scenario) {
	return slices.DeleteFunc(slices.Clone(scenarios), func(s Scenario) bool { return c.Filter != nil && !c.Filter.MatchString(s.Name) })
}

// Config returns what the run was asked for, with its defaults.
func (s *Session) Config() *Config { return s.config }

// Context ends with the scenario, or with its time.
func (s *Session) Context() context.Context { return s.ctx }

// Fail ends the scenario, because the server broke a rule. It must be called in the
// scenario's goroutine.
func (s *Session) Fail(rule, format string, args ...any) { s.fail(rule, format, args...) }

// Skip ends the scenario, because it does not apply to the server. It must be called in
// the scenario's goroutine.
func (s *Session) Skip(format string, args ...any) { s.skip(format, args...) }

// Advise adds an advice to the result. The scenario goes on.
func (s *Session) Advise(a Advice) {
	a.rule = a.Rule
	s.advice = append(s.advice, a)
}

// Record adds a text to the exchange that a report shows: who sent it (">") or received
// it ("<"). It may be called from any goroutine.
func (s *Session) Record(who, direction string, text []byte) {
	s.trace.add(s.now(), who, direction, text)
}

// AtEnd has f called when the scenario's goroutine ends, in the reverse order of calls.
func (s *Session) AtEnd(f func()) { s.atEnd = append(s.atEnd, f) }

// Abridge shows at most limit bytes of a text, on one line.
func Abridge(text []byte, limit int) string { return abridge(text, limit) }

// A Wire is the way to a server over HTTP. It is safe for concurrent use.
type Wire struct{ wire *wire }

// NewWire returns the way to a server. It keeps connections until it is closed, and follows
// no redirect.
func NewWire(base, token string) Wire { return Wire{newWire(base, token)} }

// Open sends a request and leaves the body to be read and closed. It repeats a request that
// was refused with 429, when the server says it may.
func (w Wire) Open(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, err := w.wire.open(ctx, request{method: method, path: path, header: header, body: body})
		if err != nil || resp.StatusCode != http.StatusTooManyRequests || try == maxTries {
			return resp, err
		}
		_ = resp.Body.Close() // its status says all
		if sleep.For(ctx, (&Answer{Header: resp.Header}).comeBack()) != nil {
			return nil, ctx.Err()
		}
	}
}

// Close ends the connections that are not in use.
func (w Wire) Close() { w.wire.close() }
