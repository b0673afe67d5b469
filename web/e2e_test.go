package web

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPage runs the tests of app in Node, and those of e2e in Chromium against the built server.
func TestPage(t *testing.T) {
	t.Run("texts", func(t *testing.T) {
		t.Parallel()
		run(t, exec.Command("node", "app/test/run.mjs"))
	})
	t.Run("browser", func(t *testing.T) {
		t.Parallel()
		binary := filepath.Join(t.TempDir(), "maestro")
		run(t, exec.Command("go", "build", "-o", binary, "../cmd/maestro"))
		cmd := exec.Command("node", "--test", "--test-reporter=spec", "--test-concurrency=1",
			"e2e/page.test.mjs", "e2e/lists.test.mjs", "e2e/chat.test.mjs", "e2e/links.test.mjs", "e2e/resilience.test.mjs",
			"e2e/hostile.test.mjs")
		cmd.Env = append(os.Environ(), "MAESTRO="+binary)
		run(t, cmd)
	})
}
