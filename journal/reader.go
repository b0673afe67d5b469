package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"
)

// Read implements [Store]. It opens the files for each call, so old segments need
// no descriptors and may be removed meanwhile.
func (s *File) Read(after uint64, fn func(Entry) bool) error {
	_, end := s.Bounds()
	if after > end {
		return ErrGap
	}
	for after < end {
		part, err := s.locate(after)
		if err != nil || part.seg == nil {
			return err
		}
		part.end = min(part.end, end)
		more, err := s.readPart(part, after, fn)
		if err != nil || !more {
			return err
		}
		after = part.end
	}
	return nil
}

// A part is a range of readable records of a segment.
type part struct {
	seg   *segment // nil if there is nothing to read
	from  point    // a known record at or before the first
	end   uint64   // cursor of the last record
	bytes int64    // offset of the end
}

// locate finds the entry that follows the cursor after.
func (s *File) locate(after uint64) (part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := sort.Search(len(s.segs), func(i int) bool { return s.segs[i].last > after })
	if i == len(s.segs) { // after the last entry: at the end, or among lost cursors
		if after == s.last || i > 0 && after == s.segs[i-1].last {
			return part{}, nil
		}
		return part{}, ErrGap
	}
	seg := s.segs[i]
	if after+1 < seg.head.first && (i == 0 || after != s.segs[i-1].last) {
		return part{}, ErrGap
	}
	from := seg.index.find(after+1, seg.head.first)
	return part{seg: seg, from: from, end: seg.last, bytes: seg.size}, nil
}

// readPart calls fn with the entries of p after the cursor after and reports
// whether fn wants more.
func (s *File) readPart(p part, after uint64, fn func(Entry) bool) (more bool, err error) {
	f, err := s.ops.read(p.seg.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !s.hasSegment(p.seg):
		return false, ErrGap // retention removed it meanwhile
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("%w: %w", ErrCorrupt, err)
	case err != nil:
		return false, err
	}
	defer f.Close()
	r := newScanner(f, p.seg.path, p.from.off, p.bytes, p.from.cursor)
	defer r.release()
	for r.next <= p.end {
		p.seg.index.note(r.next, r.off)
		e, err := r.scan()
		if err == io.EOF {
			err = r.corrupt()
		}
		if err != nil {
			return false, err
		}
		if e.Cursor > after && !fn(e) {
			return false, nil
		}
	}
	return true, nil
}

func (s *File) hasSegment(seg *segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.segs, seg)
}
