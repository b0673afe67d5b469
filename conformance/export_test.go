package conformance

import "context"

// RunOne runs one scenario, without looking first whether the server answers and which
// agent it has: a fault could keep that from working.
func RunOne(ctx context.Context, c Config, sc Scenario) Result {
	c.setDefaults()
	return runOne(ctx, &c, sc)
}
