// Package sleep waits in a way that a context can end.
package sleep

import (
	"context"
	"time"
)

// For returns nil after d, or the cause of ctx as soon as that has ended.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return context.Cause(ctx)
}
