package conformance_test

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/contracts"
)

// refusal is the body of an answer that a fault makes up.
const refusal = `{"error":"Made up","error_type":"internal_error","code":"internal_error","retryable":false,"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INTERNAL_ERROR","domain":"maestro.headless","metadata":{}}]}`

// A habit is what servers of the published protocol do, as faults, and the advice that
// it gets. With the seed profile it is a failure.
type habit struct {
	faults string // one a line
	on     conformance.Transport
	run    string // scenarios by name
	rule   string // of the advice; of failures, one of the words
	words  string // in the advice
}

// The habits that show in more than one scenario.
const (
	noRetryable = "answer * * [45]?? delete retryable"
	noDetails   = "answer * * [45]?? delete details"
	codeOnly    = "answer * * [45]?? set code=FAILED\nanswer * * [45]?? delete error_type"
	noEpochs    = "answer * * * header X-Maestro-Headless-Epoch="
	noTokens    = "answer * * * header X-Maestro-Headless-Connection-Token="
	oneSpelling = "request * * header X-Evalops-Headless-Connection-Id=\nrequest * * header X-Maestro-Headless-Subscription-Id=\n" +
		"request * * header X-Composer-Headless-Subscription-Id=\nrequest * * header X-Evalops-Headless-Subscription-Id=\nrequest * * header X-Evalops-Headless-Subscriber-Id="
	announcesNothing = "server connection_info drop"
	streamsLiveOn    = "server end drop"
	plainHealth      = "answer GET healthz 200 forge 200 ok\nanswer GET healthz 200 header Content-Type=text/plain"
	noLeaseCode      = "answer * * 409 sub controller_lease_held=>runtime_owned_elsewhere"
	noStatusOfInit   = "server status message=Init* drop"
	noReplayMark     = "answer POST drain 200 header X-Maestro-Drain-Replayed="
)

var habits = []habit{
	{noRetryable, onHTTP, "^post/missing-field$", "1.4", "may succeed later"},
	{noDetails, onHTTP, "^post/missing-field$", "1.4", "ErrorInfo"},
	{noDetails, onHTTP, "^refusal/lease-details$", "1.4", "who holds the lease"},
	{codeOnly, onHTTP, "^post/missing-field$", "A73", "code and error_type"},
	{codeOnly, onHTTP, "^claim/second-refused$", "5.10", "code of the vocabulary"},
	{noLeaseCode, onHTTP, "^claim/second-refused$", "5.10", "code of the vocabulary"},
	{"answer POST messages 501 status 403", onHTTP, "^tool/needs-capability$", "5.10", "HTTP status"},
	{`answer * * 200 sub ,"pending_requests":\[\]=>`, onHTTP, "^connection/created$", "R73", "pending_requests"},
	{noEpochs, onHTTP, "^connection/created$", "1.11", "epoch"},
	{"answer GET state 200 header X-Maestro-Headless-Epoch=", onHTTP, "^return/own-epoch$", "1.11", "epoch"},
	{"request GET events query epoch=\nrequest GET events header X-Maestro-Headless-Epoch=", onHTTP, "^return/other-epoch$", "1.11", "another epoch"},
	{`server * sub (?m)^id: .*\n=>`, onHTTP, "^sse/snapshot-first$", "1.11", "EPOCH.CURSOR"},
	{`server * sub (?m)^id: [^.\n]*\.=>id: `, onHTTP, "^sse/snapshot-first$", "1.11", "EPOCH.CURSOR"},
	{"server * set /mood=good", onHTTP, "^sse/snapshot-first$", "A47", "published schemas"},
	{`server * sub retry: 2000\n=>`, onHTTP, "^sse/framing$", "1.11", "retry: 2000"},
	{"request GET events query cursor=", onHTTP, "^return/bad-cursor$", "1.11", "no number"},
	{noTokens, onHTTP, "^token/given$", "8.1", "secret"},
	{"request * * header X-Maestro-Headless-Connection-Token=", onHTTP, "^token/wrong$", "8.1", "secret"},
	{"answer POST messages 200 delete snapshot", onHTTP, "^post/init$", "1.12", "snapshot after it"},
	{"request POST message path message$=>none", onHTTP, "^route/message-alias$", "1.1", "/message"},
	{"request POST sessions path sessions$=>none", onHTTP, "^session/new-id$", "1.1", "POST /api/headless/sessions"},
	{"request GET sessions path sessions$=>none", onHTTP, "^session/listed$", "1.1", "GET /api/headless/sessions"},
	{"request POST unsubscribe path unsubscribe$=>none", onHTTP, "^unsubscribe/one-of-two$", "1.1", "POST unsubscribe"},
	{"request GET state path state$=>none", onHTTP, "^route/both-states$", "1.1", "/state"},
	{"answer * * 405 header Allow=\nanswer * * 405 status 404", onHTTP, "^route/wrong-method$", "1.1", "405"},
	{oneSpelling, onHTTP, "^header/(connection|subscription)-id$", "1.2", "three families"},
	{oneSpelling + "\nrequest * * header X-Composer-Headless-Connection-Id=", onHTTP, "^header/contradiction$", "1.2", "two different"},
	{"request POST messages header X-Maestro-Headless-Role=", onHTTP, "^watcher/role-header$", "1.12", "role header"},
	{plainHealth, onHTTP, "^route/health$", "1.13", "/healthz"},
	{"answer GET readyz 200 forge 200 {\"status\":\"ready\"}", onHTTP, "^route/ready$", "1.13", "/readyz"},
	{"answer POST disconnect 200 #2 forge 404 " + refusal, onHTTP, "^disconnect/repeated$", "A16", "repeated disconnect"},
	{announcesNothing, onHTTP, "^connection/announced$", "1.6", "connection_info"},
	{announcesNothing, onHTTP, "^claim/takeover$", "3.4", "connection_info"},
	{noStatusOfInit, onHTTP, "^post/init$", "R33", "init"},
	{"server snapshot set /snapshot.cursor=-1", onHTTP, "^disconnect/announced$", "2.2", "cursor of its own"},
	{`server * #1 before {"type":"message","cursor":1,"message":{"type":"status","message":"Old"}}`, onHTTP, "^subscription/starts-at-its-snapshot$", "1.9", "old items"},
	{streamsLiveOn, onHTTP, "^disconnect/announced$", "1.13", "disconnected"},
	{streamsLiveOn, onHTTP, "^session/shutdown$", "3.6", "shut down"},
	{streamsLiveOn, onHTTP, "^unsubscribe/ends-stream$", "1.10", "subscription"},
	{"server reset drop", onHTTP, "^return/future-cursor$", "A46", "beyond"},
	{"request GET events header Last-Event-Id=", onHTTP, "^return/last-event-id$", "A59", "Last-Event-ID"},
	{"server snapshot #1 drop", onHTTP, "^sse/snapshot-first$", "A42", "snapshot"},
	{"server heartbeat drop", onHTTP, "^sse/heartbeat$", "A57", "heartbeat"},
	{"server comment drop", onHTTP, "^sse/keepalive$", "1.11", "comment"},
	{streamsLiveOn, onHTTP, "^sse/newer-wins$", "A61", "older of two"},
	{"answer GET * 200 set state.connection_count=+1\nanswer GET * 200 set state.controller_connection_id=conn_other", onHTTP, "^claim/implicit-stream$", "A36", "no lease"},
	{"answer GET state 200 #2+ set state.connection_count=+1", onHTTP, "^claim/refused-leaves-no-trace$", "A24", "refused controller"},
	{"answer POST heartbeat 200 set lease_expires_at=2026-01-01T00:00:00.000Z", onHTTP, "^heartbeat/renews$", "A32", "lease_expires_at"},
	{"answer POST messages 200 forge 409 " + refusal, onHTTP, "^claim/expires$", "A31", "silent controller"},
	{"request POST connections delete connectionId", onHTTP, "^connection/unknown$", "A5", "connectionId"},
	{"request POST subscribe delete role", onHTTP, "^connection/role-is-fixed$", "A18", "role"},
	{"answer POST messages 404 forge 409 " + refusal, onHTTP, "^claim/nameless$", "A35", "no known connection"},
	{"request POST * header Idempotency-Key=", onHTTP, "^post/idempotent$", "A72", "Idempotency-Key"},
	{"request POST * header Idempotency-Key=", onHTTP, "^session/idempotent$", "1.7", "Idempotency-Key"},
	{"answer * * 429 header Retry-After=", onHTTP, "^refusal/retry-after$", "A74", "Retry-After"},
	{"answer POST messages 413 drop", onHTTP, "^refusal/too-large$", "A75", "413"},
	{"request * * header Origin=", onHTTP, "^route/foreign-page$", "D10", "Origin"},
	{"answer POST connections 200 forge 400 " + refusal, onHTTP, "^connection/unknown-key-ignored$", "D13", "unknown keys"},
	{"process flag --strict", onStdio, "^framing/unknown-key-ignored$", "D13", "unknown keys"},
	{"client comment sub ^\\s*$=>{", onStdio, "^framing/blank-lines$", "R4", "blank lines"},
	{"server error drop", onStdio, "^framing/over-long-line$", "R13", "limit"},
	{"server hello_ok #2 drop", onStdio, "^framing/duplicate-opt-out$", "R12", "opts out"},
	{"server error set error_type=fatal", onStdio, "^framing/wrong-type$", "R103", "by the cause"},
	{"server utility_command_exited delete signal", onStdio, "^utility/command$", "0.2", "exit_code and signal"},
	{"server error delete request_id", onStdio, "^command/many$", "2.2", "request_id"},
	{"server error delete request_id", onStdio, "^command/bad-line$", "2.2", "request_id"},
	{"server utility_command_output sub [^\\x00-\\x7f]=>\uFFFD\uFFFD", onStdio, "^output/cut-characters$", "R93", "by character"},
	{"server utility_file_search_results set results.0.score=+1", onStdio, "^search/scores$", "R95", "scores"},
	{`server utility_file_search_results sub "results":\[=>"results":[{"path":"loop/x","score":100},`, onStdio, "^search/links$", "5.2", "behind links"},
	{`server utility_file_watch_event change_type=create set change_type=rename`, onStdio, "^watch/create$", "5.4", "as create"},
	{"answer GET identity * header Cache-Control=", onHosted, "^hosted/identity$", "A85", "no-store"},
	{"answer POST drain * header Cache-Control=", onHosted, "^drain/answer$", "5.5", "no-store"},
	{"answer GET identity 200 forge 404 " + refusal, onHosted, "^hosted/identity$", "5.3", "owner generation"},
	{noReplayMark, onHosted, "^drain/repeated$", "A98", "second drain"},
	{streamsLiveOn, onHosted, "^drain/streams$", "A96", "drained session"},
	{`answer GET readyz 503 forge 503 {"status":"draining"}`, onHosted, "^drain/readiness$", "1.13", "/readyz"},
	{noDetails, onHosted, "^hosted/one-session$", "5.4", "Gateways"},
	{noRetryable, onHosted, "^drain/refuses$", "1.4", "may succeed later"},
	{`answer * * 409 sub "owner_instance_id":=>"owner":`, onHosted, "^hosted/one-session$", "5.4", "Gateways"},
	{"answer * * 409 sub runtime_owned_elsewhere=>stale_session\nanswer * * 409 status 404", onHosted, "^hosted/one-session$", "5.10", "HTTP status"},
	{"answer * * 503 header Retry-After=", onHosted, "^drain/refuses$", "A74", "Retry-After"},
	{"answer POST drain 403 sub workspace_violation=>bad_request\nanswer POST drain 403 status 400", onHosted, "^drain/escaping-export$", "5.10", "HTTP status"},
	{"answer POST drain 200 set manifest.runtime.cursor=+10", onHosted, "^drain/streams$", "5.5", "one cursor"},
}

// subject is the server with the habit.
func (h *habit) subject(public bool) subject {
	return subject{on: h.on, public: public, faults: h.faults}
}

func TestEachHabitGetsItsAdvice(t *testing.T) {
	t.Parallel()
	sideBySide(24, habits, func(h habit) {
		c := h.subject(true).config(t)
		c.Filter = regexp.MustCompile(h.run)
		if report, ok := judgeBroken(t, c, func(report conformance.Report) bool {
			return report.OK() && slices.ContainsFunc(report.Results, func(r conformance.Result) bool {
				return slices.ContainsFunc(r.Advice, func(a conformance.Advice) bool {
					return a.Rule == h.rule && strings.Contains(a.Text, h.words) && a.Seen != ""
				})
			})
		}); !ok {
			t.Errorf("%s: %s: got %s, want no failure and advice of %s about %q", h.run, h.faults, shown(report), h.rule, h.words)
		}
		c = h.subject(false).config(t)
		c.Filter = regexp.MustCompile(h.run)
		if seed, ok := judgeBroken(t, c, func(seed conformance.Report) bool {
			return seed.Count(conformance.Failed) > 0 && seed.Count(conformance.Advised) == 0
		}); !ok {
			t.Errorf("%s: %s: got %s with the seed profile, want a failure and no advice", h.run, h.faults, shown(seed))
		}
	})
}

// shown renders what went wrong and what was advised.
func shown(report conformance.Report) string {
	var b strings.Builder
	for _, r := range report.Results {
		b.WriteString(r.Name + " " + string(r.Outcome) + " " + r.Reason)
		if r.Failure != nil {
			b.WriteString(" (" + r.Failure.Rule + ": " + r.Failure.Message + ")")
		}
		for _, a := range r.Advice {
			b.WriteString(" [" + a.Rule + ": " + a.Seen + "]")
		}
	}
	return b.String()
}

// TestServersOfThePublishedProtocolGetAdviceAlone judges servers with many habits at
// once by all scenarios.
func TestServersOfThePublishedProtocolGetAdviceAlone(t *testing.T) {
	t.Parallel()
	all := strings.Join([]string{noRetryable, noDetails, codeOnly, noEpochs, noTokens, announcesNothing, noStatusOfInit, plainHealth, noReplayMark,
		`server * sub (?m)^id: .*\n=>`, `server * sub retry: 2000\n=>`, "answer * * 429 header Retry-After=", "answer * * 503 header Retry-After=",
		"answer * * 405 status 404", "request POST messages header X-Maestro-Headless-Role=", "server comment drop",
		"answer GET identity * header Cache-Control=", "answer POST drain * header Cache-Control="}, "\n")
	lines := "server error request_id=c* delete request_id\nserver utility_command_exited signal=null delete signal\n" +
		"server utility_command_exited exit_code=null delete exit_code\nserver error error_type=cancelled drop\nprocess flag --strict"
	sideBySide(2, []subject{
		{on: onStdio, public: true, faults: lines},
		{on: onHTTP, public: true, faults: all},
		{on: onHosted, public: true, faults: all},
		{on: onStdio, public: true, faults: lines, agent: []string{"--agent", "shell"}},
		{on: onHTTP, public: true, faults: all, agent: []string{"--agent", "shell"}},
	}, func(j subject) {
		c := j.config(t)
		c.Patience = 8 * time.Second
		if len(j.agent) > 0 {
			c.Runtime, c.Prompts, c.Filter = conformance.RuntimeAny, shellPrompts, aboutAgents
		} else if j.on == onHosted {
			c.Filter = aboutRunners // the others are as over HTTP
		}
		report := judgeTwice(t, c)
		passes(t, report)
		if report.Count(conformance.Advised) == 0 || report.Left != 0 {
			t.Errorf("%s %v: got %d advised and %d sessions that could not be ended, want some and none", j.on, j.agent, report.Count(conformance.Advised), report.Left)
		}
	})
}

// TestNewerKeysAreAdviceOnce is about a server of the seed profile that is judged by the
// published protocol: its hello_ok and ready have keys that the published schemas lack.
func TestNewerKeysAreAdviceOnce(t *testing.T) {
	t.Parallel()
	c := subject{on: onStdio}.config(t)
	c.Profile, c.Filter = contracts.ProfilePublic, regexp.MustCompile("^(framing|handshake)/")
	report := judge(t, c)
	passes(t, report)
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

// TestDefectsOfThePublishedProtocolFailInBothProfiles is about what stays demanded.
func TestDefectsOfThePublishedProtocolFailInBothProfiles(t *testing.T) {
	t.Parallel()
	sideBySide(24, []habit{
		{faults: "answer POST messages 403 forge 400 " + refusal, on: onHTTP, run: "^watcher/cannot-prompt$", rule: "A37"},
		{faults: "answer * * 409 forge 400 " + refusal, on: onHTTP, run: "^claim/second-refused$", rule: "A23"},
		{faults: "answer POST messages 409 forge 400 " + refusal, on: onHTTP, run: "^claim/loser-refused$", rule: "A27"},
		{faults: "answer POST messages 403 forge 400 " + refusal, on: onHTTP, run: "^watcher/cannot-drive$", rule: "A38"},
		{faults: "answer POST disconnect 200 set more=true", on: onHTTP, run: "^disconnect/exact$", rule: "A13"},
		{faults: "answer POST disconnect 200 set controller_connection_id=conn_other", on: onHTTP, run: "^disconnect/controller$", rule: "A15"},
		{faults: "answer POST connections 200 set connection_id=null", on: onHTTP, run: "^connection/created$", rule: "1.6"},
		{faults: "server hello_ok drop", on: onHTTP, run: "^sse/private-hello-ok$", rule: "A60"},
		{faults: "request POST subscribe delete optOutNotifications", on: onHTTP, run: "^subscription/inherits-opt-outs$", rule: "A8"},
		{faults: "request GET events query optOutNotifications=", on: onHTTP, run: "^sse/opt-outs$", rule: "R31"},
		{faults: "server status #3 drop", on: onHTTP, run: "^return/missed-items$", rule: "A43"},
		{faults: "answer POST messages 200 set /snapshot.last_init=null", on: onHTTP, run: "^post/answer$", rule: "1.12"},
		{faults: "client prompt rename Content=content", on: onStdio, run: "^framing/exact-case$", rule: "R11"},
		{faults: "server status message=Init* drop", on: onStdio, run: "^framing/last-line$", rule: "R3"},
		{faults: "process exit 9", on: onStdio, run: "^shutdown/exit$", rule: "R18"},
		{faults: "server utility_command_output content=late* drop", on: onHTTP, run: "^tree/late-words$", rule: "5.1"},
		{faults: "client utility_command_start set allow_stdin=true", on: onStdio, run: "^stdin/not-enabled$", rule: "R88"},
		{faults: "client utility_command_terminate drop", on: onStdio, run: "^tree/terminated$", rule: "R86 R87"},
		{faults: "server utility_file_read_result set truncated=false", on: onStdio, run: "^read/window$", rule: "R96"},
		{faults: "client utility_file_watch_start set exclude_patterns=[]", on: onStdio, run: "^watch/excludes$", rule: "5.4"},
		{faults: `answer GET identity 200 set workspace_root=/srv`, on: onHosted, run: "^hosted/identity$", rule: "A85"},
		{faults: "process eof", on: onHosted, run: "^hosted/stops-on-eof$", rule: "6.1"},
		{faults: "answer POST drain 200 set manifest.workspace_id=other", on: onHosted, run: "^drain/answer$", rule: "A90"},
		{faults: "answer POST drain 200 sub \"raw_environment\"=>\"raw_env\"\nanswer POST drain 200 file retention_policy=none", on: onHosted, run: "^drain/manifest$", rule: "A102"},
		{faults: "answer GET state 200 set state.is_ready=true\nserver snapshot sub \"is_ready\":false=>\"is_ready\":true", on: onHosted, run: "^drain/streams$", rule: "A96"},
		{faults: "server reset sub restored_from_snapshot=>replay_gap", on: onHosted, run: "^restore/reset$", rule: "A105"},
		{faults: "answer GET state 200 sub Restored.from.snapshot=>Ready", on: onHosted, run: "^restore/state$", rule: "A104"},
	}, func(h habit) {
		for _, public := range []bool{false, true} {
			c := h.subject(public).config(t)
			c.Filter = regexp.MustCompile(h.run)
			if report, ok := judgeBroken(t, c, func(report conformance.Report) bool {
				return slices.ContainsFunc(report.Results, func(r conformance.Result) bool {
					return r.Failure != nil && slices.Contains(strings.Fields(h.rule), r.Failure.Rule)
				})
			}); !ok {
				t.Errorf("%s with %s (public %t): got %s, want a failure of %s", h.run, h.faults, public, shown(report), h.rule)
			}
		}
	})
}

// withoutElicitations is a server that does not know the word mcp_elicitation and
// refuses what has it.
const withoutElicitations = `client hello sub mcp_elicitation=>nonsense
server hello_ok sub ,"mcp_elicitation"=>
request POST * sub mcp_elicitation=>nonsense
answer * * 200 sub ,"mcp_elicitation"=>`

func TestServersWithoutElicitationsPassTheRest(t *testing.T) {
	t.Parallel()
	about := regexp.MustCompile("^(handshake|request|state|viewer|connection|post|framing/(crlf|order)|utility|tool|offer|drain/evidence)/?")
	var subjects []subject
	for _, on := range []conformance.Transport{onStdio, onSocket, onHTTP} {
		subjects = append(subjects, subject{on: on, faults: withoutElicitations}, subject{on: on, public: true, faults: withoutElicitations})
	}
	sideBySide(6, subjects, func(j subject) {
		c := j.config(t)
		c.Filter = about
		report := judge(t, c)
		passes(t, report)
		for _, r := range report.Results {
			if strings.HasPrefix(r.Name, "request/elicitation") && (r.Outcome != conformance.Skipped ||
				!j.public && j.on != onHTTP && r.Reason != "the server does not ask for mcp_elicitation") {
				t.Errorf("%s public %t: %s: got %s (%s), want it skipped for want of elicitations", j.on, j.public, r.Name, r.Outcome, r.Reason)
			}
		}
	})
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
			inner := proxy(t, subject{on: onHTTP}.config(t).Target, "")
			url := serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			judge(t, conformance.Config{Target: url, Filter: regexp.MustCompile(run)})
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
