package conformance_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/double"
)

// asDouble makes the test binary a server on its standard streams, with the
// defect that follows, if one does.
const asDouble = "serve-as-double"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asDouble {
		options := quick()
		if len(os.Args) > 2 {
			options.Defect = double.Defect(os.Args[2])
		}
		os.Exit(double.New(options).ServeStdio(os.Stdin, os.Stdout))
	}
	if len(os.Args) > 1 && os.Args[1] == asRunner {
		os.Exit(serveAsRunner(os.Args[2:]))
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// asRunner makes the test binary a hosted runner, with the defect that follows,
// if one does.
const asRunner = "serve-as-runner"

// serveAsRunner is the double under the process contract of hosted runners.
func serveAsRunner(args []string) int {
	options := quick()
	if len(args) > 0 {
		options.Defect = double.Defect(args[0])
	}
	server := double.New(options)
	err := server.Host(double.Runner{ID: os.Getenv("MAESTRO_RUNNER_SESSION_ID"), SessionID: os.Getenv("MAESTRO_SESSION_ID"),
		Workspace: os.Getenv("MAESTRO_WORKSPACE_ROOT"), WorkspaceID: os.Getenv("MAESTRO_REMOTE_RUNNER_WORKSPACE_ID"),
		AgentRunID: os.Getenv("MAESTRO_AGENT_RUN_ID"), Owner: os.Getenv("MAESTRO_REMOTE_RUNNER_OWNER_INSTANCE_ID"),
		Manifest: os.Getenv("MAESTRO_REMOTE_RUNNER_RESTORE_MANIFEST")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	listener := httptest.NewServer(server)
	session := os.Getenv("MAESTRO_SESSION_ID")
	if session == "" {
		session = "sess_conformance"
	}
	fmt.Printf("{\"baseUrl\":%q,\"sessionId\":%q}\n", listener.URL, session)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent lets go
	return 0
}

// quick are options that keep slow scenarios short.
func quick() double.Options {
	return double.Options{HandshakeTimeout: 2 * time.Second, Heartbeat: 700 * time.Millisecond, LeaseTTL: 2 * time.Second}
}

// stdioTarget is the double as a process.
func stdioTarget(t *testing.T, defect double.Defect) string {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return "stdio:'" + binary + "' " + asDouble + " " + string(defect)
}

// socketTarget is the double as a server in this process.
func socketTarget(t *testing.T, defect double.Defect) string {
	t.Helper()
	options := quick()
	options.Defect = defect
	server := httptest.NewServer(double.New(options))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http://", "ws://", 1)
}

// httpTarget is the same over HTTP.
func httpTarget(t *testing.T, defect double.Defect) string {
	t.Helper()
	return strings.Replace(socketTarget(t, defect), "ws://", "http://", 1)
}

// runnerCommand is the double as a command that starts a hosted runner.
func runnerCommand(t *testing.T, defect double.Defect) string {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return "'" + binary + "' " + asRunner + " " + string(defect)
}

// judge runs the suite and logs the failures if there are any.
func judge(t *testing.T, c conformance.Config) conformance.Report {
	t.Helper()
	report, err := conformance.Run(t.Context(), c)
	if err != nil {
		t.Fatalf("run against %s: %v", c.Target, err)
	}
	return report
}

// passes fails the test with the report unless everything passed.
func passes(t *testing.T, report conformance.Report) {
	t.Helper()
	if !report.OK() {
		var text strings.Builder
		if err := report.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		t.Errorf("got failures, want none:\n%s", text.String())
	}
}

func TestDoubleWithoutDefectPassesOnStdio(t *testing.T) {
	t.Parallel()
	passes(t, judge(t, conformance.Config{Target: stdioTarget(t, "")}))
}

func TestDoubleWithoutDefectPassesOnSocket(t *testing.T) {
	t.Parallel()
	passes(t, judge(t, conformance.Config{Target: socketTarget(t, "")}))
}

func TestDoubleWithoutDefectPassesOverHTTP(t *testing.T) {
	t.Parallel()
	passes(t, judge(t, conformance.Config{Target: httpTarget(t, "")}))
}

func TestDoubleWithoutDefectPassesAsRunner(t *testing.T) {
	t.Parallel()
	passes(t, judge(t, conformance.Config{Spawn: runnerCommand(t, ""), Filter: regexp.MustCompile("^(hosted|drain|restore)/")}))
}

// socketStrict is the double as a server that refuses additions.
func socketStrict(t *testing.T) string {
	t.Helper()
	options := quick()
	options.Strict = true
	server := httptest.NewServer(double.New(options))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http://", "ws://", 1)
}
