package client

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
	"github.com/seed-028515a8/maestro/internal/sleep"
)

// attempts counts consecutive failures.
type attempts struct {
	policy Reconnect
	jitter func() float64 // in [0, 1)
	failed int
	delay  time.Duration // the last one, before jitter
}

// next counts a failure and returns how long to wait, at least floor. It returns
// false if no attempt is left.
func (a *attempts) next(floor time.Duration) (time.Duration, bool) {
	a.failed++
	if a.policy.Attempts != 0 && a.failed > a.policy.Attempts {
		return 0, false
	}
	a.delay = min(max(2*a.delay, a.policy.First), a.policy.Max)
	return max(a.delay-time.Duration(a.jitter()*float64(a.delay)/2), floor), true
}

// ended counts the failures anew if the connection that began at a time was stable.
func (a *attempts) ended(began time.Time) {
	if time.Since(began) >= a.policy.Max {
		a.failed, a.delay = 0, 0
	}
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
		if !c.prepareRetry(why) {
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
// returns false if another attempt would end the same way.
func (c *Client) prepareRetry(why *CloseError) bool {
	if why.Reason == contracts.CodeStaleConnection || why.Reason == contracts.CodeStaleSubscription {
		c.position.connection, c.position.token = "", "" // the server may still have the entries
		return true
	}
	if why.Code == 4404 {
		known := c.position != position{}
		c.position = position{} // the session is gone
		return known
	}
	return why.temporary()
}

// reconnectTakeover returns the takeover for a reconnect: if another connection got
// the lease meanwhile, it keeps it.
func (c *Client) reconnectTakeover() contracts.Takeover {
	if c.hello.Role == contracts.RoleController {
		return contracts.TakeoverLater
	}
	return contracts.TakeoverRefuse
}

// A position is a client's cursor in a session, with what it needs to continue
// there. It applies the cursor rules: no entry is delivered twice, and none is
// skipped.
type position struct {
	session    string // empty until known
	connection string // the connection to continue; empty if none
	token      string // secret of the connection

	epoch  string
	cursor uint64
	known  bool // cursor is valid; if not, the next snapshot sets it

	// replaying is set from the handshake until hello_ok, which the server sends
	// after the missed entries.
	replaying bool
}

// accept reports whether the message at cursor is new, and advances to it.
func (p *position) accept(cursor uint64) bool {
	if p.known && cursor <= p.cursor {
		return false
	}
	p.advance(cursor)
	return true
}

// advance moves to cursor; for a reset, cursor may be smaller.
func (p *position) advance(cursor uint64) { p.cursor, p.known = cursor, true }

// query returns the query of an attachment at p.
func (p *position) query(c *config, takeover contracts.Takeover) url.Values {
	q := url.Values{"role": {string(c.hello.Role)}}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	if p.session == "" && c.create {
		q.Set("create", "1")
	}
	set("sessionId", cmp.Or(p.session, c.session))
	set("takeControl", string(takeover))
	set("connectionId", p.connection)
	if p.known {
		set("epoch", p.epoch)
		q.Set("cursor", strconv.FormatUint(p.cursor, 10))
	} else if p.connection == "" && c.turns > 0 {
		q.Set("turns", strconv.Itoa(c.turns))
	}
	return q
}
