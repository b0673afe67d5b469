package rates

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
	shared *rate.Limiter            // of all that are not in order
}

type allowance struct {
	id      string
	limiter *rate.Limiter
}

// newTable returns a table, or nil, which limits nothing, if perSecond is
// negative.
func newTable(perSecond float64, burst, most int) *table {
	if perSecond < 0 {
		return nil
	}
	return &table{
		limit: rate.Limit(perSecond), burst: burst, most: most,
		order: list.New(), byID: map[string]*list.Element{}, shared: rate.NewLimiter(rate.Limit(perSecond), burst),
	}
}

// take counts one for id and returns zero, or counts nothing and returns how
// long to wait.
func (t *table) take(id string, now time.Time) time.Duration {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	turn := t.limiter(id, now).ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait > 0 {
		turn.CancelAt(now)
	}
	return wait
}

// limiter returns the one that counts for id. A table that is full forgets who
// came least recently, unless that would give back what they have used: then
// the newcomer goes with the crowd. Otherwise an id could be had anew by
// filling the table with others.
func (t *table) limiter(id string, now time.Time) *rate.Limiter {
	if e, ok := t.byID[id]; ok {
		t.order.MoveToFront(e)
		return e.Value.(*allowance).limiter
	}
	if t.order.Len() >= t.most {
		last := t.order.Back()
		if last.Value.(*allowance).limiter.TokensAt(now) < float64(t.burst) {
			return t.shared
		}
		delete(t.byID, t.order.Remove(last).(*allowance).id)
	}
	a := &allowance{strings.Clone(id), rate.NewLimiter(t.limit, t.burst)} // the id may be part of a request
	t.byID[a.id] = t.order.PushFront(a)
	return a.limiter
}
