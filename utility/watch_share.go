package utility

import "sync"

// A share is a number of directories that the system may watch for the hosts of
// this process. Its methods may be called from any goroutine.
type share struct {
	most        int
	forListings int // so many at most may be taken for one that no watch of a client is about

	mu    sync.Mutex // taken while others are held, and never the other way round
	taken int
}

// take takes one, for a watch of a client or only for a listing. It reports false
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

// give gives back n that were taken.
func (s *share) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
}
