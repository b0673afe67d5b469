package journal

import (
	"runtime"
	"sync/atomic"
)

// A Form builds the bytes of one kind of wire. Forms are compared with ==;
// followers with equal forms share the bytes, which are made once (D2). Its
// methods may be called from several goroutines and keep neither dst nor body.
type Form interface {
	// AppendMessage appends the frame of an event whose JSON is body.
	AppendMessage(dst []byte, cursor uint64, body []byte) []byte
	// AppendSnapshot appends the frame of a snapshot whose JSON is body, or
	// nothing if the wire has none.
	AppendSnapshot(dst []byte, cursor uint64, body []byte) []byte
}

// A View reads a journal in one form. It holds no position: any number of
// followers may share a view, each with its own cursor.
type View struct {
	journal *Journal
	framed  *framed
	closed  atomic.Bool
}

// Close gives the view up. The second call does nothing.
func (v *View) Close() {
	if !v.closed.Swap(true) {
		v.journal.unfollow(v.framed)
	}
}

const (
	// defaultLimit is the size of a batch: one write of 64 KiB costs little
	// more per byte than a larger one.
	defaultLimit = 64 << 10

	// gather is how long a run of frames must be to be returned as it lies.
	// Shorter runs are copied together: that costs less than a write for each.
	gather = 8 << 10
)

// Read returns the frames of the entries after the cursor after, up to and
// including until or what is visible, about limit bytes at most (zero means
// 64 KiB) and at least one frame if there is one. Entries of a class in skip
// and hidden ones are left out. next is the cursor that was reached: it may
// lie before until, and it may have advanced although there are no frames.
//
// The frames either lie in the journal, where they must not be written to, or
// were built in buf[:0], which grows if it is too short.
//
// For entries in memory, Read takes no lock. Older entries come from the
// store, without those that are transient, and there neighbours that differ in their text only are merged into
// one frame with the cursor of the last (D5): a slow follower gets fewer and
// larger frames. Read returns ErrGap if the entry after the cursor is no
// longer kept or if the cursor lies beyond what is visible.
//
// It may be called by any number of followers at once, each with its own buf.
func (v *View) Read(buf []byte, after, until uint64, skip Class, limit int) (frames []byte, next uint64, err error) {
	visible := v.journal.visible.Load()
	until = min(until, visible)
	switch {
	case after > visible:
		return nil, after, ErrGap
	case after >= until:
		return nil, after, nil
	}
	if limit <= 0 {
		limit = defaultLimit
	}
	frames, next = v.readWindow(buf, after, until, skip, limit)
	if next > after {
		if !v.journal.read.Load() {
			v.journal.read.Store(true)
		}
		return frames, next, nil
	}
	v.journal.opts.Shared.readers <- struct{}{} // as long as it takes others to read a batch
	frames, next, err = v.readStore(buf, after, until, skip, limit)
	<-v.journal.opts.Shared.readers
	runtime.Gosched() // so that followers of the present, who wake now and then, are not behind many that read on and on
	return frames, next, err
}

// readWindow reads from memory until it meets an entry that is not there. It
// looks at visible before at any slot, so it finds all the slots it covers.
func (v *View) readWindow(buf []byte, after, until uint64, skip Class, limit int) (frames []byte, next uint64) {
	b := batch{out: buf[:0]}
	for next = after; next < until; next++ {
		s := v.framed.log.get(next + 1)
		made := s != nil
		if !made { // perhaps the form became active later
			if s = v.journal.bodies.get(next + 1); s == nil {
				break
			}
		}
		if s.kind.hidden() || s.class&skip != 0 || made && s.len() == 0 {
			continue
		}
		if b.size > 0 && b.size+s.len() > limit {
			break
		}
		if !made {
			b.frame(v.framed.form, s)
		} else if !b.add(s) {
			break
		}
	}
	return b.bytes(), next
}

// A batch collects frames: as one run in a chunk while that is possible, as a
// copy after that.
type batch struct {
	run    slot   // the run being extended, as if it were one frame
	out    []byte // what was copied before the run
	copied bool   // whether anything was
	size   int    // bytes in out and run
}

// add extends the batch by a ready frame. It reports whether it did: a long
// run is worth a write of its own.
func (b *batch) add(s *slot) bool {
	switch {
	case b.run.chunk == s.chunk && b.run.end == s.off:
		b.run.end = s.end
	case !b.copied && b.run.len() >= gather:
		return false
	default:
		b.flush()
		b.run = *s
	}
	b.size += s.len()
	return true
}

// frame extends the batch by the frame of a body.
func (b *batch) frame(f Form, s *slot) {
	b.flush()
	before := len(b.out)
	b.out = appendFrame(b.out, f, s.kind, s.cursor, s.bytes())
	b.size += len(b.out) - before
	b.copied = true
}

// flush copies the run.
func (b *batch) flush() {
	if b.run.chunk != nil {
		b.out = append(b.out, b.run.bytes()...)
		b.run, b.copied = slot{}, true
	}
}

// bytes returns what was collected.
func (b *batch) bytes() []byte {
	if b.copied {
		b.flush()
		return b.out
	}
	if b.run.chunk == nil {
		return nil
	}
	return b.run.bytes()
}

// appendFrame appends the frame of an entry that is not hidden.
func appendFrame(dst []byte, f Form, kind Kind, cursor uint64, body []byte) []byte {
	if kind == Snapshot {
		return f.AppendSnapshot(dst, cursor, body)
	}
	return f.AppendMessage(dst, cursor, body)
}
