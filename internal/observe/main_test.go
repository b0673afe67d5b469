package observe_test

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// What the machine says about tracing is not what the tests are about. Whoever
// starts a goroutine waits for it: none outlives the tests.
func TestMain(m *testing.M) {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "OTEL_") || strings.HasPrefix(name, "MAESTRO_") || strings.HasPrefix(name, "EVALOPS_") {
			if err := os.Unsetenv(name); err != nil {
				panic(err)
			}
		}
	}
	goleak.VerifyTestMain(m)
}
