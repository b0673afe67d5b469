package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHecateSuiteFindsNothingAtServe judges maestro serve, with the prompts of the shell agent.
// The scenarios that it leaves out take long.
func TestHecateSuiteFindsNothingAtServe(t *testing.T) {
	t.Parallel()
	r := serving(t, "--agent", "shell", "--state-dir", t.TempDir(), "--workspace", t.TempDir())
	out, err := program(t, "conformance", "--protocol", "hecate", "--target", r.ready.BaseURL, "--token-file", r.ready.TokenFile,
		"--say", "echo hello", "--long", "sleep 60", "--ask", "echo asked", "--burst", "", "--timeout", "2m",
		"--run", "^(list|feed|approval|log|stream/[^h])").CombinedOutput()
	if err != nil || !strings.Contains(string(out), " 0 failed,") {
		t.Errorf("got %v, want no failure:\n%s", err, out)
	}
	for _, want := range []string{"pass    approval/race", "pass    feed/concurrent", "pass    log/chunks", "pass    stream/live"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("got no %q in:\n%s", want, out)
		}
	}
}

// TestHecateSuiteJudgesALogOfServe saves the log of a server, judges it, and then with an
// event taken away.
func TestHecateSuiteJudgesALogOfServe(t *testing.T) {
	t.Parallel()
	r := serving(t, "--agent", "shell", "--state-dir", t.TempDir(), "--workspace", t.TempDir())
	judge := func(args ...string) (string, error) {
		out, err := program(t, append([]string{"conformance", "--protocol", "hecate"}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := judge("--target", r.ready.BaseURL, "--token-file", r.ready.TokenFile, "--say", "echo hello", "--run", "^list/pages$"); err != nil {
		t.Fatalf("got %v:\n%s", err, out)
	}
	_, body := r.get("/hecate/v1/events?limit=200")
	var list struct{ Data []json.RawMessage }
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Data) < 5 {
		t.Fatalf("got %v and %s, want the events of a run", err, body)
	}
	save := func(events []json.RawMessage) string {
		text, err := json.Marshal(events)
		path := filepath.Join(t.TempDir(), "log.json")
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	if out, err := judge("--target", save(list.Data), "--run", "^log/"); err != nil {
		t.Errorf("got %v, want no failure:\n%s", err, out)
	}
	out, err := judge("--target", save(append(list.Data[:2:2], list.Data[3:]...)), "--run", "^log/")
	if err == nil || !strings.Contains(out, "fail    log/numbering") {
		t.Errorf("got %v, want log/numbering to fail:\n%s", err, out)
	}
}
