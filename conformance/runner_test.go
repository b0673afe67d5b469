package conformance_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-028515a8/maestro/conformance"
)

// TestRunnerWhosePortIsTakenIsStartedAgain is about a runner that finds its port taken
// at its first start.
func TestRunnerWhosePortIsTakenIsStartedAgain(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "taken")
	c := subject{on: onHosted}.config(t)
	c.Spawn = quoted([]string{"sh", "-c", `mkdir "$0" 2>/dev/null && { echo "listen: address already in use" >&2; exit 1; }; exec "$@"`, marker}) + " " + c.Spawn
	c.Runtime, c.Filter = conformance.RuntimeAny, regexp.MustCompile("^hosted/ready-line$")
	passes(t, judge(t, c))
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
		if _, err := conformance.Maestro().Run(t.Context(), conformance.Config{Spawn: command, Filter: one}); err == nil {
			t.Errorf("%s: got a report, want an error", command)
		}
	}
}

func TestOnlyHostedScenariosRunWithoutATarget(t *testing.T) {
	t.Parallel()
	c := subject{on: onHosted}.config(t)
	c.Filter = regexp.MustCompile("^(hosted/ready-line|route/unknown|run/prompt|shutdown/exit|socket/bye)$")
	for _, r := range judge(t, c).Results {
		want := conformance.Skipped
		if strings.HasPrefix(r.Name, "hosted/") {
			want = conformance.Passed
		}
		if r.Outcome != want {
			t.Errorf("%s: got %s (%s), want %s", r.Name, r.Outcome, r.Reason, want)
		}
	}
}
