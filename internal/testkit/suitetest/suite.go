// Package suitetest tests conformance suites for servers on standard streams: against a fake
// server, which is the test binary, with one fault at a time. It has what the fakes share.
package suitetest

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
)

// asFake is the first argument of the test binary when it is the fake server.
const asFake = "fake-server"

// Main runs the tests, or the fake server with a fault and flags.
func Main(m *testing.M, serve func(fault string, flags []string) int) {
	if len(os.Args) > 2 && os.Args[1] == asFake {
		os.Exit(serve(os.Args[2], os.Args[3:]))
	}
	// A child under the race detector would linger for a second when it ends.
	if err := os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0")); err != nil {
		panic(err) // the name is valid
	}
	if err := flag.Set("test.parallel", "8"); err != nil { // tests mostly wait
		panic(err) // the flag exists
	}
	os.Exit(m.Run())
}

// judge runs scenarios against the fake with a fault.
func judge(t *testing.T, suite *conformance.Suite, fault string, filter *regexp.Regexp, patience time.Duration) []conformance.Result {
	t.Helper()
	report, err := suite.Run(t.Context(), conformance.Config{
		Target: fmt.Sprintf("stdio:'%s' %s %s", os.Args[0], asFake, fault), Filter: filter,
		Patience: patience, Timeout: 2 * time.Minute, Parallel: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report.Results
}

// CorrectServerPasses tests that all scenarios pass if the fake has no fault.
func CorrectServerPasses(t *testing.T, suite *conformance.Suite) {
	t.Parallel()
	for _, r := range judge(t, suite, "none", nil, 20*time.Second) {
		if r.Outcome != conformance.Passed {
			t.Errorf("%s: got %s %s %+v, want a pass", r.Name, r.Outcome, r.Reason, r.Failure)
		}
	}
}

// EveryScenarioCanFail gives the fake one fault at a time. The scenarios that a fault breaks,
// separated by spaces, must fail, and for their own rule.
func EveryScenarioCanFail(t *testing.T, suite *conformance.Suite, faults map[string]string) {
	t.Parallel()
	broken := map[string]bool{}
	for fault, names := range faults {
		filter := regexp.MustCompile("^(" + strings.ReplaceAll(names, " ", "|") + ")$")
		for _, name := range strings.Fields(names) {
			broken[name] = true
		}
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			for _, r := range judge(t, suite, fault, filter, 2*time.Second) {
				if r.Failure == nil || !slices.Contains(r.Rules, r.Failure.Rule) {
					t.Errorf("%s: got %s %s %+v, want a failure of %v", r.Name, r.Outcome, r.Reason, r.Failure, r.Rules)
				}
			}
		})
	}
	for _, s := range suite.Scenarios {
		if !broken[s.Name] {
			t.Errorf("%s: got no fault that breaks it", s.Name)
		}
	}
}

// EveryRuleHasAScenario holds the list of n rules, whose codes begin with a letter, against
// the scenarios.
func EveryRuleHasAScenario(t *testing.T, suite *conformance.Suite, letter string, n int) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range suite.Scenarios {
		if seen[s.Name] || s.Title == "" || len(s.Rules) == 0 {
			t.Errorf("%q: got no title or rules, or a name that is not unique", s.Name)
		}
		seen[s.Name] = true
	}
	for i := range n {
		code := fmt.Sprint(letter, i+1)
		if len(suite.Rules) <= i || suite.Rules[i].Code != code {
			t.Fatalf("got no rule %s as number %d", code, i+1)
		}
		if !slices.ContainsFunc(suite.Scenarios, func(s conformance.Scenario) bool { return slices.Contains(s.Rules, code) }) {
			t.Errorf("got no scenario about %s", code)
		}
	}
}
