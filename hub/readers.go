package hub

import "sync"

// A readerLimit limits the requests for history that are served at once. If it has
// several places, one principal may take all but one. A principal with many requests
// then delays another principal by one request at most. It is safe for concurrent use.
type readerLimit struct {
	places chan struct{} // a token for each request that is served

	mu         sync.Mutex
	principals map[string]*principalReads // by id
}

// principalReads are the requests of one principal.
type principalReads struct {
	first chan struct{} // a token for each request that is served or waits for a place
	count int           // all requests; guarded by readerLimit.mu
}

func newReaderLimit(places int) *readerLimit {
	return &readerLimit{places: make(chan struct{}, places), principals: map[string]*principalReads{}}
}

// enter waits until a request of a principal may be served. Call leave at its end. ok is
// false if stop or done is closed before.
func (l *readerLimit) enter(principal string, stop, done <-chan struct{}) (leave func(), ok bool) {
	p := l.add(principal)
	if !acquire(p.first, stop, done) {
		l.remove(principal, p)
		return nil, false
	}
	leaveFirst := func() {
		<-p.first
		l.remove(principal, p)
	}
	if !acquire(l.places, stop, done) {
		leaveFirst()
		return nil, false
	}
	return func() {
		<-l.places
		leaveFirst()
	}, true
}

func (l *readerLimit) add(principal string) *principalReads {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.principals[principal]
	if p == nil {
		p = &principalReads{first: make(chan struct{}, max(1, cap(l.places)-1))}
		l.principals[principal] = p
	}
	p.count++
	return p
}

func (l *readerLimit) remove(principal string, p *principalReads) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.count--; p.count == 0 {
		delete(l.principals, principal)
	}
}

// acquire sends a token, or returns false if stop or done is closed before.
func acquire(tokens chan<- struct{}, stop, done <-chan struct{}) bool {
	select {
	case tokens <- struct{}{}:
		return true
	case <-stop:
	case <-done:
	}
	return false
}
