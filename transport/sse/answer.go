package sse

import (
	"context"
	"maps"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/seed-028515a8/maestro/transport/httperr"
)

// An answer is a wire through the ResponseWriter, for connections that cannot
// be hijacked. Its handler must not return before the stream ends, because w
// must not be used after the handler has returned.
type answer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // of the request
	stop    context.CancelFunc

	mu    sync.Mutex // held while the deadline is set, but not while w is written to
	ended bool       // no deadline may be set any more: the handler returns, or the stream was cut
}

func newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	ctx, stop := context.WithCancel(r.Context())
	return &answer{w: w, control: http.NewResponseController(w), ctx: ctx, stop: stop}
}

func (a *answer) begin(header http.Header, first []byte, deadline time.Time) error {
	maps.Copy(a.w.Header(), header)
	a.w.WriteHeader(http.StatusOK)
	return a.write(first, deadline)
}

func (a *answer) write(events []byte, deadline time.Time) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if err := a.limit(deadline); err != nil {
		return err
	}
	if _, err := a.w.Write(events); err != nil {
		return err
	}
	if err := a.control.Flush(); err != nil {
		return err
	}
	if a.ctx.Err() != nil && !time.Now().Before(deadline) {
		return os.ErrDeadlineExceeded // a middleware's Flush may return no error
	}
	return a.limit(time.Time{}) // HTTP/2 resets a stream at its deadline even if nothing is being written
}

// limit sets the write deadline; the zero time means none.
func (a *answer) limit(deadline time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return net.ErrClosed
	}
	return a.control.SetWriteDeadline(deadline)
}

func (a *answer) finish(time.Time) error { a.stop(); return nil } // the return of the handler ends the body
func (a *answer) wake()                  { a.stop() }

func (a *answer) refuse(_ http.Header, err error) { httperr.Write(a.w, err) }

// cut interrupts a blocked write and makes the end of the body fail. The
// handler must not return before that.
func (a *answer) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		_ = a.control.SetWriteDeadline(time.Now()) // it fails if the connection has ended
	}
	a.ended = true
	a.stop()
}

func (a *answer) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.stop()
}

func (a *answer) wait() error {
	<-a.ctx.Done()
	return a.ctx.Err()
}
