package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
)

func TestScenariosHaveUniqueNamesTitlesAndRules(t *testing.T) {
	all := conformance.Scenarios()
	for transport, least := range map[conformance.Transport]int{conformance.Stdio: 15, conformance.Socket: 90, conformance.HTTP: 150, conformance.Hosted: 50, conformance.Anywhere: 100} {
		n := 0
		for _, s := range all {
			if s.Needs.Transport == transport {
				n++
			}
		}
		if n < least {
			t.Errorf("got %d scenarios for %s alone, want %d at least", n, transport, least)
		}
	}
	name := regexp.MustCompile(`^[a-z]+/[a-z0-9-]+$`)
	rule := regexp.MustCompile(`^([RAD][0-9]+|[0-9]+\.[0-9]+)$`)
	seen := map[string]bool{}
	for _, s := range all {
		if seen[s.Name] || !name.MatchString(s.Name) {
			t.Errorf("got name %q, want group/promise, once", s.Name)
		}
		seen[s.Name] = true
		if s.Title == "" || len(s.Rules) == 0 || s.Run == nil {
			t.Errorf("%s: got no title, rule or story", s.Name)
		}
		for _, r := range s.Rules {
			if !rule.MatchString(r) {
				t.Errorf("%s: got rule %q, want a number such as R36, A44, D7 or 9.5", s.Name, r)
			}
		}
	}
}

// failing is a report with a failure, a pass and a skip in it.
func failing(t *testing.T) conformance.Report {
	t.Helper()
	c := subject{on: onSocket, faults: "server snapshot set /snapshot.state.last_error=null"}.config(t)
	c.Filter = regexp.MustCompile(`^(state/fresh|socket/unknown-session|framing/crlf)$`)
	return judge(t, c)
}

// writeText writes a report as a printer does.
func writeText(w io.Writer, r conformance.Report) error {
	p := conformance.NewPrinter(w, conformance.Maestro())
	for i := range r.Results {
		p.Result(&r.Results[i])
	}
	return p.Sum(&r)
}

func TestReportShowsRuleAndExchangeOfAFailure(t *testing.T) {
	t.Parallel()
	report := failing(t)
	if report.OK() || report.Count(conformance.Failed) != 1 || report.Count(conformance.Passed) != 1 || report.Count(conformance.Skipped) != 1 {
		t.Fatalf("got %+v, want one failure, one pass and one skip", report.Results)
	}
	var text bytes.Buffer
	if err := writeText(&text, report); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fail    state/fresh", "A47: ", "/last_error", `alice > {"type":"hello"`, `alice < {"type":"ws.attached"`,
		"pass    socket/unknown-session", "(needs a stdio target)", "1 passed, 1 failed, 1 skipped", "failed, by rule:\n  A47 (1): ", "\n      state/fresh: ", "--explain A47\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got text without %q:\n%s", want, text.String())
		}
	}
}

// TestFailureNamesTheLastTextBeforeAWait is about a wait that other texts came before.
func TestFailureNamesTheLastTextBeforeAWait(t *testing.T) {
	t.Parallel()
	c := subject{on: onStdio, faults: "server response_end drop"}.config(t)
	c.Patience, c.Filter = time.Second, regexp.MustCompile(`^interrupt/ends-run$`)
	report := judge(t, c)
	f := report.Results[0].Failure
	if f == nil {
		t.Fatalf("got %+v, want a failure", report.Results)
	}
	_, last, found := strings.Cut(f.Message, "waited up to 1s for it, until ")
	_, last, named := strings.Cut(last, "the last text received before was, at ")
	at, text, _ := strings.Cut(last, ": ")
	if !found || !named || !strings.Contains(strings.Join(f.Exchange, "\n"), at+" alice < "+text) {
		t.Errorf("got %q, want the time of the wait's end, and a text of the exchange with its time", f.Message)
	}
}

// TestResultsAreToldInOrderUntilTheRunIsCancelled is about a run that is cancelled after
// its first result.
func TestResultsAreToldInOrderUntilTheRunIsCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var told []string
	c := subject{on: onStdio}.config(t)
	c.Parallel, c.Filter = 1, regexp.MustCompile("^run/")
	c.Each = func(r *conformance.Result) {
		told = append(told, r.Name)
		cancel()
	}
	report, err := conformance.Maestro().Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range report.Results {
		if i >= len(told) || told[i] != r.Name || (r.Outcome == conformance.Passed) != (i == 0) || r.Outcome == conformance.Failed {
			t.Errorf("result %d: got %s %s, want all told in order, the first passed and the others skipped: %q", i, r.Outcome, r.Name, told)
		}
	}
	var text bytes.Buffer
	if err := writeText(&text, report); err != nil || report.OK() || !strings.Contains(text.String(), ": incomplete: 1 passed, 0 failed, ") {
		t.Errorf("got OK %t, %v and %s, want a report that is marked as incomplete and not OK", report.OK(), err, text.String())
	}
}

func TestReportIsReadableByMachines(t *testing.T) {
	t.Parallel()
	report := failing(t)
	var text bytes.Buffer
	if err := report.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var object struct {
		Failed  int `json:"failed"`
		Results []struct {
			Name    string
			Outcome string
			Failure *struct{ Rule string }
		}
	}
	if err := json.Unmarshal(text.Bytes(), &object); err != nil {
		t.Fatal(err)
	}
	if object.Failed != 1 || len(object.Results) != 3 {
		t.Errorf("got %+v, want three results, one failed", object)
	}
	for _, r := range object.Results {
		if (r.Outcome == "fail") != (r.Failure != nil && r.Failure.Rule == "A47") {
			t.Errorf("got %+v, want a failure of rule A47 exactly where the outcome is fail", r)
		}
	}
	text.Reset()
	if err := report.WriteJUnit(&text); err != nil {
		t.Fatal(err)
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Name string `xml:"name,attr"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(text.Bytes(), &suite); err != nil {
		t.Fatal(err)
	}
	if suite.Tests != 3 || suite.Failures != 1 || suite.Skipped != 1 || len(suite.Cases) != 3 {
		t.Errorf("got %+v, want 3 tests, 1 failure, 1 skipped", suite)
	}
}

func TestRunWithNothingJudgedIsNotOK(t *testing.T) {
	c := subject{on: onSocket}.config(t)
	c.Filter = regexp.MustCompile(`^framing/crlf$`)
	report := judge(t, c)
	if report.OK() {
		t.Errorf("got OK for a run that skipped everything: %+v", report.Results)
	}
}

func TestRunRefusesWhatIsNoTarget(t *testing.T) {
	for _, target := range []string{"", "stdio:", "ftp://127.0.0.1:1", "http:", "stdio:'unfinished"} {
		if _, err := conformance.Maestro().Run(t.Context(), conformance.Config{Target: target}); err == nil {
			t.Errorf("target %q: got no error, want one", target)
		}
	}
}

func TestServerThatCannotBeReachedFails(t *testing.T) {
	t.Parallel()
	one := regexp.MustCompile(`^run/prompt$`)
	report := judge(t, conformance.Config{Target: "stdio:/no/such/program", Patience: time.Second, Filter: one})
	if report.Count(conformance.Failed) != 1 {
		t.Errorf("got %+v, want one failure", report.Results)
	}
	if _, err := conformance.Maestro().Run(t.Context(), conformance.Config{Target: "ws://127.0.0.1:1", Filter: one}); err == nil {
		t.Error("got a report of a server that nobody can reach, want an error")
	}
	none := regexp.MustCompile(`^no such scenario$`)
	if _, err := conformance.Maestro().Run(t.Context(), conformance.Config{Target: "stdio:true", Filter: none}); err == nil {
		t.Error("got a report of no scenario, want an error")
	}
}

// TestScenarioTimesOut is about a server that accepts and then says nothing.
func TestScenarioTimesOut(t *testing.T) {
	t.Parallel()
	report := judge(t, conformance.Config{Target: "stdio:sleep 30", Timeout: 500 * time.Millisecond, Filter: regexp.MustCompile(`^run/prompt$`)})
	if r := report.Results[0]; r.Outcome != conformance.Failed || r.Duration > 10*time.Second {
		t.Errorf("got %s after %s, want a failure soon after the timeout", r.Outcome, r.Duration)
	}
}

func TestStrictServerIsHeldToStrictRules(t *testing.T) {
	t.Parallel()
	c := subject{on: onSocket, strict: true}.config(t)
	c.Filter = regexp.MustCompile(`^framing/(null|unknown)`)
	passes(t, judge(t, c))
	c.Strict = false
	if report := judge(t, c); report.Count(conformance.Failed) != 2 {
		t.Errorf("got %d failures, want a strict server to fail the two scenarios for tolerant ones", report.Count(conformance.Failed))
	}
}

func TestSkipsSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	wants := map[string]string{"framing/crlf": "needs a stdio target", "run/prompt": "needs a stdio or ws target", "socket/bye": "needs a ws target",
		"hosted/identity": "needs a hosted runner to spawn", "token/required": "needs connection tokens to be required",
		"route/no-credential": "needs a server with authentication", "post/unknown-key-refused": "needs a strict server", "route/health": ""}
	c := subject{on: onHTTP}.config(t)
	c.Filter = regexp.MustCompile(`^(framing/crlf|run/prompt|socket/bye|hosted/identity|token/required|route/no-credential|post/unknown-key-refused|route/health)$`)
	report := judge(t, c)
	for _, r := range report.Results {
		if want, listed := wants[r.Name]; !listed || r.Reason != want {
			t.Errorf("%s: got %s (%s), want the reason %q", r.Name, r.Outcome, r.Reason, want)
		}
	}
	c = subject{on: onSocket}.config(t)
	c.Filter = regexp.MustCompile("^(route/health|run/prompt)$")
	socket := judge(t, c)
	if got := socket.Count(conformance.Skipped); got != 1 {
		t.Errorf("got %d skipped over WebSocket, want the scenario over HTTP alone", got)
	}
}

// TestRateLimitsAreWaitedOut is about a server that says so before it answers.
func TestRateLimitsAreWaitedOut(t *testing.T) {
	t.Parallel()
	var refused atomic.Int32
	inner := proxy(t, subject{on: onHTTP}.config(t).Target, "")
	url := serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refused.Add(1)%3 == 1 {
			w.Header().Set("Retry-After", "0")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"error":"too many requests","error_type":"rate_limited","code":"rate_limited","retryable":true,"details":[]}`))
			return
		}
		inner.ServeHTTP(w, r)
	}))
	passes(t, judge(t, conformance.Config{Target: url, Filter: regexp.MustCompile("^(sse/snapshot-first|post/answer|return/missed-items)$")}))
}

func TestReportsShowAdviceOnce(t *testing.T) {
	t.Parallel()
	c := subject{on: onHTTP, public: true, faults: noRetryable}.config(t)
	c.Filter = regexp.MustCompile(`^post/(missing-field|wrong-type)$`)
	report := judge(t, c)
	if !report.OK() || report.Count(conformance.Advised) != 1 || report.Count(conformance.Passed) != 1 {
		t.Fatalf("got %+v, want one pass with advice and one without", report.Results)
	}
	for _, c := range []struct {
		name  string
		write func(io.Writer) error
		want  []string
	}{
		{"text", func(w io.Writer) error { return writeText(w, report) }, []string{"advice  post/missing-field", "1.4: Say in every refusal", "/retryable Required property", "1 passed, 1 passed with advice, 0 failed"}},
		{"json", report.WriteJSON, []string{`"outcome": "advice"`, `"rule": "1.4"`, `"advised": 1`}},
		{"junit", report.WriteJUnit, []string{`failures="0"`, `<property name="advised" value="1">`, "<system-out>advice 1.4: Say in every refusal"}},
	} {
		var text bytes.Buffer
		if err := c.write(&text); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if n := strings.Count(text.String(), want); n != 1 {
				t.Errorf("%s: got %d times %q, want once:\n%s", c.name, n, want, text.String())
			}
		}
	}
}

// TestServerThatStartsSlowlyPasses is about a server that writes ready after a longer time
// than scenarios wait for other messages.
func TestServerThatStartsSlowlyPasses(t *testing.T) {
	t.Parallel()
	c := subject{on: onStdio}.config(t)
	command, _ := strings.CutPrefix(c.Target, "stdio:")
	c.Target = "stdio:sh -c 'sleep 3; exec \"$@\"' sh " + command
	c.Patience, c.Filter = 2*time.Second, regexp.MustCompile("^handshake/ready-first$")
	passes(t, judge(t, c))
}

// TestScenariosThatJudgeNothingDoNotPass is about servers without what a scenario is about.
func TestScenariosThatJudgeNothingDoNotPass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		faults, scenario, why string
		want                  conformance.Outcome
	}{
		{"client hello role=viewer set role=nobody", "handshake/viewer-capabilities", "the server refuses a viewer that offers nothing", conformance.Skipped},
		{`server hello_ok set server_capabilities.server_requests=["approval"]`, "handshake/viewer-capabilities", "the server asks for approvals only", conformance.Skipped},
		{"client prompt sub __maestro_conformance_hang__=>hello", "interrupt/ends-silent-run", "", conformance.Failed},
		{"client prompt sub __maestro_conformance_[a-z_]*__=>hello", "request/auto-mode", "the server asks for no approval in mode prompt", conformance.Skipped},
		{"client prompt sub __maestro_conformance_[a-z_]*__=>hello", "request/fail-mode", "the server asks for no approval in mode prompt", conformance.Skipped},
		{noUtilities, "framing/missing-field", "", conformance.Passed},
		{noUtilities, "handshake/hello-is-optional", "", conformance.Passed},
	} {
		j := subject{on: onStdio, faults: c.faults}.config(t)
		j.Patience, j.Filter = 2*time.Second, regexp.MustCompile("^"+c.scenario+"$")
		if r := judge(t, j).Results[0]; r.Outcome != c.want || r.Reason != c.why {
			t.Errorf("%s with %s: got %s %s %+v, want %s %s", c.scenario, c.faults, r.Outcome, r.Reason, r.Failure, c.want, c.why)
		}
	}
}

// noUtilities makes a server one that knows no utility.
const noUtilities = `server hello_ok set server_capabilities.utility_operations=[]
client utility_command_start set type=nobody_knows_it
client utility_file_read set type=nobody_knows_it`

// TestDuplicateCapabilitiesBreakTheirOwnRule is about a server that repeats them in a
// hello_ok, which then has no valid shape.
func TestDuplicateCapabilitiesBreakTheirOwnRule(t *testing.T) {
	t.Parallel()
	for _, on := range []conformance.Transport{onStdio, onSocket} {
		c := subject{on: on, faults: `client hello delete capabilities
server hello_ok #2 set capabilities={"server_requests":["approval","approval"]}`}.config(t)
		c.Filter = regexp.MustCompile("^framing/duplicate-capability$")
		if f := judge(t, c).Results[0].Failure; f == nil || f.Rule != "R12" {
			t.Errorf("on %s: got %+v, want a failure of R12", on, f)
		}
	}
}

// TestFailuresAreGroupedByRule is about the end of a report: the rule that most scenarios
// failed by is first, and the names of those scenarios are bounded.
func TestFailuresAreGroupedByRule(t *testing.T) {
	t.Parallel()
	var report conformance.Report
	for i, rule := range strings.Fields("A5 R12 R5 R36 R36 R12" + strings.Repeat(" R36", 9)) {
		failure := &conformance.Failure{Rule: rule, Message: "alice: " + strings.Repeat("x", i) + "\ny"}
		report.Results = append(report.Results, conformance.Result{Name: fmt.Sprintf("run/%d", i), Outcome: conformance.Failed, Failure: failure})
	}
	var text strings.Builder
	if err := conformance.NewPrinter(&text, conformance.Maestro()).Sum(&report); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/sum.txt")
	if err != nil || text.String() != string(want) {
		t.Errorf("got %v and\n%s\nwant\n%s", err, text.String(), want)
	}
}
