package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/seed-028515a8/maestro/contracts"
)

// A record is what one follower was shown. One goroutine adds to it while
// others wait for it to grow.
type record struct {
	name    string
	changed chan struct{} // 1-buffered; a token means "look again"; for one waiter at a time

	mu         sync.Mutex // guards the following
	cursor     uint64     // of the newest frame
	deliveries []delivery // since the last cut
	total      int        // deliveries ever added
	duplicates faults
	words      int            // of the response being streamed
	asked      string         // the newest question
	ended      map[string]int // questions, and how often they were shown to have ended
	trouble    error          // why the follower is of no use any more, or why it is not attached
}

func newRecord(name string) *record {
	return &record{name: name, changed: make(chan struct{}, 1), ended: map[string]int{}}
}

// event adds an entry of the journal. event is nil if its type is unknown or it
// is a snapshot. What is of the moment is not compared: the journal does not keep
// snapshots and who is here.
func (r *record) event(cursor uint64, event contracts.Event, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := delivery{cursor: cursor}
	switch e := event.(type) {
	case *contracts.HelloOK, *contracts.ConnectionInfo, nil:
		r.advance(cursor, body)
		return
	case *contracts.ResponseChunk:
		d.run, d.body = fmt.Sprintf("%s/%t", e.ResponseID, e.IsThinking), e.Content
		r.words += strings.Count(e.Content, " ")
	case *contracts.ResponseStart, *contracts.ResponseEnd:
		r.words = 0
	case *contracts.ServerRequest:
		r.asked = e.RequestID
	case *contracts.ServerRequestResolved:
		r.ended[e.RequestID]++
	}
	if d.run == "" {
		d.body = string(body)
	}
	if r.advance(cursor, body) {
		r.deliveries = append(r.deliveries, d)
	}
	r.total++
}

// advance moves to cursor and reports whether that is forwards. If not, the
// frame was shown before.
func (r *record) advance(cursor uint64, body []byte) bool {
	r.wake()
	if cursor <= r.cursor {
		r.duplicates.duplicates++
		r.duplicates.note("%s: %d was shown after %d: %.80s", r.name, cursor, r.cursor, body)
		return false
	}
	r.cursor = cursor
	return true
}

// fail notes why the follower is not attached; nil means that it is.
func (r *record) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trouble = err
	r.wake()
}

// await waits until done says so. It is called with the lock held.
func (r *record) await(ctx context.Context, what string, done func() bool) error {
	for {
		r.mu.Lock()
		ok, cursor, trouble := done(), r.cursor, r.trouble
		r.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			return fmt.Errorf("%s at cursor %d waits for %s: %w (attached: %v)", r.name, cursor, what, context.Cause(ctx), trouble)
		}
	}
}

// cut returns what was added since the last cut, up to and including cursor.
func (r *record) cut(cursor uint64) []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(r.deliveries) && r.deliveries[n].cursor <= cursor {
		n++
	}
	taken := r.deliveries[:n:n]
	r.deliveries = append([]delivery(nil), r.deliveries[n:]...)
	return taken
}

// wake leaves a token for the waiter.
func (r *record) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// takeFaults returns what was shown twice since the last call.
func (r *record) takeFaults() faults {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.duplicates
	r.duplicates = faults{}
	return f
}

// ends returns how often the question was shown to have ended.
func (r *record) ends(question string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended[question]
}
