package web

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestClient runs the tests of web/client in Node against the built server.
func TestClient(t *testing.T) {
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(modules); err != nil {
		t.Fatalf("%v: run make others", err)
	}
	t.Run("types", func(t *testing.T) {
		t.Parallel()
		for _, project := range []string{".", "client/test", "app/test"} {
			run(t, exec.Command("node", filepath.Join(modules, "typescript", "bin", "tsc"), "--noEmit", "-p", project))
		}
	})
	t.Run("behaviour", func(t *testing.T) {
		t.Parallel()
		binary := filepath.Join(t.TempDir(), "maestro")
		run(t, exec.Command("go", "build", "-o", binary, "../cmd/maestro"))
		cmd := exec.Command("node", "client/test/run.mjs")
		cmd.Env = append(os.Environ(), "MAESTRO="+binary)
		run(t, cmd)
	})
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}
