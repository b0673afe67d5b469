package journal

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"sync"
)

// errClosed is returned by the methods of a closed store.
var errClosed = errors.New("journal store is closed")

// Memory is a [Store] in memory. It always keeps its limit: nothing restarts from
// it, so it removes checkpoints like other entries.
type Memory struct {
	epoch  string
	retain int

	mu         sync.RWMutex
	entries    []Entry // oldest first; their bodies never change
	size       int     // bytes in memory, entries included
	last       uint64
	checkpoint uint64 // newest checkpoint, possibly removed
	closed     bool
}

// entryBytes is the memory of an entry beside its body.
const entryBytes = 64

// MemoryOptions configure a memory store. The zero value is ready to use.
type MemoryOptions struct {
	// RetainBytes bounds the memory. Zero means 64 MiB. Above it, the oldest
	// entries are removed.
	RetainBytes int

	// Epoch, if not empty, replaces a random epoch.
	Epoch string
}

// NewMemory returns an empty store.
func NewMemory(opts MemoryOptions) *Memory {
	return &Memory{
		epoch:  cmp.Or(opts.Epoch, newEpoch()),
		retain: cmp.Or(opts.RetainBytes, 64<<20),
	}
}

// Epoch implements [Store].
func (s *Memory) Epoch() string { return s.epoch }

// EpochStart implements [Store].
func (s *Memory) EpochStart() uint64 { return 0 }

// Bounds implements [Store].
func (s *Memory) Bounds() (first, last uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.first(), s.last
}

func (s *Memory) first() uint64 {
	switch {
	case s.last == 0:
		return 0
	case len(s.entries) == 0:
		return s.last + 1
	}
	return s.entries[0].Cursor
}

// Append implements [Store].
func (s *Memory) Append(entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if err := checkBatch(s.last, entries); err != nil {
		return err
	}
	for _, e := range entries {
		e.Body = bytes.Clone(e.Body)
		s.entries = append(s.entries, e)
		s.size += len(e.Body) + entryBytes
		s.last = e.Cursor
		if e.Kind == Checkpoint {
			s.checkpoint = e.Cursor
		}
	}
	for s.size > s.retain {
		s.size -= len(s.entries[0].Body) + entryBytes
		s.entries[0] = Entry{} // releases the body
		s.entries = s.entries[1:]
	}
	return nil
}

// Read implements [Store].
func (s *Memory) Read(after uint64, fn func(Entry) bool) error {
	_, end := s.Bounds()
	if after > end {
		return ErrGap
	}
	for after < end {
		part, err := s.entriesAfter(after)
		if err != nil {
			return err
		}
		for _, e := range part {
			if e.Cursor > end || !fn(e) {
				return nil
			}
			after = e.Cursor
		}
	}
	return nil
}

// entriesAfter returns a copy of up to 64 of the entries after the cursor after, at
// least of one.
func (s *Memory) entriesAfter(after uint64) ([]Entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	first := s.first()
	if after+1 < first {
		return nil, ErrGap
	}
	next := s.entries[after+1-first:]
	return slices.Clone(next[:min(len(next), 64)]), nil
}

// LastCheckpoint implements [Store].
func (s *Memory) LastCheckpoint() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.checkpoint < s.first() {
		return 0
	}
	return s.checkpoint
}

// Sync implements [Store]. It does nothing.
func (s *Memory) Sync() error { return nil }

// Close implements [Store]. Entries can still be read.
func (s *Memory) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
