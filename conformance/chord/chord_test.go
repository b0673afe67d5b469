//go:build unix

package chord_test

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
	"github.com/seed-028515a8/maestro/conformance/chord"
)

// asFake is the first argument of the test binary when it is the fake server.
const asFake = "fake-chord"

func TestMain(m *testing.M) {
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
func judge(t *testing.T, fault string, filter *regexp.Regexp, patience time.Duration) conformance.Report {
	t.Helper()
	report, err := chord.Suite().Run(t.Context(), conformance.Config{
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
	"banner":            "start/ready",
	"no-payload":        "line/envelopes",
	"mute":              "subscribe/default",
	"deliver-all":       "subscribe/one",
	"adds":              "subscribe/replace",
	"unknown-is-all":    "subscribe/unknown",
	"empty-is-all":      "subscribe/nothing",
	"bad-resets":        "subscribe/bad",
	"deaf-to-lists":     "line/not-an-object",
	"empty-is-bad":      "line/empty",
	"other-words":       "line/unknown-type",
	"strict":            "line/unknown-members",
	"any-length":        "line/too-long",
	"always-busy":       "status/first",
	"never-busy":        "status/streaming",
	"hides-pending":     "status/always",
	"models-ok":         "models/commands",
	"models-differ":     "models/message",
	"local-to-model":    "send/local-only",
	"two-idles":         "turn/text",
	"no-empty-message":  "turn/rounds",
	"late-message":      "turn/message-first",
	"idle-activity":     "turn/activities",
	"idle-each":         "turn/while-busy",
	"never-failed":      "turn/model-fails",
	"todos-text":        "turn/todos",
	"unmarked":          "turn/long-text",
	"pending-stays":     "confirm/status",
	"deny-runs":         "confirm/allow-deny",
	"any-id":            "confirm/other-id",
	"bad-scope-allows":  "confirm/bad-scope",
	"no-rules":          "rule/session",
	"keeps-all":         "rule/forgotten",
	"keeps-none":        "rule/project rule/global",
	"first-args":        "confirm/final-args confirm/bad-final-args",
	"answers-sorted":    "question/multiple",
	"cancel-ends":       "question/cancelled",
	"send-allows":       "pending/confirm",
	"question-waits":    "pending/question",
	"confirm-waits":     "pending/both",
	"refused-dismisses": "pending/refused-message",
	"partial":           "cancel/streaming",
	"cancel-keeps":      "cancel/pending",
	"taints":            "cancel/idle",
	"stuck":             "cancel/next",
	"exit-3":            "end/idle",
	"drains":            "end/streaming",
	"orphans":           "end/tool",
	"starts-anyway":     "start/failure",
	"new-id":            "resume/known",
	"resumes-any":       "resume/unknown",
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
	for _, s := range chord.Suite().Scenarios {
		if !broken[s.Name] {
			t.Errorf("%s: got no fault that breaks it", s.Name)
		}
	}
}

// TestEveryRuleHasAScenario holds the list of rules against the scenarios.
func TestEveryRuleHasAScenario(t *testing.T) {
	t.Parallel()
	suite, seen := chord.Suite(), map[string]bool{}
	for _, s := range suite.Scenarios {
		if seen[s.Name] || s.Title == "" || len(s.Rules) == 0 {
			t.Errorf("%q: got no title or rules, or a name that is not unique", s.Name)
		}
		seen[s.Name] = true
	}
	for i := range 46 {
		code := fmt.Sprint("C", i+1)
		if len(suite.Rules) <= i || suite.Rules[i].Code != code {
			t.Fatalf("got no rule %s as number %d", code, i+1)
		}
		if !slices.ContainsFunc(suite.Scenarios, func(s conformance.Scenario) bool { return slices.Contains(s.Rules, code) }) {
			t.Errorf("got no scenario about %s", code)
		}
	}
}
