package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-028515a8/maestro/conformance"
)

// TestBuiltBinary holds the real server against the whole suite, as its users
// start it.
func TestBuiltBinary(t *testing.T) {
	binary := build(t)
	t.Run("stdio", func(t *testing.T) {
		target := fmt.Sprintf("stdio:'%s' headless --agent conformance --workspace '%s'", binary, t.TempDir())
		passes(t, judge(t, conformance.Config{Target: target}))
	})
	t.Run("ws", func(t *testing.T) {
		passes(t, judge(t, conformance.Config{Target: serve(t, binary)}))
	})
	t.Run("stdio strict", func(t *testing.T) {
		target := fmt.Sprintf("stdio:'%s' headless --agent conformance --strict --workspace '%s'", binary, t.TempDir())
		passes(t, judge(t, conformance.Config{Target: target, Strict: true}))
	})
	t.Run("ws strict", func(t *testing.T) {
		passes(t, judge(t, conformance.Config{Target: serve(t, binary, "--strict"), Strict: true}))
	})
}

// build compiles the program.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "maestro")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../cmd/maestro").CombinedOutput()
	if err != nil {
		t.Fatalf("build cmd/maestro: %v\n%s", err, out)
	}
	return binary
}

// serve starts a server for the length of the test and returns its target.
func serve(t *testing.T, binary string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--auth", "off", "--agent", "conformance",
		"--state-dir", filepath.Join(dir, "state"), "--workspace", t.TempDir(), "--ready-file", ready}, flags...)
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stderr = &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }() // ends when t.Context does, which interrupts the server
	t.Cleanup(func() {
		<-exited
		if t.Failed() {
			t.Logf("the server's log:\n%s", stderr.String())
		}
	})
	return awaitReady(t, ready, exited)
}

// awaitReady looks for the ready file until the server has written it.
func awaitReady(t *testing.T, path string, exited chan error) string {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("the server ended before it was ready: %v", err)
		case <-deadline:
			t.Fatal("got no ready file within 30 s")
		case <-look.C:
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		var ready struct {
			WSURL string `json:"wsUrl"`
		}
		if err != nil || json.Unmarshal(text, &ready) != nil || ready.WSURL == "" {
			t.Fatalf("got ready file %q (%v), want an object with wsUrl", text, err)
		}
		return ready.WSURL
	}
}
