package pty

import (
	"errors"
	"fmt"
	"sync"
)

// ErrGap says that the bytes after a cursor are not kept any more, or that the
// cursor does not exist yet.
var ErrGap = errors.New("not kept")

// A journal keeps the newest bytes of the output. Its methods may be called
// from any goroutine.
type journal struct {
	mu   sync.Mutex
	most int
	kept []byte // a ring when it has grown to most; the byte at cursor c is then at c % most
	head uint64 // number of bytes written so far
}

func (j *journal) append(p []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if room := j.most - len(j.kept); room > 0 {
		n := min(room, len(p))
		j.kept = append(j.kept, p[:n]...)
		j.head += uint64(n)
		p = p[n:]
	}
	if skip := len(p) - j.most; skip > 0 {
		j.head += uint64(skip)
		p = p[skip:]
	}
	for len(p) > 0 {
		n := copy(j.kept[j.head%uint64(j.most):], p)
		j.head += uint64(n)
		p = p[n:]
	}
}

// read copies the bytes after a cursor to p. It returns 0 at the head.
func (j *journal) read(from uint64, p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	tail := j.head - uint64(len(j.kept))
	if from < tail || from > j.head {
		return 0, fmt.Errorf("read terminal from %d, with %d to %d there: %w", from, tail, j.head, ErrGap)
	}
	p = p[:min(uint64(len(p)), j.head-from)]
	for n := 0; n < len(p); {
		at := from + uint64(n)
		n += copy(p[n:], j.kept[at%uint64(j.most):])
	}
	return len(p), nil
}

// bounds returns the oldest readable cursor, and the newest.
func (j *journal) bounds() (tail, head uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.head - uint64(len(j.kept)), j.head
}
