package ratelimit

import (
	"container/list"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A table has an allowance for each of the most recently seen ids.
type table struct {
	// Static after newTable.
	limit rate.Limit // per second
	burst int
	most  int // ids

	mu     sync.Mutex
	order  *list.List               // of *allowance, most recently used first; at most most
	byID   map[string]*list.Element // into order
	shared *allowance               // for all ids that are not in order
}

type allowance struct {
	id      string
	limiter *rate.Limiter
	last    time.Time // latest time that a refused client was told to come back
}

// maxQueue bounds how much longer a client waits because others were told to
// wait. The others may not come back, or come back too early.
const maxQueue = 30 * time.Second

// newTable returns a table, or nil, which limits nothing, if perSecond is
// negative.
func newTable(perSecond float64, burst, most int) *table {
	if perSecond < 0 {
		return nil
	}
	return &table{
		limit: rate.Limit(perSecond), burst: burst, most: most,
		order: list.New(), byID: map[string]*list.Element{},
		shared: &allowance{limiter: rate.NewLimiter(rate.Limit(perSecond), burst)},
	}
}

// take counts one use for id and returns zero, or counts nothing and returns
// how long to wait. The waits of refused clients differ by the rate of the
// limit, in order of arrival: if all came back at the same time, most would be
// refused again.
func (t *table) take(id string, now time.Time) time.Duration {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.allowance(id, now)
	turn := a.limiter.ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait == 0 {
		return 0
	}
	turn.CancelAt(now)
	first := now.Add(wait)
	a.last = a.last.Add(time.Duration(float64(time.Second) / float64(t.limit)))
	if a.last.Before(first) {
		a.last = first
	} else if latest := first.Add(maxQueue); a.last.After(latest) {
		a.last = latest
	}
	return a.last.Sub(now)
}

// allowance returns the allowance for id. A full table replaces the least
// recently used id only if its allowance is unused; otherwise id uses the
// shared one. So filling the table with ids does not reset the allowance of any
// of them.
func (t *table) allowance(id string, now time.Time) *allowance {
	if e, ok := t.byID[id]; ok {
		t.order.MoveToFront(e)
		return e.Value.(*allowance)
	}
	if t.order.Len() >= t.most {
		last := t.order.Back()
		if last.Value.(*allowance).limiter.TokensAt(now) < float64(t.burst) {
			return t.shared
		}
		delete(t.byID, t.order.Remove(last).(*allowance).id)
	}
	a := &allowance{id: strings.Clone(id), limiter: rate.NewLimiter(t.limit, t.burst)} // do not retain the request that id may be part of
	t.byID[a.id] = t.order.PushFront(a)
	return a
}
