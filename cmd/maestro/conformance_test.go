package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-028515a8/maestro/conformance"
)

// TestConformancePrintsResultsAsTheyComeAndASumOnASignal judges a server that says
// nothing: one scenario is skipped at once, the other waits.
func TestConformancePrintsResultsAsTheyComeAndASumOnASignal(t *testing.T) {
	t.Parallel()
	cmd := program(t, "conformance", "--target", "stdio:sleep 60", "--runtime", "any", "--run", "^(framing/null-refused|run/prompt)$")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	first, err := out.ReadString('\n')
	if err != nil || !strings.HasPrefix(first, "skip    framing/null-refused") {
		t.Errorf("got %q, %v, want the result of the first scenario while the second waits", first, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if want := "stdio:sleep 60: incomplete: 0 passed, 0 failed, 2 skipped"; !strings.Contains(string(rest), want) {
		t.Errorf("got %q, want %q", rest, want)
	}
	if code := exitCode(t, cmd.Wait()); code != exitFailure {
		t.Errorf("got exit code %d, want %d", code, exitFailure)
	}
}

func TestConformanceExplainsRules(t *testing.T) {
	t.Parallel()
	out, err := program(t, "conformance", "--explain", "R5,R7", "R100").Output()
	if err != nil || strings.Count(string(out), "\n\n") != 2 || !strings.HasPrefix(string(out), "R5: Answer a line that is not JSON") {
		t.Errorf("got %q, %v, want three rules", out, err)
	}
	cmd := program(t, "conformance", "--explain", "R10")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if code := exitCode(t, cmd.Run()); code != exitUsage || !strings.Contains(stderr.String(), `no rule "R10"; the nearest: R9, R11`) {
		t.Errorf("got exit code %d and %q, want wrong usage that names the nearest rules", code, stderr.String())
	}
}

func TestConformanceListsTheScenariosOfAFilter(t *testing.T) {
	t.Parallel()
	out, err := program(t, "conformance", "--list", "--run", "^framing/crlf$").Output()
	if err != nil || strings.Count(string(out), "\n") != 1 || !strings.HasPrefix(string(out), "framing/crlf ") {
		t.Errorf("got %q, %v, want one line", out, err)
	}
}

// TestOwnServersOfOtherProtocolsPass judges headless --protocol by the suites about these
// protocols. The scenarios that do not apply are named.
func TestOwnServersOfOtherProtocolsPass(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, protocol, flags, run, skipped string }{
		{"heddle", "heddle", "--allow bash", "", "tool/permission"},
		{"heddle that asks", "heddle", "", "^tool/permission$", ""},
		{"chord", "chord", "--agent llm:openai-chat/conformance", "", "turn/todos confirm/final-args pending/both"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			target := fmt.Sprintf("stdio:'%s' headless --protocol %s %s", os.Args[0], row.protocol, row.flags)
			cmd := program(t, "conformance", "--protocol", row.protocol, "--run", row.run, "--timeout", "2m", "--format", "json", "--target", target)
			cmd.Env = append(cmd.Env, "HEDDLE_APPROVAL_WAIT=100") // milliseconds
			out, err := cmd.Output()
			var report struct{ Results []conformance.Result }
			if jsonErr := json.Unmarshal(out, &report); err != nil || jsonErr != nil {
				t.Errorf("got %v, %v", err, jsonErr)
			}
			var skipped []string
			for _, r := range report.Results {
				if r.Outcome == conformance.Skipped {
					skipped = append(skipped, r.Name)
				}
				if r.Failure != nil {
					t.Errorf("%s: got %+v, want a pass", r.Name, *r.Failure)
				}
			}
			if got := strings.Join(skipped, " "); got != row.skipped {
				t.Errorf("got skipped scenarios %s, want %s", got, row.skipped)
			}
		})
	}
}

// TestConformanceKnowsItsProtocols is about --protocol.
func TestConformanceKnowsItsProtocols(t *testing.T) {
	t.Parallel()
	out, err := program(t, "conformance", "--protocol", "heddle", "--explain", "H23").Output()
	if err != nil || !strings.Contains(string(out), "\ncancel/running ") {
		t.Errorf("got %q, %v, want the scenario about the rule", out, err)
	}
	out, err = program(t, "conformance", "--explain", "H12", "R5").Output()
	if err != nil || !strings.HasPrefix(string(out), "H12 (heddle): Give") || !strings.Contains(string(out), "\n\nR5: Answer") {
		t.Errorf("got %q, %v, want a rule of Heddle and one of Maestro", out, err)
	}
	if code := exitCode(t, program(t, "conformance", "--protocol", "chord", "--explain", "H12").Run()); code != exitUsage {
		t.Errorf("got exit code %d for a rule of another protocol, want %d", code, exitUsage)
	}
	out, err = program(t, "conformance", "--protocol", "chord", "--list", "--run", "^turn/text$").Output()
	if err != nil || strings.Count(string(out), "\n") != 1 || !strings.HasPrefix(string(out), "turn/text ") {
		t.Errorf("got %q, %v, want one line", out, err)
	}
	for _, args := range [][]string{{"--protocol", "bogus"}, {"--protocol", "chord", "--target", "ws://127.0.0.1:1"}, {"--protocol", "heddle", "--target", "stdio:no-such-program-here"}} {
		if code := exitCode(t, program(t, append([]string{"conformance"}, args...)...).Run()); code != exitUsage {
			t.Errorf("%v: got exit code %d, want %d", args, code, exitUsage)
		}
	}
}
