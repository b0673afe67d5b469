package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// TestQueueKeepsOrderAndBound compares the queue with a plain list.
func TestQueueKeepsOrderAndBound(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel() // nothing is waited for
	rapid.Check(t, func(rt *rapid.T) {
		const bound = 100
		q := newQueue(bound)
		var model []item
		bytes := 0
		next := uint64(0)
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "push") {
				it := item{Update{Cursor: next}, rapid.IntRange(1, 150).Draw(rt, "size")}
				next++
				fits := bytes == 0 || bytes+it.size <= bound
				if got := q.push(over, it.update, it.size) == nil; got != fits {
					rt.Fatalf("offer(%d) to %d bytes: got %v, want %v", it.size, bytes, got, fits)
				}
				if fits {
					model, bytes = append(model, it), bytes+it.size
				}
				continue
			}
			u, err := q.pop(over)
			if (err == nil) != (len(model) > 0) {
				rt.Fatalf("take from %d: got %v", len(model), err)
			}
			if err == nil {
				if u.Cursor != model[0].update.Cursor {
					rt.Fatalf("take: got %d, want %d", u.Cursor, model[0].update.Cursor)
				}
				bytes -= model[0].size
				model = model[1:]
			}
			if len(q.items) > 2*len(model)+1 {
				rt.Fatalf("%d places are kept for %d items", len(q.items), len(model))
			}
		}
	})
}

func TestClosedQueueGivesWhatWaitsAndThenTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(10)
		why := errors.New("over")
		if err := q.push(t.Context(), Update{Cursor: 1}, 10); err != nil {
			t.Fatal(err)
		}
		q.close(why, false)
		q.close(errors.New("later"), false)
		if u, err := q.pop(t.Context()); err != nil || u.Cursor != 1 {
			t.Errorf("got %v, %v; want what waited", u, err)
		}
		for range 2 {
			if _, err := q.pop(t.Context()); !errors.Is(err, why) {
				t.Errorf("got %v, want %v", err, why)
			}
		}
	})
}
