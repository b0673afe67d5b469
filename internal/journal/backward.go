package journal

import (
	"bytes"
	"errors"
	"iter"
	"runtime"
)

const (
	firstBlock = 64      // entries that Backward reads first
	maxBlock   = 4096    // entries that it reads at a time
	blockBytes = 1 << 20 // bytes of bodies that it keeps at a time, and at least one entry
)

// Backward returns the visible entries before a cursor, the newest first, until an
// error or the oldest stored entry. It reads from the store, in blocks, so transient
// entries are notes. Cursors that were never used or were lost are skipped. Notes and
// checkpoints come without their bodies. The caller may keep the bodies of the others.
//
// Backward counts as a follower that reads from the store; see [Journal.TakeTurn].
func (j *Journal) Backward(before uint64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		before := min(before, j.visible.Load()+1)
		for n := uint64(firstBlock); ; n = min(2*n, maxBlock) {
			after, ok := j.store.Rewind(before, n)
			if !ok {
				return
			}
			block, err := j.readBlock(after, before)
			if err != nil {
				if !errors.Is(err, ErrGap) { // ErrGap: retention has removed the entries meanwhile
					yield(Entry{}, err)
				}
				return
			}
			for i := len(block) - 1; i >= 0; i-- {
				if !yield(block[i], nil) {
					return
				}
			}
			if len(block) == 0 {
				return
			}
			before, n = block[0].Cursor, min(n, uint64(len(block)))
		}
	}
}

// readBlock returns the entries between two cursors. If they have more than blockBytes,
// it returns the newest of them.
func (j *Journal) readBlock(after, before uint64) (block []Entry, err error) {
	defer runtime.Gosched() // so that long reads do not delay live followers
	defer j.TakeTurn()()
	size := 0
	err = j.store.Read(after, func(e Entry) bool {
		if e.Cursor >= before {
			return false
		}
		if e.Kind.hidden() {
			e.Body = nil
		}
		e.Body = bytes.Clone(e.Body)
		block = append(block, e)
		for size += len(e.Body); size > blockBytes && len(block) > 1; block = block[1:] {
			size -= len(block[0].Body)
			block[0] = Entry{}
		}
		return true
	})
	return block, err
}
