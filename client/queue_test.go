package client

import (
	"errors"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// TestQueueKeepsOrderAndBound compares the queue with a plain list.
func TestQueueKeepsOrderAndBound(t *testing.T) {
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
				if got := q.tryPush(it); got != fits {
					rt.Fatalf("offer(%d) to %d bytes: got %v, want %v", it.size, bytes, got, fits)
				}
				if fits {
					model, bytes = append(model, it), bytes+it.size
				}
				continue
			}
			it, ok, _ := q.popItem()
			if ok != (len(model) > 0) {
				rt.Fatalf("take from %d: got %v", len(model), ok)
			}
			if ok {
				if it.update.Cursor != model[0].update.Cursor {
					rt.Fatalf("take: got %d, want %d", it.update.Cursor, model[0].update.Cursor)
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
