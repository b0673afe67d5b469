package sse

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-028515a8/maestro/transport/httperr"
)

// An answer is a wire through the ResponseWriter, for connections that cannot be
// hijacked. Its handler has to stay as long as the stream does.
type answer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // of the request
	stop    context.CancelFunc
}

func newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	ctx, stop := context.WithCancel(r.Context())
	return &answer{w: w, control: http.NewResponseController(w), ctx: ctx, stop: stop}
}

func (a *answer) begin(header http.Header, first []byte, deadline time.Time) error {
	for name, values := range header {
		a.w.Header()[name] = values
	}
	a.w.WriteHeader(http.StatusOK)
	return a.write(first, deadline)
}

func (a *answer) write(events []byte, deadline time.Time) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if err := a.control.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if _, err := a.w.Write(events); err != nil {
		return err
	}
	return a.control.Flush()
}

func (a *answer) finish(time.Time) error { return nil } // the end of the handler is
func (a *answer) refuse(err error)       { httperr.Write(a.w, err) }

func (a *answer) cut() {
	a.stop()
	_ = a.control.SetWriteDeadline(time.Now()) // a write that waits for the peer ends
}

func (a *answer) wait() error {
	<-a.ctx.Done()
	return a.ctx.Err()
}
