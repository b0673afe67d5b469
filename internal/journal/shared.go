package journal

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Shared limits what the journals of one process use together: the memory of their
// windows, and how many followers are served from stores at a time. It is safe for
// concurrent use.
type Shared struct {
	windowBytes int64
	used        atomic.Int64  // bytes of all windows
	shrinkAbove atomic.Int64  // makeRoom does nothing while used is not above it
	turns       chan struct{} // a token for each turn; the capacity is the limit

	mu         sync.Mutex // taken before a journal's mu
	journals   []*Journal
	nextShrunk int // index of the next journal to shrink
}

// SharedOptions configure a [Shared]. The zero value is ready to use.
type SharedOptions struct {
	// WindowBytes bounds the memory of all windows together. Zero means 256 MiB.
	// Above it, windows lose their oldest entries, first those that were not read
	// recently. At least 64 KiB of each window stay.
	WindowBytes int64

	// Turns bounds how many turns there are at the same time; see [Journal.TakeTurn].
	// Zero means half of the processors, at least 1, so that replays do not delay live
	// followers.
	Turns int
}

// NewShared returns limits for the journals of a process.
func NewShared(opts SharedOptions) *Shared {
	s := &Shared{
		windowBytes: cmp.Or(opts.WindowBytes, 256<<20),
		turns:       make(chan struct{}, cmp.Or(opts.Turns, max(1, runtime.GOMAXPROCS(0)/2))),
	}
	s.shrinkAbove.Store(s.windowBytes)
	return s
}

func (s *Shared) join(j *Journal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journals = append(s.journals, j)
}

func (s *Shared) leave(j *Journal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journals = slices.DeleteFunc(s.journals, func(have *Journal) bool { return have == j })
}

// windowFloor is the size to which a window can always shrink but no further, in
// bytes.
const windowFloor = 64 << 10

// makeRoom shrinks windows until a quarter of the memory is free, if more than all
// of it is used. A window that was read since the last call loses half, others
// shrink to windowFloor.
func (s *Shared) makeRoom() {
	if s.used.Load() <= s.shrinkAbove.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.shrinkAbove.Store(max(s.windowBytes, s.used.Load()*5/4)) }() // if the floors alone exceed the limit, try again only after 25 % growth
	for range 8 * len(s.journals) {                                               // 8 halvings bring 16 MiB to the floor
		if s.used.Load() <= s.windowBytes*3/4 {
			return
		}
		j := s.journals[s.nextShrunk%len(s.journals)]
		s.nextShrunk = (s.nextShrunk + 1) % len(s.journals)
		j.shorten(j.wasRead.Swap(false))
	}
}
