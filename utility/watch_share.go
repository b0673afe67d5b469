package utility

import "sync"

// A share is a number of directories that the system may watch for the hosts of
// this process. Its methods may be called from any goroutine.
type share struct {
	mu    sync.Mutex // taken while others are held, and never the other way round
	most  int
	taken int
}

// free reports whether some are left.
func (s *share) free() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken < s.most
}

// take takes one. It reports false if none is left.
func (s *share) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= s.most {
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
