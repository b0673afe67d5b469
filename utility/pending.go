package utility

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/seed-028515a8/maestro/contracts"
)

const (
	// maxPendingPaths bounds the changed paths that wait to be reported. If it
	// is reached, all are reported at once.
	maxPendingPaths = 10_000

	// reportGap is the minimum time between two reports, so that changes that
	// fall due one after another share a report.
	reportGap = 5 * time.Millisecond

	// minMaxDelay is the maximum delay of a path that changes all the time, or
	// ten times the debounce if that is longer.
	minMaxDelay = time.Second
)

// A pendingChange is a changed path that still waits to be reported.
type pendingChange struct {
	noted
	order int // of the first change among all paths
	limit time.Time
	due   time.Time
}

// A pending holds changes until their paths have been quiet for the debounce.
// It has no clock.
type pending struct {
	debounce time.Duration
	paths    map[string]*pendingChange // at most maxPendingPaths
	count    int                       // of paths added so far
}

func newPending(debounce time.Duration) pending {
	return pending{debounce: debounce, paths: make(map[string]*pendingChange)}
}

// full reports whether due must be called before add.
func (p *pending) full() bool { return len(p.paths) >= maxPendingPaths }

// add adds a change. The last kind counts, except that a path that appeared and
// was then written to still counts as new.
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

// due removes and returns the changes that are due, or all if it is full, in
// the order in which their paths first changed.
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
