package journal

import (
	"bytes"
	"sync"
	"sync/atomic"
)

// A Form encodes the frames of one kind of wire. Forms are compared with ==;
// followers with equal forms share the frames, which are made once (D2). Its
// methods may be called from several goroutines and keep neither dst nor body.
type Form interface {
	// AppendMessage appends the frame of an event whose JSON is body.
	AppendMessage(dst []byte, cursor uint64, body []byte) []byte
	// AppendSnapshot appends the frame of a snapshot whose JSON is body, or nothing
	// if the wire has no snapshots.
	AppendSnapshot(dst []byte, cursor uint64, body []byte) []byte
}

// A View reads a journal in one form. It has no position: any number of followers
// may share a view, each with its own cursor.
type View struct {
	journal *Journal
	frames  *formFrames
	closed  atomic.Bool
}

// Close releases the view. Later calls do nothing.
func (v *View) Close() {
	if !v.closed.Swap(true) {
		v.journal.unfollow(v.frames)
	}
}

const (
	// defaultLimit is the size of a batch in bytes. Larger writes are hardly cheaper
	// per byte.
	defaultLimit = 64 << 10

	// minRun is the length in bytes from which a run of frames is returned without a
	// copy. Shorter runs are copied together, which costs less than a write for each.
	minRun = 8 << 10
)

// Read returns the frames of the entries after the cursor after, up to until or the
// newest visible entry. It returns about limit bytes at most (zero means 64 KiB),
// and at least one frame if there is one. Hidden entries and those of a class in
// skip are left out. next is the cursor that was reached: it may be less than
// until, and it may have advanced although there are no frames.
//
// The frames are in the journal's memory, which must not be written to, or in
// *buf, which Read replaces by a longer one if it is too short.
//
// For entries in memory, Read takes no lock. Older entries come from the store,
// without transient ones; for these a follower takes a turn ([Journal.TakeTurn]).
// Adjacent entries from the store that differ only in their text are merged into one
// frame with the cursor of the last (D5), so a slow follower gets fewer and larger
// frames. Read returns ErrGap if the entry after the cursor is no longer stored or if
// the cursor is greater than the newest visible one.
//
// Any number of followers may call Read at once, each with its own buf.
func (v *View) Read(buf *[]byte, after, until uint64, skip Class, limit int) (frames []byte, next uint64, err error) {
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
		if !v.journal.wasRead.Load() {
			v.journal.wasRead.Store(true)
		}
		return frames, next, nil
	}
	return v.readStore(buf, after, until, skip, limit)
}

// readWindow reads from memory until an entry is not there. It loads visible before
// any slot, so it finds all slots up to visible.
func (v *View) readWindow(buf *[]byte, after, until uint64, skip Class, limit int) (frames []byte, next uint64) {
	b := batch{out: (*buf)[:0]}
	for next = after; next < until; next++ {
		s := v.frames.log.get(next + 1)
		made := s != nil
		if !made { // the form may have become active later
			if s = v.journal.bodies.get(next + 1); s == nil {
				break
			}
		}
		s = s.seen(skip)
		if s.kind.hidden() || s.class&skip != 0 || made && s.len() == 0 {
			continue
		}
		if b.size > 0 && b.size+s.len() > limit {
			break
		}
		if !made {
			b.frame(v.frames.form, s)
		} else if !b.add(s) {
			break
		}
	}
	frames = b.bytes()
	*buf = b.out[:0]
	return frames, next
}

// A batch collects frames: as one run in a chunk while possible, then as a copy.
type batch struct {
	run    slot   // the run being extended, as one slot
	out    []byte // frames copied before the run
	copied bool   // frames were copied to out
	size   int    // bytes in out and run
}

// add appends an existing frame. It returns false if the run before it is long
// enough to be returned without a copy.
func (b *batch) add(s *slot) bool {
	switch {
	case b.run.chunk == s.chunk && b.run.end == s.off:
		b.run.end = s.end
	case !b.copied && b.run.len() >= minRun:
		return false
	default:
		b.flush()
		b.run = *s
	}
	b.size += s.len()
	return true
}

// frame appends the frame of a body.
func (b *batch) frame(f Form, s *slot) {
	b.flush()
	before := len(b.out)
	b.out = appendFrame(b.out, f, s.kind, s.cursor, s.bytes())
	b.size += len(b.out) - before
	b.copied = true
}

// flush copies the run to out.
func (b *batch) flush() {
	if b.run.chunk != nil {
		b.out = append(b.out, b.run.bytes()...)
		b.run, b.copied = slot{}, true
	}
}

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

// scanFactor bounds how many bytes of bodies one Read takes from the store, as a
// multiple of its limit. The result can be much shorter than the bodies, because
// texts are merged and entries are skipped.
const scanFactor = 16

// readStore reads entries that have left the window, up to its beginning.
func (v *View) readStore(buf *[]byte, after, until uint64, skip Class, limit int) ([]byte, uint64, error) {
	m := mergers.Get().(*merger)
	defer m.release()
	m.form, m.skip, m.limit = v.frames.form, skip, limit
	m.out, m.next, m.until = (*buf)[:0], after, min(until, v.journal.oldest.Load()-1)

	err := v.journal.store.Read(after, m.entry)
	m.flush()
	*buf = m.out[:0]
	if m.merged > 0 {
		v.journal.merged.Add(m.merged)
	}
	switch {
	case err == nil && !m.full:
		m.next = m.until
	case err != nil && m.next == after:
		return nil, after, err
	}
	// If an error came after some entries, the next Read returns it.
	return m.out, m.next, nil
}

// A merger makes frames of entries from the store. It holds one entry back, because
// the next one may merge with it.
type merger struct {
	form  Form
	skip  Class
	limit int
	until uint64

	out     []byte
	next    uint64 // last entry read
	scanned int    // bytes of bodies read
	merged  uint64 // entries merged into the one held back
	full    bool   // stopped before until

	held      bool
	head      Entry  // the entry held back, without body
	body      []byte // its body up to the end of the text
	rest      []byte // its body after the text
	textBytes int
}

var mergers = sync.Pool{New: func() any { return new(merger) }}

// release returns m to the pool unless its buffers are large.
func (m *merger) release() {
	const maxPooled = 256 << 10
	if cap(m.body)+cap(m.rest) <= maxPooled {
		*m = merger{body: m.body[:0], rest: m.rest[:0]}
		mergers.Put(m)
	}
}

// entry handles the next entry and reports whether it wants another.
func (m *merger) entry(e Entry) bool {
	if e.Cursor > m.until {
		return false
	}
	if m.scanned > m.limit*scanFactor {
		m.full = true
		return false
	}
	m.scanned += len(e.Body)
	e, seen := e.Seen(m.skip)
	if !seen {
		m.next = e.Cursor
		return true
	}
	if m.merges(&e) {
		m.body = append(m.body, e.Body[e.TextStart:e.TextEnd]...)
		m.textBytes += int(e.TextEnd - e.TextStart)
		m.head.Cursor, m.next = e.Cursor, e.Cursor
		m.merged++
		return true
	}
	m.flush()
	if len(m.out) > 0 && len(m.out)+len(e.Body) > m.limit {
		m.full = true
		return false
	}
	m.holdBack(&e)
	return true
}

// merges reports whether e continues the text of the entry held back.
func (m *merger) merges(e *Entry) bool {
	text := int(e.TextEnd) - int(e.TextStart)
	return m.held && text > 0 && m.textBytes > 0 && m.textBytes+text <= MaxMergedText &&
		e.Kind == Message && m.head.Kind == Message && e.Class == m.head.Class && e.TextStart == m.head.TextStart &&
		bytes.Equal(e.Body[:e.TextStart], m.body[:e.TextStart]) &&
		bytes.Equal(e.Body[e.TextEnd:], m.rest)
}

// holdBack keeps a copy of e, whose body is only valid now.
func (m *merger) holdBack(e *Entry) {
	m.body = append(m.body[:0], e.Body[:e.TextEnd]...)
	m.rest = append(m.rest[:0], e.Body[e.TextEnd:]...)
	m.textBytes = int(e.TextEnd - e.TextStart)
	m.head, m.held, m.next = *e, true, e.Cursor
	m.head.Body = nil
}

// flush frames the entry held back.
func (m *merger) flush() {
	if m.held {
		m.body = append(m.body, m.rest...)
		m.out = appendFrame(m.out, m.form, m.head.Kind, m.head.Cursor, m.body)
		m.held = false
	}
}
