package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/proc"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// Config says what to judge and how patiently. Target or Spawn is required.
type Config struct {
	Target   string            // stdio:COMMAND, ws://HOST:PORT[/PATH], http://HOST:PORT, or wss: and https:
	Spawn    string            // command that starts a hosted runner; empty skips the scenarios for those
	Token    string            // bearer credential for the target, unless that is on stdio; empty for none
	Filter   *regexp.Regexp    // scenarios to run, by name; nil runs all
	Profile  contracts.Profile // ProfilePublic demands only what the published protocol demands; empty is ProfileSeed
	Strict   bool              // the server refuses unknown keys and nulls (D13)
	Timeout  time.Duration     // for one scenario; zero means DefaultTimeout
	Patience time.Duration     // for one expected message; zero means DefaultPatience
	Parallel int               // scenarios at once; zero means DefaultParallel
	Runtime  Runtime           // what is behind the server; empty is the conformance agent
	Prompts  Prompts           // for any other agent
	ModelEnv string            // variable that tells the target the address of a model; empty is the suite's choice

	// Only for Hecate. Driver is a command that starts a run; see docs/conformance.md. Secret is
	// a value that the server was told to hide, and ApprovalTimeout the time after which it
	// gives up an approval; if they are empty, scenarios that need them are skipped. Thinking
	// says that the server was told to show thinking. Save is the path of a file that the runs
	// are written to which were judged, Earlier that of one that an earlier run wrote.
	Driver          string
	Secret          string
	ApprovalTimeout time.Duration
	Thinking        bool
	Save, Earlier   string

	// ConnectionTokens is the server's policy over HTTP; empty means required
	// if there is a Token, else optional.
	ConnectionTokens TokenPolicy

	// Each, if set, gets each result as soon as it and those before it are known, in
	// the order of the report. Calls do not overlap.
	Each func(*Result)

	found *findings
}

// setDefaults fills in what the caller left open.
func (c *Config) setDefaults() {
	c.Profile = cmp.Or(c.Profile, contracts.ProfileSeed)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Patience = cmp.Or(c.Patience, DefaultPatience)
	c.Parallel = cmp.Or(c.Parallel, DefaultParallel)
	c.Runtime = cmp.Or(c.Runtime, RuntimeConformance)
	if c.ConnectionTokens == "" {
		c.ConnectionTokens = TokensOptional
		if c.Token != "" {
			c.ConnectionTokens = TokensRequired
		}
	}
	c.found = &findings{}
}

func (c *Config) name() string {
	switch {
	case c.Spawn == "":
		return c.Target
	case c.Target == "":
		return "spawn:" + c.Spawn
	}
	return c.Target + " and spawn:" + c.Spawn
}

// check reports what makes the run as a whole impossible.
func (c *Config) check(ctx context.Context) error {
	isCommand := func(line string) bool {
		_, err := proc.SplitWords(line)
		return err == nil
	}
	if c.Spawn != "" && !isCommand(c.Spawn) {
		return fmt.Errorf("spawn %q: no command to run", c.Spawn)
	}
	switch transportOf(c.Target) {
	case Stdio:
		if !isCommand(strings.TrimPrefix(c.Target, "stdio:")) {
			return fmt.Errorf("target %q: no command to run", c.Target)
		}
	case Socket, HTTP:
		if err := knock(ctx, c); err != nil {
			return fmt.Errorf("target %q: %w", c.Target, err)
		}
	default:
		if c.Target != "" || c.Spawn == "" {
			return fmt.Errorf("target %q: want stdio:COMMAND, ws://HOST:PORT or http://HOST:PORT", c.Target)
		}
	}
	return nil
}

// knock reports why no scenario could even begin: nobody answers, or the
// credential is wrong. What else a server may refuse is for scenarios to judge.
func knock(ctx context.Context, c *Config) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if transportOf(c.Target) == HTTP {
		return knockHTTP(ctx, c)
	}
	link, err := dialSocket(ctx, dialOptions{base: c.Target, token: c.Token, subprotocol: contracts.Subprotocol})
	refused, ok := errors.AsType[*Refused](err)
	switch {
	case err == nil:
		_ = link.Close() // it answered, which is all
		return nil
	case ok && refused.Status != http.StatusUnauthorized:
		return nil
	}
	return err
}

// knockHTTP is knock for an HTTP target.
func knockHTTP(ctx context.Context, c *Config) error {
	w := newWire(c.Target, c.Token)
	defer w.close()
	a, err := w.do(ctx, request{method: http.MethodGet, path: sessionsPath})
	if err == nil && a.Status == http.StatusUnauthorized {
		err = fmt.Errorf("the credential is refused: %s", abridge(a.Raw, maxTraceText))
	}
	return err
}

// runAll runs scenarios side by side, slow ones first so that they overlap
// with the rest, and those marked as last when the others are over. It returns their
// results in the order given. It calls c.Each as soon as a result and those before it are
// known.
func runAll(ctx context.Context, c *Config, scenarios []Scenario) []Result {
	results := make([]Result, len(scenarios))
	var mu sync.Mutex // guards the rest
	known, next, given := make([]bool, len(scenarios)), 0, map[string]bool{}
	tell := func(i int) {
		mu.Lock()
		defer mu.Unlock()
		for known[i] = true; next < len(known) && known[next]; next++ {
			results[next].keepNew(given)
			if c.Each != nil {
				c.Each(&results[next])
			}
		}
	}
	for _, last := range []bool{false, true} {
		var wg sync.WaitGroup
		for i, sc := range scenarios {
			if sc.Last == last && sc.Slow { // mostly asleep: it does not take a slot
				wg.Go(func() {
					results[i] = runOne(ctx, c, sc)
					tell(i)
				})
			}
		}
		slots := make(chan struct{}, c.Parallel)
		for i, sc := range scenarios {
			if sc.Last == last && !sc.Slow {
				slots <- struct{}{}
				wg.Go(func() {
					results[i] = runOne(ctx, c, sc)
					tell(i)
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

// runOne plays a scenario in a goroutine of its own, which failing and
// skipping end with runtime.Goexit, as package testing does.
func runOne(ctx context.Context, c *Config, sc Scenario) Result {
	result := Result{Name: sc.Name, Title: sc.Title, Rules: sc.Rules, Outcome: Passed}
	why := sc.Needs.reasonToSkip(c)
	if ctx.Err() != nil {
		why = cancelled
	}
	if why != "" {
		result.Outcome, result.Reason = Skipped, why
		return result
	}
	s := newSession(ctx, c, sc)
	defer s.cancel()
	done := make(chan struct{})
	go func() { // ended by s.fail, s.skip, or its deadline: every wait has one
		defer close(done)
		defer s.close()
		s.play(sc.Run)
	}()
	<-done
	result.Duration, result.Advice = time.Since(s.started), s.advice
	for i, a := range s.advice {
		result.Advice[i].ends = a.rule == s.ended
	}
	switch {
	case s.failure != nil:
		s.failure.Exchange = s.trace.lines()
		result.Outcome, result.Failure = Failed, s.failure
	case s.skipped != "":
		result.Outcome, result.Reason = Skipped, s.skipped
	}
	left := s.endSessions()
	c.found.mu.Lock()
	defer c.found.mu.Unlock()
	c.found.left += left
	return result
}

// endTime bounds how long the sessions of a scenario may take to end after the run
// was cancelled. Otherwise they have the scenario's timeout.
const endTime = 5 * time.Second

// endTries is how often a scenario tries to end a session.
const endTries = 3

// made notes a session that the scenario may have made and therefore ends.
func (s *Session) made(id string) {
	if id != "" && !slices.Contains(s.sessions, id) {
		s.sessions = append(s.sessions, id)
	}
}

// endSessions ends with shutdown what the scenario made at a server over the network,
// once its clients are gone, also when the run was cancelled. It returns how many
// sessions may be left. A hosted runner ends with its session.
func (s *Session) endSessions() (left int) {
	if len(s.runners) > 0 {
		return 0
	}
	limit := s.config.Timeout
	if s.run.Err() != nil {
		limit = endTime
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.run), limit)
	defer cancel()
	end := s.endOnSocket
	if s.wire != nil {
		end = s.endOverHTTP
		defer s.wire.close()
	}
	for _, id := range s.sessions {
		ended := false
		for tries := 0; !ended && tries < endTries; tries++ { // a busy machine can cost a connection
			ended = end(ctx, id)
		}
		if !ended {
			left++
		}
	}
	return left
}

// endOnSocket reports whether a session is over.
func (s *Session) endOnSocket(ctx context.Context, id string) bool {
	link, err := dialSocket(ctx, s.dialOptions(entry{session: id, role: contracts.RoleController, take: "1"}))
	if refused, ok := errors.AsType[*Refused](err); ok && refused.Status == http.StatusTooManyRequests {
		return sleep.For(ctx, time.Second) == nil && s.endOnSocket(ctx, id)
	} else if err != nil {
		return ok && refused.Status == http.StatusNotFound
	}
	defer func() { _ = link.Close() }() // the server closes it if all goes well
	for _, cmd := range []contracts.Command{s.hello(contracts.RoleController), &contracts.Shutdown{}} {
		if link.Send(ctx, encodeCommand(cmd)) != nil {
			break // reading tells why
		}
	}
	for err == nil {
		_, err = link.Recv(ctx)
	}
	closed, ok := errors.AsType[*Closed](err)
	return ok && (closed.Code == 1000 || contracts.Code(closed.Reason) == contracts.CodeStaleSession)
}

// endOverHTTP reports whether a session is over.
func (s *Session) endOverHTTP(ctx context.Context, id string) bool {
	c := s.caller("end", contracts.RoleController)
	body := encode(with(c.introduction(), fields{"sessionId": id, "takeControl": true}))
	a, err := s.send(ctx, request{who: c.name, method: http.MethodPost, path: connectionsPath, body: body})
	if err != nil || a.Status != http.StatusOK {
		return err == nil && a.Status == http.StatusNotFound
	}
	var got struct {
		Connection string `json:"connection_id"`
	}
	if json.Unmarshal(a.Raw, &got) != nil {
		return false
	}
	c.connection, c.token = got.Connection, a.Header.Get(tokenHeader)
	a, err = s.send(ctx, request{who: c.name, method: http.MethodPost, path: routeOf(id, "messages"), header: c.identity(), body: encodeCommand(&contracts.Shutdown{})})
	return err == nil && (a.Status == http.StatusOK || a.Status == http.StatusNotFound)
}
