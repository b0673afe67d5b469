package hecate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/internal/sleep"
)

// An index follows the cross-run stream from its beginning and knows the runs of the server.
type index struct {
	wire *wire
	done chan struct{} // closed when its goroutine has ended

	settling sync.Mutex // held by settle; taken before mu
	settled  bool       // settle has succeeded once; guarded by settling

	mu      sync.Mutex
	runs    []*known      // oldest first, at most maxRuns
	cursor  string        // of the last event
	err     error         // of the last attempt to read the stream
	changed chan struct{} // closed and replaced at every change
}

// A known is a run of the index.
type known struct {
	ref
	ended  bool
	events int
	last   int64 // the sequence of its last event
}

// maxRuns bounds the runs of an index: later ones replace the oldest.
const maxRuns = 1000

// reopenPause is the time between two attempts to read the stream.
const reopenPause = 500 * time.Millisecond

// newIndex starts an index that ends with ctx.
func newIndex(ctx context.Context, w *wire) *index {
	x := &index{wire: w, done: make(chan struct{}), changed: make(chan struct{})}
	go func() { // ends with ctx
		defer close(x.done)
		for ctx.Err() == nil {
			st, err := w.stream(ctx, feedStream, x.position())
			x.note(func() { x.err = err })
			if err == nil {
				for f := range st.frames {
					x.add(f)
				}
				st.close()
			}
			_ = sleep.For(ctx, reopenPause) // the loop looks at ctx
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
		x.cursor = cmp.Or(f.id, x.cursor)
		at := slices.IndexFunc(x.runs, func(k *known) bool { return k.run == e.run })
		if at < 0 {
			if at = len(x.runs); at == maxRuns {
				at--
				x.runs = slices.Delete(x.runs, 0, 1)
			}
			x.runs = append(x.runs, &known{ref: ref{e.task, e.run}})
		}
		x.runs[at].events++
		x.runs[at].last = max(x.runs[at].last, e.sequence)
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

// settle waits until the stream has shown every event that the cross-run list has. From then on the
// index knows the runs that existed before, however slow the server and this machine are.
func (x *index) settle(ctx context.Context) error {
	x.settling.Lock()
	defer x.settling.Unlock()
	if x.settled {
		return nil
	}
	newest := &event{}
	for after := x.position(); ; {
		e, next, err := x.page(ctx, after)
		if err != nil {
			return err
		}
		if e == nil {
			break
		}
		newest = e
		if next == "" { // the server gives cursors on the stream only
			if err := x.await(ctx, func() bool { return x.cursor != after }); err != nil {
				return fmt.Errorf("GET %s: expected it to come to %s: %w", feedStream, newest, err)
			}
			next = x.position()
		}
		if next == after { // the cursors do not advance; other scenarios judge that
			break
		}
		after = next
	}
	shown := func() bool {
		has := func(k *known) bool { return k.run == newest.run && k.last >= newest.sequence }
		return newest.raw == nil || slices.ContainsFunc(x.runs, has)
	}
	if err := x.await(ctx, shown); err != nil {
		return fmt.Errorf("GET %s: expected it to come to %s: %w", feedStream, newest, err)
	}
	x.settled = true
	return nil
}

// page returns the last event of the page of the cross-run list after a cursor, nil if the page is
// empty, and the cursor of that event if the server gives one.
func (x *index) page(ctx context.Context, after string) (last *event, next string, err error) {
	query := url.Values{"limit": {strconv.Itoa(maxPage)}}
	if after != "" {
		query.Set("after_sequence", after)
	}
	a, err := x.wire.do(ctx, http.MethodGet, feedList+"?"+query.Encode(), acceptList, nil)
	if err != nil {
		return nil, "", err
	}
	var p page
	if err := json.Unmarshal(a.body, &p); a.status != http.StatusOK || err != nil {
		return nil, "", fmt.Errorf("%s: expected a list, got %d %s", a.what, a.status, short(a.body))
	}
	if p.Data == nil || len(*p.Data) == 0 {
		return nil, "", nil
	}
	return parseEvent((*p.Data)[len(*p.Data)-1]), p.Next.String(), nil
}

// await waits until the index fulfils a condition, which is called with mu held. It returns an error
// if the stream cannot be read or ctx ends before.
func (x *index) await(ctx context.Context, holds func() bool) error {
	for {
		x.mu.Lock()
		ok, err, changed := holds(), x.err, x.changed
		x.mu.Unlock()
		if ok {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
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
