package journal

import (
	"bytes"
	"sync"
)

// scanFactor bounds how many bytes of bodies one Read takes from the store, as a
// multiple of its limit. The result can be much shorter than the bodies, because
// texts are merged and entries are skipped.
const scanFactor = 16

// readStore reads entries that have left the window, up to its beginning.
func (v *View) readStore(buf []byte, after, until uint64, skip Class, limit int) ([]byte, uint64, error) {
	m := mergers.Get().(*merger)
	defer m.release()
	m.form, m.skip, m.limit = v.frames.form, skip, limit
	m.out, m.next, m.until = buf[:0], after, min(until, v.journal.oldest.Load()-1)

	err := v.journal.store.Read(after, m.entry)
	m.flush()
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
	if e.Kind.hidden() || e.Class&m.skip != 0 {
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
	return m.held && text > 0 && m.textBytes > 0 && m.textBytes+text <= maxMergedText &&
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
