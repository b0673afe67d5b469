package main

import (
	"bufio"
	"io"
	"strings"
	"syscall"
	"testing"
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
