package utility

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	// maxPendingPaths bounds the paths with changes that wait to be reported.
	// Beyond, all are reported without waiting for them to be quiet.
	maxPendingPaths = 10_000

	// reportGap is how long changes that fall due one after the other are
	// gathered, so that many of them cost one look.
	reportGap = 5 * time.Millisecond

	// minMaxDelay is how long a path that is changed all the time may stay
	// unreported at least; with a long debounce it is ten times that.
	minMaxDelay = time.Second
)

// A pendingChange is a path that has changed and is not quiet yet.
type pendingChange struct {
	noted
	order int // among the first changes of all paths
	limit time.Time
	due   time.Time
}

// A pending holds changes until their paths have been quiet for the debounce.
// It has no clock.
type pending struct {
	debounce time.Duration
	paths    map[string]*pendingChange // at most maxPendingPaths
	count    int                       // of paths ever added
}

func newPending(debounce time.Duration) pending {
	return pending{debounce: debounce, paths: make(map[string]*pendingChange)}
}

// full reports whether something has to be taken out before more is added.
func (p *pending) full() bool { return len(p.paths) >= maxPendingPaths }

// add notes a change. Of several kinds the last counts, but what has appeared
// and was then written to has appeared.
func (p *pending) add(n noted, now time.Time) {
	c := p.paths[n.rel]
	switch {
	case c == nil:
		c = &pendingChange{noted: n, order: p.count, limit: now.Add(max(10*p.debounce, minMaxDelay))}
		p.count++
		p.paths[n.rel] = c
	case n.kind != contracts.FileModified || c.kind == contracts.FileDeleted:
		c.noted = n
	}
	c.due = now.Add(p.debounce)
	if c.due.After(c.limit) {
		c.due = c.limit
	}
}

// due removes and returns the changes that are due, or all if there is no room
// for more, in the order in which their paths changed first.
func (p *pending) due(now time.Time) []pendingChange {
	all := p.full()
	var due []pendingChange
	for rel, c := range p.paths {
		if all || !c.due.After(now) {
			due = append(due, *c)
			delete(p.paths, rel)
		}
	}
	slices.SortFunc(due, func(a, b pendingChange) int { return cmp.Compare(a.order, b.order) })
	return due
}

// next returns how long to wait until changes are due.
func (p *pending) next(now time.Time) time.Duration {
	wait := time.Duration(math.MaxInt64)
	for _, c := range p.paths {
		wait = min(wait, c.due.Sub(now))
	}
	return max(wait, reportGap)
}
