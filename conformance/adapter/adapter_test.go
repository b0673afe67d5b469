package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/conformance/double"
	"github.com/seed-028515a8/maestro/conformance/judge"
	"github.com/seed-028515a8/maestro/contracts"
)

// asRunner makes the test binary a hosted runner, with the violation that
// follows, if one does.
const asRunner = "serve-as-runner"

// Violations of the process contract. Others are defects of the double.
const (
	noReadyLine   = "no-ready-line"
	noise         = "noise-before-the-ready-line"
	endsAtOnce    = "ends-at-once"
	deafToEOF     = "deaf-to-eof"
	otherSession  = "other-session"
	seedProfile   = "seed-profile"
	slowReplay    = "slow-replay"
	forgetsCursor = "forgets-cursor"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asRunner {
		violation := ""
		if len(os.Args) > 2 {
			violation = os.Args[2]
		}
		os.Exit(serve(violation))
	}
	// Under the race detector the runner would take a second to end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// serve is the runner: the double, bound as the environment says.
func serve(violation string) int {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	options := double.Options{Profile: contracts.ProfilePublic, Defect: double.Defect(violation)}
	if violation == seedProfile {
		options.Profile = contracts.ProfileSeed
	}
	runner := double.Runner{ID: os.Getenv("MAESTRO_RUNNER_SESSION_ID"), SessionID: os.Getenv("MAESTRO_SESSION_ID"),
		Workspace: os.Getenv("MAESTRO_WORKSPACE_ROOT"), WorkspaceID: os.Getenv("MAESTRO_REMOTE_RUNNER_WORKSPACE_ID"),
		AgentRunID: os.Getenv("MAESTRO_AGENT_RUN_ID"), Manifest: os.Getenv("MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST")}
	session := "sess_conformance"
	if violation == forgetsCursor && runner.Manifest != "" {
		runner.Manifest, runner.SessionID = "", session
	}
	server := double.New(options)
	err := server.Host(runner)
	if err == nil {
		err = listen(server, violation)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	switch violation {
	case endsAtOnce:
		fmt.Fprintln(os.Stderr, "the runner has no wish to run")
		return 1
	case noReadyLine:
	case noise:
		fmt.Println("starting up")
		fallthrough
	default:
		if violation == otherSession {
			session = "sess_other"
		}
		fmt.Printf(`{"baseUrl":"http://%s","sessionId":%q}`+"\n", os.Getenv("MAESTRO_HOSTED_RUNNER_LISTEN"), session)
	}
	ended := make(chan struct{})
	go func() { // ends with the input, or with the process
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		if violation != deafToEOF {
			close(ended)
		}
	}()
	select {
	case <-ended:
	case <-interrupted:
	}
	return 0
}

// listen serves until the process ends.
func listen(h http.Handler, violation string) error {
	l, err := net.Listen("tcp", os.Getenv("MAESTRO_HOSTED_RUNNER_LISTEN"))
	if err != nil {
		return err
	}
	if violation == slowReplay {
		h = slow(h)
	}
	go func() { _ = http.Serve(l, h) }() // ends with the process
	return nil
}

// slow holds what a stream says back for longer than a replay may take.
func slow(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("cursor") == "0" {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			<-req.Context().Done() // until whoever waits for the replay has given up
			return
		}
		h.ServeHTTP(w, req)
	})
}

// judged runs the adapter against this binary as a runner.
func judged(t *testing.T, violation string, flags ...string) (code int, report string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	args := append(flags, "--", self, asRunner, violation)
	code = program.Run(t.Context(), args, &out, io.Discard)
	return code, out.String()
}

func TestSoundRunnerPasses(t *testing.T) {
	code, report := judged(t, "")
	if code != judge.Passed || strings.Count(report, "\n") != len(scenarios())+1 {
		t.Errorf("got exit code %d, want %d and a line per scenario:\n%s", code, judge.Passed, report)
	}
}

// TestViolationIsSeen has the runner violate one thing at a time.
func TestViolationIsSeen(t *testing.T) {
	for _, tt := range []struct {
		violation string
		scenario  string
		says      string // in the report
	}{
		{endsAtOnce, "subscriptions", "ended before its ready line"},
		{endsAtOnce, "subscriptions", "no wish to run"},
		{noise, "subscriptions", "no ready object"},
		{deafToEOF, "subscriptions", "did not end within 1s"},
		{otherSession, "subscriptions", `names session "sess_other"`},
		{seedProfile, "stream", "executor_type: not a key"},
		{seedProfile, "disconnect", "executor_type: not a key"},
		{slowReplay, "stream", "is without the status"},
		{forgetsCursor, "drain", "want sess_conformance at"},
		{string(double.NullOptional), "subscriptions", "last_error: want a string, got null"},
		{string(double.ViewerMayPrompt), "lease", "want it refused with 403"},
		{string(double.GrantsLeaseTwice), "lease", "already held"},
		{string(double.LoserKeepsDriving), "lease", "currently held"},
		{string(double.ExtraKey), "stream", "session_id: not a key"},
		{string(double.StaleAnswers), "approval", "no pending approval"},
		{string(double.TalkativeDisconnect), "disconnect", "want exactly"},
		{string(double.KeepsLease), "disconnect", "want exactly"},
	} {
		t.Run(tt.violation+"/"+tt.scenario, func(t *testing.T) {
			t.Parallel()
			code, report := judged(t, tt.violation, "-run", "^"+tt.scenario+"$")
			if code != judge.Failed || !strings.Contains(report, tt.says) {
				t.Errorf("got exit code %d, want %d and %q in the report:\n%s", code, judge.Failed, tt.says, report)
			}
			if !strings.Contains(report, "      | ") {
				t.Errorf("got no exchange in the report:\n%s", report)
			}
		})
	}
}

func TestSilentRunnerIsGivenUpAndKilled(t *testing.T) {
	ctx, cancel := newDeadline(t)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	code := program.Run(ctx, []string{"-run", "^lease$", "--", self, asRunner, noReadyLine}, &out, io.Discard)
	if code != judge.Failed || !strings.Contains(out.String(), "no ready line") {
		t.Errorf("got exit code %d, want %d and no ready line:\n%s", code, judge.Failed, out.String())
	}
}

func TestWrongUsageIsSaid(t *testing.T) {
	for _, args := range [][]string{{}, {"--"}, {"-run", "(", "--", "true"}, {"-nonsense"}} {
		var errs strings.Builder
		if code := program.Run(t.Context(), args, io.Discard, &errs); code != judge.Usage || errs.Len() == 0 {
			t.Errorf("%q: got exit code %d and %q, want %d and a word", args, code, errs.String(), judge.Usage)
		}
	}
}

func TestEventStreamIsSplitOnBlankLines(t *testing.T) {
	const text = "retry: 2000\n\n: ka\n\nid: e.1\nevent: x\ndata: {\"a\":\ndata:1}\n\ndata: two\r\n\r\ndata: unfinished\n"
	var got []string
	err := eachEvent(strings.NewReader(text), func(data []byte) bool {
		got = append(got, string(data))
		return true
	})
	want := []string{"{\"a\":\n1}", "two"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestEnvironmentIsThatOfTheContract(t *testing.T) {
	t.Setenv("PORT", "1")
	t.Setenv("MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST", "leaked")
	s := newStage(t.Context(), nil, time.Second)
	s.workspace = "/w"
	first, second := s.environment("", runnerID), s.environment("/m.json", restoredRunnerID)
	for _, tt := range []struct {
		env  []string
		name string
		want string // empty if it must be absent
	}{
		{first, "PORT", ""}, {second, "PORT", ""},
		{first, "MAESTRO_RUNNER_SESSION_ID", "mrs_conformance"}, {second, "MAESTRO_RUNNER_SESSION_ID", "mrs_conformance_restored"},
		{first, "MAESTRO_SESSION_ID", "sess_conformance"}, {second, "MAESTRO_SESSION_ID", ""},
		{first, "MAESTRO_WORKSPACE_ROOT", "/w"}, {second, "MAESTRO_WORKSPACE_ROOT", "/w"},
		{first, "MAESTRO_REMOTE_RUNNER_WORKSPACE_ID", "ws_conformance"}, {second, "MAESTRO_AGENT_RUN_ID", "run_conformance"},
		{first, "MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST", ""}, {second, "MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST", "/m.json"},
		{first, "PATH", os.Getenv("PATH")},
	} {
		got := ""
		for _, pair := range tt.env {
			if value, ok := strings.CutPrefix(pair, tt.name+"="); ok {
				got = value
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestSchemasAreClosedAndExact(t *testing.T) {
	for text, want := range map[string]string{ // what a problem says, or nothing
		`{"type":"heartbeat","cursor":3}`:                                          "",
		`{"type":"heartbeat","cursor":3.5}`:                                        "/cursor: want an integer",
		`{"type":"heartbeat"}`:                                                     "/cursor: required",
		`{"type":"heartbeat","cursor":3,"epoch":"e"}`:                              "/epoch: not a key",
		`{"type":"lagged"}`:                                                        "/type: want a known type",
		`{"type":"reset","reason":"broadcast_lag:3","snapshot":{}}`:                "/reason: want one of",
		`{"type":"message","cursor":1,"message":{"type":"status","message":null}}`: "/message/message: want a string, got null",
		`{"type":"message","cursor":1,"message":{"type":"tool_call","call_id":"c","tool":"t","args":null}}`:              "/message/requires_approval: required",
		`{"type":"message","cursor":1,"message":{"type":"session_info","session_id":null,"cwd":"/"}}`:                    "/message/git_branch: required",
		`{"type":"message","cursor":1,"message":{"type":"hello_ok","protocol_version":"v","role":"owner"}}`:              "/message/role: want one of",
		`{"type":"message","cursor":1,"message":{"type":"hello_ok","protocol_version":"v","lease_expires_at":null}}`:     "",
		`{"type":"message","cursor":1,"message":{"type":"hello_ok","protocol_version":"v","server_capabilities":{}}}`:    "server_capabilities: not a key",
		`{"type":"message","cursor":1,"message":{"type":"connection_info","opt_out_notifications":["status","status"]}}`: "no item twice",
	} {
		o, err := parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		problems := envelope(map[string]any(o), "")
		if (want == "") != (len(problems) == 0) || want != "" && !strings.Contains(strings.Join(problems, "\n"), want) {
			t.Errorf("%s: got %q, want %q", text, problems, want)
		}
	}
}

func TestTraceIsBounded(t *testing.T) {
	tr := &trace{began: time.Now()}
	for i := range 10 * maxTraceLines {
		tr.add("%d %s", i, strings.Repeat("x", 2*maxTraceText))
	}
	lines := tr.lines()
	if len(lines) != maxTraceLines+1 || !strings.Contains(lines[len(lines)-1], fmt.Sprint(" ", 10*maxTraceLines-1, " ")) {
		t.Errorf("got %d lines ending in %.30q, want %d with the latest", len(lines), lines[len(lines)-1], maxTraceLines+1)
	}
}

// newDeadline ends sooner than the adapter would lose its patience.
func newDeadline(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 500*time.Millisecond)
}
