package client

import (
	"context"
	"errors"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// attempts counts consecutive failures.
type attempts struct {
	policy Reconnect
	jitter func() float64 // in [0, 1)
	failed int
}

// next counts a failure and returns how long to wait, at least floor. It returns
// false if no attempt is left.
func (a *attempts) next(floor time.Duration) (time.Duration, bool) {
	a.failed++
	if a.policy.Attempts != 0 && a.failed > a.policy.Attempts {
		return 0, false
	}
	delay := a.policy.First
	for range a.failed - 1 {
		if delay >= a.policy.Max {
			break
		}
		delay *= 2
	}
	delay = min(delay, a.policy.Max)
	delay -= time.Duration(a.jitter() * float64(delay) / 2)
	return max(delay, floor), true
}

// nextLink makes the next connection after one that ended, or returns why there
// will be none.
func (c *Client) nextLink(ctx context.Context, why *CloseError, tries *attempts) (*link, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if c.queue.closed() {
			return nil, ErrClosed
		}
		if !c.prepareRetry(why.step()) {
			return nil, why
		}
		delay, ok := tries.next(why.RetryAfter)
		if !ok {
			return nil, why
		}
		c.log.Info("connection lost", "cause", why, "retry", delay)
		u := Update{Kind: KindDisconnected, Cursor: c.position.cursor, Err: why, Retry: delay}
		if err := c.deliver(ctx, u, noFrameSize); err != nil {
			return nil, err
		}
		if err := sleep.For(ctx, delay); err != nil {
			return nil, err
		}
		l, err := c.attach(ctx, c.reconnectTakeover(), "")
		if err == nil {
			return l, nil
		}
		if !errors.As(err, &why) {
			return nil, err
		}
	}
}

// prepareRetry drops the parts of the position that the server no longer knows. It
// returns false if another attempt would fail too.
func (c *Client) prepareRetry(s step) bool {
	switch s {
	case stepStop:
		return false
	case stepNewConnection:
		c.position.dropConnection()
	case stepStartOver:
		if c.position.isNew() {
			return false
		}
		c.position.reset()
	}
	return true
}

// reconnectTakeover returns the takeover for a reconnect: if another connection got
// the lease meanwhile, it keeps it.
func (c *Client) reconnectTakeover() contracts.Takeover {
	if c.hello.Role == contracts.RoleController {
		return contracts.TakeoverLater
	}
	return contracts.TakeoverRefuse
}
