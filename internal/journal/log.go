package journal

import "sync/atomic"

// A log holds byte strings of consecutive entries back to back, and an index of
// them by cursor. The window has one log for the bodies and one for the frames of
// each active form.
//
// One goroutine at a time writes. Any number read without a lock: bytes do not
// change once a slot refers to them, and a slot has its cursor, so a reader notices
// that the slot was reused.
type log struct {
	ring atomic.Pointer[ring]

	// Owned by the writer.
	first uint64 // cursor of the oldest slot
	next  uint64 // cursor of the next slot
	tail  *chunk // the chunk being filled
	used  int    // filled bytes of tail
	slab  []slot // preallocated slots for tail, so that one allocation serves many
	slabs int    // length of the newest slab of tail
	bytes int    // memory of the slots and their bytes
}

// A ring maps cursors to slots. A larger one replaces it when the log grows, and a
// smaller one after the log was shortened.
type ring struct {
	slots []atomic.Pointer[slot]
	mask  uint64 // len(slots)-1; the length is a power of two
}

// A slot is one entry's part of a chunk. It is immutable.
type slot struct {
	cursor   uint64
	chunk    *chunk
	off, end uint32 // empty if the entry is hidden
	kind     Kind
	class    Class
	inner    *slot // in place of this one for followers that do not skip its class; nil: none
}

// A chunk is filled from the left; bytes that a slot refers to never change.
type chunk struct{ buf []byte } // readers slice the header, so it does not change either

const (
	minChunk = 1 << 10
	maxChunk = 64 << 10 // larger only for a single longer entry
	minRing  = 16
	minSlab  = 8
	maxSlab  = 128

	slotBytes = 56 // a slot and the pointer to it
)

// get returns the slot of the entry at cursor, or nil. It may be called at any
// time.
func (l *log) get(cursor uint64) *slot {
	r := l.ring.Load()
	if r == nil {
		return nil
	}
	s := r.slots[cursor&r.mask].Load()
	if s == nil || s.cursor != cursor {
		return nil
	}
	return s
}

func (s *slot) bytes() []byte { return s.chunk.buf[s.off:s.end:s.end] }

func (s *slot) len() int { return int(s.end - s.off) }

// start empties the log and continues it at cursor.
func (l *log) start(cursor uint64) {
	l.ring.Store(nil)
	l.first, l.next = cursor, cursor
	l.tail, l.used, l.slab, l.slabs, l.bytes = nil, 0, nil, 0, 0
}

func (l *log) count() int { return int(l.next - l.first) }

// room returns the free part of a chunk, with space for about n bytes.
func (l *log) room(n int) []byte {
	if l.tail == nil || len(l.tail.buf)-l.used < n {
		l.newChunk(n)
	}
	return l.tail.buf[l.used:l.used]
}

// newChunk begins a chunk with space for at least n bytes. Chunks double in size,
// so that the log of a quiet session stays small. It drops preallocated slots: a
// slab used by two chunks would keep the first in memory after its eviction.
func (l *log) newChunk(n int) {
	size := minChunk
	if l.tail != nil {
		size = min(2*len(l.tail.buf), maxChunk)
	}
	l.tail = &chunk{buf: make([]byte, max(size, n))}
	l.used, l.slab, l.slabs = 0, nil, 0
}

// seen returns the slot for followers that skip the classes in skip.
func (s *slot) seen(skip Class) *slot {
	if s.inner != nil && s.inner.class&skip == 0 {
		return s.inner
	}
	return s
}

// insert adds an entry as its variants. encode returns the bytes of one: the result of
// room with something appended, or nil for a hidden entry.
func (l *log) insert(open, inner *Entry, encode func(*Entry) []byte) {
	var in *slot
	if inner != nil {
		in = new(l.fill(inner, encode(inner)))
		l.bytes += slotBytes
	}
	s := l.fill(open, encode(open))
	s.inner = in
	l.put(s)
}

// fill copies p into a chunk unless it is there. It returns the slot.
func (l *log) fill(e *Entry, p []byte) slot {
	if l.tail == nil {
		l.newChunk(len(p))
	}
	if n := len(p); n > 0 && (n > len(l.tail.buf)-l.used || &p[0] != &l.tail.buf[l.used]) {
		copy(l.room(n)[:n], p) // append moved p, because the room was too small
	}
	s := slot{
		cursor: e.Cursor, kind: e.Kind, class: e.Class,
		chunk: l.tail, off: uint32(l.used), end: uint32(l.used + len(p)),
	}
	l.used += len(p)
	l.bytes += len(p)
	return s
}

// put adds the slot of the next cursor.
func (l *log) put(next slot) {
	if len(l.slab) == 0 {
		l.slabs = min(max(minSlab, 2*l.slabs), maxSlab)
		l.slab = make([]slot, l.slabs)
	}
	s := &l.slab[0]
	l.slab = l.slab[1:]
	*s = next
	r := l.ring.Load()
	if r == nil || l.count() == len(r.slots) {
		r = l.resize(r, 2*l.count())
	}
	r.slots[next.cursor&r.mask].Store(s)
	l.next++
	l.bytes += slotBytes
}

// resize replaces r, which may be nil, with a ring of length n, or minRing if that is
// more. It must have room for all slots.
func (l *log) resize(r *ring, n int) *ring {
	n = max(n, minRing)
	other := &ring{slots: make([]atomic.Pointer[slot], n), mask: uint64(n - 1)}
	for c := l.first; c < l.next; c++ {
		other.slots[c&other.mask].Store(r.slots[c&r.mask].Load())
	}
	l.ring.Store(other)
	return other
}

// fit replaces the ring with a smaller one if most of it is empty.
func (l *log) fit() {
	r := l.ring.Load()
	if r == nil {
		return
	}
	n := len(r.slots)
	for n > minRing && n/4 > l.count() {
		n /= 2
	}
	if n < len(r.slots) {
		l.resize(r, n)
	}
}

// drop removes the slot of cursor if it is the oldest, and returns its size.
func (l *log) drop(cursor uint64) int {
	if l.count() == 0 || cursor != l.first {
		return 0
	}
	r := l.ring.Load()
	s := r.slots[cursor&r.mask].Swap(nil)
	n := slotBytes + s.len()
	if s.inner != nil {
		n += slotBytes + s.inner.len()
	}
	l.bytes -= n
	l.first++
	return n
}
