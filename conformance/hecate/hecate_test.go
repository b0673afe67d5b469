package hecate

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/conformance"
)

// TestMain makes the test binary a driver of the fake server too.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "drive" {
		resp, err := http.PostForm(os.Getenv("HECATE_URL")+"/drive", url.Values{"kind": {os.Getenv("HECATE_PROMPT")}})
		if err != nil || resp.StatusCode != http.StatusNoContent {
			fmt.Fprintln(os.Stderr, "drive:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := flag.Set("test.parallel", "4"); err != nil { // tests mostly wait, but not with -race
		panic(err) // the flag exists
	}
	goleak.VerifyTestMain(m)
}

// judge runs the suite on a fake server.
func judge(t *testing.T, f *fake, pattern string, change func(*conformance.Config)) conformance.Report {
	t.Helper()
	c := conformance.Config{Target: f.URL, Driver: os.Args[0] + " drive", Prompts: conformance.DefaultPrompts(), Secret: fakeSecret, ApprovalTimeout: fakeTimeout,
		Filter: regexp.MustCompile(pattern), Timeout: 5 * time.Minute, Patience: time.Minute, Parallel: 4}
	if change != nil {
		change(&c)
	}
	report, err := newSuite(2*fakeHeartbeat).Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestACorrectServerPasses(t *testing.T) {
	t.Parallel()
	for fault, pattern := range map[string]string{"": "^(approval/[^t]|[^a])", otherWays: "^(approval/[^t]|[^a])", "timeout": "approval/timeout"} {
		for _, r := range judge(t, newFake(t, fault), pattern, nil).Results {
			want := conformance.Passed
			if r.Name == "log/unchanged" { // there is no earlier log
				want = conformance.Skipped
			}
			if r.Name == "log/core-types" { // the fake has a type of its own
				want = conformance.Advised
			}
			if r.Outcome != want {
				t.Errorf("%s: %s: got %s %s %+v, want %s", fault, r.Name, r.Outcome, r.Reason, r.Failure, want)
			}
		}
	}
}

// TestASlowServerPasses has a server that is silent on the cross-run stream before it shows the runs
// that exist. None of them may be taken for a run that the suite starts.
func TestASlowServerPasses(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"", otherWays} {
		f := newFake(t, fault)
		f.slow = true
		for _, r := range judge(t, f, "^(list/same-bytes|approval/race)$", nil).Results {
			if r.Outcome != conformance.Passed {
				t.Errorf("%q: %s: got %s %s %+v, want a pass", fault, r.Name, r.Outcome, r.Reason, r.Failure)
			}
		}
	}
}

// TestRules names E1 to E45: each has a scenario, or says why it has none.
func TestRules(t *testing.T) {
	t.Parallel()
	u := Suite()
	listed, cited := map[string]bool{}, map[string]bool{}
	for _, sc := range u.Scenarios {
		for _, code := range sc.Rules {
			cited[code] = true
		}
	}
	for _, r := range u.Rules {
		listed[r.Code] = true
		if cited[r.Code] == (r.Checked != "") {
			t.Errorf("%s: got cited %t and checked by %q, want one of them", r.Code, cited[r.Code], r.Checked)
		}
	}
	for code := range cited {
		if !listed[code] {
			t.Errorf("%s is cited by a scenario and not in the list of rules", code)
		}
	}
	for n := range 45 {
		if code := fmt.Sprint("E", n+1); !listed[code] {
			t.Errorf("%s is not in the list of rules", code)
		}
	}
}

// faults are the faults that each scenario finds.
var faults = map[string][]string{
	"list/same-bytes":      {"unstable"},
	"list/pages":           {"no-limit"},
	"list/after":           {"inclusive"},
	"list/bad-cursor":      {"lenient"},
	"list/most":            {"no-cap"},
	"list/exhausted":       {"null-list"},
	"list/unknown":         {"any-task"},
	"stream/same-bytes":    {"restyled"},
	"stream/opens":         {"late"},
	"stream/resume":        {"no-resume"},
	"stream/larger-cursor": {"query-wins"},
	"stream/live":          {"seam"},
	"stream/heartbeat":     {"silent", "beats-with-id"},
	"stream/pruned-cursor": {"pruned-cursor"},
	"stream/slow":          {"drops"},
	"feed/concurrent":      {"run-ids"},
	"feed/resume":          {"feed-skips"},
	"feed/filters":         {"no-filter"},
	"output/coalesced":     {"many-chunks"},
	"secret/hidden":        {"leak"},
	"approval/approve":     {"eager"},
	"approval/reject":      {"runs-anyway"},
	"approval/second":      {"many-decisions", "resolved-twice"},
	"approval/race":        {"many-decisions"},
	"approval/invalid":     {"any-decision"},
	"approval/cancel":      {"orphan"},
	"approval/timeout":     {"timeout-resolves"},
	"approval/resource":    {"always-pending"},
	"log/schema":           {"extra-member"},
	"log/ids":              {"lower-ids"},
	"log/unique-ids":       {"same-ids"},
	"log/numbering":        {"numbers-skip"},
	"log/data":             {"null-data"},
	"log/one-end":          {"after-the-end"},
	"log/order":            {"started-first"},
	"log/text":             {"other-text"},
	"log/tools":            {"tool-without-end"},
	"log/chunks":           {"offsets-in-characters", "cut-characters"},
	"log/exit":             {"early-exit"},
	"log/env-keys":         {"env-values"},
	"log/secret":           {"leak"},
	"log/approvals":        {"resolved-twice", "unknown-decision"},
	"log/pruned":           {"no-marker", "wrong-range"},
	"log/unchanged":        nil, // see TestEventsDoNotChange
	"log/resumed":          {"resumes-itself"},
	"log/thinking":         {"thinks"},
	"log/retired":          {"retired"},
	"log/totals":           {"wrong-total"},
	"log/vocabulary":       {"both-vocabularies"},
	"log/members":          {"no-worker"},
	"log/core-types":       nil, // gives advice
}

// alsoDriven are scenarios that make the runs which those about logs judge.
var alsoDriven = map[string]string{"log/secret": "secret/hidden", "log/approvals": "approval/race"}

func TestEveryScenarioCanFail(t *testing.T) {
	t.Parallel()
	for _, sc := range Suite().Scenarios {
		found, listed := faults[sc.Name]
		if !listed {
			t.Errorf("%s: got no fault that it finds", sc.Name)
		}
		for _, fault := range found {
			t.Run(sc.Name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				pattern := "^" + sc.Name + "$"
				if other := alsoDriven[sc.Name]; other != "" {
					pattern += "|^" + other + "$"
				}
				var r conformance.Result
				for _, patience := range []time.Duration{time.Second, time.Minute} { // the machine may be slow
					report := judge(t, newFake(t, fault), pattern, func(c *conformance.Config) { c.Patience, c.Timeout = patience, 5*patience })
					r = report.Results[slices.IndexFunc(report.Results, func(r conformance.Result) bool { return r.Name == sc.Name })]
					if r.Failure != nil && slices.Contains(sc.Rules, r.Failure.Rule) {
						break
					}
				}
				if r.Failure == nil || !slices.Contains(sc.Rules, r.Failure.Rule) {
					t.Errorf("got %s %s %+v, want a failure of %v", r.Outcome, r.Reason, r.Failure, sc.Rules)
				}
			})
		}
	}
}

// TestEventsDoNotChange judges a server twice (E5, E35).
func TestEventsDoNotChange(t *testing.T) {
	t.Parallel()
	f := newFake(t, "")
	saved := filepath.Join(t.TempDir(), "before.json")
	judge(t, f, "^log/schema$", func(c *conformance.Config) { c.Save = saved })
	again := func() *conformance.Result {
		return &judge(t, f, "^log/unchanged$", func(c *conformance.Config) { c.Earlier = saved }).Results[0]
	}
	if r := again(); r.Outcome != conformance.Passed {
		t.Errorf("got %s %s %+v, want a pass", r.Outcome, r.Reason, r.Failure)
	}
	f.mu.Lock()
	kept := f.log[2]
	kept.raw = bytes.Replace(kept.raw, []byte("000000001Z"), []byte("000000002Z"), 1)
	f.mu.Unlock()
	if r := again(); r.Failure == nil || r.Failure.Rule != "E5" {
		t.Errorf("got %s %s %+v, want a failure of E5", r.Outcome, r.Reason, r.Failure)
	}
	f.mu.Lock()
	f.log = slices.Delete(f.log, 2, 3)
	kept.run.entries = slices.DeleteFunc(kept.run.entries, func(e *entry) bool { return e == kept })
	f.mu.Unlock()
	if r := again(); r.Failure == nil || r.Failure.Rule != "E35" {
		t.Errorf("got %s %s %+v, want a failure of E35", r.Outcome, r.Reason, r.Failure)
	}
}

// TestWithoutADriver judges the runs there are and skips the rest with a reason.
func TestWithoutADriver(t *testing.T) {
	t.Parallel()
	report := judge(t, newFake(t, ""), "", func(c *conformance.Config) { c.Driver, c.Secret = "", "" })
	if n := report.Count(conformance.Failed); n > 0 {
		t.Errorf("got %d failures, want none: %+v", n, report.Results)
	}
	for _, r := range report.Results {
		if skipped := r.Outcome == conformance.Skipped; skipped && r.Reason == "" || !skipped && strings.HasPrefix(r.Name, "approval/") {
			t.Errorf("%s: got %s %q, want approvals to be skipped with a reason", r.Name, r.Outcome, r.Reason)
		}
	}
	if report.Count(conformance.Passed) < 15 {
		t.Errorf("got %d scenarios that passed, want those about runs that exist", report.Count(conformance.Passed))
	}
}

func TestADriverThatFailsIsNotTheServersFault(t *testing.T) {
	t.Parallel()
	report := judge(t, newFake(t, ""), "^feed/concurrent$", func(c *conformance.Config) { c.Driver = "sh -c 'echo no key >&2; exit 3'" })
	if r := report.Results[0]; r.Outcome != conformance.Skipped || !strings.Contains(r.Reason, "exit status 3: no key") {
		t.Errorf("got %s %q, want it skipped with what the driver said", r.Outcome, r.Reason)
	}
}

func TestATargetThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{"http://127.0.0.1:1": "refused", "ws://x": "want http://", "file:testdata/none.json": "no such file"} {
		if _, err := Suite().Run(t.Context(), conformance.Config{Target: target}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", target, err, want)
		}
	}
}

func TestFilesAreJudged(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"agent-loop-success", "approval-policy"} {
		report, err := Suite().Run(t.Context(), conformance.Config{Target: "file:testdata/" + name + ".json"})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range report.Results {
			if offline := strings.HasPrefix(r.Name, "log/"); r.Failure != nil || offline == (r.Reason == "needs a server") {
				t.Errorf("%s: %s: got %s %q %+v, want a pass, or a skip of what needs a server", name, r.Name, r.Outcome, r.Reason, r.Failure)
			}
		}
		if report.Count(conformance.Passed) < 10 || report.Count(conformance.Advised) > 0 {
			t.Errorf("%s: got %d passed and %d advised, want at least 10 and none", name, report.Count(conformance.Passed), report.Count(conformance.Advised))
		}
	}
}
