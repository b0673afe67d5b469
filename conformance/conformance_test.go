package conformance_test

import (
	"cmp"
	"fmt"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-028515a8/maestro/conformance"
	"github.com/seed-028515a8/maestro/conformance/double"
	"github.com/seed-028515a8/maestro/contracts"
)

// asDouble makes the test binary a server on its standard streams, with the
// defect and the workspace that follow, and then the words that apply: plain has
// it answer as any agent, public without newer fields, published with all habits.
const asDouble = "serve-as-double"

// take has signals do nothing here. Unlike one that is ignored, commands do not
// inherit that.
func take(signals ...os.Signal) { signal.Notify(make(chan os.Signal, 1), signals...) }

func TestMain(m *testing.M) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(sig) { // as in the background of a script
			take(sig)
		}
	}
	if len(os.Args) > 1 && os.Args[1] == asDouble {
		options := quick()
		options.Defect, options.Workspace = double.Defect(os.Args[2]), os.Args[3]
		options.Plain, options.Published = slices.Contains(os.Args[4:], "plain"), slices.Contains(os.Args[4:], "published")
		if slices.Contains(os.Args[4:], "public") {
			options.Profile = contracts.ProfilePublic
		}
		take(syscall.SIGPIPE) // when nobody listens its commands are to end with it
		os.Exit(double.New(options).ServeStdio(os.Stdin, os.Stdout))
	}
	if len(os.Args) > 1 && os.Args[1] == asRunner {
		os.Exit(serveAsRunner(os.Args[2:]))
	}
	// A child under the race detector would linger for a second when it ends.
	if err := os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0")); err != nil {
		panic(err) // name and value are fine
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
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
	return "stdio:'" + binary + "' " + asDouble + " '" + string(defect) + "' '" + workspace(t) + "'"
}

// workspace is an empty directory, by a path without links.
func workspace(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// socketTarget is the double as a server in this process.
func socketTarget(t *testing.T, defect double.Defect) string {
	t.Helper()
	options := quick()
	options.Defect = defect
	return strings.Replace(serveDouble(t, options), "http://", "ws://", 1)
}

// patient are options for clients over HTTP, who say less often that they are
// there: a machine that is busy for seconds must not make them expire.
func patient() double.Options {
	options := quick()
	options.LeaseTTL = 10 * time.Second
	return options
}

// httpTarget is the double as a server in this process, over HTTP.
func httpTarget(t *testing.T, defect double.Defect) string {
	t.Helper()
	options := patient()
	options.Defect = defect
	return serveDouble(t, options)
}

// serveDouble starts the double for the length of the test and returns its URL.
func serveDouble(t *testing.T, options double.Options) string {
	t.Helper()
	options.Workspace = workspace(t)
	site := double.New(options)
	server := httptest.NewServer(site)
	t.Cleanup(func() {
		server.Close()
		site.Close()
	})
	return server.URL
}

// judge runs the suite, with more patience than usual: tests share the machine.
func judge(t *testing.T, c conformance.Config) conformance.Report {
	t.Helper()
	c.Patience = cmp.Or(c.Patience, 30*time.Second)
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	if strings.HasPrefix(c.Target, "http") {
		c.Parallel = cmp.Or(c.Parallel, 4)
	}
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

func TestDoubleWithoutDefectPassesStrictlyOverHTTP(t *testing.T) {
	t.Parallel()
	options := patient()
	options.Strict = true
	passes(t, judge(t, conformance.Config{Target: serveDouble(t, options), Strict: true, Filter: aboutBodies}))
}

// socketStrict is the double as a server that refuses additions.
func socketStrict(t *testing.T) string {
	t.Helper()
	options := quick()
	options.Strict = true
	return strings.Replace(serveDouble(t, options), "http://", "ws://", 1)
}
