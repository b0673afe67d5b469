package conformance_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/double"
	"github.com/seed-028515a8/maestro/contracts"
)

// public is the double without newer fields.
func public(options double.Options) double.Options {
	options.Profile = contracts.ProfilePublic
	return options
}

// advised fails the test with the report unless nothing failed and something was
// advised.
func advised(t *testing.T, report conformance.Report) {
	t.Helper()
	passes(t, report)
	if report.Count(conformance.Advised) == 0 {
		t.Error("got no advice, want some")
	}
}

func TestServersOfThePublishedProtocolGetAdviceAlone(t *testing.T) {
	t.Parallel()
	options := public(patient())
	options.Published = true
	plain := options
	plain.Plain = true
	for name, c := range map[string]conformance.Config{
		"stdio":                    {Target: stdioTarget(t, "") + " public published"},
		"http":                     {Target: serveDouble(t, options)},
		"hosted":                   {Spawn: runnerCommand(t, "published")},
		"stdio with another agent": {Target: stdioTarget(t, "") + " public published plain", Runtime: conformance.RuntimeAny, Prompts: plainPrompts, Filter: aboutAgents},
		"http with another agent":  {Target: serveDouble(t, plain), Runtime: conformance.RuntimeAny, Prompts: plainPrompts, Filter: aboutAgents},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Profile, c.Patience = contracts.ProfilePublic, 5*time.Second
			report := judge(t, c)
			advised(t, report)
			if report.Left != 0 {
				t.Errorf("got %d sessions that could not be ended, want none", report.Left)
			}
		})
	}
}

// TestNewerKeysAreAdviceOnce is about a server of the seed profile that is judged by the
// published protocol: its hello_ok and ready have keys that the published schemas lack.
func TestNewerKeysAreAdviceOnce(t *testing.T) {
	t.Parallel()
	report := judge(t, conformance.Config{Target: stdioTarget(t, ""), Profile: contracts.ProfilePublic,
		Filter: regexp.MustCompile("^(framing|handshake)/")})
	advised(t, report)
	given := 0
	for _, r := range report.Results {
		for _, a := range r.Advice {
			if a.Rule == "A47" {
				given++
			}
		}
	}
	if given != 1 {
		t.Errorf("got advice of A47 %d times, want once", given)
	}
}

// A habit of a server of the published protocol, and the advice that it gets.
type habit struct {
	is    double.Defect
	on    conformance.Transport
	run   string // scenarios by name
	rule  string
	words string // in the advice
}

var habits = []habit{
	{double.NoRetryable, onHTTP, "^post/missing-field$", "1.4", "may succeed later"},
	{double.NoDetails, onHTTP, "^post/missing-field$", "1.4", "ErrorInfo"},
	{double.NoDetails, onHTTP, "^refusal/lease-details$", "1.4", "who holds the lease"},
	{double.CodeOnly, onHTTP, "^post/missing-field$", "A73", "code and error_type"},
	{double.CodeOnly, onHTTP, "^claim/second-refused$", "5.10", "code of the vocabulary"},
	{double.WrongLeaseCode, onHTTP, "^claim/second-refused$", "5.10", "code of the vocabulary"},
	{double.ForbidsAll, onHTTP, "^tool/needs-capability$", "5.10", "HTTP status"},
	{double.NoPendingRequests, onHTTP, "^connection/created$", "R73", "pending_requests"},
	{double.NoEpochs, onHTTP, "^connection/created$", "1.11", "epoch"},
	{double.NoEpochHeader, onHTTP, "^return/own-epoch$", "1.11", "epoch"},
	{double.IgnoresEpoch, onHTTP, "^return/other-epoch$", "1.11", "another epoch"},
	{double.NoEventIDs, onHTTP, "^sse/snapshot-first$", "1.11", "EPOCH.CURSOR"},
	{double.BareEventIDs, onHTTP, "^sse/snapshot-first$", "1.11", "EPOCH.CURSOR"},
	{double.ExtraKey, onHTTP, "^sse/snapshot-first$", "A47", "published schemas"},
	{double.NoRetryHint, onHTTP, "^sse/framing$", "1.11", "retry: 2000"},
	{double.AnyCursor, onHTTP, "^return/bad-cursor$", "1.11", "no number"},
	{double.NoTokens, onHTTP, "^token/given$", "8.1", "secret"},
	{double.TokenNotChecked, onHTTP, "^token/wrong$", "8.1", "secret"},
	{double.TerseAnswers, onHTTP, "^post/init$", "1.12", "snapshot after it"},
	{double.FewRoutes, onHTTP, "^route/message-alias$", "1.1", "/message"},
	{double.FewRoutes, onHTTP, "^session/new-id$", "1.1", "POST /api/headless/sessions"},
	{double.FewRoutes, onHTTP, "^session/listed$", "1.1", "GET /api/headless/sessions"},
	{double.FewRoutes, onHTTP, "^unsubscribe/one-of-two$", "1.1", "POST unsubscribe"},
	{double.BareState, onHTTP, "^route/both-states$", "1.1", "/state"},
	{double.WrongMethodNotFound, onHTTP, "^route/wrong-method$", "1.1", "405"},
	{double.OldSpellings, onHTTP, "^header/(connection|subscription)-id$", "1.2", "three families"},
	{double.AnyHeaders, onHTTP, "^header/contradiction$", "1.2", "two different"},
	{double.IgnoresRoleHeader, onHTTP, "^watcher/role-header$", "1.12", "role header"},
	{double.PlainHealth, onHTTP, "^route/health$", "1.13", "/healthz"},
	{double.PlainHealth, onHTTP, "^route/ready$", "1.13", "/readyz"},
	{double.ForgetsGone, onHTTP, "^disconnect/repeated$", "A16", "repeated disconnect"},
	{double.AnnouncesNothing, onHTTP, "^connection/announced$", "1.6", "connection_info"},
	{double.AnnouncesNothing, onHTTP, "^claim/takeover$", "3.4", "connection_info"},
	{double.SilentInit, onHTTP, "^post/init$", "R33", "init"},
	{double.SameCursorSnapshot, onHTTP, "^disconnect/announced$", "2.2", "cursor of its own"},
	{double.ShowsOldItems, onHTTP, "^subscription/starts-at-its-snapshot$", "1.9", "old items"},
	{double.StreamsLiveOn, onHTTP, "^disconnect/announced$", "1.13", "disconnected"},
	{double.StreamsLiveOn, onHTTP, "^session/shutdown$", "3.6", "shut down"},
	{double.StreamsLiveOn, onHTTP, "^unsubscribe/ends-stream$", "1.10", "subscription"},
	{double.SilentFutureCursor, onHTTP, "^return/future-cursor$", "A46", "beyond"},
	{double.IgnoresLastEventID, onHTTP, "^return/last-event-id$", "A59", "Last-Event-ID"},
	{double.BeginsWithReplay, onHTTP, "^sse/snapshot-first$", "A42", "snapshot"},
	{double.NeverBeats, onHTTP, "^sse/heartbeat$", "A57", "heartbeat"},
	{double.NeverBeats, onHTTP, "^sse/keepalive$", "1.11", "comment"},
	{double.StreamsShare, onHTTP, "^sse/newer-wins$", "A61", "older of two"},
	{double.ImplicitDrives, onHTTP, "^claim/implicit-stream$", "A36", "no lease"},
	{double.RefusedStays, onHTTP, "^claim/refused-leaves-no-trace$", "A24", "refused controller"},
	{double.DeafToHeartbeats, onHTTP, "^heartbeat/renews$", "A32", "lease_expires_at"},
	{double.NeverExpires, onHTTP, "^claim/expires$", "A31", "silent controller"},
	{double.MintsConnections, onHTTP, "^connection/unknown$", "A5", "connectionId"},
	{double.ChangesRoles, onHTTP, "^connection/role-is-fixed$", "A18", "role"},
	{double.AnonymousMayPost, onHTTP, "^claim/nameless$", "A35", "no known connection"},
	{double.ForgetsKeys, onHTTP, "^post/idempotent$", "A72", "Idempotency-Key"},
	{double.ForgetsKeys, onHTTP, "^session/idempotent$", "1.7", "Idempotency-Key"},
	{double.NoRetryAfter, onHTTP, "^refusal/retry-after$", "A74", "Retry-After"},
	{double.HangsUpOnLarge, onHTTP, "^refusal/too-large$", "A75", "413"},
	{double.TrustsPages, onHTTP, "^route/foreign-page$", "D10", "Origin"},
	{double.RefusesMore, onHTTP, "^connection/unknown-key-ignored$", "D13", "unknown keys"},
	{double.RefusesMore, onStdio, "^framing/unknown-key-ignored$", "D13", "unknown keys"},
	{double.AnswersBlankLines, onStdio, "^framing/blank-lines$", "R4", "blank lines"},
	{double.LongLines, onStdio, "^framing/over-long-line$", "R13", "limit"},
	{double.OptOutOnce, onStdio, "^framing/duplicate-opt-out$", "R12", "opts out"},
	{double.TypesByText, onStdio, "^framing/wrong-type$", "R103", "by the cause"},
	{double.SplitsExits, onStdio, "^utility/command$", "0.2", "exit_code and signal"},
	{double.NamelessCommands, onStdio, "^command/many$", "2.2", "request_id"},
	{double.NamelessRefusals, onStdio, "^command/bad-line$", "2.2", "request_id"},
	{double.CutsCharacters, onStdio, "^output/cut-characters$", "R93", "by character"},
	{double.PassesCredentials, onStdio, "^command/no-credentials$", "5.1", "credentials"},
	{double.WrongScores, onStdio, "^search/scores$", "R95", "scores"},
	{double.FollowsLinks, onStdio, "^search/links$", "5.2", "behind links"},
	{double.CreatesAreRenames, onStdio, "^watch/create$", "5.4", "as create"},
	{double.CachedIdentity, onRunner, "^hosted/identity$", "A85", "no-store"},
	{double.CachedIdentity, onRunner, "^drain/answer$", "5.5", "no-store"},
	{double.OwnerlessIdentity, onRunner, "^hosted/identity$", "5.3", "owner generation"},
	{double.DrainsAgain, onRunner, "^drain/repeated$", "A98", "second drain"},
	{double.StreamsLiveOn, onRunner, "^drain/streams$", "A96", "drained session"},
	{double.PlainHealth, onRunner, "^drain/readiness$", "1.13", "/readyz"},
	{double.NoDetails, onRunner, "^hosted/one-session$", "5.4", "Gateways"},
	{double.NoRetryable, onRunner, "^drain/refuses$", "1.4", "may succeed later"},
	{double.SilentInterrupt, onPlain, "^agent/interrupt$", "3.5", "interrupted"},
}

// Where else a habit shows: as a hosted runner, and with an agent of its own.
const (
	onRunner conformance.Transport = "runner"
	onPlain  conformance.Transport = "plain"
)

// config is how the double with a habit is judged by a profile.
func (h habit) config(t *testing.T, profile contracts.Profile) conformance.Config {
	t.Helper()
	c := conformance.Config{Profile: profile, Filter: regexp.MustCompile(h.run), Patience: 1500 * time.Millisecond}
	switch h.on {
	case onRunner:
		c.Spawn = runnerCommand(t, string(profile)+":"+string(h.is))
	case onStdio, onPlain:
		c.Target = stdioTarget(t, h.is) + " " + string(profile)
		if h.on == onPlain {
			c.Target, c.Runtime, c.Prompts = c.Target+" plain", conformance.RuntimeAny, plainPrompts
		}
	default:
		options := patient()
		options.Profile, options.Defect = profile, h.is
		c.Target = serveDouble(t, options)
	}
	return c
}

func TestEachHabitGetsItsAdvice(t *testing.T) {
	t.Parallel()
	for _, h := range habits {
		t.Run(string(h.on)+"/"+string(h.is)+"/"+h.run, func(t *testing.T) {
			t.Parallel()
			report := judge(t, h.config(t, contracts.ProfilePublic))
			advised(t, report)
			found := slices.ContainsFunc(report.Results, func(r conformance.Result) bool {
				return slices.ContainsFunc(r.Advice, func(a conformance.Advice) bool {
					return a.Rule == h.rule && strings.Contains(a.Text, h.words) && a.Seen != ""
				})
			})
			if !found {
				t.Errorf("got %+v, want advice of %s about %q", report.Results, h.rule, h.words)
			}
			if seed := judge(t, h.config(t, contracts.ProfileSeed)); seed.Count(conformance.Failed) == 0 || seed.Count(conformance.Advised) != 0 {
				t.Errorf("got %+v with the seed profile, want a failure and no advice", seed.Results)
			}
		})
	}
	for _, d := range double.Habits() {
		told := []double.Defect{double.NoElicitations, double.ApprovalsOnly} // what they lead to is skipped
		if !slices.Contains(told, d) && !slices.ContainsFunc(habits, func(h habit) bool { return h.is == d }) {
			t.Errorf("habit %s gets no advice in any test", d)
		}
	}
}

// TestDefectsOfThePublishedProtocolFailInBothProfiles is about what stays demanded.
func TestDefectsOfThePublishedProtocolFailInBothProfiles(t *testing.T) {
	t.Parallel()
	for _, h := range []habit{
		{is: double.ViewerMayPrompt, on: onHTTP, run: "^watcher/cannot-prompt$", rule: "A37"},
		{is: double.GrantsLeaseTwice, on: onHTTP, run: "^claim/second-refused$", rule: "A23"},
		{is: double.LoserKeepsDriving, on: onHTTP, run: "^claim/loser-refused$", rule: "A27"},
		{is: double.RoleByHeader, on: onHTTP, run: "^watcher/cannot-drive$", rule: "A38"},
		{is: double.TalkativeDisconnect, on: onHTTP, run: "^disconnect/exact$", rule: "A13"},
		{is: double.KeepsLease, on: onHTTP, run: "^disconnect/controller$", rule: "A15"},
		{is: double.NullOptional, on: onHTTP, run: "^connection/created$", rule: "1.6"},
		{is: double.HelloOKToAll, on: onHTTP, run: "^sse/private-hello-ok$", rule: "A60"},
		{is: double.IgnoresOptOuts, on: onHTTP, run: "^subscription/inherits-opt-outs$", rule: "R31"},
		{is: double.IgnoresQueryOptOuts, on: onHTTP, run: "^sse/opt-outs$", rule: "R31"},
		{is: double.ReplaysOneTooMany, on: onHTTP, run: "^return/nothing-missed$", rule: "A43"},
		{is: double.StaleAnswers, on: onHTTP, run: "^post/answer$", rule: "1.12"},
		{is: double.FoldsCase, on: onStdio, run: "^framing/exact-case$", rule: "R11"},
		{is: double.DropsLastLine, on: onStdio, run: "^framing/last-line$", rule: "R3"},
		{is: double.WrongExitStatus, on: onStdio, run: "^shutdown/exit$", rule: "R18"},
		{is: double.ExitsEarly, on: onHTTP, run: "^tree/late-words$", rule: "5.1"},
		{is: double.TakesAllInput, on: onStdio, run: "^stdin/not-enabled$", rule: "R88"},
		{is: double.LeavesChildren, on: onStdio, run: "^tree/terminated$", rule: "R86"},
		{is: double.NeverTruncated, on: onStdio, run: "^read/window$", rule: "R96"},
		{is: double.ReportsExcluded, on: onStdio, run: "^watch/built-in-excludes$", rule: "R99"},
		{is: double.EndsCallsTwice, on: onPlain, run: "^agent/tools$", rule: "R46"},
		{is: double.AsksAnyway, on: onPlain, run: "^agent/auto-mode$", rule: "R51"},
	} {
		t.Run(string(h.on)+"/"+string(h.is), func(t *testing.T) {
			t.Parallel()
			report := judge(t, h.config(t, contracts.ProfilePublic))
			if f := report.Results[0].Failure; f == nil || f.Rule != h.rule {
				t.Errorf("got %+v (%v), want a failure of %s", report.Results, f, h.rule)
			}
		})
	}
}

func TestSpoiledRunnersOfThePublishedProtocol(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		outcome conformance.Outcome
		rules   []string
	}{
		"talkative-identity": {conformance.Failed, []string{"A85"}},
		"cached-identity":    {conformance.Advised, []string{"A85"}},
		"lost-session":       {conformance.Advised, []string{"5.10"}},
		"silent-about-owner": {conformance.Advised, []string{"5.4"}},
		"lives-on":           {conformance.Failed, []string{"6.1"}},
		"other-manifest":     {conformance.Failed, []string{"A90"}},
		"stale-cursor":       {conformance.Advised, []string{"5.5"}},
		"loose-retention":    {conformance.Failed, []string{"A102"}},
		"old-keys":           {conformance.Failed, []string{"A102"}},
		"new-drain":          {conformance.Advised, []string{"A98"}},
		"ready-when-drained": {conformance.Failed, []string{"A96", "A97"}},
		"no-hint":            {conformance.Advised, []string{"A74"}},
		"escape-is-bad":      {conformance.Advised, []string{"5.10"}},
		"plain-gap":          {conformance.Failed, []string{"A105", "A107"}},
		"restored-silently":  {conformance.Failed, []string{"A104"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sp := spoilers[name]
			report := judge(t, conformance.Config{Spawn: runnerCommand(t, name+" public"), Profile: contracts.ProfilePublic, Filter: regexp.MustCompile(sp.run), Patience: 1500 * time.Millisecond})
			for _, r := range report.Results {
				var rules []string
				if r.Failure != nil {
					rules = []string{r.Failure.Rule}
				}
				for _, a := range r.Advice {
					rules = append(rules, a.Rule)
				}
				if r.Outcome != want.outcome || !slices.ContainsFunc(want.rules, func(rule string) bool { return slices.Contains(rules, rule) }) {
					t.Errorf("%s: got %s %+v %+v, want %s with one of %v", r.Name, r.Outcome, r.Failure, r.Advice, want.outcome, want.rules)
				}
			}
		})
	}
}

// TestServersWithoutElicitationsPassTheRest is about a server that does not know
// the word mcp_elicitation and refuses what has it, in both profiles.
func TestServersWithoutElicitationsPassTheRest(t *testing.T) {
	t.Parallel()
	about := regexp.MustCompile("^(handshake|request|state|viewer|connection|post|framing/(crlf|order)|utility|tool|offer|drain/evidence)/?")
	for _, profile := range []contracts.Profile{contracts.ProfileSeed, contracts.ProfilePublic} {
		for _, on := range []conformance.Transport{onStdio, onSocket, onHTTP} {
			t.Run(string(profile)+" "+string(on), func(t *testing.T) {
				t.Parallel()
				c := habit{is: double.NoElicitations, on: on}.config(t, profile)
				c.Filter, c.Patience = about, 0
				if on == onSocket {
					c.Target = strings.Replace(c.Target, "http://", "ws://", 1)
				}
				report := judge(t, c)
				passes(t, report)
				for _, r := range report.Results {
					if strings.HasPrefix(r.Name, "request/elicitation") && (r.Outcome != conformance.Skipped ||
						profile == contracts.ProfileSeed && on != onHTTP && r.Reason != "the server does not ask for mcp_elicitation") {
						t.Errorf("%s: got %s (%s), want it skipped for want of elicitations", r.Name, r.Outcome, r.Reason)
					}
				}
			})
		}
	}
}

// TestClientsNegotiateWhatTheScenarioNeeds looks at what is posted to connections, but
// for the first, which finds out which agent there is, and those that end sessions.
func TestClientsNegotiateWhatTheScenarioNeeds(t *testing.T) {
	t.Parallel()
	for run, want := range map[string]string{
		"^subscription/controller$":    "",
		"^claim/takeover$":             "",
		"^tool/read-missing$":          `"capabilities":{"utilityOperations":["file_read"]}`,
		"^tool/read$":                  `"capabilities":{"utilityOperations":["file_read","command_exec"]}`,
		"^post/request-type-mismatch$": `"capabilities":{"serverRequests":["user_input"]}`,
		"^offer/announced$":            `"capabilities":{"serverRequests":["client_tool"]}`,
	} {
		t.Run(run, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var bodies []string
			inner := double.New(patient())
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/connections") {
					body, _ := io.ReadAll(r.Body) // the server looks at it again
					r.Body = io.NopCloser(strings.NewReader(string(body)))
					if !strings.Contains(string(body), `"probe"`) && !strings.Contains(string(body), `"end"`) {
						mu.Lock()
						bodies = append(bodies, string(body))
						mu.Unlock()
					}
				}
				inner.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			judge(t, conformance.Config{Target: server.URL, Filter: regexp.MustCompile(run)})
			mu.Lock()
			defer mu.Unlock()
			if len(bodies) < 2 {
				t.Fatalf("got connections %q, want more than one", bodies)
			}
			for _, body := range bodies[1:] {
				if want == "" && strings.Contains(body, "capabilities") || !strings.Contains(body, want) {
					t.Errorf("got %s, want capabilities %q and no others", body, want)
				}
			}
		})
	}
}
