//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMakeThatIsEndedLeavesNothing ends make, as a terminal or a harness does,
// while it runs a starter of examples/agents, with this program in the place of
// the agent's.
func TestMakeThatIsEndedLeavesNothing(t *testing.T) {
	t.Parallel()
	dir, tmp := t.TempDir(), t.TempDir()
	agent := "examples/agents/node_modules/.bin/opencode"
	files := map[string][]byte{agent: []byte("#!/bin/sh\nexec \"$MAESTRO\" acp --agent shell --state-dir \"$HOME/inner\"\n")}
	for _, path := range []string{"Makefile", "examples/agents/common", "examples/agents/opencode"} {
		text, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			t.Fatal(err)
		}
		files[path] = text
	}
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(agent)), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range files {
		if err := os.WriteFile(filepath.Join(dir, path), text, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	cmd := exec.CommandContext(t.Context(), "make", "-s", "-C", dir, "-o", "build", "agent-opencode", "PORT=0", "ARGS=--ready-stdout")
	cmd.Env = append(os.Environ(), "MAESTRO_TEST_MAIN=1", "MAKEFLAGS=", "MAESTRO="+os.Args[0], "TMPDIR="+tmp,
		"AGENT_HOME=", "MODEL_URL=http://127.0.0.1:1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var ready readiness
	address := startUntilReady(t, cmd, &ready)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // make waits for what it ended, and says that it failed
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Errorf("got a server at %s, want none", address)
	}
	if err := syscall.Kill(ready.PID, 0); err == nil {
		t.Errorf("got process %d alive, want it gone", ready.PID)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v in the temporary directory, want nothing", left, err)
	}
}

// startUntilReady starts a program that starts a server and returns where that
// listens. What is left of them at the end of the test is killed.
func startUntilReady(t *testing.T, cmd *exec.Cmd, ready *readiness) (address string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr // a pipe would be waited for, whoever holds it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, ready)
	}
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("got %v and %s before the server was ready", err, line)
	}
	return strings.TrimPrefix(ready.BaseURL, "http://")
}
