package utility

import "sync"

// A share is the number of directories that the system may watch for the hosts
// of this process. Its methods may be called from any goroutine.
type share struct {
	most        int
	forListings int // bound of taken up to which a directory without client watches may take one

	mu    sync.Mutex // locked while others are held, never the reverse
	taken int
}

// take takes one, for a client's watch or for a listing only. It returns false
// if none is left.
func (s *share) take(forWatch bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= s.most || !forWatch && s.taken >= s.forListings {
		return false
	}
	s.taken++
	return true
}

// give returns n.
func (s *share) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
}
