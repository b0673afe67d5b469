package journal

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// maintain syncs sealed segments and applies retention, until no segment was sealed
// meanwhile. It runs beside appends, because both may take long.
func (s *File) maintain() {
	for {
		s.mu.Lock()
		sealed := len(s.segs) > 1 && s.segs[len(s.segs)-2].file != nil
		s.maintaining = sealed && s.broken == nil && !s.closed
		s.maintained.Broadcast()
		if !s.maintaining {
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()

		s.syncMu.Lock()
		if s.flush(false) == nil { // else s.broken is set
			_ = s.retain() // it tries again after the next sealed segment
		}
		s.syncMu.Unlock()
	}
}

// flush syncs entries that were appended before the call; without all, only those
// in sealed segments. The caller holds syncMu.
func (s *File) flush(all bool) error {
	type todo struct {
		seg    *segment
		file   segmentFile
		size   int64
		sealed bool
	}
	var work []todo
	s.mu.Lock()
	if s.broken != nil {
		defer s.mu.Unlock()
		return s.broken
	}
	upTo, names := s.synced, s.unsyncedNames
	for i, seg := range s.segs {
		sealed := i < len(s.segs)-1
		if !sealed && !all {
			break
		}
		upTo = seg.last
		if seg.file != nil && (sealed || seg.synced < seg.size) {
			work = append(work, todo{seg, seg.file, seg.size, sealed})
		}
	}
	s.unsyncedNames = false
	s.mu.Unlock()

	var err error
	if names {
		err = syncDir(s.dir)
	}
	for _, w := range work {
		if w.seg.synced < w.size { // synced changes only under syncMu
			err = errors.Join(err, w.file.Sync())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.broken = fmt.Errorf("%w: sync: %w", ErrBroken, err)
		return s.broken
	}
	for _, w := range work {
		w.seg.synced = w.size
		if w.sealed {
			err = errors.Join(err, w.file.Close())
			w.seg.file = nil
		}
	}
	s.synced = max(s.synced, upTo)
	return err
}

// retain removes the oldest segments while a limit is exceeded. The caller holds
// syncMu.
func (s *File) retain() error {
	for {
		s.mu.Lock()
		if !s.excess() {
			s.mu.Unlock()
			return nil
		}
		seg := s.segs[0]
		s.segs = slices.Delete(s.segs, 0, 1)
		s.mu.Unlock()

		if err := os.Remove(seg.path); err != nil {
			s.mu.Lock()
			s.segs = slices.Insert(s.segs, 0, seg)
			s.mu.Unlock()
			return fmt.Errorf("remove journal segment: %w", err)
		}
	}
}

// excess reports whether the oldest segment can be removed: a limit is exceeded,
// and a checkpoint in a later segment is on stable storage, so that recovery does
// not need it.
func (s *File) excess() bool {
	if len(s.segs) < 2 || s.segs[0].file != nil {
		return false
	}
	replaced := false
	for i, seg := range s.segs {
		c := seg.checkpoint()
		replaced = replaced || c > 0 && i > 0 && c <= s.synced
	}
	newest := s.segs[len(s.segs)-1]
	age := time.Duration(newest.head.time-s.segs[1].head.time) * time.Millisecond
	return replaced && (s.size() > s.opts.RetainBytes || s.opts.RetainAge > 0 && age > s.opts.RetainAge)
}
