package main

import (
	"os"
	"os/exec"
	"testing"
)

// TestMain lets the test binary be the program as well, so that tests start
// real processes and the race detector watches those too.
func TestMain(m *testing.M) {
	if os.Getenv("MAESTRO_TEST_MAIN") != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// program is maestro with the arguments, in a workspace and with state of its
// own.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "MAESTRO_TEST_MAIN=1", "XDG_STATE_HOME="+t.TempDir(), "SHELL=/bin/sh")
	cmd.WaitDelay = 0
	return cmd
}
