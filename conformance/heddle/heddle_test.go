//go:build unix

package heddle_test

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
	"github.com/seed-028515a8/maestro/conformance/heddle"
)

// asFake is the first argument of the test binary when it is the fake server.
const asFake = "fake-heddle"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asFake {
		serve(os.Args[2])
		return
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
func judge(t *testing.T, fault string, filter *regexp.Regexp, patience time.Duration) conformance.Report {
	t.Helper()
	report, err := heddle.Suite().Run(t.Context(), conformance.Config{
		Target: fmt.Sprintf("stdio:'%s' %s %s", os.Args[0], asFake, fault), Filter: filter,
		Patience: patience, Timeout: 2 * time.Minute, Parallel: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestCorrectServerPasses(t *testing.T) {
	t.Parallel()
	for _, r := range judge(t, "none", nil, 20*time.Second).Results {
		if r.Outcome != conformance.Passed {
			t.Errorf("%s: got %s %s %+v, want a pass", r.Name, r.Outcome, r.Reason, r.Failure)
		}
	}
}

// faults are those of the fake, and the scenarios that each must break.
var faults = map[string]string{
	"banner":               "init/silent-start",
	"blank-lines":          "line/objects",
	"init-twice":           "init/answer",
	"one-session":          "init/sessions-differ",
	"exit-0":               "init/other-major",
	"picky":                "init/other-minor",
	"eager":                "init/first",
	"deaf-to-junk":         "line/not-json",
	"other-words":          "line/not-a-request",
	"lenient":              "line/bad-requests",
	"strict":               "line/unknown-fields",
	"from-one":             "event/numbers",
	"numbers-go-on":        "event/numbers-restart",
	"late-event":           "event/before-result",
	"silent-cancel":        "result/once",
	"other-response":       "result/response",
	"no-beats":             "heartbeat/running",
	"idle-beats":           "heartbeat/idle",
	"fast-default":         "heartbeat/default",
	"no-tool-end":          "tool/pairs",
	"calls-reversed":       "tool/calls-made",
	"forgets-calls":        "tool/interrupted-call",
	"long-preview":         "tool/preview",
	"any-tool":             "tool/allow-list",
	"no-loops":             "tool/loop",
	"permission-forgotten": "tool/permission",
	"counts-all":           "status/counts",
	"eof-aborts":           "end/input",
	"hasty":                "end/all-at-once",
	"nameless":             "result/names",
	"other-message":        "result/model-fails",
	"odd-latency":          "result/latencies",
	"deaf-to-cancel":       "cancel/running",
	"cancel-ok":            "cancel/no-answer",
	"forgets-cancels":      "cancel/waiting",
	"orphans":              "cancel/tool",
	"stuck":                "cancel/next",
	"endless":              "config/max-iterations",
	"relative-root":        "config/isolated",
	"all-new":              "config/older-version",
	"extra-key":            "golden/normal golden/cancel golden/version-mismatch",
	"no-failure":           "golden/error",
}

// TestEveryScenarioCanFail gives the fake one fault at a time. The scenarios that the
// fault breaks must fail, and for their own rule.
func TestEveryScenarioCanFail(t *testing.T) {
	t.Parallel()
	broken := map[string]bool{}
	for fault, names := range faults {
		filter := regexp.MustCompile("^(" + strings.ReplaceAll(names, " ", "|") + ")$")
		for _, name := range strings.Fields(names) {
			broken[name] = true
		}
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			for _, r := range judge(t, fault, filter, 2*time.Second).Results {
				if r.Failure == nil || !slices.Contains(r.Rules, r.Failure.Rule) {
					t.Errorf("%s: got %s %s %+v, want a failure of %v", r.Name, r.Outcome, r.Reason, r.Failure, r.Rules)
				}
			}
		})
	}
	for _, s := range heddle.Suite().Scenarios {
		if !broken[s.Name] {
			t.Errorf("%s: got no fault that breaks it", s.Name)
		}
	}
}

// TestEveryRuleHasAScenario holds the list of rules against the scenarios.
func TestEveryRuleHasAScenario(t *testing.T) {
	t.Parallel()
	suite, seen := heddle.Suite(), map[string]bool{}
	for _, s := range suite.Scenarios {
		if seen[s.Name] || s.Title == "" || len(s.Rules) == 0 {
			t.Errorf("%q: got no title or rules, or a name that is not unique", s.Name)
		}
		seen[s.Name] = true
	}
	for i := range 40 {
		code := fmt.Sprint("H", i+1)
		if len(suite.Rules) <= i || suite.Rules[i].Code != code {
			t.Fatalf("got no rule %s as number %d", code, i+1)
		}
		if !slices.ContainsFunc(suite.Scenarios, func(s conformance.Scenario) bool { return slices.Contains(s.Rules, code) }) {
			t.Errorf("got no scenario about %s", code)
		}
	}
}
