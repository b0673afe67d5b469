package hub_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Whoever starts a goroutine waits for it: none outlives the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
