package client

import (
	"context"
	"errors"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// attempts counts failures in a row.
type attempts struct {
	policy Reconnect
	jitter func() float64 // in [0, 1)
	failed int
}

// next counts a failure and returns how long to wait, at least floor. It
// reports false if that was the last attempt allowed.
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

// again makes the next connection after one that ended, or returns why there
// will be none.
func (c *Client) again(ctx context.Context, why *CloseError, tries *attempts) (*link, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if c.queue.closed() {
			return nil, ErrClosed
		}
		if !c.prepare(why.step()) {
			return nil, why
		}
		delay, ok := tries.next(why.RetryAfter)
		if !ok {
			return nil, why
		}
		c.log.Info("connection lost", "cause", why, "retry", delay)
		u := Update{Kind: KindDisconnected, Cursor: c.place.cursor, Err: why, Retry: delay}
		if err := c.tell(ctx, u, noticeSize); err != nil {
			return nil, err
		}
		if err := sleep.For(ctx, delay); err != nil {
			return nil, err
		}
		l, err := c.attach(ctx, c.returning(), "")
		if err == nil {
			return l, nil
		}
		if !errors.As(err, &why) {
			return nil, err
		}
	}
}

// prepare forgets what the server will not know any more. It reports false if
// there is no point in another attempt.
func (c *Client) prepare(s step) bool {
	switch s {
	case stepStop:
		return false
	case stepLeave:
		c.place.leave()
	case stepForget:
		if c.place.fresh() {
			return false
		}
		c.place.forget()
	}
	return true
}

// returning is how a client that comes back treats the lease: whoever was given
// it meanwhile keeps it.
func (c *Client) returning() contracts.Takeover {
	if c.hello.Role == contracts.RoleController {
		return contracts.TakeoverLater
	}
	return contracts.TakeoverRefuse
}
