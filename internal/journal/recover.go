package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// recover reads the directory, cuts off the unfinished end that a crash left, and
// decides about the epoch.
func (s *File) recover() error {
	m, copied, err := readMeta(s.dir, s.lock)
	if err != nil {
		return err
	}
	files, err := os.ReadDir(s.dir) // sorted by name, so by cursor
	if err != nil {
		return err
	}
	var firsts []uint64
	for _, f := range files {
		if first, ok := segmentFirst(f.Name()); ok {
			firsts = append(firsts, first)
		}
	}
	if m == nil {
		if len(firsts) > 0 {
			return fmt.Errorf("%w: %s is missing", ErrCorrupt, filepath.Join(s.dir, metaName))
		}
		s.meta = meta{Version: metaVersion, Journal: newEpoch(), Epoch: newEpoch(), Boot: s.boot}
		return s.meta.write(s.dir, s.lock)
	}
	s.meta, s.synced = *m, m.Synced
	// After a restart of the machine, unsynced entries may be missing in any order. A
	// copy of the directory of a running process looks the same.
	lost := m.Open && (s.boot == "" || s.boot != m.Boot || copied)
	if err := s.load(firsts, lost); err != nil {
		return err
	}
	if err := s.finishLoad(); err != nil {
		return err
	}
	return s.decideEpoch(copied, lost)
}

// load reads the segments that begin at firsts and cuts off incomplete batches.
// lost says that any entry not known to be synced may be missing.
func (s *File) load(firsts []uint64, lost bool) error {
	for i, first := range firsts {
		seg, err := s.loadHead(first)
		if err != nil {
			return err
		}
		if seg.head.first == 0 { // its header is incomplete
			if err := s.mayCut(seg, headSize, first, i == len(firsts)-1, lost); err != nil {
				return err
			}
			return errors.Join(s.removeFrom(firsts[i:]), s.loadTail(firsts, lost))
		}
		if n := len(s.segs); n > 0 {
			s.segs[n-1].last = seg.head.prev
		}
		s.synced = max(s.synced, seg.head.synced)
		s.segs = append(s.segs, seg)
	}
	return s.loadTail(firsts, lost)
}

// loadHead reads a segment's header. The header is zero if it is incomplete or
// damaged. An intact header of another journal or position is ErrCorrupt.
func (s *File) loadHead(first uint64) (*segment, error) {
	seg := &segment{path: segmentPath(s.dir, first)}
	f, err := s.ops.read(seg.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head, size, ok, err := readHead(f)
	if err != nil {
		return nil, err
	}
	seg.size = size
	after := uint64(0)
	if n := len(s.segs); n > 0 {
		after = s.segs[n-1].head.first
	}
	if ok && (head.first != first || head.journal != s.meta.Journal || head.prev >= first || head.prev < after) {
		return nil, corruptAt(seg.path, 0)
	}
	seg.head = head
	return seg, nil
}

// loadTail reads the segments that a crash may have left unfinished: the newest,
// and with lost also those that are not known to be synced. The loaded segments
// begin at the first of firsts.
func (s *File) loadTail(firsts []uint64, lost bool) error {
	from := len(s.segs) - 1
	for lost && from > 0 && s.segs[from-1].last > s.synced {
		from--
	}
	for i := max(from, 0); i < len(s.segs); i++ {
		sealed := i < len(s.segs)-1
		seg, stated := s.segs[i], s.segs[i].last
		whole, err := s.trim(seg, sealed, lost)
		if err != nil {
			return err
		}
		if sealed && (!whole || seg.last != stated) {
			rest := firsts[i+1 : len(s.segs)]
			s.segs = s.segs[:i+1]
			if err := s.removeFrom(rest); err != nil {
				return err
			}
		}
	}
	return s.dropEmpty(lost)
}

// dropEmpty removes the newest segment if it has no whole batch, and then checks
// the one before.
func (s *File) dropEmpty(lost bool) error {
	for n := len(s.segs); n > 0; n = len(s.segs) {
		seg := s.segs[n-1]
		if seg.size > headSize {
			return s.reopen(seg)
		}
		s.segs = s.segs[:n-1]
		if err := os.Remove(seg.path); err != nil {
			return err
		}
		if n > 1 {
			if _, err := s.trim(s.segs[n-2], false, lost); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *File) reopen(seg *segment) error {
	f, err := s.ops.reopen(seg.path)
	if err != nil {
		return err
	}
	seg.file = f // closed with the store, or if it cannot be opened
	return f.Truncate(seg.size)
}

// trim reads seg and sets its last cursor and size to the end of its last whole
// batch. It reports whether the file ends there. sealed says that a later segment
// follows.
func (s *File) trim(seg *segment, sealed, lost bool) (whole bool, err error) {
	f, err := s.ops.read(seg.path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	known := s.synced // entries up to here must exist
	if sealed {
		known = min(known, seg.last)
	}
	stop, err := seg.measure(f, info.Size())
	switch {
	case err != io.EOF && !errors.Is(err, ErrCorrupt):
		return false, err
	case seg.last < known:
		return false, corruptAt(seg.path, stop.off)
	case err == io.EOF:
		return seg.size == stop.off, nil
	}
	return false, s.mayCut(&segment{path: seg.path, size: info.Size()}, stop.off, stop.cursor, !sealed, lost)
}

// measure reads the records in f, the segment's file of end bytes. It sets the last
// cursor and the size to the end of the last whole batch. It returns where it
// stopped and why: io.EOF at the end, or ErrCorrupt.
func (seg *segment) measure(f *os.File, end int64) (stop point, err error) {
	r := newScanner(f, seg.path, headSize, end, seg.head.first)
	defer r.release()
	seg.size, seg.last = headSize, seg.head.prev
	for err == nil {
		if _, err = r.scan(); err == nil && !r.more {
			seg.size, seg.last = r.off, r.next-1
			seg.index.note(r.next, r.off) // what is written next begins there
		}
	}
	return point{r.next, r.off}, err
}

// mayCut returns an error unless a crash explains the incomplete record at cursor
// next and offset off. It must not be known to be synced. Also, either the machine
// restarted, or this is the end of the newest segment and no intact record follows.
func (s *File) mayCut(seg *segment, off int64, next uint64, newest, lost bool) error {
	switch {
	case next <= s.synced || !newest && !lost:
		return corruptAt(seg.path, off)
	case lost:
		return nil
	}
	f, err := s.ops.read(seg.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return mayEnd(f, off, seg.size, next)
}

// mayEnd returns ErrCorrupt if an intact record with cursor next or later lies between off
// and size in f: a crash or a batch that is being written leaves none there.
func mayEnd(f *os.File, off, size int64, next uint64) error {
	follows, err := recordFollows(f, min(off, size), size, next)
	if err == nil && follows {
		return corruptAt(f.Name(), off)
	}
	return err
}

// recordFollows reports whether an intact record with cursor next or later begins
// between off and end.
func recordFollows(f io.ReaderAt, off, end int64, next uint64) (bool, error) {
	buf := make([]byte, scanBuffer)
	for end-off >= recordHead {
		p := buf[:min(int64(len(buf)), end-off)]
		if _, err := f.ReadAt(p, off); err != nil {
			return false, err
		}
		for ; len(p) >= recordHead; p, off = p[1:], off+1 {
			e, n, _, ok := parseHead(p)
			if !ok || e.Cursor < next || int64(recordHead+n) > end-off || e.Cursor-next > uint64(end)/recordHead {
				continue
			}
			r := newScanner(f, "", off, end, e.Cursor)
			_, err := r.scan()
			r.release()
			if err == nil {
				return true, nil
			}
		}
	}
	return false, nil
}

// removeFrom removes the files of the segments that begin at firsts, the newest
// first, so that a crash in between leaves a valid journal.
func (s *File) removeFrom(firsts []uint64) error {
	for i := len(firsts) - 1; i >= 0; i-- {
		if err := os.Remove(segmentPath(s.dir, firsts[i])); err != nil {
			return err
		}
	}
	return nil
}

// finishLoad sets the newest cursor and reopens unsynced segments.
func (s *File) finishLoad() error {
	if n := len(s.segs); n > 0 {
		s.last = s.segs[n-1].last
	} else if s.synced > 0 {
		return fmt.Errorf("%w: the segment of cursor %d is missing", ErrCorrupt, s.synced)
	}
	for _, seg := range s.segs {
		if seg.last > s.synced && seg.file == nil { // a process that died left it unsynced
			if err := s.reopen(seg); err != nil {
				return err
			}
		}
	}
	s.last = max(s.last, s.meta.Floor)
	return nil
}

// decideEpoch begins a new epoch if cursors may have been used for entries that are
// missing, here or in the original of a copy.
func (s *File) decideEpoch(copied, lost bool) error {
	switch {
	case copied:
		s.changed = "the directory is a copy"
	case lost && s.meta.Unsynced:
		s.changed = "the machine restarted while the journal was in use"
	case lost || !s.meta.Open:
		return nil
	default: // the process died; that alone loses no entries
		if marked, ok := markedHead(s.lock); ok && s.last >= marked {
			return nil
		}
		s.changed = fmt.Sprintf("entries after cursor %d are missing", s.last)
	}
	next := s.meta
	next.Epoch, next.Floor = newEpoch(), epochStart(max(s.last, s.meta.Reserved))
	next.Open, next.Unsynced, next.Reserved, next.Boot = false, false, 0, s.boot
	if err := next.write(s.dir, s.lock); err != nil {
		return err
	}
	s.meta, s.last = next, next.Floor
	return nil
}
