package conformance_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/double"
	"github.com/seed-028515a8/maestro/contracts"
)

// asRunner makes the test binary a hosted runner. What may follow is a spoiler, plain
// to have it answer as any agent, and
// public to have it without newer fields; published, to have it with all habits;
// or a profile, a colon and a habit.
const asRunner = "serve-as-runner"

// serveAsRunner is the double under the process contract of hosted runners.
func serveAsRunner(args []string) int {
	options := patient()
	if slices.Contains(args, "public") {
		options.Profile = contracts.ProfilePublic
	}
	if len(args) > 0 && args[0] == "plain" {
		options.Plain, args = true, nil
	}
	if len(args) > 0 && args[0] == "published" {
		options.Profile, options.Published, args = contracts.ProfilePublic, true, nil
	} else if profile, habit, ok := strings.Cut(strings.Join(args, " "), ":"); ok {
		options.Profile, options.Defect, args = contracts.Profile(profile), double.Defect(habit), nil
	}
	server := double.New(options)
	session := os.Getenv("MAESTRO_SESSION_ID")
	runner := double.Runner{ID: variable("MAESTRO_RUNNER_SESSION_ID", "REMOTE_RUNNER_SESSION_ID"), SessionID: session,
		Workspace: variable("MAESTRO_WORKSPACE_ROOT", "WORKSPACE_ROOT"), WorkspaceID: os.Getenv("MAESTRO_REMOTE_RUNNER_WORKSPACE_ID"),
		AgentRunID: os.Getenv("MAESTRO_AGENT_RUN_ID"), Owner: variable("MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID", "REMOTE_RUNNER_OWNER_INSTANCE_ID"),
		Snapshots: os.Getenv("MAESTRO_REMOTE_RUNNER_SNAPSHOT_ROOT"), Manifest: os.Getenv("MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST")}
	err := server.Host(runner)
	switch info, statErr := os.Stat(runner.Workspace); {
	case runner.ID == "":
		err = errors.New("MAESTRO_RUNNER_SESSION_ID is required")
	case runner.Workspace == "":
		err = errors.New("MAESTRO_WORKSPACE_ROOT is required")
	case statErr == nil && !info.IsDir():
		err = errors.New(runner.Workspace + " is not a directory")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var handler http.Handler = server
	if len(args) > 0 {
		handler = spoilers[args[0]].over(server)
	}
	listener, err := listen(os.Getenv("MAESTRO_HOSTED_RUNNER_LISTEN"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	site := httptest.NewUnstartedServer(handler)
	_ = site.Listener.Close() // it has a port of its own choice
	site.Listener = listener
	site.Start()
	fmt.Printf("{\"baseUrl\":%q,\"sessionId\":%q}\n", site.URL, cmp.Or(session, "sess_conformance"))
	if len(args) > 0 && args[0] == "lives-on" {
		time.Sleep(time.Minute) // it is killed before
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent lets go
	return 0
}

// variable is the first that is set of variables.
func variable(names ...string) string {
	for _, name := range names {
		if value := strings.TrimSpace(os.Getenv(name)); value != "" {
			return value
		}
	}
	return ""
}

// listen takes only the ports that the published contract knows: 1 to 65535. If
// portTaken names a directory that is not there, it makes the directory and finds
// the port taken.
func listen(address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if n, wrong := strconv.Atoi(port); err != nil || wrong != nil || n < 1 || n > 65_535 {
		return nil, fmt.Errorf("listen %s: the port must be a TCP port between 1 and 65535", address)
	}
	if marker := os.Getenv(portTaken); marker != "" {
		if err := os.Mkdir(marker, 0o700); err == nil {
			other, err := net.Listen("tcp", address)
			if err != nil {
				return nil, err
			}
			defer func() { _ = other.Close() }() // the process ends
		}
	}
	return net.Listen("tcp", address)
}

// portTaken is the variable that names the directory.
const portTaken = "CONFORMANCE_TEST_PORT_TAKEN"

// runnerCommand is the double as a command that starts a hosted runner.
func runnerCommand(t *testing.T, spoiler string) string {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return "'" + binary + "' " + asRunner + " " + spoiler
}

// lacks are the hosted scenarios that the double cannot pass, with what it
// lacks. One that starts passing is to be struck off.
var lacks = map[string]string{
	"hosted/session-omitted":       "it takes the creation of the bound session for an attachment",
	"hosted/workspace-root":        "it does not look at the workspace a client names",
	"hosted/owner-header":          "it knows no owner header",
	"hosted/owner-header-required": "it knows no owner header",
	"hosted/vanished-workspace":    "it does not look at its workspace again",
	"drain/no-activity":            "its manifest is ready after a skipped flush",
	"drain/bad-body":               "it words refusals of a drain in its own way",
	"drain/readiness":              "its identity does not name the manifest",
	"drain/flush-fails":            "its flush cannot fail",
	"drain/evidence":               "its manifest has none",
}

func TestDoublePassesAsRunner(t *testing.T) {
	t.Parallel()
	report := judge(t, conformance.Config{Spawn: runnerCommand(t, ""), Filter: regexp.MustCompile("^(hosted|drain|restore)/")})
	if report.Count(conformance.Passed) < 30 {
		t.Errorf("got %d passed, want 30 at least", report.Count(conformance.Passed))
	}
	for _, r := range report.Results {
		_, known := lacks[r.Name]
		switch {
		case r.Outcome == conformance.Failed && !known:
			t.Errorf("%s: got a failure, want none: %s: %s\n%s", r.Name, r.Failure.Rule, r.Failure.Message, strings.Join(r.Failure.Exchange, "\n"))
		case r.Outcome == conformance.Passed && known:
			t.Errorf("%s passes now: strike it off the list", r.Name)
		}
	}
}

// A spoiler makes a defective runner out of a sound one: it changes what leaves
// it.
type spoiler struct {
	run   string   // the scenarios that must find it
	rules []string // one of them is what a failure must name

	path     string // the end of the paths concerned; empty means all
	old, new string // in bodies and events
	header   string // taken away from answers
	status   int    // put in place of an error's
}

var spoilers = map[string]spoiler{
	"talkative-identity": {run: "^hosted/identity$", rules: []string{"A85"}, path: "/identity", old: `"draining":`, new: `"workspace_root":"/srv","draining":`},
	"cached-identity":    {run: "^hosted/identity$", rules: []string{"A85"}, path: "/identity", header: "Cache-Control"},
	"lost-session":       {run: "^hosted/one-session$", rules: []string{"A88"}, old: "runtime_owned_elsewhere", new: "stale_session", status: http.StatusNotFound},
	"silent-about-owner": {run: "^hosted/one-session$", rules: []string{"5.4"}, old: `"owner_instance_id":`, new: `"owner":`},
	"lives-on":           {run: "^hosted/stops-on-eof$", rules: []string{"6.1"}},
	"other-manifest":     {run: "^drain/answer$", rules: []string{"A90"}, path: "/drain", old: `"workspace_id":"ws_`, new: `"workspace_id":"xs_`},
	"stale-cursor":       {run: "^drain/streams$", rules: []string{"5.5"}, path: "/drain", old: `"cursor":`, new: `"cursor":1`},
	"loose-retention":    {run: "^drain/manifest$", rules: []string{"A102"}, path: "/drain", old: `"raw_environment"`, new: `"raw_env"`},
	"old-keys":           {run: "^drain/manifest$", rules: []string{"A102"}, path: "/drain", old: `"created_at":`, new: `"manifest_version":1,"created_at":`},
	"new-drain":          {run: "^drain/repeated$", rules: []string{"A98"}, path: "/drain", header: "X-Maestro-Drain-Replayed"},
	"ready-when-drained": {run: "^drain/(streams|refuses)$", rules: []string{"A96", "A97"}, old: `"is_ready":false`, new: `"is_ready":true`},
	"no-hint":            {run: "^drain/refuses$", rules: []string{"A74"}, header: "Retry-After"},
	"escape-is-bad":      {run: "^drain/escaping-export$", rules: []string{"A95"}, path: "/drain", old: "workspace_violation", new: "bad_request", status: http.StatusBadRequest},
	"plain-gap":          {run: "^restore/(reset|flush-failed)$", rules: []string{"A105", "A107"}, path: "/events", old: "restored_from_snapshot", new: "replay_gap"},
	"restored-silently":  {run: "^restore/state$", rules: []string{"A104"}, old: "Restored from snapshot", new: "Ready"},
}

// over wraps a handler.
func (sp spoiler) over(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, sp.path) {
			w = &spoiledWriter{ResponseWriter: w, sp: sp}
		}
		next.ServeHTTP(w, r)
	})
}

// A spoiledWriter changes a response on its way. The double writes whole events
// and whole bodies.
type spoiledWriter struct {
	http.ResponseWriter
	sp spoiler
}

func (w *spoiledWriter) WriteHeader(status int) {
	if w.sp.header != "" {
		w.Header().Del(w.sp.header)
	}
	if w.sp.status != 0 && status >= 400 {
		status = w.sp.status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *spoiledWriter) Write(text []byte) (int, error) {
	spoiled := text
	if w.sp.old != "" {
		spoiled = bytes.ReplaceAll(text, []byte(w.sp.old), []byte(w.sp.new))
	}
	if _, err := w.ResponseWriter.Write(spoiled); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Unwrap lets streams be flushed.
func (w *spoiledWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestEachSpoiledRunnerIsCaught(t *testing.T) {
	t.Parallel()
	for name, sp := range spoilers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := judgeDefect(t, conformance.Config{Spawn: runnerCommand(t, name), Filter: regexp.MustCompile(sp.run)}, sp.rules)
			if report.Count(conformance.Failed) == 0 {
				t.Fatalf("got no failure, want one of %v", sp.rules)
			}
			for _, r := range report.Results {
				if f := r.Failure; f != nil && !slices.Contains(sp.rules, f.Rule) {
					t.Errorf("%s: got rule %s (%s), want one of %v", r.Name, f.Rule, f.Message, sp.rules)
				}
			}
		})
	}
}

func TestRunnerWhosePortIsTakenIsStartedAgain(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "taken")
	spawn := "env " + portTaken + "='" + marker + "' " + runnerCommand(t, "")
	passes(t, judge(t, conformance.Config{Spawn: spawn, Runtime: conformance.RuntimeAny, Filter: regexp.MustCompile("^hosted/ready-line$")}))
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("the first start found its port free: %v", err)
	}
}

func TestRunnerThatDoesNotStartFails(t *testing.T) {
	t.Parallel()
	one := regexp.MustCompile("^hosted/identity$")
	for _, command := range []string{"/no/such/program", "false", "echo not a ready line", "echo '{}'"} {
		report := judge(t, conformance.Config{Spawn: command, Filter: one})
		if report.Count(conformance.Failed) != 1 {
			t.Errorf("%s: got %+v, want one failure", command, report.Results)
		}
	}
	for _, command := range []string{"'unfinished", "  "} {
		if _, err := conformance.Run(t.Context(), conformance.Config{Spawn: command, Filter: one}); err == nil {
			t.Errorf("%s: got a report, want an error", command)
		}
	}
}

func TestOnlyHostedScenariosRunWithoutATarget(t *testing.T) {
	t.Parallel()
	report := judge(t, conformance.Config{Spawn: runnerCommand(t, ""), Filter: regexp.MustCompile("^(hosted/ready-line|route/unknown|run/prompt|shutdown/exit|socket/bye)$")})
	for _, r := range report.Results {
		want := conformance.Skipped
		if strings.HasPrefix(r.Name, "hosted/") {
			want = conformance.Passed
		}
		if r.Outcome != want {
			t.Errorf("%s: got %s (%s), want %s", r.Name, r.Outcome, r.Reason, want)
		}
	}
}
