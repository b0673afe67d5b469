package conformance_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/double"
)

// plainPrompts are what the double understands as any agent.
var plainPrompts = conformance.Prompts{Say: "say hello", Long: "work", Ask: "ask"}

// aboutAgents are the scenarios about any agent, and some that most of them cannot
// take part in.
var aboutAgents = regexp.MustCompile("^(agent|run|request|state|interrupt|post)/")

// plainTarget is the double with an agent of its own, on a transport.
func plainTarget(t *testing.T, on conformance.Transport, defect double.Defect) string {
	t.Helper()
	if on == onStdio {
		return stdioTarget(t, defect) + " plain"
	}
	options := patient()
	options.Defect, options.Plain = defect, true
	url := serveDouble(t, options)
	if on == onSocket {
		return strings.Replace(url, "http://", "ws://", 1)
	}
	return url
}

func TestDoublePassesWithAnyAgent(t *testing.T) {
	t.Parallel()
	for on := range targets {
		t.Run(string(on), func(t *testing.T) {
			t.Parallel()
			report := judge(t, conformance.Config{Target: plainTarget(t, on, ""), Filter: aboutAgents,
				Runtime: conformance.RuntimeAny, Prompts: plainPrompts})
			passes(t, report)
			for _, r := range report.Results {
				if strings.HasPrefix(r.Name, "agent/") && r.Outcome == conformance.Skipped && !strings.HasSuffix(r.Reason, " target") {
					t.Errorf("%s: got skipped, %s, want it judged", r.Name, r.Reason)
				}
			}
		})
	}
}

var agentCatches = []catch{
	{double.StartsDenied, onStdio, "^agent/denied$", []string{"R46"}},
	{double.ForgetsDenied, onHTTP, "^agent/denied$", []string{"R46"}},
	{double.EndsCallsTwice, onSocket, "^agent/(tools|approved)$", []string{"R46"}},
	{double.AsksAnyway, onStdio, "^agent/auto-mode$", []string{"R51", "R37"}},
	{double.KeepsPrompts, onSocket, "^agent/busy$", []string{"R42"}},
	{double.KeepsPrompts, onHTTP, "^agent/busy$", []string{"R42"}},
	{double.SilentInterrupt, onStdio, "^agent/(interrupt|cancel)$", []string{"3.5"}},
	{double.UnsortedTools, onHTTP, "^agent/summary$", []string{"R39"}},
	{double.TakeOverCancels, onSocket, "^agent/take-over$", []string{"D8"}},
	{double.HidesQuestions, onHTTP, "^agent/question-for-latecomers$", []string{"R73"}},
	{double.HidesQuestions, onSocket, "^agent/fold-of-questions$", []string{"R79"}},

	{double.WrongTotal, onStdio, "^agent/answers$", []string{"R38"}},
	{double.TwoRuns, onSocket, "^agent/busy$", []string{"R42", "R36"}},
	{double.NeverEndsInterrupted, onHTTP, "^agent/interrupt$", []string{"3.5", "R37"}},
	{double.AcceptsSecondAnswer, onStdio, "^agent/second-answer$", []string{"R52", "R53"}},
	{double.KeepsRequests, onSocket, "^agent/interrupt-question$", []string{"R66"}},
	{double.LosesEventOnResume, onSocket, "^agent/replay$", []string{"A43"}},
	{double.ReplaysOneTooMany, onHTTP, "^agent/replay(-in-run)?$", []string{"A43", "A48"}},
	{double.KeepsResponding, onSocket, "^agent/(fold|interrupt)$", []string{"R79", "R69"}},
	{double.LoserKeepsDriving, onHTTP, "^agent/take-over$", []string{"A27"}},
}

func TestEachDefectIsCaughtWithAnyAgent(t *testing.T) {
	t.Parallel()
	for _, c := range agentCatches {
		t.Run(string(c.on)+"/"+string(c.defect)+"/"+c.run, func(t *testing.T) {
			t.Parallel()
			c.catches(t, conformance.Config{Target: plainTarget(t, c.on, c.defect), Runtime: conformance.RuntimeAny, Prompts: plainPrompts})
		})
	}
	for _, d := range double.AgentDefects() {
		if !slices.ContainsFunc(agentCatches, func(c catch) bool { return c.defect == d }) {
			t.Errorf("defect %s is planted, but no test wants it caught", d)
		}
	}
}

func TestOtherAgentEndsTheRun(t *testing.T) {
	t.Parallel()
	configs := map[string]conformance.Config{"hosted": {Spawn: runnerCommand(t, "plain")}}
	for on := range targets {
		configs[string(on)] = conformance.Config{Target: plainTarget(t, on, "")}
	}
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := conformance.Run(t.Context(), c)
			if !errors.Is(err, conformance.ErrOtherAgent) || !strings.Contains(err.Error(), "--agent conformance") || !strings.Contains(err.Error(), "--runtime any") {
				t.Errorf("got error %v, want ErrOtherAgent and what to do", err)
			}
		})
	}
}

func TestWhatNeedsAnotherAgentIsSkipped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, run, reason string
		config            conformance.Config
	}{
		{"triggers", "^(run/busy|stream/same-for-all|resume/missed-items)$", "needs the conformance agent", conformance.Config{Runtime: conformance.RuntimeAny, Prompts: plainPrompts}},
		{"status", "^(framing/line-separators|answer/idempotent)$", "needs the conformance agent", conformance.Config{Runtime: conformance.RuntimeAny, Prompts: plainPrompts}},
		{"say", "^agent/(answers|fold)$", "needs a prompt that is answered", conformance.Config{Runtime: conformance.RuntimeAny}},
		{"long", "^agent/interrupt$", "needs a prompt that takes a while to answer", conformance.Config{Runtime: conformance.RuntimeAny, Prompts: conformance.Prompts{Say: "say hello"}}},
		{"ask", "^agent/denied$", "needs a prompt that leads to an approval", conformance.Config{Runtime: conformance.RuntimeAny, Prompts: conformance.Prompts{Say: "say hello"}}},
		{"tools", "^agent/(denied|tools|summary)$", "needs an agent that runs tools", conformance.Config{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.config.Target, c.config.Filter = plainTarget(t, onSocket, ""), regexp.MustCompile(c.run)
			if c.config.Runtime == "" {
				c.config.Target = socketTarget(t, "")
			}
			for _, r := range judge(t, c.config).Results {
				if r.Outcome != conformance.Skipped || r.Reason != c.reason {
					t.Errorf("%s: got %s %q %+v, want it skipped: %s", r.Name, r.Outcome, r.Reason, r.Failure, c.reason)
				}
			}
		})
	}
}

// judgeDefect judges a server with a planted defect. A run that has to wait for what
// never comes is kept short; if that names anything but the rules, the machine may
// have been slow, and the run is repeated with the usual patience.
func judgeDefect(t *testing.T, config conformance.Config, rules []string) conformance.Report {
	t.Helper()
	config.Patience = 1500 * time.Millisecond
	report := judge(t, config)
	slow := func(r conformance.Result) bool { return r.Failure != nil && !slices.Contains(rules, r.Failure.Rule) }
	if slices.ContainsFunc(report.Results, slow) {
		config.Patience = 0
		report = judge(t, config)
	}
	return report
}

// catches fails the test unless the run named one of the rules, and no other.
func (c catch) catches(t *testing.T, config conformance.Config) {
	t.Helper()
	config.Filter = regexp.MustCompile(c.run)
	report := judgeDefect(t, config, c.rules)
	if report.Count(conformance.Failed) == 0 {
		t.Fatalf("got no failure, want one of %v", c.rules)
	}
	for _, result := range report.Results {
		if f := result.Failure; f != nil && !slices.Contains(c.rules, f.Rule) {
			t.Errorf("%s: got rule %s (%s), want one of %v", result.Name, f.Rule, f.Message, c.rules)
		} else if f != nil && len(f.Exchange) == 0 {
			t.Errorf("%s: got no exchange with the failure", result.Name)
		}
	}
}
