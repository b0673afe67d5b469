package web

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPageInABrowser runs the tests of e2e in Chromium against the program as it is built.
func TestPageInABrowser(t *testing.T) {
	program := filepath.Join(t.TempDir(), "maestro")
	run(t, exec.Command("go", "build", "-o", program, "../cmd/maestro"))
	cmd := exec.Command("node", "--test", "--test-reporter=spec", "e2e/page.test.mjs")
	cmd.Env = append(os.Environ(), "MAESTRO="+program)
	run(t, cmd)
}
