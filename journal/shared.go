package journal

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Shared is what the journals of one process have in common: the memory of their
// windows, and how many followers read from stores at a time. It is safe for
// concurrent use.
type Shared struct {
	windowBytes int64
	used        atomic.Int64  // bytes of all windows
	enough      atomic.Int64  // of used: what is above is looked at
	readers     chan struct{} // a token for each follower that reads from a store; its capacity is the bound

	mu       sync.Mutex // taken before that of a journal
	journals []*Journal
	hand     int // the journal that is looked at next for memory
}

// SharedOptions configure a [Shared]. The zero value is ready to use.
type SharedOptions struct {
	// WindowBytes bounds the memory of all windows together. Zero means 256 MiB.
	// Beyond it windows lose their oldest entries, first those that nobody has
	// read since the last time. At least 64 KiB of each window stay.
	WindowBytes int64

	// Readers bounds how many followers read from stores at the same time;
	// others wait for their turn. Zero means half of the processors, and one at
	// least: replays must not keep followers of the present waiting.
	Readers int
}

// NewShared returns what the journals of a process share.
func NewShared(opts SharedOptions) *Shared {
	s := &Shared{
		windowBytes: cmp.Or(opts.WindowBytes, 256<<20),
		readers:     make(chan struct{}, cmp.Or(opts.Readers, max(1, runtime.GOMAXPROCS(0)/2))),
	}
	s.enough.Store(s.windowBytes)
	return s
}

// WindowBytes returns how much memory the windows hold.
func (s *Shared) WindowBytes() int64 { return s.used.Load() }

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

// windowFloor is what a window keeps however scarce memory is.
const windowFloor = 64 << 10

// makeRoom shortens windows until a quarter of the memory is free again, if all
// of it is used. A window that was read since the last look loses half, another
// one all but the floor.
func (s *Shared) makeRoom() {
	if s.used.Load() <= s.enough.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.enough.Store(max(s.windowBytes, s.used.Load()*5/4)) }() // where floors alone are more, one look in a while is enough
	for range 8 * len(s.journals) {                                          // halved that often, 16 MiB are the floor
		if s.used.Load() <= s.windowBytes*3/4 {
			return
		}
		j := s.journals[s.hand%len(s.journals)]
		s.hand = (s.hand + 1) % len(s.journals)
		if j.read.Swap(false) {
			j.shorten(max(j.windowSize()/2, windowFloor))
		} else {
			j.shorten(windowFloor)
		}
	}
}
