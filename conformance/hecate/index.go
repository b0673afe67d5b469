package hecate

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/sleep"
)

// An index follows the cross-run stream from its beginning and knows the runs of the server.
type index struct {
	done chan struct{} // closed when its goroutine has ended

	mu      sync.Mutex
	runs    []*known      // oldest first, at most maxRuns
	cursor  string        // of the last event
	err     error         // of the last attempt to read the stream
	last    time.Time     // when the last event came, or the stream was opened
	settled bool          // it was silent once
	changed chan struct{} // closed and replaced at every change
}

// A known is a run of the index.
type known struct {
	ref
	ended  bool
	events int
}

// maxRuns bounds the runs of an index: later ones replace the oldest.
const maxRuns = 1000

// backfillPause is how long a stream is silent once it has shown what existed, in general.
const backfillPause = 500 * time.Millisecond

// newIndex starts an index that ends with ctx.
func newIndex(ctx context.Context, w *wire) *index {
	x := &index{done: make(chan struct{}), changed: make(chan struct{}), last: time.Now()}
	go func() { // ends with ctx
		defer close(x.done)
		for ctx.Err() == nil {
			st, err := w.stream(ctx, feedStream, x.position())
			x.note(func() { x.err, x.last = err, time.Now() })
			if err == nil {
				for f := range st.frames {
					x.add(f)
				}
				st.close()
			}
			_ = sleep.For(ctx, backfillPause) // the loop looks at ctx
		}
	}()
	return x
}

// note changes the index and wakes those who wait.
func (x *index) note(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
	close(x.changed)
	x.changed = make(chan struct{})
}

// add learns from an event.
func (x *index) add(f frame) {
	if f.comment {
		return
	}
	e := f.envelope()
	x.note(func() {
		x.last, x.cursor = time.Now(), cmp.Or(f.id, x.cursor)
		at := slices.IndexFunc(x.runs, func(k *known) bool { return k.run == e.run })
		if at < 0 {
			if at = len(x.runs); at == maxRuns {
				at--
				x.runs = slices.Delete(x.runs, 0, 1)
			}
			x.runs = append(x.runs, &known{ref: ref{e.task, e.run}})
		}
		x.runs[at].events++
		x.runs[at].ended = x.runs[at].ended || e.ends()
	})
}

// position returns the id of the last event, which a stream can go on after.
func (x *index) position() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cursor
}

// list returns the runs that are known, oldest first, and why there may be more.
func (x *index) list() ([]known, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := make([]known, len(x.runs))
	for i, k := range x.runs {
		list[i] = *k
	}
	return list, x.err
}

// longest returns the run with most events.
func (x *index) longest() ref {
	runs, _ := x.list()
	return slices.MaxFunc(runs, func(a, b known) int { return cmp.Compare(a.events, b.events) }).ref
}

// settle waits until the stream has shown what existed when it was opened.
func (x *index) settle(ctx context.Context) {
	for {
		x.mu.Lock()
		rest := time.Until(x.last.Add(backfillPause))
		x.settled = x.settled || rest <= 0
		settled := x.settled
		x.mu.Unlock()
		if settled || sleep.For(ctx, rest) != nil {
			return
		}
	}
}

// newRun waits for a run that is none of those, and, with newTask, belongs to another task.
func (x *index) newRun(ctx context.Context, before []known, newTask bool) (ref, bool) {
	for {
		x.mu.Lock()
		changed := x.changed
		for _, k := range x.runs {
			if !slices.ContainsFunc(before, func(b known) bool { return b.run == k.run || newTask && b.task == k.task }) {
				x.mu.Unlock()
				return k.ref, true
			}
		}
		x.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ref{}, false
		}
	}
}
