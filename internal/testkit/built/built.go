// Package built compiles the program for tests that run it in processes of its own.
package built

import (
	"fmt"
	"os"
	"os/exec"
)

// Maestro writes the program to path. The flags are those of `make build`: tests get the
// program that users run, and all builds share the compiled packages.
func Maestro(path string) error {
	cmd := exec.Command("go", "build", "-tags=grpcnotrace", "-trimpath", "-ldflags=-s -w", "-o", path,
		"github.com/seed-028515a8/maestro/cmd/maestro")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build cmd/maestro: %w\n%s", err, out)
	}
	return nil
}
