package ratelimit

import (
	"container/list"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A table has an allowance for each of the last ids that were seen.
type table struct {
	// Static after newTable.
	limit rate.Limit // per second
	burst int
	most  int // ids

	mu     sync.Mutex
	order  *list.List               // of *allowance, most recently used first; at most most
	byID   map[string]*list.Element // into order
	shared *allowance               // of all that are not in order
}

type allowance struct {
	id      string
	limiter *rate.Limiter
	last    time.Time // when the last of those is due who were told to wait
}

// maxQueue bounds by how much somebody waits longer because others were told to
// wait: they may not come back, or come back without having waited.
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

// take counts one for id and returns zero, or counts nothing and returns how
// long to wait. Those who have to wait are spread in the order in which they
// came, as fast as the limit lets them in: if all were told to come back at the
// same time, most of them would be refused again.
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

// allowance returns the one that counts for id. A table that is full forgets who
// came least recently, unless that would give back what they have used: then
// the newcomer goes with the crowd. Otherwise an id could be had anew by
// filling the table with others.
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
	a := &allowance{id: strings.Clone(id), limiter: rate.NewLimiter(t.limit, t.burst)} // the id may be part of a request
	t.byID[a.id] = t.order.PushFront(a)
	return a
}
