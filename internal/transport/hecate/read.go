package hecate

import (
	"errors"
	"strings"

	"github.com/seed-028515a8/maestro/internal/journal"
)

// A reader reads the events of one run, or of all runs that pass its filter, each once
// and in order. It belongs to one goroutine.
type reader struct {
	log   *scopeLog
	run   *run            // nil: all runs
	task  string          // empty: all
	chat  string          // of the only session that the client may see; empty: all
	kinds map[string]bool // types; nil: all

	after int64  // sequence, or number, of the last event that was read or skipped; -1: none
	entry uint64 // of all runs: entries up to it are done; 0: not known yet
}

// maxRead is about how many bytes of entries one call of read takes.
const maxRead = 256 << 10

// read calls do with the next events until it returns false, and returns whether there
// may be more. Without an event and without more, the reader has all that is visible.
func (r *reader) read(do func(record) bool) (more bool, err error) {
	if r.run != nil {
		return r.readRun(do)
	}
	return r.readAll(do)
}

// cursor returns the position of an event for this reader.
func (r *reader) cursor(ev record) uint64 {
	if r.run != nil {
		return ev.seq
	}
	return ev.number
}

func (r *reader) readAll(do func(record) bool) (more bool, err error) {
	l := r.log
	if r.entry == 0 {
		l.mu.Lock()
		r.entry = l.index.seek(uint64(max(r.after, 0)))
		l.mu.Unlock()
	}
	r.entry = max(r.entry, l.journal.First()-1) // what was pruned has left a marker
	visible := l.journal.Visible()
	if r.entry >= visible {
		return false, nil
	}
	text, next, err := l.read(r.entry, visible)
	if errors.Is(err, journal.ErrGap) { // retention was faster: begin at the first entry
		return true, nil
	}
	complete := eachRecord(text, func(cursor uint64, ev record) bool {
		r.entry = cursor - 1 // until the entry is read to its end
		if int64(ev.number) <= r.after {
			return true
		}
		if r.wants(ev) && !do(ev) {
			return false
		}
		r.after = int64(ev.number)
		return true
	})
	if complete {
		r.entry = next
	}
	return !complete || next < visible, err
}

func (r *reader) wants(ev record) bool {
	return (r.task == "" || ev.task() == r.task) && (r.chat == "" || ev.chat() == r.chat) && (r.kinds == nil || r.kinds[ev.kind()])
}

// read returns the records between two entries. It waits for a turn to read from the disk.
func (l *scopeLog) read(after, until uint64) (text []byte, next uint64, err error) {
	if !l.journal.InWindow(after) {
		defer l.journal.TakeTurn()()
	}
	return l.view.Read(new([]byte), after, until, 0, maxRead)
}

// maxSpan is how many entries of other runs are read rather than sought past.
const maxSpan = 8

// readRun reads the next consecutive entries of the run.
func (r *reader) readRun(do func(record) bool) (more bool, err error) {
	l := r.log
	visible := l.journal.Visible()
	l.mu.Lock()
	markers, from, until := r.locate(visible)
	l.mu.Unlock()
	for _, m := range markers {
		if !do(record{m.Number, m.Seq, m.Line}) {
			return true, nil
		}
		r.after = int64(m.Seq)
	}
	if from == 0 {
		return false, nil
	}
	text, _, err := l.read(from-1, until)
	if errors.Is(err, journal.ErrGap) { // retention was faster
		defer l.signal() // for the markers
		l.prune()        // unless another goroutine has just done it
		return l.journal.First() > from, nil
	}
	eachRecord(text, func(_ uint64, ev record) bool {
		if int64(ev.seq) <= r.after || ev.run() != r.run.ID {
			return true
		}
		if !do(ev) {
			return false
		}
		r.after = int64(ev.seq)
		return true
	})
	return err == nil, err
}

// locate returns what the run has after r.after: markers whose entries were pruned, and the
// first and last of the entries to read, which are 0 if there are none. The caller holds
// scopeLog.mu.
func (r *reader) locate(visible uint64) (markers []marker, from, until uint64) {
	ext := r.run.Extents.from(r.after)
	stored := ^uint64(0)
	if len(r.run.Extents) > 0 {
		stored = r.run.Extents[0].cursor
	}
	for _, m := range r.run.Markers {
		if m.Cursor < stored && int64(m.Seq) > r.after && m.Cursor <= visible {
			markers = append(markers, m)
		}
	}
	if len(ext) == 0 || int64(r.run.Next)-1 <= r.after || ext[0].cursor > visible {
		return markers, 0, 0
	}
	from, until = ext[0].cursor, ext[0].cursor
	for _, e := range ext[1:] {
		if e.cursor > visible || e.cursor-until > maxSpan {
			break
		}
		until = e.cursor
	}
	return markers, from, until
}

// ended reports whether the reader has all events of a run that has ended.
func (r *reader) ended() bool {
	if r.run == nil {
		return false
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return r.run.Abandoned || r.run.Terminal != "" && r.after >= int64(r.run.Next)-1
}

// firstSequence returns the sequence of the first event that the log still has of a run.
// The caller holds scopeLog.mu.
func (r *run) firstSequence() uint64 {
	if len(r.Markers) > 0 {
		return min(r.Markers[0].Seq, r.first())
	}
	return r.first()
}

// parseKinds returns the types in a list with commas; nil if there are none.
func parseKinds(list string) map[string]bool {
	var kinds map[string]bool
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			if kinds == nil {
				kinds = map[string]bool{}
			}
			kinds[name] = true
		}
	}
	return kinds
}
