package journal

import (
	"context"
	"runtime"
)

// replayBlock is how many entries Replay reads at a time.
const replayBlock = 1024

// Replay calls fn with the visible entries from which the owner restores its state as of
// the cursor until: the newest stored checkpoint up to it and the entries after that, in
// order. Without such a checkpoint, fn gets all entries up to the cursor if the first of
// the journal is still stored, else only the oldest stored checkpoint, which comes after
// the cursor. If there is none either, Replay returns ErrGap.
//
// Replay reads from the store, in blocks, so transient entries are notes. A body is valid
// until fn returns. Replay ends with an error of fn or ctx. It counts as a follower that
// reads from the store; see [Journal.TakeTurn].
func (j *Journal) Replay(ctx context.Context, until uint64, fn func(Entry) error) error {
	until = min(until, j.visible.Load())
	from, err := j.replayPoint(ctx, until)
	if err != nil {
		return err
	}
	var failed error
	_, err = j.blocks(ctx, from-1, max(from, until), func(e Entry) bool {
		failed = fn(e)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// replayPoint returns the cursor of the first entry that Replay reads.
func (j *Journal) replayPoint(ctx context.Context, until uint64) (uint64, error) {
	if mark := j.store.LastCheckpoint(); mark > 0 && mark <= until {
		return mark, nil
	}
	for before := until + 1; ; {
		after, ok := j.store.Rewind(before, replayBlock)
		if !ok {
			break
		}
		var first, mark uint64
		_, err := j.blocks(ctx, after, before-1, func(e Entry) bool {
			if first == 0 {
				first = e.Cursor
			}
			if e.Kind == Checkpoint {
				mark = e.Cursor
			}
			return true
		})
		switch {
		case err != nil:
			return 0, err
		case mark > 0:
			return mark, nil
		case first == 1:
			return 1, nil
		case first == 0:
			return 0, ErrGap
		}
		before = first
	}
	first, _ := j.store.Bounds()
	if first == 0 {
		return 0, ErrGap
	}
	stopped, err := j.blocks(ctx, first-1, j.visible.Load(), func(e Entry) bool { return e.Kind != Checkpoint })
	if err == nil && stopped == 0 {
		err = ErrGap
	}
	return stopped, err
}

// blocks calls fn with the entries after a cursor up to another one, until fn returns
// false. It returns the cursor of the entry for which fn did that, or zero.
func (j *Journal) blocks(ctx context.Context, after, until uint64, fn func(Entry) bool) (stopped uint64, err error) {
	for more := after < until; more; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		leave := j.TakeTurn()
		n := 0
		more = false
		err := j.store.Read(after, func(e Entry) bool {
			if e.Cursor > until {
				return false
			}
			if n++; n > replayBlock {
				more = true
				return false
			}
			after = e.Cursor
			if !fn(e) {
				stopped = e.Cursor
				return false
			}
			return true
		})
		leave()
		runtime.Gosched() // so that long reads do not delay live followers
		if err != nil || stopped > 0 {
			return stopped, err
		}
	}
	return 0, nil
}
