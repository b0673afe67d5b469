package journal

import (
	"cmp"
	"errors"
	"sort"
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
	blocks     []*block // oldest first; the last is being filled
	size       int      // bytes in memory, entries included
	last       uint64
	checkpoint uint64 // newest checkpoint, possibly removed
	closed     bool
}

// A block holds consecutive entries. Entries and bytes are only added, so a reader
// that copied the slice header may continue without the lock.
type block struct {
	entries []Entry
	buf     []byte // backs their bodies
	size    int
}

// entryBytes is the memory of an entry beside its body.
const entryBytes = 64

// MemoryOptions configure a memory store. The zero value is ready to use.
type MemoryOptions struct {
	// RetainBytes bounds the memory. Zero means 64 MiB. Above it, the oldest
	// entries are removed, a block of up to 64 KiB at a time.
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
	case len(s.blocks) == 0:
		return s.last + 1
	}
	return s.blocks[0].entries[0].Cursor
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
	for i := range entries {
		s.add(entries[i])
	}
	return nil
}

func (s *Memory) add(e Entry) {
	b := s.room(len(e.Body))
	off := len(b.buf)
	b.buf = append(b.buf, e.Body...)
	e.Body = b.buf[off:len(b.buf):len(b.buf)]
	b.entries = append(b.entries, e)
	b.size += len(e.Body) + entryBytes
	s.size += len(e.Body) + entryBytes
	s.last = e.Cursor
	if e.Kind == Checkpoint {
		s.checkpoint = e.Cursor
	}
	for s.size > s.retain && len(s.blocks) > 0 {
		s.size -= s.blocks[0].size
		s.blocks[0] = nil
		s.blocks = s.blocks[1:]
	}
}

// room returns a block with space for a body of n bytes. Bodies are never moved.
func (s *Memory) room(n int) *block {
	size := minChunk
	if len(s.blocks) > 0 {
		b := s.blocks[len(s.blocks)-1]
		if cap(b.buf)-len(b.buf) >= n && b.size < min(maxChunk, s.retain/8) {
			return b
		}
		size = min(2*cap(b.buf), maxChunk)
	}
	b := &block{buf: make([]byte, 0, max(size, n))}
	s.blocks = append(s.blocks, b)
	return b
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

// entriesAfter returns at least one of the entries after the cursor after.
func (s *Memory) entriesAfter(after uint64) ([]Entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if after+1 < s.first() {
		return nil, ErrGap
	}
	i := sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i].entries[0].Cursor > after+1 }) - 1
	b := s.blocks[i]
	return b.entries[after+1-b.entries[0].Cursor:], nil
}

// Rewind implements [Store].
func (s *Memory) Rewind(before, n uint64) (after uint64, ok bool) {
	first, last := s.Bounds()
	before = min(before, last+1)
	if last == 0 || before <= first {
		return 0, false
	}
	return before - 1 - min(n, before-first), true
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
